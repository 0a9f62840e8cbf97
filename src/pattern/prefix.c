/* SPDX-License-Identifier: Apache-2.0 */
/* prefix.c - every query sees the first N keys; after them it is causal. */
#include "pattern/pattern.h"

static ra_status see(const struct ra__pattern_input *input, ra_run q, struct ra__row_writer *writer)
{
    int64_t skipped, prefix = input->ordered ? RA__UNBOUNDED : input->pattern->args[0];
    ra_run all = { 0, 1, input->k_len };
    ra_run head = ra__run_clip(all, 0, prefix, &skipped);
    ra_run tail = ra__run_clip(all, prefix, RA__UNBOUNDED, &skipped);
    RA__TRY(ra__row_writer_add(writer, head, (struct ra__band){ RA__UNBOUNDED, RA__UNBOUNDED }));
    RA__TRY(ra__row_writer_add(writer, tail, (struct ra__band){ RA__UNBOUNDED, 0 }));
    return ra__row_writer_put(writer, q);
}

static int64_t visible_end(const ra_pattern *pattern, int64_t p)
{
    return ra__max(pattern->args[0], p + 1);
}

const struct ra__pattern_kind ra__pattern_prefix = {
    .name = "prefix",
    .syntax = "prefix:N",
    .summary = "the first N keys for every query, causal after them",
    .samples = "prefix:9",
    .min_args = 1,
    .max_args = 1,
    .see = see,
    .visible_end = visible_end,
};
