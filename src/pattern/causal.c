/* causal.c - a query sees the keys up to its own position. */
#include "pattern/pattern.h"

static int see(const ra_pattern *pattern, ra_run all_keys, struct ra__sight *sights)
{
    (void)pattern;
    sights[0] = (struct ra__sight){ all_keys, { RA__FAR, 0 } };
    return 1;
}

const struct ra__pattern_kind ra__pattern_causal = {
    .name = "causal",
    .syntax = "causal",
    .summary = "keys up to the query's own position",
    .samples = "causal",
    .more_queries = true,
    .see = see,
};
