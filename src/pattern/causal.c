/* SPDX-License-Identifier: Apache-2.0 */
/* causal.c - a query sees the keys up to its own position. */
#include "pattern/pattern.h"

static ra_status see(const struct ra__look *look, ra_run q, struct ra__scene *scene)
{
    ra_run all = { 0, 1, look->k_len };
    struct ra__band band = { RA__FAR, look->ordered ? RA__FAR : 0 };
    RA__TRY(ra__scene_add(scene, all, band));
    return ra__scene_put(scene, q);
}

static int64_t reach(const ra_pattern *pattern, int64_t p)
{
    (void)pattern;
    return p + 1;
}

const struct ra__pattern_kind ra__pattern_causal = {
    .name = "causal",
    .syntax = "causal",
    .summary = "keys up to the query's own position",
    .samples = "causal",
    .more_queries = true,
    .see = see,
    .reach = reach,
};
