/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - checks that the library that runs is the one the header speaks of, and that it attends:
 * a query that sees two equal keys gets the mean of their values. */
#include <stdio.h>
#include <string.h>

#include <ringattn.h>

int main(void)
{
    float q[1] = { 1.0f }, k[2] = { 0.5f, 0.5f }, v[2] = { 1.0f, 3.0f }, out[1] = { 0.0f };
    ra_problem problem = ra_problem_default();
    problem.q_len = 1;
    problem.k_len = 2;
    problem.q_heads = 1;
    problem.dim = 1;

    ra_group *group = NULL;
    ra_plan *plan = NULL;
    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(q);
    args.k = ra_const_tensor_packed(k);
    args.v = ra_const_tensor_packed(v);
    args.out = ra_tensor_packed(out);
    int failed = ra_group_create_local(1, NULL, &group) != RA_OK ||
                 ra_plan_create(group, &problem, NULL, &plan) != RA_OK ||
                 ra_attend(plan, &args) != RA_OK || !(out[0] > 1.9999f && out[0] < 2.0001f);

    char header[32];
    snprintf(header, sizeof header, "%d.%d.%d", RA_VERSION_MAJOR, RA_VERSION_MINOR,
             RA_VERSION_PATCH);
    failed |= strcmp(header, ra_version()) != 0;
    printf("ringattn %s: the mean of 1 and 3 is %g%s%s\n", ra_version(), (double)out[0],
           failed ? ": " : "", failed ? ra_last_error() : "");
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    return failed;
}
