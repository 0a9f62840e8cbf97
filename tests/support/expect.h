/* SPDX-License-Identifier: Apache-2.0 */
/* expect.h - what the fp64 oracle says of a trial, kept so that every kernel, ring, partition and
 * strategy is compared with one evaluation.
 *
 * The rule, per tensor: max|got - exact| <= 2 max|naive - exact| + small, where naive is the plain
 * evaluation in the trial's dtype and small is a few roundings of the sums a number is made of. */
#ifndef TESTS_SUPPORT_EXPECT_H
#define TESTS_SUPPORT_EXPECT_H

#include "support/fixture.h"

struct expect {
    char *key;                   /* the problem, without what must not matter */
    double *exact[TENSOR_COUNT]; /* out, lse, dq, dk, dv; in global order, packed */
    double bound[TENSOR_COUNT];
    int64_t pairs; /* over heads and batch */
};

/* Evaluates the oracle on the lab's inputs. */
void expect_open(struct expect *expect, const struct fixture *fixture);
void expect_close(struct expect *expect);

/* Fails with the problem string unless every output of the lab is within its bound, 0 and -inf for
 * queries that see nothing, and the pairs are right. Gradients of sinks are compared with the lab's
 * own out and LSE. */
void expect_match(const struct expect *expect, const struct fixture *fixture);

/* The two above, for a lab whose inputs are its trial's own; remembers the last few problems. */
void expect_lab(const struct fixture *fixture);
void expect_forget(void);

/* Largest and root-mean-square error of a tensor. */
void expect_error(const struct expect *expect, const struct fixture *fixture, enum tensor tensor,
                  double *most, double *mean);

#endif
