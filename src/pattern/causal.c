/* SPDX-License-Identifier: Apache-2.0 */
/* causal.c - a query sees the keys up to its own position. */
#include "pattern/pattern.h"

static ra_status see(const struct ra__pattern_input *input, ra_run q, struct ra__row_writer *writer)
{
    ra_run all = { 0, 1, input->k_len };
    struct ra__band band = { RA__UNBOUNDED, input->ordered ? RA__UNBOUNDED : 0 };
    RA__TRY(ra__row_writer_add(writer, all, band));
    return ra__row_writer_put(writer, q);
}

static int64_t visible_end(const ra_pattern *pattern, int64_t p)
{
    (void)pattern;
    return p + 1;
}

const struct ra__pattern_kind ra__pattern_causal = {
    .name = "causal",
    .syntax = "causal",
    .summary = "keys up to the query's own position",
    .samples = "causal",
    .any_position = true,
    .relative = true,
    .see = see,
    .visible_end = visible_end,
};
