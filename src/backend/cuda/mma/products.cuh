/* SPDX-License-Identifier: Apache-2.0 */
/* products.cuh - the two products of attention for every dtype and every number: infinities and NaN
 * reach the rows that see them, and no others. */
#ifndef RA__BACKEND_CUDA_MMA_PRODUCTS_CUH
#define RA__BACKEND_CUDA_MMA_PRODUCTS_CUH

#include "backend/cuda/mma/tf32x3.cuh"

namespace ra::mma
{

/* ---- Scores ---- */

/* c = A B^T of f32, where c is not finite, one number after the other: no bit of other sums depends
 * on it. Rare: see weigh_one_by_one(). */
template <int W, int M, int N>
__device__ __noinline__ void multiply_one_by_one(float *c, const unsigned char *a,
                                                 const unsigned char *b)
{
    const int lane = threadIdx.x & 31;
#pragma unroll 1
    for (int n = 0; n < 4 * M * N; n++) {
        const int row = 16 * (n / (4 * N)) + 8 * (n / 2 % 2) + (lane >> 2);
        const int column = 8 * (n / 4 % N) + 2 * (lane & 3) + n % 2;
        if (is_finite(c[n])) continue;
        c[n] = 0.0f;
#pragma unroll 1
        for (int d = 0; d < W / WORDS<float>; d++)
            c[n] = fmaf(number_at<float, W>(a, row, d), number_at<float, W>(b, column, d), c[n]);
    }
}

/* c = A B^T; `a` is an address with lane_first() in it or, but for f32, rows that registers hold; b
 * has lane_second() in it. For between() see rows_by_rows(); f32 has none. */
template <class T, int W, int M, int N, class A, class... Between>
__device__ __forceinline__ void multiply_rows(float (&c)[M][N][4], const A &a, uint32_t b,
                                              const Between &...between)
{
    if constexpr (!IS_F32<T>) {
        rows_by_rows<T, W>(c, a, b, between...);
    } else {
        tf32x3_rows_by_rows<W>(c, a, b);
        if (__all_sync(0xffffffffu, are_finite(c))) return;
        const uint32_t shared = shared_address(ra_shared);
        const int lane = threadIdx.x & 31;
        float sums[M][N][4];
        copy(sums, c);
        multiply_one_by_one<W, M, N>(&sums[0][0][0], ra_shared + (a - lane_first<W>(lane) - shared),
                                     ra_shared + (b - lane_second<W>(lane) - shared));
        copy(c, sums);
    }
}

/* ---- Weights by rows ---- */

/* Weights that the lanes have in fragments of K columns, as weigh_one_by_one() asks for them. */
template <int K> struct weights_of_lanes {
    const float *first; /* this lane's */
    __device__ __forceinline__ float operator()(int row, int key) const
    {
        const int lane = threadIdx.x & 31;
        const float mine = first[4 * (row / 16 * K + key / 8) + 2 * (row / 8 % 2) + (key & 1)];
        return __shfl_sync(0xffffffffu, mine, (lane & ~3) | (key >> 1 & 3));
    }
};

/* Adds products of B, a matrix of `keys` rows of which the fragments have N columns from `column`
 * on, with the weights: of those that counts(weight, number) lets pass, for the pairs that
 * visible(row, key) does. Rows are those of the warp's fragments; all lanes together ask for
 * weight(row, key). Rare, so it is slow and out of the way: a function of its own, on copies,
 * leaves the registers of its caller alone. */
template <class T, int W, int M, int N, class Weight, class Visible, class Counts>
__device__ __noinline__ void weigh_one_by_one(float *c, const unsigned char *matrix, int keys,
                                              int column, const Weight &weight,
                                              const Visible &visible, const Counts &counts)
{
    const int lane = threadIdx.x & 31, quad = lane & 3;
#pragma unroll 1
    for (int key = 0; key < keys; key++)
#pragma unroll 1
        for (int n = 0; n < 2 * M; n++) {
            const int row = 8 * n + (lane >> 2);
            const float by = weight(row, key);
            if (!visible(row, key)) continue;
#pragma unroll 1
            for (int j = 0; j < 2 * N; j++) {
                const int d = j / 2 * 8 + 2 * quad + j % 2;
                const float x = number_at<T, W>(matrix, key, column + d);
                if (counts(by, x)) c[4 * (n / 2 * N + j / 2) + 2 * (n % 2) + j % 2] += by * x;
            }
        }
}
/* The same on copies of c. */
template <class T, int W, int M, int N, class Weight, class Visible, class Counts>
__device__ __forceinline__ void weigh_aside(float (&c)[M][N][4], const unsigned char *matrix,
                                            int keys, int column, const Weight &weight,
                                            const Visible &visible, const Counts &counts)
{
    float sums[M][N][4];
    copy(sums, c);
    weigh_one_by_one<T, W, M, N>(&sums[0][0][0], matrix, keys, column, weight, visible, counts);
    copy(c, sums);
}
/* With weights that are in registers; */
template <class T, int W, int M, int K, int N, class Visible, class Counts>
__device__ __forceinline__ void weigh_aside(float (&c)[M][N][4], const float (&w)[M][K][4],
                                            const unsigned char *matrix, int column,
                                            const Visible &visible, const Counts &counts)
{
    float weights[M][K][4];
    copy(weights, w);
    weigh_aside<T, W>(c, matrix, 8 * K, column, weights_of_lanes<K>{ &weights[0][0][0] }, visible,
                      counts);
}
/* and with packed ones. */
template <class T, int W, int M, int K, int N, class Visible, class Counts>
__device__ __forceinline__ void weigh_aside(float (&c)[M][N][4],
                                            const packed_weights<T, M, K> &weights,
                                            const unsigned char *matrix, int column,
                                            const Visible &visible, const Counts &counts)
{
    float wide[M][K][4];
    weights.unpack_to(wide);
    weigh_aside<T, W>(c, wide, matrix, column, visible, counts);
}

/* What weigh_rows<true>() leaves out; */
struct not_finite_counts {
    __device__ __forceinline__ bool operator()(float, float x) const { return !is_finite(x); }
};
/* and what tf32x3_weigh_rows<true>() does. */
struct not_split_counts {
    __device__ __forceinline__ bool operator()(float by, float x) const
    {
        return !can_split(by) || !can_split(x);
    }
};

/* The columns that tf32x3_weigh_rows<false>() has left out: what can be split once more, so that
 * its bits do not depend on the rest, then the rest one by one. */
template <int W, int TILES, int M, int K, int N, class Visible>
__device__ __noinline__ void weigh_again(float (&c)[M][N][4], const float (&w)[M][K][4], int matrix,
                                         int column, uint32_t left_out, const Visible &visible)
{
    tf32x3_weigh_rows<true, W, TILES>(c, w, matrix, left_out);
    weigh_one_by_one<float, W, M, N>(&c[0][0][0], ra_shared + matrix, 8 * K, column,
                                     weights_of_lanes<K>{ &w[0][0][0] }, visible,
                                     not_split_counts{});
}
/* On copies, for the same reason as weigh_one_by_one(). */
template <int W, int TILES, int M, int K, int N, class Visible>
__device__ __forceinline__ void weigh_left_out(float (&c)[M][N][4], const float (&w)[M][K][4],
                                               int matrix, int column, uint32_t left_out,
                                               const Visible &visible)
{
    float sums[M][N][4], weights[M][K][4];
    copy(sums, c);
    copy(weights, w);
    weigh_again<W, TILES>(sums, weights, matrix, column, left_out, visible);
    copy(c, sums);
}

/* Weights that are not rounded. */
template <int M, int K> using numbers = float[M][K][4];
template <int M, int K>
__device__ __forceinline__ const numbers<M, K> &numbers_of(const numbers<M, K> &w)
{
    return w;
}
template <int M, int K>
__device__ __forceinline__ const numbers<M, K> &numbers_of(const packed_weights<float, M, K> &w)
{
    return w.w;
}

/* c += W B; weights are f32 or packed ones, B is the matrix at an offset of shared memory, from a
 * column on. `wary`: some pairs are hidden, so infinities and NaN of B are kept apart, as 0 by them
 * is not 0; f32 finds them by itself. TILES: see tf32x3_weigh_rows(). make_visible() makes what
 * weigh_one_by_one() asks, where it is needed. */
template <class T, int W, int TILES, int M, int N, class Weights, class Make>
__device__ __forceinline__ void weigh(float (&c)[M][N][4], const Weights &w, int matrix, int column,
                                      bool wary, const Make &make_visible)
{
    if constexpr (IS_F32<T>) {
        (void)wary;
        const auto &exact = numbers_of(w);
        const uint32_t left_out = tf32x3_weigh_rows<false, W, TILES>(c, exact, matrix, 0);
        if (!__any_sync(0xffffffffu, left_out != 0)) return;
        weigh_left_out<W, TILES>(c, exact, matrix, column, left_out, make_visible());
    } else {
        const uint32_t b = moved<W>(
            shared_address(ra_shared) + matrix + lane_first<W>(threadIdx.x & 31), 0, column / 16);
        if (!wary) {
            weigh_rows<false, T, W>(c, w, b);
            return;
        }
        const uint32_t found = weigh_rows<true, T, W>(c, w, b);
        if (!__any_sync(0xffffffffu, found != 0)) return;
        weigh_aside<T, W>(c, w, ra_shared + matrix, column, make_visible(), not_finite_counts{});
    }
}

} // namespace ra::mma

#endif
