/* SPDX-License-Identifier: Apache-2.0 */
/* shape.c - geometry of runs. */
#include "core/shape.h"

int64_t ra__common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int64_t ra__common_multiple(int64_t a, int64_t b)
{
    int64_t product;
    if (a >= RA__UNBOUNDED || __builtin_mul_overflow(a / ra__common_divisor(a, b), b, &product))
        return RA__UNBOUNDED;
    return ra__min(product, RA__UNBOUNDED);
}

/* Walks along one run, at most one period, until it meets the other. Of two runs over the same
 * range, one has few positions or they meet soon: walking along the run with the larger step is
 * short. */
ra_run ra__run_intersect(ra_run a, ra_run b)
{
    int64_t skipped;
    if (a.count == 0 || b.count == 0) return (ra_run){ 0, 1, 0 };
    ra_run walk = a.step >= b.step ? a : b, other = a.step >= b.step ? b : a;
    walk = ra__run_clip(walk, other.start, ra__run_last(other) + 1, &skipped);
    int64_t period = other.step / ra__common_divisor(walk.step, other.step);
    for (int64_t i = 0; i < walk.count && i < period; i++) {
        int64_t position = walk.start + i * walk.step;
        if ((position - other.start) % other.step != 0) continue;
        int64_t step; /* overflow: there is one position, and any step is right */
        if (__builtin_mul_overflow(walk.step, period, &step)) step = walk.step;
        return (ra_run){ position, step, (walk.count - 1 - i) / period + 1 };
    }
    return (ra_run){ 0, 1, 0 };
}
