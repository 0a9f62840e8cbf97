/* prefix.c - every query sees the first N keys; behind them it is causal. */
#include "pattern/pattern.h"

static int see(const ra_pattern *pattern, ra_run all_keys, struct ra__sight *sights)
{
    int64_t skipped, prefix = pattern->args[0];
    ra_run head = ra__run_clip(all_keys, 0, prefix, &skipped);
    ra_run tail = ra__run_clip(all_keys, prefix, RA__FAR, &skipped);
    sights[0] = (struct ra__sight){ head, { RA__FAR, RA__FAR } };
    sights[1] = (struct ra__sight){ tail, { RA__FAR, 0 } };
    return 2;
}

const struct ra__pattern_kind ra__pattern_prefix = {
    .name = "prefix",
    .syntax = "prefix:N",
    .summary = "the first N keys for every query, causal behind them",
    .samples = "prefix:9",
    .min_args = 1,
    .max_args = 1,
    .see = see,
};
