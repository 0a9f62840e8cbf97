/* full.c - every query sees every key. */
#include "pattern/pattern.h"

static int see(const ra_pattern *pattern, ra_run all_keys, struct ra__sight *sights)
{
    (void)pattern;
    sights[0] = (struct ra__sight){ all_keys, { RA__FAR, RA__FAR } };
    return 1;
}

const struct ra__pattern_kind ra__pattern_full = {
    .name = "full",
    .syntax = "full",
    .summary = "every query sees every key",
    .samples = "full",
    .more_queries = true,
    .see = see,
};
