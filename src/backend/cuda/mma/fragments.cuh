/* SPDX-License-Identifier: Apache-2.0 */
/* fragments.cuh - matrices in shared memory, and the two products that attention is made of, for
 * one warp: both operands in shared memory, or the first in registers.
 *
 * A matrix has rows of D numbers in lines of 128 bytes; the 16-byte chunks of a line are permuted
 * by chunk ^ (row % 8), so that the 8 rows of an ldmatrix lie in different banks.
 *
 * A fragment [M][N / 8][4] of f32 holds 16 M x N numbers over the lanes of a warp. A thread has of
 * fragment (i, j): rows 16 i + lane / 4 (+ 8 for the last two), columns 8 j + 2 (lane % 4) and the
 * next one. */
#ifndef RA__BACKEND_CUDA_MMA_FRAGMENTS_CUH
#define RA__BACKEND_CUDA_MMA_FRAGMENTS_CUH

#include "backend/cuda/mma/words.cuh"

namespace ra::mma
{

/* Bytes of a row. */
template <int D> constexpr int LINE = (D + 63) / 64 * 128;

/* Where a chunk of a row is, in bytes from the start of the matrix. */
template <int D> __device__ __forceinline__ uint32_t chunk_at(int row, int chunk)
{
    return row * LINE<D> + (((chunk & ~7) | ((chunk ^ row) & 7)) << 4);
}

/* What a lane adds to the address of a matrix: rows 0..15 and chunks 0..1 as the first operand of
 * an mma, or transposed as the second one; and untransposed as the second one. */
template <int D> __device__ __forceinline__ uint32_t lane_first(int lane)
{
    return chunk_at<D>(lane & 15, lane >> 4);
}
template <int D> __device__ __forceinline__ uint32_t lane_second(int lane)
{
    return chunk_at<D>((lane & 7) + (lane >> 4 << 3), lane >> 3 & 1);
}

/* The address 16 `rows` and 16 `columns` further on. The XOR is right because matrices are aligned
 * to 128 bytes. */
template <int D> __device__ __forceinline__ uint32_t moved(uint32_t address, int rows, int columns)
{
    return (address ^ ((columns & 3) << 5)) + (columns >> 2) * 128 + rows * 16 * LINE<D>;
}

template <int M, int N> __device__ __forceinline__ void clear(float (&c)[M][N][4])
{
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) c[i][j][e] = 0.0f;
}

template <int M, int N>
__device__ __forceinline__ void copy(float (&to)[M][N][4], const float (&from)[M][N][4])
{
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) to[i][j][e] = from[i][j][e];
}

/* The rows of a warp as first operands, where registers can hold them. */
template <int M, int D>
__device__ __forceinline__ void load_rows(uint32_t (&to)[D / 16][M][4], uint32_t a)
{
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int i = 0; i < M; i++) load_matrices(to[k][i], moved<D>(a, i, k));
}

/* Two columns of fragments: c[:, 2 j] and c[:, 2 j + 1] += first second. */
template <class T, int M, int N>
__device__ __forceinline__ void multiply_two(float (&c)[M][N][4], int j,
                                             const uint32_t (&first)[M][4],
                                             const uint32_t (&second)[4])
{
#pragma unroll
    for (int i = 0; i < M; i++) {
        multiply_add<T>(c[i][2 * j], first[i], second[0], second[1]);
        multiply_add<T>(c[i][2 * j + 1], first[i], second[2], second[3]);
    }
}

/* c = A B^T; a has lane_first() in it, b lane_second(). Second operands are loaded one step
 * before they are multiplied; registers do not suffice for doing so with the first ones. */
template <class T, int D, int M, int N>
__device__ __forceinline__ void rows_by_rows(float (&c)[M][N][4], uint32_t a, uint32_t b)
{
    uint32_t first[M][4], second[2][4];
    clear(c);
    load_matrices(second[0], b);
#pragma unroll
    for (int n = 0; n < D / 16 * (N / 2); n++) {
        const int k = n / (N / 2), j = n % (N / 2), next = n + 1;
        if (j == 0) {
#pragma unroll
            for (int i = 0; i < M; i++) load_matrices(first[i], moved<D>(a, i, k));
        }
        if (next < D / 16 * (N / 2))
            load_matrices(second[next & 1], moved<D>(b, next % (N / 2), next / (N / 2)));
        multiply_two<T>(c, j, first, second[n & 1]);
    }
}
template <class T, int D, int M, int N>
__device__ __forceinline__ void rows_by_rows(float (&c)[M][N][4], const uint32_t (&a)[D / 16][M][4],
                                             uint32_t b)
{
    uint32_t second[2][4];
    clear(c);
    load_matrices(second[0], b);
#pragma unroll
    for (int n = 0; n < D / 16 * (N / 2); n++) {
        const int next = n + 1;
        if (next < D / 16 * (N / 2))
            load_matrices(second[next & 1], moved<D>(b, next % (N / 2), next / (N / 2)));
        multiply_two<T>(c, n % (N / 2), a[n / (N / 2)], second[n & 1]);
    }
}

/* c += W B: weights in registers, rounded to T here, and N numbers of each row of B; b has
 * lane_first() in it. WARY: infinities and NaN of B count as 0; says whether there are some in what
 * this lane has loaded. */
template <bool WARY, class T, int D, int M, int K, int N>
__device__ __forceinline__ uint32_t weigh_rows(float (&c)[M][N][4], const float (&w)[M][K][4],
                                               uint32_t b)
{
    uint32_t found = 0, second[2][4];
    load_transposed(second[0], b);
#pragma unroll
    for (int k = 0; k < K / 2; k++) {
        uint32_t first[M][4];
#pragma unroll
        for (int i = 0; i < M; i++) {
            first[i][0] = pack<T>(w[i][2 * k][0], w[i][2 * k][1]);
            first[i][1] = pack<T>(w[i][2 * k][2], w[i][2 * k][3]);
            first[i][2] = pack<T>(w[i][2 * k + 1][0], w[i][2 * k + 1][1]);
            first[i][3] = pack<T>(w[i][2 * k + 1][2], w[i][2 * k + 1][3]);
        }
#pragma unroll
        for (int j = 0; j < N / 2; j++) {
            const int n = k * (N / 2) + j, next = n + 1;
            if (next < K / 2 * (N / 2))
                load_transposed(second[next & 1], moved<D>(b, next / (N / 2), next % (N / 2)));
            if constexpr (WARY) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const uint32_t marks = not_finite<T>(second[n & 1][e]);
                    second[n & 1][e] &= ~marks;
                    found |= marks;
                }
            }
            multiply_two<T>(c, j, first, second[n & 1]);
        }
    }
    return found;
}

/* Numbers of a T in memory. */
__device__ __forceinline__ float wide(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float wide(f16 x) { return __half2float(x); }
__device__ __forceinline__ void narrow(float x, bf16 *to) { *to = __float2bfloat16(x); }
__device__ __forceinline__ void narrow(float x, f16 *to) { *to = __float2half(x); }

__device__ __forceinline__ bool is_finite(float x) { return fabsf(x) <= 3.402823466e+38f; }

/* Both numbers are there before one is chosen: a compiler that moves the choice to the index of a
 * fragment moves the fragment to memory. */
__device__ __forceinline__ float selected(bool first, float a, float b) { return first ? a : b; }

/* After weigh_rows<true>(): adds the products of the infinities and NaN of B, a matrix of which the
 * fragments have N columns from `column` on, with the weights, for the pairs that visible(row, key)
 * lets pass; rows are those of the warp's fragments. Rare, so it is slow and out of the way: a
 * function of its own, on copies, leaves the registers of its caller alone. */
template <class T, int D, int M, int K, int N, class Visible>
__device__ __noinline__ void weigh_one_by_one(float *c, const float *w, const unsigned char *matrix,
                                              int column, const Visible &visible)
{
    const int lane = threadIdx.x & 31, quad = lane & 3;
#pragma unroll 1
    for (int key = 0; key < 8 * K; key++)
#pragma unroll 1
        for (int n = 0; n < 2 * M; n++) {
            const int i = n / 2, half = n % 2;
            const float mine = w[4 * (i * K + key / 8) + 2 * half + (key & 1)];
            const float weight = __shfl_sync(0xffffffffu, mine, (lane & ~3) | (key >> 1 & 3));
            if (!visible(16 * i + 8 * half + (lane >> 2), key)) continue;
#pragma unroll 1
            for (int j = 0; j < 2 * N; j++) {
                const int d = column + j / 2 * 8 + 2 * quad + j % 2;
                const float x = wide(((const T *)(matrix + chunk_at<D>(key, d / 8)))[d % 8]);
                if (!is_finite(x)) c[4 * (i * N + j / 2) + 2 * half + j % 2] += weight * x;
            }
        }
}
template <class T, int D, int M, int K, int N, class Visible>
__device__ __forceinline__ void weigh_not_finite(float (&c)[M][N][4], const float (&w)[M][K][4],
                                                 const unsigned char *matrix, int column,
                                                 const Visible &visible)
{
    float sums[M][N][4], weights[M][K][4];
    copy(sums, c);
    copy(weights, w);
    weigh_one_by_one<T, D, M, K, N>(&sums[0][0][0], &weights[0][0][0], matrix, column, visible);
    copy(c, sums);
}

/* Row `half` of a row of fragments, times a factor, is added to numbers in global memory. */
template <int N>
__device__ __forceinline__ void add_row(float *to, const float (&c)[N][4], int half, int numbers,
                                        float factor, bool pairs)
{
    const int quad = threadIdx.x & 3;
#pragma unroll
    for (int j = 0; j < N; j++) {
        const int d = 8 * j + 2 * quad;
        const float low = c[j][2 * half] * factor, high = c[j][2 * half + 1] * factor;
        if (d >= numbers) continue;
        if (pairs) {
            float2 *both = (float2 *)(to + d);
            const float2 before = *both;
            *both = make_float2(before.x + low, before.y + high);
        } else {
            to[d] += low;
            if (d + 1 < numbers) to[d + 1] += high;
        }
    }
}

} // namespace ra::mma

#endif
