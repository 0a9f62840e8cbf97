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

/* Divisions take as long as all else; those of 64-bit numbers twice as long. */
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
__device__ void check_lse(const ra__cuda_queries &q, int64_t row, float lse, bool has_gradient)
{
    if (lse == -INFINITY || !ra::is_weightless(lse) || !has_gradient) return;
    if (atomicCAS(&q.report->coarse, 0, 1) != 0) return;
    const place p = place_of(q, row);
    q.report->query = p.query;
    q.report->head = p.head;
    q.report->lse = lse;
}

/* Numbers of 16 bytes, read at once where they are aligned to it. */
template <class T> union __align__(16) chunk
{
    static constexpr int COUNT = 16 / sizeof(T);
    static constexpr uint32_t MAGNITUDE = sizeof(T) == 4 ? 0x7fffffffu : 0x7fff7fffu;
    T x[COUNT];
    uint32_t words[4];

    __device__ chunk() {}
    __device__ bool any(void) const /* number that is not 0 */
    {
        return ((words[0] | words[1] | words[2] | words[3]) & MAGNITUDE) != 0;
    }
};

template <class T> __device__ bool is_aligned(const void *a, const void *b, int count)
{
    return count % chunk<T>::COUNT == 0 && ((uintptr_t)a | (uintptr_t)b) % 16 == 0;
}

/* Sums of f32 are taken in double, as on the CPU. Products of 16-bit numbers have no rounding error
 * in f32, and their sum in f32 has less than the numbers themselves; conversions to double would
 * take longer than reading the numbers. */
template <class T> struct sum_of {
    typedef float type;
};
template <> struct sum_of<float> {
    typedef double type;
};

/* LANES lanes of a warp for each row. With IN_LINE, rows of every tensor follow one another, as
 * far apart as their heads are: nothing is divided. */
template <class T, int LANES, bool IN_LINE>
__global__ void __launch_bounds__(THREADS) delta_kernel(const ra__cuda_queries q)
{
    typedef typename sum_of<T>::type wider;
    const int64_t row = (int64_t)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES;
    const bool there = row < q.batch * q.queries * q.heads;
    const place p = IN_LINE ? place() : place_of(q, there ? row : 0);
    const auto at = [&](const ra__cuda_tensor &x) {
        return IN_LINE ? (there ? row : 0) * x.head
                       : p.batch * x.batch + p.query * x.token + p.head * x.head;
    };
    const T *out = (const T *)q.out.data + at(q.out), *dout = (const T *)q.dout.data + at(q.dout);
    const float lse = lane == 0 ? ((const float *)q.lse.data)[at(q.lse)] : 0.0f;
    wider sum = 0;
    int any = 0;
    if (is_aligned<T>(out, dout, q.value_dim)) {
        constexpr int COUNT = chunk<T>::COUNT;
        for (int d = COUNT * lane; d < q.value_dim; d += COUNT * LANES) {
            const chunk<T> o = *(const chunk<T> *)(out + d), g = *(const chunk<T> *)(dout + d);
            any |= g.any();
#pragma unroll
            for (int i = 0; i < COUNT; i++) sum += (wider)wide(o.x[i]) * wide(g.x[i]);
        }
    } else {
        for (int d = lane; d < q.value_dim; d += LANES) {
            sum += (wider)wide(out[d]) * wide(dout[d]);
            any |= wide(dout[d]) != 0.0f;
        }
    }
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
        any |= __shfl_xor_sync(0xffffffffu, any, step);
    }
    if (lane != 0 || !there) return;
    const float dlse = q.dlse.data ? ((const float *)q.dlse.data)[at(q.dlse)] : 0.0f;
    ((float *)q.delta.data)[at(q.delta)] = (float)(sum - dlse);
    check_lse(q, row, lse, any || dlse != 0.0f);
}

/* Do the rows of a tensor follow one another, those of its heads first? */
bool is_in_line(const ra__cuda_queries &q, const ra__cuda_tensor &x)
{
    return !x.data || ((q.queries == 1 || x.token == q.heads * x.head) &&
                       (q.batch == 1 || x.batch == q.queries * q.heads * x.head));
}

template <class T, int LANES> int launch_delta(const ra__cuda_queries &q, void *stream)
{
    const int64_t rows = q.batch * q.queries * q.heads, per_block = THREADS / LANES;
    const bool in_line = is_in_line(q, q.out) && is_in_line(q, q.dout) && is_in_line(q, q.lse) &&
                         is_in_line(q, q.dlse) && is_in_line(q, q.delta);
    return ra::launch_blocks(in_line ? delta_kernel<T, LANES, true> : delta_kernel<T, LANES, false>,
                             (rows + per_block - 1) / per_block, THREADS, stream, q);
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
    return ra::launch_shared(sinks_kernel, q->heads, THREADS, THREADS * sizeof(double), stream, *q);
}
