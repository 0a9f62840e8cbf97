/* SPDX-License-Identifier: Apache-2.0 */
/* weights.cuh - what is done to scores and weights between two products. Each thread changes only
 * its own MR x 8 numbers, in registers or at their places in shared memory. */
#ifndef RA__CUDA_SIMT_WEIGHTS_CUH
#define RA__CUDA_SIMT_WEIGHTS_CUH

#include "backend/cuda/simt/keys.cuh"
#include "backend/cuda/simt/pass.cuh"

namespace simt
{

/* Pairs that are hidden, and those that dropout drops: bit 8 i + j. */
struct marks {
    uint64_t hidden, dropped;
};

template <class S> __device__ inline void put_weights(const float (&p)[S::MR][8], float *weights)
{
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int i = 0; i < S::MR; i += 4)
            *(float4 *)(weights + weight_at<S>(column_of(j), row_of<S>(i))) = float4{
                p[i][j], p[i + 1][j], p[i + 2][j], p[i + 3][j]
            };
}

template <class S> __device__ inline void get_weights(const float *weights, float (&p)[S::MR][8])
{
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int i = 0; i < S::MR; i += 4) {
            const float4 four = load4(weights + weight_at<S>(column_of(j), row_of<S>(i)));
            p[i][j] = four.x;
            p[i + 1][j] = four.y;
            p[i + 2][j] = four.z;
            p[i + 3][j] = four.w;
        }
}

/* change(bit, row, column, number) for each of the thread's numbers in shared memory. Not unrolled:
 * with bias, dropout and all, score terms are long. */
template <class S, class Change> __device__ inline void for_pairs(float *weights, Change change)
{
#pragma unroll 1
    for (int bit = 0; bit < 8 * S::MR; bit++) {
        const int row = row_of<S>(bit / 8), column = column_of(bit % 8);
        change(bit, row, column, weights[weight_at<S>(column, row)]);
    }
}

/* Which pairs of a masked block of keys are hidden; their scores are -inf. */
template <class S>
__device__ inline marks mask(key_tables<S> &shared, int parity, float (&x)[S::MR][8])
{
    marks marks = { 0, 0 };
    find_visible(shared, parity);
#pragma unroll
    for (int i = 0; i < S::MR; i++) {
        const int lo = shared.lo[row_of<S>(i)], hi = shared.hi[row_of<S>(i)];
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (column_of(j) < lo || column_of(j) >= hi) {
                x[i][j] = -INFINITY;
                marks.hidden |= (uint64_t)1 << (8 * i + j);
            }
    }
    return marks;
}

/* Marks hidden weights, drops dropped ones and scales those that are kept. */
template <class S>
__device__ inline void mark(const ra__cuda_step &step, marks marks, float (&p)[S::MR][8])
{
    const float kept_scale = step.terms.dropout ? step.terms.kept_scale : 1.0f;
#pragma unroll
    for (int i = 0; i < S::MR; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const int bit = 8 * i + j;
            p[i][j] *= marks.dropped >> bit & 1 ? 0.0f : kept_scale;
            if (marks.hidden >> bit & 1) p[i][j] = hidden_weight();
        }
}

/* ---- Backward ---- */

/* ds = slope p scale (kept dp - delta). `w` is slope p, marked where hidden; so is the result,
 * and no other -0 is in it. */
__device__ inline float score_gradient(const ra__cuda_step &step, float w, float dp, bool dropped,
                                       float delta)
{
    if (is_hidden(w)) return w;
    if (step.terms.dropout) dp *= dropped ? 0.0f : step.terms.kept_scale;
    return step.scale * (w * (dp - delta)) + 0.0f;
}

} // namespace simt

#endif
