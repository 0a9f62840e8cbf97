/* SPDX-License-Identifier: Apache-2.0 */
/* keys.cuh - a tile of queries as rows and the blocks of keys they see as columns: forward and for
 * dq. Thread 0 goes from block to block, one block ahead; what the others need of it is in shared
 * memory, since registers are full of sums. */
#ifndef RA__CUDA_SIMT_KEYS_CUH
#define RA__CUDA_SIMT_KEYS_CUH

#include "backend/cuda/simt/feed.cuh"

namespace simt
{

/* A block of keys of a run; columns before lo and from hi on are seen by no row. */
struct key_block {
    int64_t token, token_step, pos, pos_step; /* of column 0; it may be before the run */
    int64_t left, right;
    int lo, hi;
    int masked; /* some row does not see some column */
    int none;   /* there is no such block: the row is finished */
};

/* Where thread 0 is. */
struct key_walk {
    ra__cuda_run run;
    ra::blocks seen;
    int64_t from;
    int run_index;
};

/* One row of a tile. */
struct tile_row {
    int64_t token, position;
    int head;
};

/* What the threads of a CTA share about a tile of queries. It is small: with dims of 128, two CTAs
 * just fit the shared memory of an SM. */
template <class S> struct key_tables {
    feeds<S> feed;
    ra::tile tile;
    int64_t first_query; /* of the tile, and its first head in the group */
    int first_head;
    int skips; /* some row sees nothing, see below */
    key_walk walk;
    key_block block[2];                    /* by parity */
    float m[S::ROWS], l[S::ROWS];          /* for dq: LSE in units of log2, and delta */
    uint8_t lo[S::ROWS], hi[S::ROWS];      /* visible columns of a masked block */
    uint8_t skip[S::STREAM ? S::ROWS : 1]; /* for dq: rows without weights, which see nothing */
};

/* A row past the last one counts as the last one. The division is one of 32 bits. */
template <class S> __device__ inline tile_row row_at(const key_tables<S> &shared, int row)
{
    const ra::tile &tile = shared.tile;
    const int pair = shared.first_head + (row < tile.rows ? row : tile.rows - 1);
    const int query = tile.group == 1 ? pair : pair / tile.group;
    const int64_t i = shared.first_query + query;
    return tile_row{ tile.token(i), tile.position(i), tile.head + pair - query * tile.group };
}

__device__ inline void walk_start(key_walk &walk)
{
    walk.run_index = -1;
    walk.from = -COLUMNS;
    walk.seen.keys.hi = -COLUMNS;
}

/* The next run that has visible keys; false after the last. */
__device__ inline bool next_run(const ra__cuda_step &step, const ra::tile &tile, key_walk &walk)
{
    while (++walk.run_index < tile.row->run_count) {
        walk.run = ra::run_of(step, tile, walk.run_index);
        if (walk.run.count == 0) continue;
        walk.seen = ra::blocks_of(walk.run, tile, COLUMNS);
        walk.from = walk.seen.from;
        if (walk.seen.keys.lo < walk.seen.keys.hi) return true;
    }
    return false;
}

template <class S>
__device__ inline void next_block(const ra__cuda_step &step, key_tables<S> &shared, int parity)
{
    key_walk &walk = shared.walk;
    key_block &block = shared.block[parity];
    walk.from += COLUMNS;
    block.none = 0;
    if (walk.from >= walk.seen.keys.hi && !next_run(step, shared.tile, walk)) {
        block.none = 1;
        return;
    }
    const ra__cuda_run &run = walk.run;
    block.token = run.token + walk.from * run.token_step;
    block.token_step = run.token_step;
    block.pos = run.pos + walk.from * run.pos_step;
    block.pos_step = run.pos_step;
    block.left = run.left;
    block.right = run.right;
    block.lo = (int)ra::most(walk.seen.keys.lo - walk.from, 0);
    block.hi = (int)ra::least(walk.seen.keys.hi - walk.from, COLUMNS);
    block.masked = walk.from < walk.seen.all.lo || walk.from + COLUMNS > walk.seen.all.hi;
}

/* Where the keys and values of a block are: one thread for each. */
template <class S>
__device__ inline void find_columns(const ra__cuda_step &step, key_tables<S> &shared, int parity)
{
    const key_block &block = shared.block[parity];
    if (block.none) return;
    const int column = threadIdx.x % COLUMNS, which = threadIdx.x / COLUMNS;
    const ra__cuda_tensor &tensor = which ? step.v : step.k;
    const bool there = column >= block.lo && column < block.hi;
    const int64_t token = block.token + column * block.token_step;
    shared.feed.column[which][parity][column] = there ? row_in(step, tensor, shared.tile.batch,
                                                               token, shared.tile.kv_head)
                                                      : NULL;
}

/* What each row sees of a masked block. A warp does it for its own rows. */
template <class S> __device__ inline void find_visible(key_tables<S> &shared, int parity)
{
    constexpr int ROWS = S::ROWS / 4;
    const key_block &block = shared.block[parity];
    const int lane = threadIdx.x % 32, row = (int)threadIdx.x / 32 * ROWS + lane;
    if (lane < ROWS) {
        const int64_t away = row_at(shared, row).position - block.pos;
        const int64_t from = ra::ceil_div(away - block.left, block.pos_step);
        const int64_t to = ra::floor_div(away + block.right, block.pos_step) + 1;
        const int64_t lo = ra::least(ra::most(from, block.lo), block.hi);
        const bool none = S::STREAM && shared.skip[row];
        shared.lo[row] = (uint8_t)lo;
        shared.hi[row] = (uint8_t)(none ? lo : ra::most(ra::least(to, block.hi), lo));
    }
    __syncwarp();
}

/* The tile, by one thread. */
template <class S> __device__ inline void set_tile(const ra::tile &tile, key_tables<S> &shared)
{
    shared.tile = tile;
    shared.first_query = tile.query(0);
    shared.first_head = (int)(tile.first % tile.group);
    shared.feed.not_finite = shared.skips = 0;
}

/* Where the rows of a tile are. All numbers of the other rows of the CTA are 0; nothing of them is
 * written. `tensor`: for chunks of this kind. */
template <class S>
__device__ inline void find_rows(const ra__cuda_step &step, key_tables<S> &shared, int kind,
                                 const ra__cuda_tensor &tensor)
{
    const int row = threadIdx.x;
    if (row >= S::ROWS) return;
    const tile_row at = row_at(shared, row);
    const bool there = row < shared.tile.rows;
    if (S::STREAM) shared.skip[row] = 0;
    shared.feed.row[kind][row] = there ? row_in(step, tensor, shared.tile.batch, at.token, at.head)
                                       : NULL;
}

/* The first block of all runs, for all threads; between two barriers. */
template <class S>
__device__ inline void first_block(const ra__cuda_step &step, key_tables<S> &shared)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        walk_start(shared.walk);
        next_block(step, shared, 0);
    }
    __syncthreads();
    find_columns(step, shared, 0);
    __syncthreads();
}

/* What a score of row `row` needs besides the key. */
template <class S>
__device__ inline ra::query query_at(const ra__cuda_step &step, const key_tables<S> &shared,
                                     int row)
{
    const tile_row at = row_at(shared, row);
    ra::query q;
    q.token = at.token;
    q.index = at.position;
    q.original = ra::original(step.terms, q.index);
    q.batch = shared.tile.batch;
    q.head = at.head;
    return q;
}

} // namespace simt

#endif
