/* SPDX-License-Identifier: Apache-2.0 */
/* parts.cuh - a tile of keys walks the queries that see it, part after part, in blocks of pairs of
 * a query and a head. What is known of a block's pairs is in shared memory, one block ahead of the
 * copies of their rows, which are one block ahead of the products. */
#ifndef RA__BACKEND_CUDA_MMA_PARTS_CUH
#define RA__BACKEND_CUDA_MMA_PARTS_CUH

#include "backend/cuda/mma/loader.cuh"
#include "backend/cuda/score.cuh"

namespace ra::mma
{

/* Which block: PAIRS pairs of a part from `at` on; after the last, `part` is the part_count. */
struct pairs_place {
    int part;
    int64_t at;
};

/* The pairs of a block. Pair r sees keys [lo, hi), counted from the first of the CTA. */
template <int PAIRS> struct pair_table {
    pairs_place place;
    int64_t pos, pos_step; /* of key 0, as these queries see it */
    int64_t count;         /* pairs of the part */
    int64_t token[PAIRS], position[PAIRS];
    const uint16_t *q[PAIRS], *dout[PAIRS]; /* their rows; NULL: there is no such pair */
    float *dq[PAIRS];
    int32_t lo[PAIRS], hi[PAIRS], head[PAIRS];
    float lse[PAIRS], delta[PAIRS]; /* copied with the rows */

    /* Does pair r see the key? Rows without weights see none. */
    __device__ __forceinline__ bool sees(int r, int key) const
    {
        return key >= lo[r] && key < hi[r] && !is_weightless(lse[r]);
    }
};

/* The heads of a row that read a KV head. */
struct heads {
    int first, step, count;
};
__device__ __forceinline__ heads heads_of(const ra__cuda_row &row, int kv_head, int per_kv)
{
    const int lo = kv_head * per_kv, hi = lo + per_kv;
    heads h = { lo, 1, per_kv };
    if (row.all_heads) return h;
    h.step = row.head_step;
    const int skipped = lo > row.head ? (lo - row.head + h.step - 1) / h.step : 0;
    const int end = hi > row.head ? (hi - row.head + h.step - 1) / h.step : 0;
    h.first = row.head + skipped * h.step;
    h.count = (end < row.heads ? end : row.heads) - skipped;
    return h;
}

/* What is the same for all blocks; registers have no room for it. */
struct parts_head {
    int64_t token, token_step; /* of the keys of this CTA */
    int32_t count;             /* how many there are, or more */
    int32_t first_key;         /* which key of the tile is the first */
    int32_t batch, kv_head, first_part, part_count;
};
/* TABLES blocks are known at a time: one is multiplied, one copied and one described; and where it
 * is still needed, the block before those. */
template <int PAIRS, int TABLES> struct parts_tables {
    parts_head head;
    pair_table<PAIRS> pairs[TABLES];
};

template <int PAIRS, int TABLES, int THREADS> struct parts_walk {
    static_assert(PAIRS <= THREADS, "a thread for each pair");
    using Tables = parts_tables<PAIRS, TABLES>;
    const ra__cuda_step &step;
    Tables &tables;

    __device__ __forceinline__ int batch() const { return tables.head.batch; }
    __device__ __forceinline__ int kv_head() const { return tables.head.kv_head; }
    __device__ __forceinline__ int64_t token_of(int key) const
    {
        return tables.head.token + key * tables.head.token_step;
    }

    /* To be called by one thread, and first of all; a barrier follows. */
    __device__ __forceinline__ void start(const ra__cuda_key_tile &tile, int first_key, int batch,
                                          int kv_head) const
    {
        parts_head head;
        head.token = tile.token + first_key * tile.token_step;
        head.token_step = tile.token_step;
        head.count = tile.count - first_key;
        head.first_key = first_key;
        head.batch = batch;
        head.kv_head = kv_head;
        head.first_part = tile.first_part;
        head.part_count = tile.part_count;
        tables.head = head;
    }

    __device__ __forceinline__ pair_table<PAIRS> &table(int index) const
    {
        return tables.pairs[index % TABLES];
    }
    __device__ __forceinline__ bool ended(const pairs_place &p) const
    {
        return p.part >= tables.head.part_count;
    }
    __device__ __forceinline__ const ra__cuda_part &part_at(const pairs_place &p) const
    {
        return step.parts[tables.head.first_part + p.part];
    }

    __device__ __forceinline__ heads heads_in(const ra__cuda_row &row) const
    {
        return heads_of(row, kv_head(), step.q_heads / step.kv_heads);
    }

    /* The first block of the first part from `part` on that has one. */
    __device__ __forceinline__ pairs_place open(int part) const
    {
        pairs_place p = { part, 0 };
        for (; !ended(p); p.part++) {
            const ra__cuda_part &now = part_at(p);
            if (now.q_hi > now.q_lo && heads_in(step.rows[now.row]).count > 0) break;
        }
        return p;
    }
    /* Does the index-th table describe a block? */
    __device__ __forceinline__ bool is_there(int index) const { return !ended(table(index).place); }
    /* The block after it. */
    __device__ __forceinline__ pairs_place next(int index) const
    {
        const pairs_place p = table(index).place;
        if (ended(p)) return p;
        if (p.at + PAIRS < table(index).count) return pairs_place{ p.part, p.at + PAIRS };
        return open(p.part + 1);
    }

    /* Fills the index-th table; a barrier follows before it is read. */
    __device__ __forceinline__ void describe(const pairs_place &p, int index) const
    {
        const int r = (int)threadIdx.x;
        if (r >= PAIRS) return;
        pair_table<PAIRS> &to = table(index);
        if (r == 0) to.place = p;
        if (ended(p)) return;
        const ra__cuda_part &part = part_at(p);
        const ra__cuda_row &row = step.rows[part.row];
        const ra__cuda_run run = run_at(step, &row, part.repeat, part.run - row.first_run);
        const heads h = heads_in(row);
        const int64_t count = (part.q_hi - part.q_lo) * h.count;
        const int64_t shift = part.shift + tables.head.first_key;
        if (r == 0) {
            to.count = count;
            to.pos = run.pos + shift * run.pos_step;
            to.pos_step = run.pos_step;
        }
        to.lo[r] = to.hi[r] = 0;
        to.head[r] = -1;
        to.q[r] = to.dout[r] = nullptr;
        /* Pairs after the last have a position too, since terms look it up. */
        const int64_t pair = least(p.at + r, count - 1), query = part.q_lo + pair / h.count;
        const int head = h.first + (int)(pair % h.count) * h.step;
        const int64_t position = row.q_pos + part.repeat * row.q_pos_advance +
                                 query * row.q_pos_step;
        const int64_t token = row.q_token + part.repeat * row.q_token_advance +
                              query * row.q_token_step;
        const range seen = seen_by(run, position);
        to.token[r] = token;
        to.position[r] = position;
        if (p.at + r >= count) return;
        to.head[r] = head;
        to.q[r] = ra::at<uint16_t>(step.q, batch(), token, head);
        to.dout[r] = ra::at<uint16_t>(step.dout, batch(), token, head);
        to.dq[r] = ra::at<float>(step.dq, batch(), token, head);
        to.lo[r] = (int32_t)most(seen.lo - shift, part.lo - tables.head.first_key);
        to.hi[r] = (int32_t)least(seen.hi - shift, part.hi - tables.head.first_key);
    }

    /* The queries of a block, and their dout. */
    template <int D>
    __device__ __forceinline__ void load(int index, uint32_t shared, int queries, int douts,
                                         bool chunks) const
    {
        const pair_table<PAIRS> &pairs = table(index);
        const auto query = [&](int r) { return pairs.q[r]; };
        const auto dout = [&](int r) { return pairs.dout[r]; };
        load_rows_at<D, PAIRS, THREADS>(shared, queries, step.dim, chunks, query);
        load_rows_at<D, PAIRS, THREADS>(shared, douts, step.value_dim, chunks, dout);
    }

    /* Their lse and delta. */
    __device__ __forceinline__ void load_ends(int index) const
    {
        const int r = (int)threadIdx.x;
        if (r >= PAIRS) return;
        pair_table<PAIRS> &to = table(index);
        const int head = to.head[r];
        const int64_t token = to.token[r];
        copy_4(shared_address(&to.lse[r]), ra::at<float>(step.lse, batch(), token, head),
               head >= 0);
        copy_4(shared_address(&to.delta[r]), ra::at<float>(step.delta, batch(), token, head),
               head >= 0);
    }

    __device__ __forceinline__ query query_for(const pair_table<PAIRS> &pairs, int r) const
    {
        query q;
        q.token = pairs.token[r];
        q.index = pairs.position[r];
        q.original = original(step.terms, q.index);
        q.batch = batch();
        q.head = pairs.head[r];
        return q;
    }
};

} // namespace ra::mma

#endif
