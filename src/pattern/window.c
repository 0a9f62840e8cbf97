/* SPDX-License-Identifier: Apache-2.0 */
/* window.c - a query sees the keys from position - L to position + R. */
#include "pattern/pattern.h"

static ra_status see(const struct ra__pattern_input *input, ra_run q, struct ra__row_writer *writer)
{
    const int64_t *args = input->pattern->args;
    ra_run all = { 0, 1, input->k_len };
    RA__TRY(ra__row_writer_add(writer, all, (struct ra__band){ args[0], args[1] }));
    return ra__row_writer_put(writer, q);
}

static int64_t most_keys(const ra_pattern *pattern)
{
    return ra__min(pattern->args[0], RA__UNBOUNDED / 4) +
           ra__min(pattern->args[1], RA__UNBOUNDED / 4) + 1;
}

const struct ra__pattern_kind ra__pattern_window = {
    .name = "window",
    .syntax = "window:L[,R]",
    .summary = "keys from position - L to position + R; R is 0 if not given",
    .samples = "window:7 window:3,5",
    .min_args = 1,
    .max_args = 2,
    .any_position = true,
    .relative = true,
    .sparse = true,
    .most_keys = most_keys,
    .see = see,
};
