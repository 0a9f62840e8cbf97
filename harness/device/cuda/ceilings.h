/* SPDX-License-Identifier: Apache-2.0 */
/* ceilings.h - kernels that keep one unit of a GPU busy, for its ceilings. */
#ifndef HARNESS_DEVICE_CUDA_CEILINGS_H
#define HARNESS_DEVICE_CUDA_CEILINGS_H

#include <cuda_runtime.h>

#include "harness/device/maker.h"

/* One launch: so many blocks, each so many rounds. `data` are words that differ, of `bytes`. */
struct ceiling_launch {
    int blocks;
    int64_t rounds;
    const unsigned *data;
    size_t bytes;
    unsigned *sink; /* one word */
};

struct ceiling {
    struct maker_ceiling facts;
    int least, most;      /* compute capabilities, ten times the major number and the minor one */
    int blocks;           /* for each multiprocessor */
    double work;          /* of a round of a block; 0: all of the bytes, by all blocks */
    cudaError_t (*launch)(const struct ceiling_launch *launch);
};

/* In files of their own: they are compiled for the GPUs that have them. */
cudaError_t ceiling_launch_mma(const struct ceiling_launch *launch);
cudaError_t ceiling_launch_tf32(const struct ceiling_launch *launch);
cudaError_t ceiling_launch_wgmma(const struct ceiling_launch *launch);
enum {
    CEILING_MMA_FLOPS = 8 * 8 * 2 * 16 * 8 * 16,
    CEILING_TF32_FLOPS = 8 * 8 * 2 * 16 * 8 * 8,
    CEILING_WGMMA_FLOPS = 2 * 4 * 2 * 64 * 256 * 16
};

/* Starts a kernel on the default stream. */
template <class... Args>
cudaError_t ceiling_start(void (*kernel)(Args...), int blocks, int threads, size_t shared,
                          const Args &...args)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared;
    return cudaLaunchKernelEx(&config, kernel, args...);
}

/* Of struct maker. */
const struct maker_ceiling *ceiling_at(int index);
const char *ceiling_sample(int index, size_t bytes, double *rate);

/* Words that look random: the power a unit draws, and so its clock, depends on its operands. */
__host__ __device__ static inline unsigned ceiling_word(unsigned n)
{
    n = (n ^ 61u ^ n >> 16) * 9u;
    n = (n ^ n >> 4) * 0x27d4eb2du;
    return n ^ n >> 15;
}

/* Two numbers of a 16-bit dtype, of both signs; in bf16 of magnitudes between 0.5 and 2. */
__host__ __device__ static inline unsigned ceiling_pair(unsigned n)
{
    return (ceiling_word(n) & 0x80ff80ffu) | 0x3f003f00u;
}

#endif
