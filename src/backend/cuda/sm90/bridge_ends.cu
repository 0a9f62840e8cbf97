/* SPDX-License-Identifier: Apache-2.0 */
/* bridge_ends.cu - before and after a GRADIENT step: see bridge_ends.h. All of it reads or writes
 * each number once, so memory bounds it. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/score.cuh"
#include "backend/cuda/sm90/bridge_ends.h"

extern __shared__ __align__(16) unsigned char ra_shared[];

namespace
{

enum { THREADS = 256 };

__device__ int64_t element(const struct ra__cuda_tensor &x, int batch, int row, int head)
{
    return batch * x.batch + row * x.token + head * x.head;
}

/* The rows of a block: the engine's `first`, first + step, ... */
struct line {
    int first, step;
};

__device__ line rows_of(const ra__sm90_ends &ends, int head, int block)
{
    const int row = block * ends.block_queries;
    if (!ends.block_views) return { row, 1 };
    const int view = ends.block_views[head * (ends.padded_rows / ends.block_queries) + block];
    if (view == RA__SM90_NO_VIEW) return { ends.rows, 1 };
    const ra__sm90_view &of = ends.views[view];
    return { of.first + (row - ends.view_starts[view]) * of.step, of.step };
}

/* Rows and heads of a CTA of start(). Heads follow one another in what it reads, rows in what it
 * writes: in both, a warp has 16 bytes or more at a time. */
enum { START_HEADS = 4, START_ROWS = THREADS / START_HEADS };
__host__ __device__ int start_rows(const ra__sm90_ends &ends) /* of CTAs */
{
    return (ends.padded_rows + START_ROWS - 1) / START_ROWS;
}
__host__ __device__ int start_heads(const ra__sm90_ends &ends)
{
    return (ends.heads + START_HEADS - 1) / START_HEADS;
}

/* A thread per row. lse2 is in units of log2, +inf for rows without gradient and for those that do
 * not exist: their weights are 0. */
__global__ void __launch_bounds__(THREADS) start(const __grid_constant__ ra__sm90_ends ends)
{
    const int tiles = start_rows(ends), groups = start_heads(ends);
    const int row = (int)blockIdx.x % tiles * START_ROWS + threadIdx.x / START_HEADS;
    const int head = (int)blockIdx.x / tiles % groups * START_HEADS + threadIdx.x % START_HEADS;
    const int batch = (int)blockIdx.x / tiles / groups;
    if (row >= ends.padded_rows || head >= ends.heads) return;
    const int64_t at = ((int64_t)batch * ends.heads + head) * ends.padded_rows + row;
    const line rows = rows_of(ends, head, row / ends.block_queries);
    const int token = rows.first + row % ends.block_queries * rows.step;
    float lse = -INFINITY, delta = 0;
    if (token < ends.rows) {
        lse = ((const float *)ends.lse.data)[element(ends.lse, batch, token, head)];
        delta = ((const float *)ends.delta.data)[element(ends.delta, batch, token, head)];
    }
    ends.lse2[at] = ra::is_weightless(lse) ? INFINITY : lse * 1.4426950408889634f;
    ends.own_delta[at] = delta;
}

/* Four numbers: to a sum, or as a result. */
__device__ void put(float *to, float4 x)
{
    const float4 sum = *(const float4 *)to;
    *(float4 *)to = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
}
template <class T> __device__ void put(T *to, float4 x)
{
    union {
        T numbers[4];
        uint2 word;
    } rounded = { { (T)x.x, (T)x.y, (T)x.z, (T)x.w } };
    *(uint2 *)to = rounded.word;
}

/* One block of queries per CTA. dq_sum has numbers in the order of the accumulators, as finish() of
 * backward_ends.cuh says; they are put into rows in shared memory first. */
template <int DIM, class T>
__global__ void __launch_bounds__(THREADS) end(const __grid_constant__ ra__sm90_ends ends)
{
    enum {
        PANELS = DIM / 64,
        SUM_DIM = DIM < 128 ? DIM : 128,
        WALKS = DIM / SUM_DIM,
        PITCH = DIM + 4
    };
    float *rows = (float *)ra_shared;
    const int queries = ends.block_queries, half_floats = queries * SUM_DIM / 2;
    const int per_head = ends.padded_rows / queries, block = blockIdx.x % per_head;
    const int head = blockIdx.x / per_head % ends.heads;
    const int batch = blockIdx.x / per_head / ends.heads;
    const int half = threadIdx.x >> 7, thread = threadIdx.x & 127, lane = thread & 31;
#pragma unroll
    for (int walk = 0; walk < WALKS; walk++) {
        const float *sums = ends.dq_sum +
                            (((size_t)blockIdx.x * WALKS + walk) * 2 + half) * half_floats;
        const int column = 16 * (thread >> 5) + (lane >> 2) +
                           (PANELS > 1 ? 64 * (2 * walk + half) : 0);
        for (int i = 0; i < half_floats / 512; i++) {
            const float4 x = __ldcs((const float4 *)sums + thread + i * 128);
            const int row = 8 * i + 2 * (lane & 3) + (PANELS > 1 ? 0 : half * (queries / 2));
            float *to = rows + row * PITCH + column;
            to[0] = x.x;
            to[PITCH] = x.y;
            to[8] = x.z;
            to[PITCH + 8] = x.w;
        }
    }
    __syncthreads();
    const struct line line = rows_of(ends, head, block);
    for (int i = threadIdx.x; i < queries * DIM / 4; i += THREADS) {
        const int in_block = i / (DIM / 4), column = i % (DIM / 4) * 4;
        const int token = line.first + in_block * line.step;
        if (token >= ends.rows) break;
        const float4 x = *(const float4 *)(rows + in_block * PITCH + column);
        put((T *)ends.dq.data + element(ends.dq, batch, token, head) + column,
            make_float4(x.x * ends.scale, x.y * ends.scale, x.z * ends.scale, x.w * ends.scale));
    }
}

template <int DIM, class T> int launch_end(const ra__sm90_ends &ends, cudaStream_t stream)
{
    const size_t bytes = (size_t)ends.block_queries * (DIM + 4) * sizeof(float);
    const int64_t blocks = (int64_t)ends.batch * ends.heads *
                           (ends.padded_rows / ends.block_queries);
    return ra::launch_shared(end<DIM, T>, blocks, THREADS, bytes, stream, ends);
}

template <class T> int end_gradient(const ra__sm90_ends &ends, cudaStream_t stream)
{
    switch (ends.dim) {
    case 64: return launch_end<64, T>(ends, stream);
    case 128: return launch_end<128, T>(ends, stream);
    case 256: return launch_end<256, T>(ends, stream);
    default: return cudaErrorNotSupported;
    }
}

} // namespace

extern "C" {

int ra__sm90_start_gradient(const struct ra__sm90_ends *ends, void *stream)
{
    const int64_t rows = (int64_t)ends->batch * ends->heads * ends->padded_rows;
    const size_t bytes = ends->clears ? (size_t)rows * ends->dim * sizeof(float) : 0;
    const cudaError_t error = bytes ? cudaMemsetAsync(ends->dq_sum, 0, bytes, (cudaStream_t)stream)
                                    : cudaSuccess;
    if (error != cudaSuccess) return error;
    const int64_t blocks = (int64_t)ends->batch * start_heads(*ends) * start_rows(*ends);
    return ra::launch_blocks(start, blocks, THREADS, stream, *ends);
}

int ra__sm90_end_gradient(const struct ra__sm90_ends *ends, void *stream)
{
    const cudaStream_t queue = (cudaStream_t)stream;
    return ends->dq_dtype == RA__CUDA_F32    ? end_gradient<float>(*ends, queue)
           : ends->dq_dtype == RA__CUDA_BF16 ? end_gradient<__nv_bfloat16>(*ends, queue)
                                             : end_gradient<__half>(*ends, queue);
}
}
