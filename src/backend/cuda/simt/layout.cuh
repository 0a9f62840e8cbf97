/* SPDX-License-Identifier: Apache-2.0 */
/* layout.cuh - how a CTA of the simt kernels is arranged: which thread has which scores and sums,
 * and where matrices are in shared memory.
 *
 * A CTA works on ROWS rows (queries; keys for dk and dv) and, one after the other, on blocks of
 * 64 columns (keys; queries for dk and dv). Each warp has ROWS / 4 rows and all columns, so the
 * softmax of a row stays inside a warp. In a warp, 4 x 8 lanes have MR x 8 scores each. */
#ifndef RA__CUDA_SIMT_LAYOUT_CUH
#define RA__CUDA_SIMT_LAYOUT_CUH

#include <stdint.h>

#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/score.cuh"

/* Parameters in constant memory came with sm_70; before, a copy is made by the compiler. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#define RA_GRID_CONSTANT
#else
#define RA_GRID_CONSTANT __grid_constant__
#endif

extern __shared__ __align__(128) unsigned char ra_shared[];

namespace simt
{

constexpr int THREADS = 128;
constexpr int COLUMNS = 64; /* of a block; the block size of keys, the same for all dims */
constexpr int CHUNK = 16;   /* dims of a chunk of transposed rows */
constexpr unsigned ALL_LANES = 0xffffffffu;

/* Matrices that are written by columns and read by lines of `length` numbers, or the other way
 * round, have 8 numbers of padding after every 4 lines. So neither has bank conflicts, 16-byte
 * loads stay aligned, and offsets of lines are constants where the line is. */
__host__ __device__ constexpr int line_at(int line, int length)
{
    return line * length + line / 4 * 8;
}

/* A flag of the CTA. Threads may raise it at the same time, and others may look meanwhile: they
 * find it down or raised, and either is right. */
__device__ inline void raise_flag(int &flag) { *(volatile int *)&flag = 1; }
__device__ inline bool is_raised(const int &flag) { return *(const volatile int *)&flag != 0; }

/* Chunks of transposed rows are [CHUNK][rows], weights are [column][row]. */
__host__ __device__ constexpr int chunk_floats(int rows) { return line_at(CHUNK, rows); }

/* MR x 8 scores and MR x VC sums per thread. CTAS: that many are to run on an SM, which limits
 * the registers. STREAM: rows are loaded chunk by chunk, again for each block, instead of once:
 * for dims or GPUs with too little shared memory. FAST: all inputs are f32 and can be loaded 16
 * bytes at a time; code for anything else costs registers. LOCAL: what a thread keeps for itself
 * alone is in local memory, for GPUs with too little shared memory. */
template <int MR_, int VC_, int CTAS_, bool STREAM_, bool FAST_, bool LOCAL_ = false> struct shape {
    static constexpr int MR = MR_, VC = VC_, CTAS = CTAS_;
    static constexpr bool STREAM = STREAM_, FAST = FAST_, LOCAL = LOCAL_;
    static constexpr int ROWS = 16 * MR;
    static constexpr int WIDTH = 8 * VC; /* columns of the sums */
    /* Tokens of a chunk of rows as they are stored. With it, a chunk has 1024 multiplications and
     * additions per thread, or 512, and takes few registers on its way. */
    static constexpr int TOKENS = VC >= 16 ? 8 : 16;
    static constexpr int LOADS = TOKENS * WIDTH / 4 / THREADS; /* of 4 numbers, per thread */
    static constexpr int RAW = LOADS > 2 ? LOADS : 2;
    static constexpr int ROW_LOADS = ROWS / 32; /* per thread, for a chunk of ROWS rows */
    static constexpr int TRANSPOSED = chunk_floats(COLUMNS) + (STREAM ? chunk_floats(ROWS) : 0);
    static constexpr int WEIGHTS = line_at(COLUMNS, ROWS);
    static constexpr int STAGE = TRANSPOSED > TOKENS *WIDTH ? TRANSPOSED : TOKENS *WIDTH;
};

/* Lane bits take turns: columns, rows, columns, rows, columns. So lanes i and i ^ 1 load the
 * same rows, lanes i and i ^ 2 the same columns, and a 16-byte load of a warp takes two passes,
 * not four. */
__device__ inline int lane_column()
{
    const int lane = threadIdx.x % 32;
    return (lane & 1) | (lane >> 1 & 2) | (lane >> 2 & 4);
}
__device__ inline int lane_row()
{
    const int lane = threadIdx.x % 32;
    return (lane >> 1 & 1) | (lane >> 2 & 2);
}
/* Lanes that have the same rows differ in these bits: 1 << 2 n, n = 0, 1, 2. */
constexpr int COLUMN_BITS = 3;

template <class S> __device__ inline int first_row()
{
    return (int)threadIdx.x / 32 * 4 * S::MR + 4 * lane_row();
}
/* Row i of a thread in the tile, and its column j in the block. */
template <class S> __device__ inline int row_of(int i)
{
    return first_row<S>() + 16 * (i / 4) + i % 4;
}
__device__ inline int column_of(int j) { return 32 * (j / 4) + 4 * lane_column() + j % 4; }

/* A weight of a block: columns are lines. */
template <class S> __device__ inline int weight_at(int column, int row)
{
    return line_at(column, S::ROWS) + row;
}

__device__ inline float4 load4(const float *from) { return *(const float4 *)from; }

/* Grids of more tiles than x can count go on in z. */
__device__ inline int64_t tile_index() { return blockIdx.x + (int64_t)blockIdx.z * gridDim.x; }

} // namespace simt

#endif
