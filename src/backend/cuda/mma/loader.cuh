/* SPDX-License-Identifier: Apache-2.0 */
/* loader.cuh - from tensors in global memory to matrices in shared memory: asynchronously where
 * every chunk of 16 bytes is aligned, number by number otherwise. What is not there is zeros. */
#ifndef RA__BACKEND_CUDA_MMA_LOADER_CUH
#define RA__BACKEND_CUDA_MMA_LOADER_CUH

#include "backend/cuda/kernel.h"
#include "backend/cuda/mma/fragments.cuh"

extern __shared__ __align__(128) unsigned char ra_shared[];

namespace ra::mma
{

/* How the tensors of a launch may be read and written; the host finds out. */
struct access {
    int32_t chunks; /* q, k, v and dout: 16 bytes at a time */
    int32_t pairs;  /* what is written: two numbers at a time */
};

/* Rows [lo, hi) of ROWS that are `stride` numbers apart, of `numbers` numbers each, to the offset
 * `to` of shared memory, by all THREADS of the CTA. ALL: all ROWS are there. Copies of nothing may
 * name any address. */
template <class T, int D, int ROWS, int THREADS, bool ALL = false>
__device__ __forceinline__ void load_strided(uint32_t shared, int to, const T *first,
                                             int64_t stride, int lo, int hi, int numbers,
                                             bool chunks)
{
    constexpr int W = WORDS<T> * D, IN_CHUNK = 16 / (int)sizeof(T);
    constexpr int CHUNKS = D / IN_CHUNK, ROWS_AT_ONCE = THREADS / CHUNKS;
    static_assert(THREADS % CHUNKS == 0 && ROWS % ROWS_AT_ONCE == 0,
                  "the same number of chunks for each thread");
    if (chunks) {
        const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
        const T *from = first + row * stride + IN_CHUNK * chunk;
        const bool inside = IN_CHUNK * chunk < numbers;
#pragma unroll
        for (int i = 0; i < ROWS / ROWS_AT_ONCE; i++) {
            const int now = row + i * ROWS_AT_ONCE;
            copy_16(shared + to + chunk_at<W>(now, chunk), from,
                    inside && (ALL || (now >= lo && now < hi)));
            from += ROWS_AT_ONCE * stride;
        }
        return;
    }
#pragma unroll 1
    for (int index = threadIdx.x; index < ROWS * D; index += THREADS) {
        const int row = index / D, d = index % D;
        const bool there = (ALL || (row >= lo && row < hi)) && d < numbers;
        T *place = (T *)(ra_shared + to + chunk_at<W>(row, d / IN_CHUNK));
        place[d % IN_CHUNK] = there ? first[row * stride + d] : T();
    }
}

/* ROWS rows that `where(row)` gives the address of, NULL for none. */
template <class T, int D, int ROWS, int THREADS, class Where>
__device__ __forceinline__ void load_rows_at(uint32_t shared, int to, int numbers, bool chunks,
                                             const Where &where)
{
    constexpr int W = WORDS<T> * D, IN_CHUNK = 16 / (int)sizeof(T);
    constexpr int CHUNKS = D / IN_CHUNK, ROWS_AT_ONCE = THREADS / CHUNKS;
    static_assert(THREADS % CHUNKS == 0 && ROWS % ROWS_AT_ONCE == 0,
                  "the same number of chunks for each thread");
    if (chunks) {
        const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
        const bool inside = IN_CHUNK * chunk < numbers;
#pragma unroll 4
        for (int i = 0; i < ROWS / ROWS_AT_ONCE; i++) {
            const int now = row + i * ROWS_AT_ONCE;
            const T *from = where(now);
            copy_16(shared + to + chunk_at<W>(now, chunk), from + IN_CHUNK * chunk,
                    inside && from != nullptr);
        }
        return;
    }
#pragma unroll 1
    for (int index = threadIdx.x; index < ROWS * D; index += THREADS) {
        const int row = index / D, d = index % D;
        const T *from = where(row);
        T *place = (T *)(ra_shared + to + chunk_at<W>(row, d / IN_CHUNK));
        place[d % IN_CHUNK] = from && d < numbers ? from[d] : T();
    }
}

} // namespace ra::mma

#endif
