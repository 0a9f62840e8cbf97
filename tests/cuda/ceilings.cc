/* SPDX-License-Identifier: Apache-2.0 */
/* ceilings.cc - ceilings of the emulated GPU, which has no clock: so high that nothing is faster, or,
 * with RINGATTN_EMULATED_CEILING in the environment, that many thousand million per second. */
#include <stdlib.h>

#include "harness/device/cuda/ceilings.h"

static const struct maker_ceiling ceilings[] = {
    { "fma-f32", "f32 multiply-adds", "GFLOP/s" },
    { "mma-bf16", "bf16 products, mma.sync", "GFLOP/s" },
    { "mma-tf32x3", "f32 products, three of TF32 by mma.sync", "GFLOP/s" },
    { "read-memory", "reading device memory", "GB/s" },
};

const struct maker_ceiling *ceiling_at(int index)
{
    const int count = (int)(sizeof ceilings / sizeof ceilings[0]);
    return index >= 0 && index < count ? &ceilings[index] : nullptr;
}

const char *ceiling_sample(int index, size_t bytes, double *rate)
{
    const char *wish = getenv("RINGATTN_EMULATED_CEILING");
    (void)index, (void)bytes;
    *rate = wish ? atof(wish) : 1e6;
    return nullptr;
}
