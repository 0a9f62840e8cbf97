/* SPDX-License-Identifier: Apache-2.0 */
/* tf32x3.cuh - the two products in f32, by tensor cores, for one warp.
 *
 * Tensor cores multiply numbers of TF32, which have 11 bits where f32 has 24. A number of f32 is
 * the sum of two of those, big and small, to 1 part in 2^23; a product is big by big, big by small
 * and small by big. What is left out, small by small, is below 2^-22 of it.
 *
 * Tensor cores cut off what they add instead of rounding it: sums shrink with every addition. So
 * the products of small numbers have accumulators of their own, every block has its own, and these
 * are added to the sums of the blocks before it by f32 additions.
 *
 * An infinity is not such a sum, nor are the largest numbers. Where they occur, callers compute
 * what tensor cores have not in another way; the bits of all other sums stay what they are. */
#ifndef RA__BACKEND_CUDA_MMA_TF32X3_CUH
#define RA__BACKEND_CUDA_MMA_TF32X3_CUH

#include "backend/cuda/mma/loader.cuh"

namespace ra::mma
{

/* big is rounded, so that small has either sign; of both, tensor cores ignore the last 13 bits. A
 * NaN is still one in small. */
__device__ __forceinline__ void split(uint32_t &big, uint32_t &small, float x)
{
    big = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    small = __float_as_uint(x - __uint_as_float(big));
}
template <int N>
__device__ __forceinline__ void split(uint32_t (&big)[N], uint32_t (&small)[N], const float (&x)[N])
{
#pragma unroll
    for (int n = 0; n < N; n++) split(big[n], small[n], x[n]);
}
/* Is it the sum of two such numbers? The largest ones would be rounded to infinity. */
__device__ __forceinline__ bool can_split(float x) { return fabsf(x) < 0x1.ffep127f; }

/* Sums of products: big by big, and the others. */
template <int M, int N> struct big_and_small {
    float big[M][N][4], small[M][N][4];
};

/* Two columns of fragments: sums[:, at] and sums[:, at + 1] += first second. */
template <int M, int N>
__device__ __forceinline__ void multiply_tf32x3(big_and_small<M, N> &sums, int at,
                                                const float (&first)[M][4],
                                                const float (&second)[4])
{
    uint32_t big[M][4], small[M][4], second_big[4], second_small[4];
    split(second_big, second_small, second);
#pragma unroll
    for (int i = 0; i < M; i++) split(big[i], small[i], first[i]);
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
            multiply_add<float>(sums.big[i][at + n], big[i], second_big[2 * n],
                                second_big[2 * n + 1]);
            multiply_add<float>(sums.small[i][at + n], big[i], second_small[2 * n],
                                second_small[2 * n + 1]);
        }
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int n = 0; n < 2; n++)
            multiply_add<float>(sums.small[i][at + n], small[i], second_big[2 * n],
                                second_big[2 * n + 1]);
}

/* c = A B^T, as rows_by_rows() of fragments.cuh: an ldmatrix brings 4 numbers of a row. */
template <int W, int M, int N>
__device__ __forceinline__ void tf32x3_rows_by_rows(float (&c)[M][N][4], uint32_t a, uint32_t b)
{
    uint32_t words[M][4], second[2][4];
    float first[M][4], now[4];
    big_and_small<M, N> sums;
    clear(sums.big);
    clear(sums.small);
    load_matrices(second[0], b);
#pragma unroll
    for (int n = 0; n < W / 16 * (N / 2); n++) {
        const int k = n / (N / 2), j = n % (N / 2), next = n + 1;
        if (j == 0) {
#pragma unroll
            for (int i = 0; i < M; i++) {
                load_matrices(words[i], moved<W>(a, i, k));
#pragma unroll
                for (int e = 0; e < 4; e++) first[i][e] = __uint_as_float(words[i][e]);
            }
        }
        if (next < W / 16 * (N / 2))
            load_matrices(second[next & 1], moved<W>(b, next % (N / 2), next / (N / 2)));
#pragma unroll
        for (int e = 0; e < 4; e++) now[e] = __uint_as_float(second[n & 1][e]);
        multiply_tf32x3(sums, 2 * j, first, now);
    }
    add(sums.big, sums.small);
    copy(c, sums.big);
}

/* c += W B: 8 K weights of a row, in the fragments that scores come in, and all numbers of each row
 * of B, the matrix at an offset of shared memory; TILES fragments of a row of c at a time, more of
 * them where registers allow it. Bit j of the result: this lane has left out columns [8 j, 8 j + 8)
 * of c, since sums are not finite. WARY: weights and numbers that cannot be split count as 0, and
 * only the columns of `only` are added.
 * A lane has weights of keys 2 q and 2 q + 1, q = lane % 4, where tensor cores expect those of keys
 * q and q + 4 of 8: so the lane reads rows 2 q and 2 q + 1 of B as well. The permuted chunks keep
 * the 32 numbers of a load in different banks. */
template <bool WARY, int W, int TILES, int M, int K, int N>
__device__ __forceinline__ uint32_t tf32x3_weigh_rows(float (&c)[M][N][4],
                                                      const float (&w)[M][K][4], int matrix,
                                                      uint32_t only)
{
    static_assert(N % TILES == 0 && TILES % 2 == 0 && N <= 32, "a bit for each column");
    const int lane = threadIdx.x & 31, key = 2 * (lane & 3), d = lane >> 2;
    const int even = matrix + chunk_at<W>(key, d >> 2) + 4 * (d & 3);
    const int odd = matrix + chunk_at<W>(key + 1, d >> 2) + 4 * (d & 3);
    const auto taken = [](float x) { return !WARY || can_split(x) ? x : 0.0f; };
    uint32_t left_out = 0;
#pragma unroll
    for (int j = 0; j < N; j += TILES) {
        big_and_small<M, TILES> sums;
        clear(sums.big);
        clear(sums.small);
#pragma unroll
        for (int k = 0; k < K; k++) {
            float first[M][4], second[4];
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) first[i][e] = taken(w[i][k][2 * (e & 1) + (e >> 1)]);
#pragma unroll
            for (int n = 0; n < TILES; n += 2) {
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int chunk = 2 * (j + n + e);
                    const int far = (chunk >> 3) * 128 + k * 8 * LINE<W>, near = (chunk & 7) << 4;
                    second[2 * e] = taken(*(const float *)(ra_shared + (even ^ near) + far));
                    second[2 * e + 1] = taken(*(const float *)(ra_shared + (odd ^ near) + far));
                }
                multiply_tf32x3(sums, n, first, second);
            }
        }
        const uint32_t columns = ((1u << TILES) - 1) << j;
        add(sums.big, sums.small);
        if (WARY ? !(only & columns) : !are_finite(sums.big)) {
            left_out |= columns;
            continue;
        }
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) c[i][j + n][e] += sums.big[i][n][e];
    }
    return left_out;
}

} // namespace ra::mma

#endif
