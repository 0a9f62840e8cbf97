/* SPDX-License-Identifier: Apache-2.0 */
/* load.cuh - chunks of rows on their way from global memory through registers to shared memory, and
 * rows of results to global memory. Numbers of any dtype are f32 from shared memory on. */
#ifndef RA__CUDA_SIMT_LOAD_CUH
#define RA__CUDA_SIMT_LOAD_CUH

#include "backend/cuda/simt/layout.cuh"

namespace simt
{

/* How numbers are stored: enum ra__cuda_dtype, and whether 4 of them can be moved at a time. */
constexpr int DTYPE_BITS = 3, VECTOR = 4, FAST_FORMAT = RA__CUDA_F32 | VECTOR;

__host__ __device__ inline int format_of(const ra__cuda_tensor &tensor, int dtype, int width)
{
    const uintptr_t bytes = dtype == RA__CUDA_F32 ? 16 : 8;
    const bool aligned = (uintptr_t)tensor.data % bytes == 0 && width % 4 == 0 &&
                         ((tensor.batch | tensor.token | tensor.head) & 3) == 0;
    return dtype | (aligned ? VECTOR : 0);
}

__device__ inline int bytes_of(int dtype) { return dtype == RA__CUDA_F32 ? 4 : 2; }

/* Rows of `width` numbers. Where they begin is in a table in shared memory, apart from this:
 * through a pointer, its loads would not be known to be from there. NULL in it: zeros instead. */
struct panel {
    int width, format;
};
typedef const char *row_pointer;

/* Up to 4 numbers as they are in memory, where they are not aligned; the words of 16-bit numbers
 * are in x and y. Not unrolled: this is inlined in many places. */
__device__ inline uint4 fetch_some(const char *row, int format, int column, int count)
{
    const bool wide = (format & DTYPE_BITS) == RA__CUDA_F32;
    uint4 raw = { 0, 0, 0, 0 };
#pragma unroll 1
    for (int e = 0; e < 4 && e < count; e++) {
        const uint32_t bits = wide ? ((const uint32_t *)row)[column + e]
                                   : ((const uint16_t *)row)[column + e];
        const uint32_t half = bits << 16 * (e & 1);
        if (wide ? e == 0 : e < 2) raw.x |= wide ? bits : half;
        else if (wide ? e == 1 : e < 4) raw.y |= wide ? bits : half;
        else if (e == 2) raw.z = bits;
        else raw.w = bits;
    }
    return raw;
}

/* raw[i] = 4 numbers of row row_of(i) from column_of(i), a multiple of 4, on; zeros past its
 * end. The usual formats have loops of their own: of all that a chunk costs besides
 * multiplications, this is most. */
template <int LOADS, bool FAST, class Row, class Column>
__device__ inline void fetch(panel from, const row_pointer *table, uint4 *raw, Row row_of,
                             Column column_of)
{
    if (FAST || from.format == FAST_FORMAT) {
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const char *row = table[row_of(i)];
            raw[i] = uint4{ 0, 0, 0, 0 };
            if (row && column_of(i) < from.width)
                raw[i] = __ldg((const uint4 *)(row + 4 * column_of(i)));
        }
        return;
    }
    if (from.format & VECTOR) {
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const char *row = table[row_of(i)];
            uint2 words = { 0, 0 };
            if (row && column_of(i) < from.width)
                words = __ldg((const uint2 *)(row + 2 * column_of(i)));
            raw[i].x = words.x;
            raw[i].y = words.y;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const char *row = table[row_of(i)];
        const int column = column_of(i);
        raw[i] = uint4{ 0, 0, 0, 0 };
        if (row) raw[i] = fetch_some(row, from.format, column, from.width - column);
    }
}

__device__ inline float low_number(int format, uint32_t word)
{
    if ((format & DTYPE_BITS) == RA__CUDA_BF16) return __uint_as_float(word << 16);
    return __half2float(__ushort_as_half((unsigned short)(word & 0xffff)));
}
__device__ inline float high_number(int format, uint32_t word)
{
    if ((format & DTYPE_BITS) == RA__CUDA_BF16) return __uint_as_float(word & 0xffff0000u);
    return __half2float(__ushort_as_half((unsigned short)(word >> 16)));
}

__device__ inline float4 unpack(int format, uint4 raw)
{
    if ((format & DTYPE_BITS) == RA__CUDA_F32)
        return float4{ __uint_as_float(raw.x), __uint_as_float(raw.y), __uint_as_float(raw.z),
                       __uint_as_float(raw.w) };
    return float4{ low_number(format, raw.x), high_number(format, raw.x), low_number(format, raw.y),
                   high_number(format, raw.y) };
}

/* ---- Chunks of CHUNK dims of rows, transposed: four adjacent lanes have a row ---- */

__device__ inline int transposed_row() { return threadIdx.x / 4; }
__device__ inline int transposed_dim() { return 4 * (threadIdx.x % 4); }

template <int LOADS, bool FAST>
__device__ inline void fetch_transposed(panel from, const row_pointer *table, int chunk, uint4 *raw)
{
    const int row = transposed_row(), column = CHUNK * chunk + transposed_dim();
    fetch<LOADS, FAST>(
        from, table, raw, [=](int i) { return row + 32 * i; }, [=](int) { return column; });
}

template <int LOADS>
__device__ inline void put_transposed(int format, const uint4 *raw, float factor, float *to)
{
    constexpr int rows = 32 * LOADS;
    const int dim = transposed_dim();
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const float4 x = unpack(format, raw[i]);
        float *at = to + line_at(dim, rows) + transposed_row() + 32 * i;
        at[0] = x.x * factor;
        at[rows] = x.y * factor;
        at[2 * rows] = x.z * factor;
        at[3 * rows] = x.w * factor;
    }
}

/* ---- Chunks of TOKENS rows as they are stored, WIDTH columns from `first` on ---- */

template <class S>
__device__ inline void fetch_rows(panel from, const row_pointer *table, int chunk, int first,
                                  uint4 *raw)
{
    constexpr int QUADS = S::WIDTH / 4;
    const int thread = threadIdx.x;
    fetch<S::LOADS, S::FAST>(
        from, table, raw, [=](int i) { return S::TOKENS * chunk + (thread + THREADS * i) / QUADS; },
        [=](int i) { return first + 4 * ((thread + THREADS * i) % QUADS); });
}

/* The result is NaN if a number is infinite or NaN, else 0. */
template <class S> __device__ inline float put_rows(int format, const uint4 *raw, float *to)
{
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < S::LOADS; i++) {
        const float4 x = unpack(format, raw[i]);
        *(float4 *)(to + 4 * ((int)threadIdx.x + THREADS * i)) = x;
        sum = fmaf(x.x, 0.0f, fmaf(x.y, 0.0f, fmaf(x.z, 0.0f, fmaf(x.w, 0.0f, sum))));
    }
    return sum;
}

/* ---- Results ---- */

__device__ inline void store_one(int dtype, void *to, int64_t at, float x)
{
    if (dtype == RA__CUDA_F32) ((float *)to)[at] = x;
    else if (dtype == RA__CUDA_BF16) ((__nv_bfloat16 *)to)[at] = __float2bfloat16_rn(x);
    else ((__half *)to)[at] = __float2half_rn(x);
}

/* Sums between registers and rows in global memory, 32 columns at a time through `scratch`,
 * where a warp has [ROWS / 4][32] numbers of its own: a row is then read or written by adjacent
 * lanes, and the loop over rows need not be unrolled. `move(row, column, x)` gets a reference to
 * each number. */
template <class S, class Move>
__device__ inline void give_sums(const float (&sums)[S::MR][S::VC], float *scratch, int rows,
                                 Move move)
{
    const int lane = threadIdx.x % 32, first = (int)threadIdx.x / 32 * (S::ROWS / 4);
#pragma unroll
    for (int j = 0; j < S::VC; j += 4) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < S::MR; i++)
            *(float4 *)(scratch + 32 * row_of<S>(i) + 4 * lane_column()) = float4{
                sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]
            };
        __syncwarp();
#pragma unroll 1
        for (int row = first; row < first + S::ROWS / 4 && row < rows; row++)
            move(row, 8 * j + lane, scratch[32 * row + lane]);
    }
}
template <class S, class Move>
__device__ inline void take_sums(float (&sums)[S::MR][S::VC], float *scratch, int rows, Move move)
{
    const int lane = threadIdx.x % 32, first = (int)threadIdx.x / 32 * (S::ROWS / 4);
#pragma unroll
    for (int j = 0; j < S::VC; j += 4) {
        __syncwarp();
#pragma unroll 1
        for (int row = first; row < first + S::ROWS / 4; row++)
            scratch[32 * row + lane] = row < rows ? move(row, 8 * j + lane) : 0.0f;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < S::MR; i++) {
            const float4 four = load4(scratch + 32 * row_of<S>(i) + 4 * lane_column());
            sums[i][j] = four.x;
            sums[i][j + 1] = four.y;
            sums[i][j + 2] = four.z;
            sums[i][j + 3] = four.w;
        }
    }
    __syncwarp();
}

} // namespace simt

#endif
