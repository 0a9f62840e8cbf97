/* SPDX-License-Identifier: Apache-2.0 */
/* patterns.h - what tests of patterns ask: the text of a pattern, and which keys a query sees. */
#ifndef TESTS_SUPPORT_PATTERNS_H
#define TESTS_SUPPORT_PATTERNS_H

#include "support/test.h"

/* The text of the pattern must be this, and its length. */
void pattern_expect_text(const ra_pattern *pattern, const char *want);

/* Numbers of a problem that matter for the mask only. */
struct pattern_size {
    int64_t q_len, k_len;
    int heads;
};

/* ra_problem_row() of a problem of this size. */
ra_status pattern_row(const ra_pattern *pattern, struct pattern_size size, int head, int64_t query,
                      uint8_t *seen);

#endif
