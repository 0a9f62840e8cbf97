/* sinks.c - a query sees the first N keys, and those at most W positions away from it. */
#include "pattern/pattern.h"

static ra_status see(const struct ra__look *look, ra_run q, struct ra__scene *scene)
{
    int64_t skipped, sinks = look->pattern->args[0], window = look->pattern->args[1];
    ra_run all = { 0, 1, look->k_len };
    ra_run head = ra__run_clip(all, 0, sinks, &skipped);
    ra_run tail = ra__run_clip(all, sinks, RA__FAR, &skipped);
    RA__TRY(ra__scene_add(scene, head, (struct ra__band){ RA__FAR, RA__FAR }));
    RA__TRY(ra__scene_add(scene, tail, (struct ra__band){ window, window }));
    return ra__scene_put(scene, q);
}

const struct ra__pattern_kind ra__pattern_sinks = {
    .name = "sinks",
    .syntax = "sinks:N,W",
    .summary = "the first N keys, and those at most W away",
    .samples = "sinks:4,9 sinks:2,5;causal",
    .min_args = 2,
    .max_args = 2,
    .see = see,
};
