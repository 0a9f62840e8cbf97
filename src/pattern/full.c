/* SPDX-License-Identifier: Apache-2.0 */
/* full.c - every query sees every key. */
#include "pattern/pattern.h"

static ra_status see(const struct ra__pattern_input *input, ra_run q, struct ra__row_writer *writer)
{
    ra_run all = { 0, 1, input->k_len };
    RA__TRY(ra__row_writer_add(writer, all, (struct ra__band){ RA__UNBOUNDED, RA__UNBOUNDED }));
    return ra__row_writer_put(writer, q);
}

const struct ra__pattern_kind ra__pattern_full = {
    .name = "full",
    .syntax = "full",
    .summary = "every query sees every key",
    .samples = "full",
    .any_position = true,
    .relative = true,
    .see = see,
};
