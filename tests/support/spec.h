/* SPDX-License-Identifier: Apache-2.0 */
/* spec.h - dilated and blocks patterns as numbers, how often a query of a head sees a key by the
 * formulas of the design, and whether the library agrees. Pair by pair and from numbers, not from
 * text. */
#ifndef TESTS_SUPPORT_SPEC_H
#define TESTS_SUPPORT_SPEC_H

#include "support/test.h"

enum { SPEC_MOST_N = 60, SPEC_MOST_HEADS = 12, SPEC_MOST_RATIOS = 5, SPEC_ABSENT = -1 };

struct spec_ratio {
    int64_t a, b;
};

/* A pattern as numbers; terms of blocks that are not given are SPEC_ABSENT. Its
 * fields are many because a pattern has many words: a case names the ones that it tests. */
struct spec {
    int64_t n, nk;
    int heads;
    struct spec_ratio branches[SPEC_MOST_RATIOS]; /* segment / rate */
    int branch_count;                             /* 0: blocks */
    bool dedup, groups, block_offsets;
    int64_t block, local, global, strided;
    struct spec_ratio dilated, levels[SPEC_MOST_RATIOS];
    int level_count;
    double density; /* below 0: absent */
    uint32_t seed;
    const uint8_t *bitmap; /* [bitmap_heads][blocks][blocks] */
    int bitmap_heads;
    bool causal;
    int64_t bounds[4];
    int bound_count;
    const int64_t *index; /* of an original position; NULL: the same */
};

/* Nothing but the lengths and the number of heads. */
struct spec spec_empty(int64_t n, int64_t nk, int heads);

/* Fails with `text` unless ra_problem_row() agrees with the formulas on every pair. */
void spec_compare(const struct spec *s, const ra_pattern *pattern, const ra_order *order,
                  const char *text);

/* The same for the pattern that the spec says, made from its text. */
void spec_check(const struct spec *s, const ra_order *order);

#endif
