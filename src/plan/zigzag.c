/* SPDX-License-Identifier: Apache-2.0 */
/* zigzag.c - 2P chunks; rank p owns chunk p from the front and chunk p from the back, so that
 * causal work is the same for every rank. */
#include "plan/layout.h"

static ra_run chunk(int64_t n, int64_t index, int64_t chunks)
{
    int64_t start = ra__chunk_start(n, index, chunks);
    return (ra_run){ start, 1, ra__chunk_start(n, index + 1, chunks) - start };
}

static int runs(int64_t n, int ranks, int rank, ra_run out[RA__RULE_RUNS])
{
    int64_t chunks = 2 * (int64_t)ranks;
    out[0] = chunk(n, rank, chunks);
    out[1] = chunk(n, chunks - 1 - rank, chunks);
    return 2;
}

const struct ra__partition ra__partition_zigzag = {
    .name = "zigzag",
    .summary = "a chunk from the front and one from the back per rank; balances causal work",
    .runs = runs,
};
