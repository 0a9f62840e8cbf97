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
 * before they are multiplied; registers do not suffice for doing so with the first ones.
 * between(k) comes before the k-th of D / 16 steps. */
template <class T, int D, int M, int N, class Between>
__device__ __forceinline__ void rows_by_rows(float (&c)[M][N][4], uint32_t a, uint32_t b,
                                             const Between &between)
{
    uint32_t first[M][4], second[2][4];
    clear(c);
    load_matrices(second[0], b);
#pragma unroll
    for (int n = 0; n < D / 16 * (N / 2); n++) {
        const int k = n / (N / 2), j = n % (N / 2), next = n + 1;
        if (j == 0) {
            between(k);
#pragma unroll
            for (int i = 0; i < M; i++) load_matrices(first[i], moved<D>(a, i, k));
        }
        if (next < D / 16 * (N / 2))
            load_matrices(second[next & 1], moved<D>(b, next % (N / 2), next / (N / 2)));
        multiply_two<T>(c, j, first, second[n & 1]);
    }
}
template <class T, int D, int M, int N>
__device__ __forceinline__ void rows_by_rows(float (&c)[M][N][4], uint32_t a, uint32_t b)
{
    rows_by_rows<T, D>(c, a, b, [](int) {});
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

/* Weights that are first operands, 16 columns at a time: in registers, rounded to T here; */
template <class T, int M, int K> struct held_weights {
    static constexpr bool AHEAD = false;
    const float (&w)[M][K][4];
    __device__ __forceinline__ void load(uint32_t (&to)[M][4], int k) const
    {
#pragma unroll
        for (int i = 0; i < M; i++) {
            to[i][0] = pack<T>(w[i][2 * k][0], w[i][2 * k][1]);
            to[i][1] = pack<T>(w[i][2 * k][2], w[i][2 * k][3]);
            to[i][2] = pack<T>(w[i][2 * k + 1][0], w[i][2 * k + 1][1]);
            to[i][3] = pack<T>(w[i][2 * k + 1][2], w[i][2 * k + 1][3]);
        }
    }
};
/* in registers and rounded before, two columns in a word; */
template <class T, int M, int K> struct packed_weights {
    static constexpr bool AHEAD = false;
    uint32_t w[M][K][2];
    __device__ __forceinline__ explicit packed_weights(const float (&from)[M][K][4])
    {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < K; j++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    w[i][j][half] = pack<T>(from[i][j][2 * half], from[i][j][2 * half + 1]);
    }
    __device__ __forceinline__ void load(uint32_t (&to)[M][4], int k) const
    {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int n = 0; n < 4; n++) to[i][n] = w[i][2 * k + n / 2][n % 2];
    }
};
/* in shared memory, in rows of D numbers: `a` has lane_first() in it; */
template <int D> struct stored_weights {
    static constexpr bool AHEAD = true;
    uint32_t a;
    template <int M> __device__ __forceinline__ void load(uint32_t (&to)[M][4], int k) const
    {
#pragma unroll
        for (int i = 0; i < M; i++) load_matrices(to[i], moved<D>(a, i, k));
    }
};
/* or the transpose of those: `a` has lane_second() in it. */
template <int D> struct transposed_weights {
    static constexpr bool AHEAD = true;
    uint32_t a;
    template <int M> __device__ __forceinline__ void load(uint32_t (&to)[M][4], int k) const
    {
#pragma unroll
        for (int i = 0; i < M; i++) load_transposed(to[i], moved<D>(a, k, i));
    }
};

/* c += W B: 16 STEPS weights of a row, and N numbers of each row of B; b has lane_first() in it.
 * WARY: infinities and NaN of B count as 0; says whether there are some in what this lane has
 * loaded. Weights in shared memory are loaded one step before they are multiplied. */
template <bool WARY, class T, int D, int STEPS, int M, int N, class Weights>
__device__ __forceinline__ uint32_t weigh_rows(float (&c)[M][N][4], const Weights &weights,
                                               uint32_t b)
{
    uint32_t found = 0, first[2][M][4], second[2][4];
    if constexpr (Weights::AHEAD) weights.load(first[0], 0);
    load_transposed(second[0], b);
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        if constexpr (!Weights::AHEAD) weights.load(first[k & 1], k);
        else if (k + 1 < STEPS) weights.load(first[(k + 1) & 1], k + 1);
#pragma unroll
        for (int j = 0; j < N / 2; j++) {
            const int n = k * (N / 2) + j, next = n + 1;
            if (next < STEPS * (N / 2))
                load_transposed(second[next & 1], moved<D>(b, next / (N / 2), next % (N / 2)));
            if constexpr (WARY) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const uint32_t marks = not_finite<T>(second[n & 1][e]);
                    second[n & 1][e] &= ~marks;
                    found |= marks;
                }
            }
            multiply_two<T>(c, j, first[k & 1], second[n & 1]);
        }
    }
    return found;
}
template <bool WARY, class T, int D, int M, int K, int N>
__device__ __forceinline__ uint32_t weigh_rows(float (&c)[M][N][4], const float (&w)[M][K][4],
                                               uint32_t b)
{
    return weigh_rows<WARY, T, D, K / 2>(c, held_weights<T, M, K>{ w }, b);
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

/* The number in row `row` and column `d` of a matrix in shared memory. */
template <class T, int D>
__device__ __forceinline__ float number_at(const unsigned char *matrix, int row, int d)
{
    return wide(((const T *)(matrix + chunk_at<D>(row, d / 8)))[d % 8]);
}

/* After weigh_rows<true>(): adds the products of the infinities and NaN of B, a matrix of `keys`
 * rows of which the fragments have N columns from `column` on, with the weights, for the pairs that
 * visible(row, key) lets pass; rows are those of the warp's fragments, and all lanes together ask
 * for weight(row, key). Rare, so it is slow and out of the way: a function of its own, on copies,
 * leaves the registers of its caller alone. */
template <class T, int D, int M, int N, class Weight, class Visible>
__device__ __noinline__ void weigh_one_by_one(float *c, const unsigned char *matrix, int keys,
                                              int column, const Weight &weight,
                                              const Visible &visible)
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
                const float x = number_at<T, D>(matrix, key, column + j / 2 * 8 + 2 * quad + j % 2);
                if (!is_finite(x)) c[4 * (n / 2 * N + j / 2) + 2 * (n % 2) + j % 2] += by * x;
            }
        }
}
/* With weights in shared memory. */
template <class T, int D, int M, int N, class Weight, class Visible>
__device__ __forceinline__ void weigh_not_finite(float (&c)[M][N][4], const unsigned char *matrix,
                                                 int keys, int column, const Weight &weight,
                                                 const Visible &visible)
{
    float sums[M][N][4];
    copy(sums, c);
    weigh_one_by_one<T, D, M, N>(&sums[0][0][0], matrix, keys, column, weight, visible);
    copy(c, sums);
}
/* And in registers. */
template <class T, int D, int M, int K, int N, class Visible>
__device__ __forceinline__ void weigh_not_finite(float (&c)[M][N][4], const float (&w)[M][K][4],
                                                 const unsigned char *matrix, int column,
                                                 const Visible &visible)
{
    float weights[M][K][4];
    copy(weights, w);
    const float *first = &weights[0][0][0];
    const auto weight = [first](int row, int key) {
        const int lane = threadIdx.x & 31;
        const float mine = first[4 * (row / 16 * K + key / 8) + 2 * (row / 8 % 2) + (key & 1)];
        return __shfl_sync(0xffffffffu, mine, (lane & ~3) | (key >> 1 & 3));
    };
    weigh_not_finite<T, D>(c, matrix, 8 * K, column, weight, visible);
}
/* Packed ones. */
template <class T, int D, int M, int K, int N, class Visible>
__device__ __forceinline__ void weigh_not_finite(float (&c)[M][N][4],
                                                 const packed_weights<T, M, K> &weights,
                                                 const unsigned char *matrix, int column,
                                                 const Visible &visible)
{
    float wide[M][K][4];
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < K; j++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float2 two = unpack<T>(weights.w[i][j][half]);
                wide[i][j][2 * half] = two.x;
                wide[i][j][2 * half + 1] = two.y;
            }
    weigh_not_finite<T, D>(c, wide, matrix, column, visible);
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

/* The same by atomic operations. */
template <int N>
__device__ __forceinline__ void add_row_atomic(float *to, const float (&c)[N][4], int half,
                                               int numbers, float factor)
{
    const int quad = threadIdx.x & 3;
#pragma unroll
    for (int j = 0; j < N; j++) {
        const int d = 8 * j + 2 * quad;
        if (d < numbers) add_atomic(to + d, c[j][2 * half] * factor);
        if (d + 1 < numbers) add_atomic(to + d + 1, c[j][2 * half + 1] * factor);
    }
}
/* Where all numbers of the fragments are in the row, and aligned. */
template <int N>
__device__ __forceinline__ void add_row_atomic(float *to, const float (&c)[N][4], int half,
                                               float factor)
{
    to = computed(to + 2 * (threadIdx.x & 3));
#pragma unroll
    for (int j = 0; j < N; j++)
        add_atomic(to + 8 * j, c[j][2 * half] * factor, c[j][2 * half + 1] * factor);
}

} // namespace ra::mma

#endif
