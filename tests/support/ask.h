/* SPDX-License-Identifier: Apache-2.0 */
/* ask.h - what plans say of a problem string before they run: hops, bytes, pairs, memory. For
 * tests that have formulas of their own for them. */
#ifndef TESTS_SUPPORT_ASK_H
#define TESTS_SUPPORT_ASK_H

#include "support/test.h"

#include "harness/run/forecast.h"

/* A shape in which no number can stand for another. */
#define ASK_SHAPE "h=6/2 d=8 dv=12 b=3 bf16"

/* One rank of a problem. */
ra_stats ask_stats(const char *problem, int rank, int backward);
ra_memory ask_memory(const char *problem, int rank);

/* Fails with the problem string unless a figure of a rank is right; rank -1: of all together. */
void ask_expect(const char *problem, int rank, const char *what, int64_t got, int64_t want);

/* Every rank of a problem, forward and backward. */
struct answer {
    char problem[256];
    struct trial trial;
    struct forecast forecast;
};

void answer_open(struct answer *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
void answer_close(struct answer *a);
const ra_stats *answer_stats(const struct answer *a, int rank, bool backward);

/* Pairs over all ranks, and the density that follows. */
void answer_expect_pairs(const struct answer *a, int64_t want);
void answer_expect_traffic(const struct answer *a, int rank, bool backward, int64_t hops,
                           int64_t bytes);

/* For formulas. */
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
