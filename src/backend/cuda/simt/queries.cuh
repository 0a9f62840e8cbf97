/* SPDX-License-Identifier: Apache-2.0 */
/* queries.cuh - a tile of keys as rows and the queries that see them as columns: for dk and dv. A
 * column is a pair of a query and a head. Thread 0 goes from block to block of columns, as in
 * keys.cuh. */
#ifndef RA__CUDA_SIMT_QUERIES_CUH
#define RA__CUDA_SIMT_QUERIES_CUH

#include "backend/cuda/simt/feed.cuh"

namespace simt
{

/* Columns of one part: pair f is query q_lo + f / heads, head `head` + f % heads head_step. */
struct query_block {
    int part;
    int64_t first, count; /* pairs */
    int heads, head, head_step;
    int masked; /* some row is not seen by some column, or has no weight there */
    int none;   /* there is no such block: the tile is finished */
};

/* What the threads of a CTA share about a tile of keys. */
template <class S> struct query_tables {
    feeds<S> feed;
    ra__cuda_key_tile tile;
    int batch, kv_head;
    query_block block[2]; /* by parity */
    /* Columns of a block. */
    int64_t token[2][COLUMNS], position[2][COLUMNS];
    int64_t key_pos[2], key_step[2]; /* position of row 0, and how far apart rows are */
    int head[2][COLUMNS];
    int lo[2][COLUMNS], hi[2][COLUMNS]; /* visible rows */
    float lse[2][COLUMNS];              /* in units of log2 */
    float delta[2][COLUMNS];
};

/* The heads of a row that read a KV head. */
__device__ inline void find_heads(const ra__cuda_step &step, const ra__cuda_row *row, int kv_head,
                                  query_block &block)
{
    const int per_kv = step.q_heads / step.kv_heads, first = kv_head * per_kv;
    const int apart = row->heads > 1 ? row->head_step : 1;
    const int from = (int)ra::most(ra::ceil_div(first - row->head, apart), 0);
    const int to = (int)ra::least(ra::ceil_div(first + per_kv - row->head, apart), row->heads);
    block.heads = to > from ? to - from : 0;
    block.head = row->head + from * apart;
    block.head_step = apart;
}

/* From the last block (part -1: none yet) to the next. */
template <class S>
__device__ inline void next_block(const ra__cuda_step &step, const query_tables<S> &shared,
                                  const query_block &last, query_block &block)
{
    block = last;
    block.masked = block.none = 0;
    block.first += COLUMNS;
    while (block.part < 0 || block.first >= block.count) {
        if (++block.part >= shared.tile.part_count) {
            block.none = 1;
            return;
        }
        const ra__cuda_part &part = step.parts[shared.tile.first_part + block.part];
        find_heads(step, &step.rows[part.row], shared.kv_head, block);
        block.first = 0;
        block.count = (part.q_hi - part.q_lo) * block.heads;
    }
}

/* All about the columns of a block: one thread for each. Those past the last pair see nothing. */
template <class S>
__device__ inline void find_columns(const ra__cuda_step &step, query_tables<S> &shared, int parity)
{
    query_block &block = shared.block[parity];
    const int column = threadIdx.x;
    if (block.none || column >= COLUMNS) return;
    const ra__cuda_part &part = step.parts[shared.tile.first_part + block.part];
    const ra__cuda_row *row = &step.rows[part.row];
    const ra__cuda_run run = ra::run_at(step, row, part.repeat, part.run - row->first_run);
    const int64_t pair = block.first + column;
    const bool there = pair < block.count;
    const int64_t query = part.q_lo + (block.heads == 1 ? pair : pair / block.heads);
    const int head = block.head +
                     (block.heads == 1 ? 0 : (int)(pair % block.heads)) * block.head_step;
    const int64_t token = row->q_token + part.repeat * row->q_token_advance +
                          query * row->q_token_step;
    const int64_t position = row->q_pos + part.repeat * row->q_pos_advance +
                             query * row->q_pos_step;
    if (column == 0) {
        shared.key_pos[parity] = run.pos + part.shift * run.pos_step;
        shared.key_step[parity] = run.pos_step;
    }
    float lse = 0.0f, delta = 0.0f;
    int lo = 0, hi = 0;
    if (there) {
        const ra::range seen = ra::seen_by(run, position);
        lse = *ra::at<float>(step.lse, shared.batch, token, head);
        delta = *ra::at<float>(step.delta, shared.batch, token, head);
        lo = (int)ra::least(ra::most(seen.lo - part.shift, part.lo), part.hi);
        hi = (int)ra::most(ra::least(seen.hi - part.shift, part.hi), lo);
        if (ra::is_weightless(lse)) hi = lo;
    }
    if (lo > 0 || hi < S::ROWS) raise_flag(block.masked);
    shared.token[parity][column] = token;
    shared.position[parity][column] = position;
    shared.head[parity][column] = head;
    shared.lo[parity][column] = lo;
    shared.hi[parity][column] = hi;
    shared.lse[parity][column] = ra::in_log2(lse);
    shared.delta[parity][column] = delta;
    shared.feed.column[0][parity][column] = there ? row_in(step, step.q, shared.batch, token, head)
                                                  : NULL;
    shared.feed.column[1][parity][column] = there
                                                ? row_in(step, step.dout, shared.batch, token, head)
                                                : NULL;
}

/* Where the keys and values of the tile are. */
template <class S>
__device__ inline void find_rows(const ra__cuda_step &step, query_tables<S> &shared)
{
    const int row = threadIdx.x;
    if (row >= S::ROWS) return;
    const bool there = row < shared.tile.count;
    const int64_t token = shared.tile.token + row * shared.tile.token_step;
    shared.feed.row[SCORES][row] = there ? row_in(step, step.k, shared.batch, token, shared.kv_head)
                                         : NULL;
    shared.feed.row[SCORES_2][row] = there
                                         ? row_in(step, step.v, shared.batch, token, shared.kv_head)
                                         : NULL;
}

/* The first block, for all threads; between two barriers. */
template <class S>
__device__ inline void first_block(const ra__cuda_step &step, query_tables<S> &shared)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        query_block start = {};
        start.part = -1;
        next_block(step, shared, start, shared.block[0]);
    }
    __syncthreads();
    find_columns(step, shared, 0);
    __syncthreads();
}

template <class S>
__device__ inline ra::query query_at(const ra__cuda_step &step, const query_tables<S> &shared,
                                     int parity, int column)
{
    ra::query q;
    q.token = shared.token[parity][column];
    q.index = shared.position[parity][column];
    q.original = ra::original(step.terms, q.index);
    q.batch = shared.batch;
    q.head = shared.head[parity][column];
    return q;
}

} // namespace simt

#endif
