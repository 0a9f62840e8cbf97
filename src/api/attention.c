/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - attention in one call: one rank, one run, nothing kept. */
#include "api/handles.h"

ra_status ra_attention(const ra_problem *problem, const void *q, const void *k, const void *v,
                       void *out, float *lse)
{
    ra_group *group = NULL;
    ra_plan *plan = NULL;
    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(q);
    args.k = ra_const_tensor_packed(k);
    args.v = ra_const_tensor_packed(v);
    args.out = ra_tensor_packed(out);
    args.lse = lse;
    ra_status status = ra_group_create_local(1, NULL, &group);
    if (status == RA_OK) status = ra_plan_create(group, problem, NULL, &plan);
    if (status == RA_OK) status = ra_attend(plan, &args);
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    return status;
}
