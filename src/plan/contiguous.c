/* SPDX-License-Identifier: Apache-2.0 */
/* contiguous.c - rank p owns one range of positions. */
#include "plan/layout.h"

static int runs(int64_t n, int ranks, int rank, ra_run out[RA__RULE_RUNS])
{
    int64_t start = ra__chunk_start(n, rank, ranks);
    out[0] = (ra_run){ start, 1, ra__chunk_start(n, rank + 1, ranks) - start };
    return 1;
}

const struct ra__partition ra__partition_contiguous = {
    .name = "contiguous",
    .summary = "one range per rank; causal work grows with the rank",
    .runs = runs,
};
