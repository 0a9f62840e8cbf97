/* SPDX-License-Identifier: Apache-2.0 */
/* desk.c - see desk.h. */
#include "support/desk.h"

ra_problem desk_problem(void)
{
    ra_problem problem = ra_problem_default();
    problem.q_len = 12;
    problem.q_heads = 2;
    problem.dim = 4;
    return problem;
}

void desk_open(struct desk *d, int backward)
{
    ra_problem problem = desk_problem();
    ra_plan_options options = ra_plan_options_default();
    memset(d, 0, sizeof *d);
    options.backward = backward;
    assert_ok(ra_group_create_local(1, NULL, &d->group));
    assert_ok(ra_plan_create(d->group, &problem, &options, &d->plan));
    for (int i = 0; i < 96; i++) d->out[i] = d->dq[i] = 5.0f;
    d->attend = ra_attend_args_default();
    d->gradient = ra_gradient_args_default();
    d->attend.q = d->gradient.q = ra_const_tensor_packed(d->q);
    d->attend.k = d->gradient.k = ra_const_tensor_packed(d->k);
    d->attend.v = d->gradient.v = ra_const_tensor_packed(d->v);
    d->attend.out = ra_tensor_packed(d->out);
    d->gradient.out = ra_const_tensor_packed(d->out);
    d->attend.lse = d->lse;
    d->gradient.lse = d->lse;
    d->gradient.dout = ra_const_tensor_packed(d->dout);
    d->gradient.dq = ra_tensor_packed(d->dq);
    d->gradient.dk = ra_tensor_packed(d->dk);
    d->gradient.dv = ra_tensor_packed(d->dv);
}

void desk_close(struct desk *d)
{
    ra_plan_destroy(d->plan);
    ra_group_destroy(d->group);
}
