/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.cuh - forward: the running softmax of the rows of a warp, and what makes weights out of
 * scores. Rows do not depend on each other: rescaling by 1 is left out for a whole warp at a time,
 * which changes no bit. */
#ifndef RA__BACKEND_CUDA_MMA_SOFTMAX_CUH
#define RA__BACKEND_CUDA_MMA_SOFTMAX_CUH

#include "backend/cuda/mma/products.cuh"
#include "backend/cuda/mma/walk.cuh"

namespace ra::mma
{

/* Of rows 16 i + 8 half + lane / 4. l is a sum over the columns of this lane; that of the row is
 * the sum over its four lanes. */
template <int M, int N> struct state {
    float m[M][2], l[M][2];
    float acc[M][N][4];
};

/* Row of the tile for (i, half). */
template <int M> __device__ __forceinline__ int row_of(int i, int half)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    return (warp * M + i) * 16 + half * 8 + (lane >> 2);
}

/* The largest and the sum of the values of a row's four lanes. */
__device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Scores of keys that a row does not see become -inf. */
template <class W, int M, int K>
__device__ __forceinline__ void hide(const W &walk, const place &p, float (&s)[M][K][4])
{
    const int quad = threadIdx.x & 3;
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const seen row = walk.tables.rows[p.which][row_of<M>(i, half)];
            const int lo = row.lo - p.at - 2 * quad, hi = row.hi - p.at - 2 * quad;
#pragma unroll
            for (int j = 0; j < K; j++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (8 * j + e < lo || 8 * j + e >= hi) s[i][j][2 * half + e] = -INFINITY;
        }
}

/* The same with score terms: s becomes scores in units of log2. Bits of the result: 8 j + 4 i + e
 * where dropout keeps the weight. */
template <class W, int M, int K>
__device__ __forceinline__ uint64_t score_all(const W &walk, const place &p, float (&s)[M][K][4])
{
    static_assert(M * K <= 16, "a bit for each score");
    const int quad = threadIdx.x & 3;
    const span &keys = walk.span_of(p);
    uint64_t kept = 0;
#pragma unroll 1
    for (int j = 0; j < K; j++) {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int r = row_of<M>(i, half);
                const seen row = walk.tables.rows[p.which][r];
                const query q = walk.query_for(r);
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int key = p.at + 8 * j + 2 * quad + e;
                    float &x = s[i][0][2 * half + e];
                    if (!sees(row, key)) {
                        x = -INFINITY;
                        continue;
                    }
                    const score now = score_of(walk.step, q, keys.pos + key * keys.pos_step, x);
                    x = now.x;
                    if (now.kept != 0.0f) kept |= (uint64_t)1 << (4 * (M * j + i) + 2 * half + e);
                }
            }
        rotate(s);
    }
    return kept;
}

/* Weights that dropout drops or scales; their sum has been taken. */
template <int M, int K>
__device__ __forceinline__ void drop(float (&s)[M][K][4], uint64_t kept, float kept_scale)
{
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < K; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[i][j][e] *= kept >> (4 * (M * j + i) + e) & 1 ? kept_scale : 0.0f;
}

/* Folds scores into m and l and makes weights of them, s = exp2(to_log2 s - m); rescales acc. */
template <int M, int N, int K>
__device__ __forceinline__ void fold(state<M, N> &x, float (&s)[M][K][4], float to_log2)
{
    float factor[M][2];
    bool raised = false;
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float largest = s[i][0][2 * half];
#pragma unroll
            for (int j = 0; j < K; j++)
                largest = fmaxf(largest, fmaxf(s[i][j][2 * half], s[i][j][2 * half + 1]));
            const float m = fmaxf(x.m[i][half], quad_max(largest) * to_log2);
            /* m is still -inf where the row has seen no scores but -inf, whose weights are 0. */
            const float shift = m == -INFINITY ? 0.0f : m;
            raised |= m != x.m[i][half];
            factor[i][half] = exp2_fast(x.m[i][half] - shift);
            x.m[i][half] = m;
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < K; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float &p = s[i][j][2 * half + e];
                    p = exp2_fast(fmaf(p, to_log2, -shift));
                    sum += p;
                }
            x.l[i][half] = x.l[i][half] * factor[i][half] + sum;
        }
    if (!__any_sync(0xffffffffu, raised)) return;
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) x.acc[i][j][e] *= factor[i][e >> 1];
}

} // namespace ra::mma

#endif
