/* SPDX-License-Identifier: Apache-2.0 */
/* striped.c - rank p owns positions p, p + P, p + 2P, ... */
#include "plan/layout.h"

static int runs(int64_t n, int ranks, int rank, ra_run out[RA__RULE_RUNS])
{
    int64_t count = n > rank ? (n - rank - 1) / ranks + 1 : 0;
    out[0] = (ra_run){ rank, ranks, count };
    return 1;
}

const struct ra__partition ra__partition_striped = {
    .name = "striped",
    .summary = "every P-th position per rank; balances causal work at every hop",
    .runs = runs,
};
