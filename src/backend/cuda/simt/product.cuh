/* SPDX-License-Identifier: Apache-2.0 */
/* product.cuh - the two matrix products of the simt kernels, out of shared memory, one chunk at a
 * time: scores from transposed rows and columns, and sums from weights and rows as they are stored.
 * Each sum has one order, that of the chunks. */
#ifndef RA__CUDA_SIMT_PRODUCT_CUH
#define RA__CUDA_SIMT_PRODUCT_CUH

#include "backend/cuda/simt/layout.cuh"

namespace simt
{

/* -0 as a weight marks a hidden pair: as a number it adds nothing. Other weights are never -0. */
__device__ inline float hidden_weight() { return -0.0f; }
__device__ inline bool is_hidden(float weight) { return __float_as_uint(weight) == 0x80000000u; }

template <int MR, int N> __device__ inline void clear(float (&x)[MR][N])
{
#pragma unroll
    for (int i = 0; i < MR; i++)
#pragma unroll
        for (int j = 0; j < N; j++) x[i][j] = 0.0f;
}

/* The thread's rows in a line of a matrix. */
template <class S> __device__ inline void load_rows(const float *line, float (&x)[S::MR])
{
#pragma unroll
    for (int i = 0; i < S::MR; i += 4) {
        const float4 four = load4(line + first_row<S>() + 4 * i);
        x[i] = four.x;
        x[i + 1] = four.y;
        x[i + 2] = four.z;
        x[i + 3] = four.w;
    }
}

/* Columns of a line, N / 4 times 4 that are 32 apart. */
template <int N> __device__ inline void load_columns(const float *line, float (&y)[N])
{
#pragma unroll
    for (int j = 0; j < N; j += 4) {
        const float4 four = load4(line + 4 * lane_column() + 8 * j);
        y[j] = four.x;
        y[j + 1] = four.y;
        y[j + 2] = four.z;
        y[j + 3] = four.w;
    }
}

/* What a thread multiplies in one step: MR numbers of its rows with N others. */
template <class S, int N> struct operands {
    float x[S::MR], y[N];
};

/* sums += x y^T. CAREFUL: not where x is hidden. */
template <class S, bool CAREFUL, int N>
__device__ inline void outer_product(const operands<S, N> &from, float (&sums)[S::MR][N])
{
#pragma unroll
    for (int i = 0; i < S::MR; i++)
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float sum = fmaf(from.x[i], from.y[j], sums[i][j]);
            sums[i][j] = CAREFUL && is_hidden(from.x[i]) ? sums[i][j] : sum;
        }
}

/* STEPS outer products; load(step, operands) is called one step ahead, if there are registers for
 * it: few warps run at a time, and the latency of shared memory would show. */
template <class S, int STEPS, bool AHEAD, int N, class Load>
__device__ inline void outer_products(float (&sums)[S::MR][N], Load load)
{
    operands<S, N> from[AHEAD ? 2 : 1];
    if (AHEAD) load(0, from[0]);
#pragma unroll
    for (int d = 0; d < STEPS; d++) {
        const int now = AHEAD ? d % 2 : 0;
        if (!AHEAD) load(d, from[0]);
        else if (d + 1 < STEPS) load(d + 1, from[1 - now]);
        outer_product<S, false>(from[now], sums);
    }
}

/* scores += rows columns^T over the CHUNK dims of a chunk. The sums are in registers, too. */
template <class S>
__device__ inline void multiply(const float *rows, const float *columns, float (&scores)[S::MR][8])
{
    constexpr int STEPS = 8;
    constexpr bool AHEAD = S::MR * (8 + S::VC) < 192;
#pragma unroll 1
    for (int d0 = 0; d0 < CHUNK; d0 += STEPS) {
        const float *x = rows + line_at(d0, S::ROWS), *y = columns + line_at(d0, COLUMNS);
        outer_products<S, STEPS, AHEAD>(scores, [=](int d, operands<S, 8> &to) {
            load_rows<S>(x + line_at(d, S::ROWS), to.x);
            load_columns(y + line_at(d, COLUMNS), to.y);
        });
    }
}

/* sums += weights tokens over the TOKENS tokens of a chunk, columns first .. of the weights.
 * Where a hidden token is infinite or NaN, `careful` leaves it out. */
template <class S>
__device__ inline void accumulate(const float *weights, int first, const float *tokens,
                                  bool careful, float (&sums)[S::MR][S::VC])
{
    constexpr int STEPS = S::VC > 8 ? 4 : 8;
    constexpr bool AHEAD = S::VC < 32;
    weights += line_at(first, S::ROWS);
    if (careful) {
#pragma unroll 1
        for (int k = 0; k < S::TOKENS; k++) {
            operands<S, S::VC> from;
            load_rows<S>(weights + line_at(k, S::ROWS), from.x);
            load_columns(tokens + k * S::WIDTH, from.y);
            outer_product<S, true>(from, sums);
        }
        return;
    }
#pragma unroll 1
    for (int k0 = 0; k0 < S::TOKENS; k0 += STEPS) {
        const float *x = weights + line_at(k0, S::ROWS), *y = tokens + k0 * S::WIDTH;
        outer_products<S, STEPS, AHEAD>(sums, [=](int k, operands<S, S::VC> &to) {
            load_rows<S>(x + line_at(k, S::ROWS), to.x);
            load_columns(y + k * S::WIDTH, to.y);
        });
    }
}

} // namespace simt

#endif
