/* SPDX-License-Identifier: Apache-2.0 */
/* prefix.c - every query sees the first N keys; after them it is causal. */
#include "pattern/pattern.h"

static ra_status see(const struct ra__look *look, ra_run q, struct ra__scene *scene)
{
    int64_t skipped, prefix = look->ordered ? RA__FAR : look->pattern->args[0];
    ra_run all = { 0, 1, look->k_len };
    ra_run head = ra__run_clip(all, 0, prefix, &skipped);
    ra_run tail = ra__run_clip(all, prefix, RA__FAR, &skipped);
    RA__TRY(ra__scene_add(scene, head, (struct ra__band){ RA__FAR, RA__FAR }));
    RA__TRY(ra__scene_add(scene, tail, (struct ra__band){ RA__FAR, 0 }));
    return ra__scene_put(scene, q);
}

static int64_t reach(const ra_pattern *pattern, int64_t p)
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
    .reach = reach,
};
