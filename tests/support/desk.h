/* SPDX-License-Identifier: Apache-2.0 */
/* desk.h - a small problem, and a plan for it on one rank with tensors that fit: tests of arguments
 * change one thing in it and expect a refusal. */
#ifndef TESTS_SUPPORT_DESK_H
#define TESTS_SUPPORT_DESK_H

#include "support/test.h"

/* What a result must still be after a failure. */
#define DESK_KEPT ((void *)0x40)

/* 12 queries of 2 heads, dim 4. */
ra_problem desk_problem(void);

struct desk {
    ra_group *group;
    ra_plan *plan;
    float q[96], k[96], v[96], out[96], lse[24], dout[96], dq[96], dk[96], dv[96];
    ra_attend_args attend;
    ra_gradient_args gradient;
};

/* Inputs are zeros; out and dq hold 5 until a call writes to them. */
void desk_open(struct desk *d, int backward);
void desk_close(struct desk *d);

#endif
