/* SPDX-License-Identifier: Apache-2.0 */
/* ceilings.cu - the ceilings of a GPU: what any GPU has, and how one is measured. */
#include "harness/device/cuda/ceilings.h"

namespace
{

enum { THREADS = 256, CHAINS = 16, STEPS = 16 };
const double SAMPLE_SECONDS = 0.02;
const size_t MEMORY_BYTES = (size_t)2 << 30; /* larger than caches are */

/* ---- Kernels --------------------------------------------------------------------------------- */

/* Chains of multiply-adds that stay near 1. */
__global__ void __launch_bounds__(THREADS) fma_kernel(int64_t rounds, unsigned *sink)
{
    float sums[CHAINS];
    const float factor = 0.999f + 1e-6f * (float)threadIdx.x, term = 1.0f - factor;
    for (int i = 0; i < CHAINS; i++) sums[i] = (float)i + (float)threadIdx.x;
    for (int64_t round = 0; round < rounds; round++)
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int i = 0; i < CHAINS; i++) sums[i] = fmaf(sums[i], factor, term);
    float all = 0.0f;
    for (int i = 0; i < CHAINS; i++) all += sums[i];
    if (all == 0.1234567f) *sink = 1;
}

/* Chains x = 2^-x, which settle at 0.64. */
__global__ void __launch_bounds__(THREADS) exp2_kernel(int64_t rounds, unsigned *sink)
{
    float x[CHAINS];
    for (int i = 0; i < CHAINS; i++) x[i] = (float)(i + threadIdx.x % 7) * 0.1f;
    for (int64_t round = 0; round < rounds; round++)
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int i = 0; i < CHAINS; i++)
                asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(x[i]) : "f"(-x[i]));
    float all = 0.0f;
    for (int i = 0; i < CHAINS; i++) all += x[i];
    if (all == 0.1234567f) *sink = 1;
}

__global__ void __launch_bounds__(THREADS)
    read_kernel(int64_t rounds, const uint4 *data, int64_t count, unsigned *sink)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;
    unsigned all = 0;
    for (int64_t round = 0; round < rounds; round++)
#pragma unroll 8
        for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
            const uint4 words = __ldcs(data + i);
            all ^= words.x ^ words.y ^ words.z ^ words.w;
        }
    if (all == 0x12345678u) *sink = all;
}

/* From the first half to the second. */
__global__ void __launch_bounds__(THREADS) copy_kernel(int64_t rounds, uint4 *data, int64_t half)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t round = 0; round < rounds; round++)
#pragma unroll 4
        for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < half; i += step)
            __stcs(data + half + i, __ldcs(data + i));
}

__global__ void __launch_bounds__(THREADS) fill_kernel(unsigned *data, int64_t count)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step)
        data[i] = ceiling_word((unsigned)i);
}

cudaError_t launch_fma(const struct ceiling_launch *l)
{
    return ceiling_start(fma_kernel, l->blocks, THREADS, 0, l->rounds, l->sink);
}
cudaError_t launch_exp2(const struct ceiling_launch *l)
{
    return ceiling_start(exp2_kernel, l->blocks, THREADS, 0, l->rounds, l->sink);
}
cudaError_t launch_read(const struct ceiling_launch *l)
{
    return ceiling_start(read_kernel, l->blocks, THREADS, 0, l->rounds, (const uint4 *)l->data,
                         (int64_t)(l->bytes / sizeof(uint4)), l->sink);
}
cudaError_t launch_copy(const struct ceiling_launch *l)
{
    return ceiling_start(copy_kernel, l->blocks, THREADS, 0, l->rounds, (uint4 *)l->data,
                         (int64_t)(l->bytes / sizeof(uint4) / 2));
}

/* ---- The table ------------------------------------------------------------------------------- */

const int NEVER = 1000;

const struct ceiling ceilings[] = {
    { { "fma-f32", "f32 multiply-adds", "GFLOP/s" }, 0, NEVER, 8,
      2.0 * THREADS * CHAINS * STEPS, launch_fma },
    { { "mma-bf16", "bf16 products, mma.sync", "GFLOP/s" }, 80, NEVER, 2,
      CEILING_MMA_FLOPS, ceiling_launch_mma },
    { { "mma-tf32x3", "f32 products, three of TF32 by mma.sync", "GFLOP/s" }, 80, NEVER, 2,
      CEILING_TF32_FLOPS / 3.0, ceiling_launch_tf32 },
#if MAKER_HAVE_WGMMA
    { { "wgmma-bf16", "bf16 products, wgmma", "GFLOP/s" }, 90, 90, 1,
      CEILING_WGMMA_FLOPS, ceiling_launch_wgmma },
#endif
    { { "exp2-f32", "2^x, ex2.approx", "Gexp/s" }, 0, NEVER, 8,
      1.0 * THREADS * CHAINS * STEPS, launch_exp2 },
    { { "read-memory", "reading device memory", "GB/s" }, 0, NEVER, 16, 0.0, launch_read },
    { { "copy-memory", "copying device memory, bytes read and written", "GB/s" }, 0, NEVER, 16, 0.0,
      launch_copy },
};
const int CEILINGS = (int)(sizeof ceilings / sizeof ceilings[0]);

/* Of the current device. */
cudaError_t facts_of(int *capability, int *multiprocessors)
{
    int device = 0, major = 0, minor = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (!error) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (!error) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (!error)
        error = cudaDeviceGetAttribute(multiprocessors, cudaDevAttrMultiProcessorCount, device);
    *capability = 10 * major + minor;
    return error;
}

/* ---- Samples --------------------------------------------------------------------------------- */

cudaError_t time_launch(const struct ceiling *ceiling, const struct ceiling_launch *l,
                        cudaEvent_t *events, double *seconds)
{
    float milliseconds = 0.0f;
    cudaError_t error = cudaEventRecord(events[0], nullptr);
    if (!error) error = ceiling->launch(l);
    if (!error) error = cudaEventRecord(events[1], nullptr);
    if (!error) error = cudaEventSynchronize(events[1]);
    if (!error) error = cudaEventElapsedTime(&milliseconds, events[0], events[1]);
    *seconds = milliseconds * 1e-3;
    return error;
}

/* Rounds by doubling, then one launch of about SAMPLE_SECONDS. */
cudaError_t measure(const struct ceiling *ceiling, struct ceiling_launch *l, cudaEvent_t *events,
                    double *rate)
{
    double seconds = 0.0;
    cudaError_t error = cudaSuccess;
    for (l->rounds = 1; !error; l->rounds *= 2) {
        error = time_launch(ceiling, l, events, &seconds);
        if (seconds >= SAMPLE_SECONDS / 4) break;
    }
    if (!error) l->rounds = (int64_t)((double)l->rounds * SAMPLE_SECONDS / seconds) + 1;
    if (!error) error = time_launch(ceiling, l, events, &seconds);
    const double work = ceiling->work > 0.0 ? ceiling->work * l->blocks : (double)l->bytes;
    if (!error) *rate = work * (double)l->rounds / seconds * 1e-9;
    return error;
}

cudaError_t take_data(const struct ceiling *ceiling, struct ceiling_launch *l)
{
    cudaError_t error = cudaMalloc((void **)&l->sink, sizeof *l->sink);
    if (error || ceiling->work > 0.0) return error;
    error = cudaMalloc((void **)&l->data, l->bytes);
    if (error) return error;
    return ceiling_start(fill_kernel, l->blocks, THREADS, 0, (unsigned *)l->data,
                         (int64_t)(l->bytes / sizeof(unsigned)));
}

} // namespace

const struct maker_ceiling *ceiling_at(int index)
{
    int capability, multiprocessors, count = 0;
    if (facts_of(&capability, &multiprocessors)) return nullptr;
    for (int i = 0; i < CEILINGS; i++)
        if (capability >= ceilings[i].least && capability <= ceilings[i].most && count++ == index)
            return &ceilings[i].facts;
    return nullptr;
}

const char *ceiling_sample(int index, size_t bytes, double *rate)
{
    const size_t piece = 2 * sizeof(uint4);
    const struct maker_ceiling *facts = ceiling_at(index);
    int capability, multiprocessors = 0;
    struct ceiling_launch l = {};
    cudaEvent_t events[2] = {};
    if (!facts) return "there is no such ceiling";
    const struct ceiling *ceiling = (const struct ceiling *)facts; /* its first field */
    cudaError_t error = facts_of(&capability, &multiprocessors);
    l.blocks = ceiling->blocks * multiprocessors;
    l.bytes = (bytes ? bytes / piece + 1 : MEMORY_BYTES / piece) * piece;
    for (int i = 0; i < 2 && !error; i++) error = cudaEventCreate(&events[i]);
    if (!error) error = take_data(ceiling, &l);
    if (!error) error = measure(ceiling, &l, events, rate);
    for (int i = 0; i < 2; i++)
        if (events[i]) cudaEventDestroy(events[i]);
    cudaFree((void *)l.data);
    cudaFree(l.sink);
    cudaGetLastError();
    return error ? cudaGetErrorString(error) : nullptr;
}
