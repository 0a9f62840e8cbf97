/* SPDX-License-Identifier: Apache-2.0 */
/* feed.cuh - chunks that a CTA multiplies, one after the other: while one is multiplied, the
 * next is on its way from global memory in registers. Two stages of shared memory alternate, so
 * there is one barrier per chunk. */
#ifndef RA__CUDA_SIMT_FEED_CUH
#define RA__CUDA_SIMT_FEED_CUH

#include "backend/cuda/simt/load.cuh"

namespace simt
{

/* Kinds of chunks: transposed ones for two products that give scores, and rows as they are stored
 * for two that give sums. Which tensors these are is the kernel's choice. */
enum { SCORES, SCORES_2, SUMS, SUMS_2, KINDS };

/* The next chunk: of which kind, which one of its block, and whether the block is an odd one. */
struct feed {
    int kind, index, parity;
};
constexpr int NOTHING = -1; /* as kind */

/* Where chunks come from, in shared memory. */
template <class S> struct feeds {
    panel rows[2];                               /* of the tile, for SCORES and SCORES_2 */
    panel columns[KINDS];                        /* of a block */
    int tensor[KINDS];                           /* which one of the two tensors of columns */
    row_pointer row[S::STREAM ? 2 : 1][S::ROWS]; /* [kind] */
    row_pointer column[2][2][COLUMNS];           /* [tensor][parity] */
    int not_finite; /* a flag: some chunk for SUMS or SUMS_2 held an infinite number or NaN */
};

/* Where the row of a token begins. */
__device__ inline row_pointer row_in(const ra__cuda_step &step, const ra__cuda_tensor &tensor,
                                     int batch, int64_t token, int head)
{
    const int64_t at = batch * tensor.batch + token * tensor.token + head * tensor.head;
    return (row_pointer)tensor.data + at * bytes_of(step.dtype);
}

__device__ inline panel panel_of(const ra__cuda_step &step, const ra__cuda_tensor &tensor,
                                 int width)
{
    return panel{ width, format_of(tensor, step.dtype, width) };
}

/* Columns for chunks of a kind: the first tensor is that of SCORES. */
template <class S>
__device__ inline void set_columns(const ra__cuda_step &step, feeds<S> &to, int kind, int tensor,
                                   const ra__cuda_tensor &from, int width)
{
    to.columns[kind] = panel_of(step, from, width);
    to.tensor[kind] = tensor;
}

template <class S> struct chunk_registers {
    uint4 columns[S::RAW];
    uint4 rows[S::STREAM ? S::ROW_LOADS : 1];
};

/* Starts to load. `first`: the first column of SUMS. */
template <class S>
__device__ inline void begin_chunk(const feeds<S> &from, feed next, int first,
                                   chunk_registers<S> &raw)
{
    if (next.kind == NOTHING) return;
    const panel columns = from.columns[next.kind];
    const row_pointer *table = from.column[from.tensor[next.kind]][next.parity];
    if (next.kind >= SUMS) {
        fetch_rows<S>(columns, table, next.index, first, raw.columns);
        return;
    }
    fetch_transposed<2, S::FAST>(columns, table, next.index, raw.columns);
    if (S::STREAM)
        fetch_transposed<S::ROW_LOADS, S::FAST>(from.rows[next.kind], from.row[next.kind],
                                                next.index, raw.rows);
}

/* Writes what was loaded to a stage: columns, then rows. `factor`: of the rows for scores. */
template <class S>
__device__ inline void end_chunk(feeds<S> &from, feed next, float factor,
                                 const chunk_registers<S> &raw, float *stage)
{
    if (next.kind == NOTHING) return;
    const int format = S::FAST ? FAST_FORMAT : from.columns[next.kind].format;
    if (next.kind >= SUMS) {
        if (put_rows<S>(format, raw.columns, stage) != 0.0f) raise_flag(from.not_finite);
        return;
    }
    put_transposed<2>(format, raw.columns, 1.0f, stage);
    if (S::STREAM)
        put_transposed<S::ROW_LOADS>(S::FAST ? FAST_FORMAT : from.rows[next.kind].format, raw.rows,
                                     factor, stage + chunk_floats(COLUMNS));
}

/* All chunks of the tile's rows at once, where they stay in shared memory. */
template <class S> __device__ inline void load_tile(const feeds<S> &feeds, float factor, float *to)
{
    const panel from = feeds.rows[SCORES];
    for (int chunk = 0; chunk * CHUNK < from.width; chunk++) {
        uint4 raw[S::ROW_LOADS];
        fetch_transposed<S::ROW_LOADS, S::FAST>(from, feeds.row[SCORES], chunk, raw);
        put_transposed<S::ROW_LOADS>(S::FAST ? FAST_FORMAT : from.format, raw, factor,
                                     to + chunk * chunk_floats(S::ROWS));
    }
}

/* The two stages, and the rows that stay in shared memory. */
template <class S> struct stages {
    float *memory;
    int now;               /* 0 or 1 */
    const float *resident; /* unless S::STREAM */

    __device__ float *current() const { return memory + now * S::STAGE; }
    __device__ float *other() const { return memory + (now ^ 1) * S::STAGE; }
    __device__ const float *rows(int chunk) const
    {
        return S::STREAM ? current() + chunk_floats(COLUMNS)
                         : resident + chunk * chunk_floats(S::ROWS);
    }
    __device__ void advance()
    {
        __syncthreads();
        now ^= 1;
    }
};

__device__ inline int chunks_of(int dims) { return (dims + CHUNK - 1) / CHUNK; }

} // namespace simt

#endif
