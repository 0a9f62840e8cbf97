/* tally.h - the errors of one tensor, and the bound they are compared with.
 *
 * max|got - exact| <= 2 max|naive - exact| + small, where `naive` is the plain evaluation in the
 * trial's dtype and its maximum is taken over the tensor. `small` belongs to each value: what
 * single roundings can do if the naive sum was lucky. One rounding of the result, u |exact|, and
 * two in f32 of the terms of every sum, 2^-24 (2 + 2 s) (sum of |terms|), because a score whose
 * |terms| add up to s changes its weight by the same fraction. Queries that see nothing must be
 * exactly 0, with LSE = -inf. A naive value far from the exact one would make the rule useless, so
 * that fails too. */
#ifndef HARNESS_TALLY_H
#define HARNESS_TALLY_H

#include "harness/base/complain.h"
#include "harness/oracle/oracle.h"

/* The error of one value, and its `small`. */
struct deviation {
    double error, small;
};

struct tally {
    ra_dtype dtype;
    double naive_error;        /* largest */
    struct deviation largest;  /* by its error */
    struct deviation furthest; /* beyond its `small` */
    int64_t values;
    bool wrong; /* NaN, or not 0 and -inf where nothing is seen */
    bool blind; /* the oracle's own two values are too far apart */
};

/* One value; `score_terms` is s. */
void tally_add(struct tally *tally, float got, double exact, float naive, double terms,
               double score_terms);

/* A row of them, at `offset` in the triple. */
void tally_row(struct tally *tally, const float *got, const struct triple *triple, int64_t offset,
               int64_t dim, double score_terms);

void tally_merge(struct tally *into, const struct tally *from);

double tally_bound(const struct tally *tally, struct deviation value);
double tally_worst(const struct tally *tally); /* largest error / bound */
bool tally_passed(const struct tally *tally);
const char *tally_remark(const struct tally *tally); /* "", or what else is wrong */

#endif
