/* window.c - a query sees the keys from position - L to position + R. */
#include "pattern/pattern.h"

static int see(const ra_pattern *pattern, ra_run all_keys, struct ra__sight *sights)
{
    sights[0] = (struct ra__sight){ all_keys, { pattern->args[0], pattern->args[1] } };
    return 1;
}

const struct ra__pattern_kind ra__pattern_window = {
    .name = "window",
    .syntax = "window:L[,R]",
    .summary = "keys from position - L to position + R; R is 0 if not given",
    .samples = "window:7 window:3,5",
    .min_args = 1,
    .max_args = 2,
    .more_queries = true,
    .see = see,
};
