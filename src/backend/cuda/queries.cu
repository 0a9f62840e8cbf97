/* SPDX-License-Identifier: Apache-2.0 */
/* queries.cu - steps over the caller's queries: DELTA and SINKS. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/score.cuh"
#include "backend/cuda/steps.h"

extern __shared__ __align__(128) unsigned char ra_shared[];

namespace
{

enum { THREADS = 128, WARP = 32 };

template <class T> __device__ float wide(T x) { return (float)x; }
template <> __device__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
template <> __device__ float wide(__half x) { return __half2float(x); }

__device__ double sum_of_warp(double x)
{
    for (int step = WARP / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/* One row: query, head, batch item. */
struct place {
    int batch, head;
    int64_t query;
};

__device__ place place_of(const ra__cuda_queries &q, int64_t row)
{
    place p;
    p.head = (int)(row % q.heads);
    p.query = row / q.heads % q.queries;
    p.batch = (int)(row / q.heads / q.queries);
    return p;
}

/* A coarse LSE of a row with a gradient is reported; the first one found is the one named. */
__device__ void check_lse(const ra__cuda_queries &q, const place &p, bool has_gradient)
{
    const float lse = *ra::at<float>(q.lse, p.batch, p.query, p.head);
    if (lse == -INFINITY || !ra::is_weightless(lse) || !has_gradient) return;
    if (atomicCAS(&q.report->coarse, 0, 1) != 0) return;
    q.report->query = p.query;
    q.report->head = p.head;
    q.report->lse = lse;
}

/* Four numbers at once where they are aligned to it: 8 bytes of 16-bit numbers, or 16. */
template <class T> struct __align__(4 * sizeof(T)) four { T x[4]; };

template <class T> __device__ bool is_aligned(const void *a, const void *b, int count)
{
    return count % 4 == 0 && ((uintptr_t)a | (uintptr_t)b) % sizeof(four<T>) == 0;
}

/* A warp per row; sums in double, as on the CPU. */
template <class T> __global__ void __launch_bounds__(THREADS) delta_kernel(const ra__cuda_queries q)
{
    const int64_t row = (int64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    const int lane = threadIdx.x % WARP;
    if (row >= (int64_t)q.batch * q.queries * q.heads) return;
    const place p = place_of(q, row);
    const T *out = ra::at<T>(q.out, p.batch, p.query, p.head);
    const T *dout = ra::at<T>(q.dout, p.batch, p.query, p.head);
    double sum = 0.0;
    bool any = false;
    const auto add = [&](T o, T g) {
        sum += (double)wide(o) * wide(g);
        any = any || wide(g) != 0.0f;
    };
    if (is_aligned<T>(out, dout, q.value_dim))
        for (int d = 4 * lane; d < q.value_dim; d += 4 * WARP) {
            const four<T> o = *(const four<T> *)(out + d), g = *(const four<T> *)(dout + d);
            for (int i = 0; i < 4; i++) add(o.x[i], g.x[i]);
        }
    else
        for (int d = lane; d < q.value_dim; d += WARP) add(out[d], dout[d]);
    sum = sum_of_warp(sum);
    any = __any_sync(0xffffffffu, any);
    if (lane != 0) return;
    const float dlse = q.dlse.data ? *ra::at<float>(q.dlse, p.batch, p.query, p.head) : 0.0f;
    *ra::at<float>(q.delta, p.batch, p.query, p.head) = (float)(sum - dlse);
    check_lse(q, p, any || dlse != 0.0f);
}

/* A block per head: every thread sums its queries, then threads in order. */
__global__ void __launch_bounds__(THREADS) sinks_kernel(const ra__cuda_queries q)
{
    double *sums = (double *)ra_shared;
    const int head = blockIdx.x;
    const double sink = q.sinks[head];
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < q.batch * q.queries; i += THREADS) {
        const int batch = (int)(i / q.queries);
        const int64_t query = i % q.queries;
        const float lse = *ra::at<float>(q.lse, batch, query, head);
        if (ra::is_weightless(lse)) continue;
        const double weight = sink == lse ? 1.0 : exp(sink - lse); /* 1 also where both are inf */
        sum -= weight * *ra::at<float>(q.delta, batch, query, head);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    double all = q.start ? 0.0 : q.sums[head];
    for (int i = 0; i < THREADS; i++) all += sums[i];
    q.sums[head] = all;
    q.dsinks[head] = (float)all;
}

} // namespace

int ra__cuda_delta_launch(const struct ra__cuda_queries *q, void *stream)
{
    const int64_t rows = (int64_t)q->batch * q->queries * q->heads, per_block = THREADS / WARP;
    const int64_t blocks = (rows + per_block - 1) / per_block;
    if (q->dtype == RA__CUDA_F32)
        return ra::launch_blocks(delta_kernel<float>, blocks, THREADS, stream, *q);
    if (q->dtype == RA__CUDA_BF16)
        return ra::launch_blocks(delta_kernel<__nv_bfloat16>, blocks, THREADS, stream, *q);
    return ra::launch_blocks(delta_kernel<__half>, blocks, THREADS, stream, *q);
}

int ra__cuda_sinks_launch(const struct ra__cuda_queries *q, void *stream)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)q->heads);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = THREADS * sizeof(double);
    config.stream = (cudaStream_t)stream;
    return cudaLaunchKernelEx(&config, sinks_kernel, *q);
}
