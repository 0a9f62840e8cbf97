/* SPDX-License-Identifier: Apache-2.0 */
/* tally.h - the errors of one tensor, and the bound they are compared with.
 *
 * |got - exact| <= 2 min(N, G grain) + small, where `naive` is the plain evaluation in the trial's
 * dtype, N the largest |naive - exact| of the tensor, and G the largest |naive - exact| / grain, or
 * 1/2: among few values the naive sum may be lucky everywhere, and a ring adds a rounding per hop.
 *
 * `small` belongs to each value: what single roundings can do where the naive sum was lucky. One of
 * the result, u |exact|, two in f32 of the terms of its sum, and what it moves by when every score
 * moves by one rounding of its own terms (oracle.h). `grain` is the same with u of the terms in
 * place of the result. So a row whose scores are large and almost equal, where a rounding decides,
 * does not excuse the others.
 *
 * Rows that see nothing must be exactly 0, with LSE = -inf. What depends on a NaN must be NaN, and
 * nothing else. A naive value far from the exact one would make the rule blind, so that fails
 * too. */
#ifndef HARNESS_TALLY_H
#define HARNESS_TALLY_H

#include "harness/base/complain.h"
#include "harness/oracle/oracle.h"

/* The error of one value, its `small` and its `grain`. */
struct deviation {
    double error, small, grain;
};

struct tally {
    ra_dtype dtype;
    double naive_error;        /* largest: N */
    double naive_grains;       /* largest: G */
    struct deviation largest;  /* by its error */
    struct deviation furthest; /* beyond its `small` */
    struct deviation steepest; /* likewise, counted in its grains */
    int64_t values;
    bool wrong; /* not 0 and -inf where nothing is seen, or not NaN exactly where it must be */
    bool blind; /* the oracle's own two values are too far apart */
};

void tally_add(struct tally *tally, float got, struct number want);

/* A row of them, at `offset` in the triple. */
void tally_row(struct tally *tally, const float *got, const struct triple *triple, int64_t offset,
               int64_t dim);

void tally_merge(struct tally *into, const struct tally *from);

double tally_bound(const struct tally *tally, struct deviation value);
struct deviation tally_offender(const struct tally *tally); /* beyond its bound, or the largest */
double tally_worst(const struct tally *tally);              /* largest error / bound */
bool tally_passed(const struct tally *tally);
const char *tally_remark(const struct tally *tally); /* "", or what else is wrong */

#endif
