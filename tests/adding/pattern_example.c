/* sinks.c - a query sees the first N keys and the last W before it, none of them in its future. */
#include "pattern/pattern.h"

static int see(const ra_pattern *pattern, ra_run all_keys, struct ra__sight *sights)
{
    int64_t skipped, sinks = pattern->args[0], window = pattern->args[1];
    ra_run head = ra__run_clip(all_keys, 0, sinks, &skipped);
    ra_run tail = ra__run_clip(all_keys, sinks, RA__FAR, &skipped);
    sights[0] = (struct ra__sight){ head, { RA__FAR, 0 } };
    sights[1] = (struct ra__sight){ tail, { window, 0 } };
    return 2;
}

const struct ra__pattern_kind ra__pattern_sinks = {
    .name = "sinks",
    .syntax = "sinks:N,W",
    .summary = "the first N keys, and the last W before the query",
    .samples = "sinks:4,9",
    .min_args = 2,
    .max_args = 2,
    .see = see,
};
