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

enum { THREADS = 128 };

template <class T> __device__ float wide(T x) { return (float)x; }
template <> __device__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
template <> __device__ float wide(__half x) { return __half2float(x); }

/* One row: query, head, batch item. */
struct place {
    int batch, head;
    int64_t query;
};

/* Division of 64-bit numbers takes as long as all else; most problems need none. */
__device__ place place_of(const ra__cuda_queries &q, int64_t row)
{
    place p;
    if (q.batch * q.queries * q.heads <= INT32_MAX) {
        const uint32_t r = (uint32_t)row, queries = (uint32_t)q.queries;
        const uint32_t rest = r / (uint32_t)q.heads;
        p.head = (int)(r - rest * (uint32_t)q.heads);
        p.batch = (int)(rest / queries);
        p.query = rest - (uint32_t)p.batch * queries;
        return p;
    }
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

/* Numbers of 16 bytes, read at once where they are aligned to it. */
template <class T> struct __align__(16) chunk {
    static constexpr int COUNT = 16 / sizeof(T);
    T x[COUNT];
};

template <class T> __device__ bool is_aligned(const void *a, const void *b, int count)
{
    return count % chunk<T>::COUNT == 0 && ((uintptr_t)a | (uintptr_t)b) % 16 == 0;
}

/* LANES lanes of a warp for each row; sums in double, as on the CPU. */
template <class T, int LANES>
__global__ void __launch_bounds__(THREADS) delta_kernel(const ra__cuda_queries q)
{
    const int64_t row = (int64_t)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES;
    const bool there = row < q.batch * q.queries * q.heads;
    const place p = place_of(q, there ? row : 0);
    const T *out = ra::at<T>(q.out, p.batch, p.query, p.head);
    const T *dout = ra::at<T>(q.dout, p.batch, p.query, p.head);
    double sum = 0.0;
    int any = 0;
    const auto add = [&](T o, T g) {
        sum += (double)wide(o) * wide(g);
        any |= wide(g) != 0.0f;
    };
    if (is_aligned<T>(out, dout, q.value_dim)) {
        constexpr int COUNT = chunk<T>::COUNT;
        for (int d = COUNT * lane; d < q.value_dim; d += COUNT * LANES) {
            const chunk<T> o = *(const chunk<T> *)(out + d), g = *(const chunk<T> *)(dout + d);
#pragma unroll
            for (int i = 0; i < COUNT; i++) add(o.x[i], g.x[i]);
        }
    } else {
        for (int d = lane; d < q.value_dim; d += LANES) add(out[d], dout[d]);
    }
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
        any |= __shfl_xor_sync(0xffffffffu, any, step);
    }
    if (lane != 0 || !there) return;
    const float dlse = q.dlse.data ? *ra::at<float>(q.dlse, p.batch, p.query, p.head) : 0.0f;
    *ra::at<float>(q.delta, p.batch, p.query, p.head) = (float)(sum - dlse);
    check_lse(q, p, any || dlse != 0.0f);
}

template <class T, int LANES> int launch_delta(const ra__cuda_queries &q, void *stream)
{
    const int64_t rows = q.batch * q.queries * q.heads, per_block = THREADS / LANES;
    return ra::launch_blocks(delta_kernel<T, LANES>, (rows + per_block - 1) / per_block, THREADS,
                             stream, q);
}
/* As many lanes as a row has chunks, if possible. */
template <class T> int launch_delta(const ra__cuda_queries &q, void *stream)
{
    const int chunks = q.value_dim / chunk<T>::COUNT;
    if (chunks <= 8) return launch_delta<T, 8>(q, stream);
    if (chunks <= 16) return launch_delta<T, 16>(q, stream);
    return launch_delta<T, 32>(q, stream);
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
    if (q->dtype == RA__CUDA_F32) return launch_delta<float>(*q, stream);
    if (q->dtype == RA__CUDA_BF16) return launch_delta<__nv_bfloat16>(*q, stream);
    return launch_delta<__half>(*q, stream);
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
