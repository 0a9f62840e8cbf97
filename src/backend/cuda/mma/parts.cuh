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

/* The pairs of a block. Pair r sees keys [lo, hi), counted from the first of the CTA. WITH_DQ: for
 * kernels that add to dq. */
template <class T, int PAIRS, bool WITH_DQ> struct pair_table {
    pairs_place place;
    int64_t pos, pos_step; /* of key 0, as these queries see it */
    int64_t count;         /* pairs of the part */
    /* Are rows of pairs equally far apart, so many numbers? Then only pair 0 has pointers, and no
     * pair a token, position or head. */
    int32_t in_line;
    int32_t whole[(PAIRS + 31) / 32]; /* do 32 pairs see all keys of the CTA? */
    int64_t q_apart, dout_apart, dq_apart;
    int32_t lo[PAIRS], hi[PAIRS], head[PAIRS];
    int64_t token[PAIRS], position[PAIRS];
    const T *q[PAIRS], *dout[PAIRS]; /* their rows; NULL: there is no such pair */
    float *dq[WITH_DQ ? PAIRS : 1];  /* NULL: the pair sees no key */
    float lse[PAIRS], delta[PAIRS];  /* copied before the rows */

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

/* Where the rows of a part are in a tensor, in numbers from its first one: that of its first query
 * and head, and how far apart queries and heads are. */
struct part_lines {
    int64_t first, query, head;
    __device__ __forceinline__ int64_t at(int64_t q, int h) const
    {
        return first + q * query + h * head;
    }
};
/* What the blocks of a part have in common. Its first block reads it from global memory, by loads
 * that wait for one another; the others find it here. */
struct part_facts {
    int64_t count;                   /* of its pairs */
    int64_t shift;                   /* key i of the CTA is key i + shift of the run */
    int64_t token, token_step;       /* of its queries */
    int64_t position, position_step; /* of its queries */
    int64_t all_from, all_to;        /* queries at such positions see all keys */
    int32_t lo, hi;                  /* keys of the CTA that it may see */
    struct heads heads;
    ra__cuda_run run;
    part_lines q, dout, dq, lse, delta;
};

/* TABLES blocks are known at a time: one is multiplied, one copied and one described; and where it
 * is still needed, the block before those. */
template <class Table, int PAIRS, int TABLES> struct parts_tables {
    parts_head head;
    part_facts facts[(PAIRS + 31) / 32]; /* of the part that was described last, for each warp */
    Table pairs[TABLES];
};

template <class T, int PAIRS, int TABLES, int THREADS, int KEYS, bool TERMS, bool WITH_DQ>
struct parts_walk {
    static_assert(PAIRS <= THREADS, "a thread for each pair");
    static constexpr int WARPS = (PAIRS + 31) / 32; /* that describe */
    using Table = pair_table<T, PAIRS, WITH_DQ>;
    using Tables = parts_tables<Table, PAIRS, TABLES>;
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

    __device__ __forceinline__ Table &table(int index) const
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

    __device__ __forceinline__ part_lines lines_in(const ra__cuda_tensor &tensor,
                                                   const part_facts &facts) const
    {
        return part_lines{ batch() * tensor.batch + facts.token * tensor.token +
                               facts.heads.first * tensor.head,
                           facts.token_step * tensor.token, facts.heads.step * tensor.head };
    }
    __device__ __forceinline__ void learn(const pairs_place &p, part_facts &facts) const
    {
        const ra__cuda_part part = part_at(p);
        const ra__cuda_row &row = step.rows[part.row];
        facts.run = run_at(step, &row, part.repeat, part.run - row.first_run);
        facts.heads = heads_in(row);
        facts.count = (part.q_hi - part.q_lo) * facts.heads.count;
        facts.shift = part.shift + tables.head.first_key;
        facts.lo = part.lo - tables.head.first_key;
        facts.hi = part.hi - tables.head.first_key;
        facts.token_step = row.q_token_step;
        facts.token = row.q_token + part.repeat * row.q_token_advance +
                      part.q_lo * row.q_token_step;
        facts.position_step = row.q_pos_step;
        facts.position = row.q_pos + part.repeat * row.q_pos_advance + part.q_lo * row.q_pos_step;
        const ra__cuda_run &run = facts.run;
        const bool all = facts.lo <= 0 && facts.hi >= KEYS && facts.shift >= 0 &&
                         facts.shift + KEYS <= run.count;
        facts.all_from = run.pos - run.right + (facts.shift + KEYS - 1) * run.pos_step;
        facts.all_to = all ? run.pos + run.left + facts.shift * run.pos_step : facts.all_from - 1;
        facts.q = lines_in(step.q, facts);
        facts.dout = lines_in(step.dout, facts);
        facts.dq = lines_in(step.dq, facts);
        facts.lse = lines_in(step.lse, facts);
        facts.delta = lines_in(step.delta, facts);
    }

    /* One thread for each pair of a block: copies lse and delta. */
    __device__ __forceinline__ void copy_ends(const part_facts &facts, int64_t query, int head,
                                              bool there, int r, Table &to) const
    {
        copy_4(shared_address(&to.lse[r]), (const float *)step.lse.data + facts.lse.at(query, head),
               there);
        copy_4(shared_address(&to.delta[r]),
               (const float *)step.delta.data + facts.delta.at(query, head), there);
    }

    /* Do all pairs of a block see all keys, are there as many as can be, and are they queries of
     * one head? Most blocks are like that, and need no more than describe_line(). */
    __device__ __forceinline__ bool is_simple(const part_facts &facts, int64_t at) const
    {
        const int64_t first = facts.position + at * facts.position_step;
        const int64_t last = first + (PAIRS - 1) * facts.position_step;
        return facts.heads.count == 1 && at + PAIRS <= facts.count &&
               least(first, last) >= facts.all_from && most(first, last) <= facts.all_to;
    }
    __device__ __forceinline__ void describe_line(const part_facts &facts, int64_t at, int r,
                                                  Table &to) const
    {
        copy_ends(facts, at + r, 0, true, r, to);
        to.lo[r] = 0;
        to.hi[r] = KEYS;
        if (r > 0) return;
        to.in_line = 1;
        to.q_apart = facts.q.query;
        to.q[0] = (const T *)step.q.data + facts.q.at(at, 0);
        to.dout_apart = facts.dout.query;
        to.dout[0] = (const T *)step.dout.data + facts.dout.at(at, 0);
        if constexpr (WITH_DQ) {
            to.dq_apart = facts.dq.query;
            to.dq[0] = (float *)step.dq.data + facts.dq.at(at, 0);
        }
    }

    /* All that is known of a pair. Does it see all keys? */
    __device__ __forceinline__ bool describe_pair(const part_facts &facts, int64_t at, int r,
                                                  Table &to) const
    {
        /* Pairs after the last have a position too, since terms look it up. */
        const bool there = at + r < facts.count;
        int64_t query = there ? at + r : facts.count - 1;
        int head = 0; /* of the part's heads */
        if (facts.heads.count > 1) {
            head = (int)(query % facts.heads.count);
            query /= facts.heads.count;
        }
        const int64_t position = facts.position + query * facts.position_step;
        const range seen = seen_by(facts.run, position);
        const int32_t lo = (int32_t)most(seen.lo - facts.shift, facts.lo);
        const int32_t hi = (int32_t)least(seen.hi - facts.shift, facts.hi);
        to.token[r] = facts.token + query * facts.token_step;
        to.position[r] = position;
        to.head[r] = there ? facts.heads.first + head * facts.heads.step : -1;
        to.lo[r] = there ? lo : 0;
        to.hi[r] = there ? hi : 0;
        to.q[r] = there ? (const T *)step.q.data + facts.q.at(query, head) : nullptr;
        to.dout[r] = there ? (const T *)step.dout.data + facts.dout.at(query, head) : nullptr;
        if constexpr (WITH_DQ)
            to.dq[r] = there && lo < hi ? (float *)step.dq.data + facts.dq.at(query, head)
                                        : nullptr;
        copy_ends(facts, query, head, there, r, to);
        if (r == 0) {
            to.pos = facts.run.pos + facts.shift * facts.run.pos_step;
            to.pos_step = facts.run.pos_step;
            to.in_line = 0;
        }
        return there && lo <= 0 && hi >= KEYS;
    }

    /* Fills the index-th table, and starts to copy its lse and delta; a commit and a barrier follow
     * before it is read. */
    __device__ __forceinline__ void describe(const pairs_place &p, int index) const
    {
        const int r = (int)threadIdx.x, warp = r / 32;
        if (warp >= WARPS) return;
        Table &to = table(index);
        if (r == 0) to.place = p;
        if (ended(p)) return;
        part_facts &facts = tables.facts[warp];
        if (p.at == 0) {
            __syncwarp(); /* all lanes have read those of the part before */
            if (r % 32 == 0) learn(p, facts);
            __syncwarp();
        }
        if (r == 0) to.count = facts.count;
        bool whole = true;
        if (!TERMS && is_simple(facts, p.at)) {
            if (r < PAIRS) describe_line(facts, p.at, r, to);
        } else {
            const bool all = r >= PAIRS || describe_pair(facts, p.at, r, to);
            whole = __all_sync(0xffffffffu, all);
        }
        if (r % 32 == 0) to.whole[warp] = whole;
    }

    /* Do all pairs of a block see all keys, with weights that need no care? The whole warp asks;
     * without branches, so that it waits for shared memory once. */
    __device__ __forceinline__ bool is_whole(int index) const
    {
        const Table &pairs = table(index);
        const int lane = threadIdx.x & 31;
        int all = 1;
#pragma unroll
        for (int n = 0; n < WARPS; n++) {
            const int r = 32 * n + (PAIRS < 32 ? lane % PAIRS : lane);
            all &= pairs.whole[n] & (int)(fabsf(pairs.lse[r]) < COARSE_LSE);
        }
        return __all_sync(0xffffffffu, all);
    }

    /* The queries of a block, and their dout. */
    template <int D>
    __device__ __forceinline__ void load(int index, uint32_t shared, int queries, int douts,
                                         bool chunks) const
    {
        const Table &pairs = table(index);
        if (pairs.in_line) {
            load_strided<T, D, PAIRS, THREADS, true>(shared, queries, pairs.q[0], pairs.q_apart, 0,
                                                     PAIRS, step.dim, chunks);
            load_strided<T, D, PAIRS, THREADS, true>(shared, douts, pairs.dout[0], pairs.dout_apart,
                                                     0, PAIRS, step.value_dim, chunks);
            return;
        }
        const auto query = [&](int r) { return pairs.q[r]; };
        const auto dout = [&](int r) { return pairs.dout[r]; };
        load_rows_at<T, D, PAIRS, THREADS>(shared, queries, step.dim, chunks, query);
        load_rows_at<T, D, PAIRS, THREADS>(shared, douts, step.value_dim, chunks, dout);
    }

    __device__ __forceinline__ query query_for(const Table &pairs, int r) const
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
