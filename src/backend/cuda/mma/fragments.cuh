/* SPDX-License-Identifier: Apache-2.0 */
/* fragments.cuh - matrices in shared memory, and the two products that attention is made of, for
 * one warp: both operands in shared memory, or the first in registers.
 *
 * A matrix has rows of W words of 2 bytes in lines of 128 bytes; the 16-byte chunks of a line are
 * permuted by chunk ^ (row % 8), so that the 8 rows of an ldmatrix lie in different banks.
 *
 * A fragment [M][N / 8][4] of f32 holds 16 M x N numbers over the lanes of a warp. A thread has of
 * fragment (i, j): rows 16 i + lane / 4 (+ 8 for the last two), columns 8 j + 2 (lane % 4) and the
 * next one. */
#ifndef RA__BACKEND_CUDA_MMA_FRAGMENTS_CUH
#define RA__BACKEND_CUDA_MMA_FRAGMENTS_CUH

#include "backend/cuda/mma/words.cuh"

namespace ra::mma
{

/* Words of 2 bytes of a number. */
template <class T> constexpr int WORDS = (int)sizeof(T) / 2;
template <class T> constexpr bool IS_F32 = WORDS<T> == 2;

/* Bytes of a row. */
template <int W> constexpr int LINE = (W + 63) / 64 * 128;

/* Where a chunk of a row is, in bytes from the start of the matrix. */
template <int W> __device__ __forceinline__ uint32_t chunk_at(int row, int chunk)
{
    return row * LINE<W> + (((chunk & ~7) | ((chunk ^ row) & 7)) << 4);
}

/* What a lane adds to the address of a matrix: rows 0..15 and chunks 0..1 as the first operand of
 * an mma, or transposed as the second one; and untransposed as the second one. */
template <int W> __device__ __forceinline__ uint32_t lane_first(int lane)
{
    return chunk_at<W>(lane & 15, lane >> 4);
}
template <int W> __device__ __forceinline__ uint32_t lane_second(int lane)
{
    return chunk_at<W>((lane & 7) + (lane >> 4 << 3), lane >> 3 & 1);
}

/* The address 16 `rows` and 16 `columns`, of words, further on. The XOR is right because matrices
 * are aligned to 128 bytes. */
template <int W> __device__ __forceinline__ uint32_t moved(uint32_t address, int rows, int columns)
{
    return (address ^ ((columns & 3) << 5)) + (columns >> 2) * 128 + rows * 16 * LINE<W>;
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
__device__ __forceinline__ void add(float (&to)[M][N][4], const float (&from)[M][N][4])
{
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) to[i][j][e] += from[i][j][e];
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
template <int M, int W>
__device__ __forceinline__ void load_rows(uint32_t (&to)[W / 16][M][4], uint32_t a)
{
#pragma unroll
    for (int k = 0; k < W / 16; k++)
#pragma unroll
        for (int i = 0; i < M; i++) load_matrices(to[k][i], moved<W>(a, i, k));
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
 * between(k) comes before the k-th of W / 16 steps. */
template <class T, int W, int M, int N, class Between>
__device__ __forceinline__ void rows_by_rows(float (&c)[M][N][4], uint32_t a, uint32_t b,
                                             const Between &between)
{
    uint32_t first[M][4], second[2][4];
    clear(c);
    load_matrices(second[0], b);
#pragma unroll
    for (int n = 0; n < W / 16 * (N / 2); n++) {
        const int k = n / (N / 2), j = n % (N / 2), next = n + 1;
        if (j == 0) {
            between(k);
#pragma unroll
            for (int i = 0; i < M; i++) load_matrices(first[i], moved<W>(a, i, k));
        }
        if (next < W / 16 * (N / 2))
            load_matrices(second[next & 1], moved<W>(b, next % (N / 2), next / (N / 2)));
        multiply_two<T>(c, j, first, second[n & 1]);
    }
}
template <class T, int W, int M, int N>
__device__ __forceinline__ void rows_by_rows(float (&c)[M][N][4], uint32_t a, uint32_t b)
{
    rows_by_rows<T, W>(c, a, b, [](int) {});
}
template <class T, int W, int M, int N>
__device__ __forceinline__ void rows_by_rows(float (&c)[M][N][4], const uint32_t (&a)[W / 16][M][4],
                                             uint32_t b)
{
    uint32_t second[2][4];
    clear(c);
    load_matrices(second[0], b);
#pragma unroll
    for (int n = 0; n < W / 16 * (N / 2); n++) {
        const int next = n + 1;
        if (next < W / 16 * (N / 2))
            load_matrices(second[next & 1], moved<W>(b, next % (N / 2), next / (N / 2)));
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
    __device__ __forceinline__ void unpack_to(float (&to)[M][K][4]) const
    {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < K; j++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const float2 two = unpack<T>(w[i][j][half]);
                    to[i][j][2 * half] = two.x;
                    to[i][j][2 * half + 1] = two.y;
                }
    }
};
/* the same in f32, where nothing is rounded; */
template <int M, int K> struct packed_weights<float, M, K> {
    float w[M][K][4];
    __device__ __forceinline__ explicit packed_weights(const float (&from)[M][K][4])
    {
        copy(w, from);
    }
};
/* in shared memory, in rows of W words: `a` has lane_first() in it; */
template <int W> struct stored_weights {
    static constexpr bool AHEAD = true;
    uint32_t a;
    template <int M> __device__ __forceinline__ void load(uint32_t (&to)[M][4], int k) const
    {
#pragma unroll
        for (int i = 0; i < M; i++) load_matrices(to[i], moved<W>(a, i, k));
    }
};
/* or the transpose of those: `a` has lane_second() in it. */
template <int W> struct transposed_weights {
    static constexpr bool AHEAD = true;
    uint32_t a;
    template <int M> __device__ __forceinline__ void load(uint32_t (&to)[M][4], int k) const
    {
#pragma unroll
        for (int i = 0; i < M; i++) load_transposed(to[i], moved<W>(a, k, i));
    }
};

/* c += W B: 16 STEPS weights of a row, and N numbers of each row of B; b has lane_first() in it.
 * WARY: infinities and NaN of B count as 0; says whether there are some in what this lane has
 * loaded. Weights in shared memory are loaded one step before they are multiplied. */
template <bool WARY, class T, int W, int STEPS, int M, int N, class Weights>
__device__ __forceinline__ uint32_t weigh_steps(float (&c)[M][N][4], const Weights &weights,
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
                load_transposed(second[next & 1], moved<W>(b, next / (N / 2), next % (N / 2)));
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
template <bool WARY, class T, int W, int M, int K, int N>
__device__ __forceinline__ uint32_t weigh_rows(float (&c)[M][N][4], const float (&w)[M][K][4],
                                               uint32_t b)
{
    return weigh_steps<WARY, T, W, K / 2>(c, held_weights<T, M, K>{ w }, b);
}
template <bool WARY, class T, int W, int M, int K, int N>
__device__ __forceinline__ uint32_t weigh_rows(float (&c)[M][N][4],
                                               const packed_weights<T, M, K> &w, uint32_t b)
{
    return weigh_steps<WARY, T, W, K / 2>(c, w, b);
}

/* Numbers of a T in memory. */
__device__ __forceinline__ float wide(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float wide(f16 x) { return __half2float(x); }
__device__ __forceinline__ float wide(float x) { return x; }
__device__ __forceinline__ void narrow(float x, bf16 *to) { *to = __float2bfloat16(x); }
__device__ __forceinline__ void narrow(float x, f16 *to) { *to = __float2half(x); }
__device__ __forceinline__ void narrow(float x, float *to) { *to = x; }
/* Two of them at once, aligned. */
template <class T> __device__ __forceinline__ void narrow_pair(float low, float high, T *to)
{
    if constexpr (IS_F32<T>) *(float2 *)to = make_float2(low, high);
    else *(uint32_t *)to = pack<T>(low, high);
}

__device__ __forceinline__ bool is_finite(float x) { return fabsf(x) <= 3.402823466e+38f; }

/* Of all numbers of fragments. 0 by an infinity or NaN is NaN. */
template <int M, int N> __device__ __forceinline__ bool are_finite(const float (&c)[M][N][4])
{
    float nothing = 0.0f;
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) nothing = fmaf(c[i][j][e], 0.0f, nothing);
    return nothing == 0.0f;
}

/* Both numbers are there before one is chosen: a compiler that moves the choice to the index of a
 * fragment moves the fragment to memory. */
__device__ __forceinline__ float selected(bool first, float a, float b) { return first ? a : b; }

/* The number in row `row` and column `d` of a matrix in shared memory. */
template <class T, int W>
__device__ __forceinline__ float number_at(const unsigned char *matrix, int row, int d)
{
    constexpr int IN_CHUNK = 16 / (int)sizeof(T);
    return wide(((const T *)(matrix + chunk_at<W>(row, d / IN_CHUNK)))[d % IN_CHUNK]);
}

/* Row `half` of a row of fragments, times a factor, to numbers of a T in global memory. */
template <bool ADD, class T, int N>
__device__ __forceinline__ void put_row(T *to, const float (&c)[N][4], int half, int numbers,
                                        float factor, bool pairs)
{
    const int quad = threadIdx.x & 3;
#pragma unroll
    for (int j = 0; j < N; j++) {
        const int d = 8 * j + 2 * quad;
        float low = c[j][2 * half] * factor, high = c[j][2 * half + 1] * factor;
        if (d >= numbers) continue;
        if (pairs) {
            if constexpr (ADD) {
                const float2 before = *(const float2 *)(to + d);
                low += before.x;
                high += before.y;
            }
            narrow_pair(low, high, to + d);
        } else {
            narrow(ADD ? low + wide(to[d]) : low, to + d);
            if (d + 1 < numbers) narrow(ADD ? high + wide(to[d + 1]) : high, to + d + 1);
        }
    }
}
template <class T, int N>
__device__ __forceinline__ void write_row(T *to, const float (&c)[N][4], int half, int numbers,
                                          float factor, bool pairs)
{
    put_row<false>(to, c, half, numbers, factor, pairs);
}
/* The same, added to what is there. */
template <int N>
__device__ __forceinline__ void add_row(float *to, const float (&c)[N][4], int half, int numbers,
                                        float factor, bool pairs)
{
    put_row<true>(to, c, half, numbers, factor, pairs);
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
