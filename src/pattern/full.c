/* SPDX-License-Identifier: Apache-2.0 */
/* full.c - every query sees every key. */
#include "pattern/pattern.h"

static ra_status see(const struct ra__look *look, ra_run q, struct ra__scene *scene)
{
    ra_run all = { 0, 1, look->k_len };
    RA__TRY(ra__scene_add(scene, all, (struct ra__band){ RA__FAR, RA__FAR }));
    return ra__scene_put(scene, q);
}

const struct ra__pattern_kind ra__pattern_full = {
    .name = "full",
    .syntax = "full",
    .summary = "every query sees every key",
    .samples = "full",
    .more_queries = true,
    .see = see,
};
