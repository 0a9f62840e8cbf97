/* SPDX-License-Identifier: Apache-2.0 */
/* patterns.c - see patterns.h. */
#include "support/patterns.h"

void pattern_expect_text(const ra_pattern *pattern, const char *want)
{
    char text[256];
    size_t length;
    assert_ok(ra_pattern_format(pattern, text, sizeof text, &length));
    assert_string_equal(text, want);
    assert_int_equal(length, strlen(want));
}

ra_status pattern_row(const ra_pattern *pattern, struct pattern_size size, int head, int64_t query,
                      uint8_t *seen)
{
    ra_problem problem = ra_problem_default();
    problem.pattern = pattern;
    problem.q_len = size.q_len;
    problem.k_len = size.k_len;
    problem.q_heads = size.heads;
    problem.dim = 1;
    return ra_problem_row(&problem, head, query, seen);
}
