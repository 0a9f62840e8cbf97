/* SPDX-License-Identifier: Apache-2.0 */
/* walk.cuh - a tile of queries walks the blocks of keys that it sees, run after run; for forward
 * and for dq. What the walk needs is in shared memory, since registers hold fragments. */
#ifndef RA__BACKEND_CUDA_MMA_WALK_CUH
#define RA__BACKEND_CUDA_MMA_WALK_CUH

#include "backend/cuda/mma/loader.cuh"
#include "backend/cuda/mma/terms.cuh"

namespace ra::mma
{

/* The run that blocks are taken of. Keys are counted from the start of its first block. */
struct span {
    int64_t token, token_step, pos, pos_step; /* of key 0 */
    int32_t lo, hi;                           /* keys that some query sees */
};

/* Keys that a row sees, counted like those of the span. */
struct seen {
    int32_t lo, hi;
};

/* Does the row see the key? With terms it may still be hidden. */
__device__ __forceinline__ bool sees(const seen &row, int key)
{
    return key >= row.lo && key < row.hi;
}

/* Query and head of a row: counted from those of the tile. */
struct pair {
    uint16_t query, head;
};

template <int ROWS> struct walk_tables {
    tile t;
    int32_t runs; /* of its row */
    /* Of the first query. */
    int64_t token, token_step, position, position_step;
    span spans[2]; /* of the current block and of the one that is being loaded */
    seen rows[2][ROWS];
    pair pairs[ROWS];
};

/* A block: KEYS keys from `at` on of the span; `run` is the row's run_count after the last. */
struct place {
    int run, at, which;
};

template <int ROWS, int KEYS, int THREADS> struct walk {
    static_assert(ROWS <= THREADS, "a thread for each row");
    const ra__cuda_step &step;
    walk_tables<ROWS> &tables;

    __device__ __forceinline__ static int thread() { return (int)threadIdx.x; }
    __device__ __forceinline__ const span &span_of(const place &p) const
    {
        return tables.spans[p.which];
    }
    __device__ __forceinline__ bool ended(const place &p) const { return p.run >= tables.runs; }

    /* To be called by all threads, and first of all; a barrier follows before tables are read. */
    __device__ __forceinline__ void start(int64_t index, int range) const
    {
        const tile t = find_tile(step, index, range, ROWS);
        if (thread() == 0) {
            tables.t = t;
            tables.runs = t.row->run_count;
            tables.token = t.token(t.query(0));
            tables.token_step = t.row->q_token_step;
            tables.position = t.position(t.query(0));
            tables.position_step = t.row->q_pos_step;
        }
        if (thread() >= ROWS) return;
        const int r = thread() < t.rows ? thread() : 0;
        pair p;
        p.query = (uint16_t)(t.query(r) - t.query(0));
        p.head = (uint16_t)(t.head_of(r) - t.head);
        tables.pairs[thread()] = p;
    }

    __device__ __forceinline__ int64_t token(int r) const
    {
        return tables.token + tables.pairs[r].query * tables.token_step;
    }
    __device__ __forceinline__ int64_t position(int r) const
    {
        return tables.position + tables.pairs[r].query * tables.position_step;
    }
    __device__ __forceinline__ int head(int r) const
    {
        return tables.t.head + tables.pairs[r].head;
    }

    /* The first block of the first run from `run` on that has one. `blind` rows see no key. */
    __device__ __forceinline__ place open(int run, int which, bool blind) const
    {
        const tile &t = tables.t;
        for (; run < tables.runs; run++) {
            const ra__cuda_run keys = run_of(step, t, run);
            const blocks b = blocks_of(keys, t, KEYS);
            if (b.keys.hi <= b.keys.lo) continue;
            if (thread() == 0) {
                span &s = tables.spans[which];
                s.token = keys.token + b.from * keys.token_step;
                s.token_step = keys.token_step;
                s.pos = keys.pos + b.from * keys.pos_step;
                s.pos_step = keys.pos_step;
                s.lo = (int32_t)(b.keys.lo - b.from);
                s.hi = (int32_t)(b.keys.hi - b.from);
            }
            if (thread() < ROWS) {
                seen row = { 0, 0 };
                if (thread() < t.rows && !blind) {
                    const range r = seen_by(keys, position(thread()));
                    row.lo = (int32_t)(r.lo - b.from);
                    row.hi = (int32_t)(r.hi - b.from);
                }
                tables.rows[which][thread()] = row;
            }
            __syncthreads();
            break;
        }
        return place{ run, 0, which };
    }

    __device__ __forceinline__ place next(const place &p, bool blind) const
    {
        if (p.at + KEYS < span_of(p).hi) return place{ p.run, p.at + KEYS, p.which };
        return open(p.run + 1, p.which ^ 1, blind);
    }

    /* The keys of a block, or their values. */
    template <class T, int D>
    __device__ __forceinline__ void load(const place &p, const ra__cuda_tensor &from, int numbers,
                                         uint32_t shared, int to, bool chunks) const
    {
        const span &s = span_of(p);
        const T *first = at<T>(from, tables.t.batch, s.token + p.at * s.token_step,
                               tables.t.kv_head);
        const int64_t stride = s.token_step * from.token;
        const int lo = s.lo - p.at, hi = s.hi - p.at;
        load_strided<T, D, KEYS, THREADS>(shared, to, first, stride, lo, hi, numbers, chunks);
    }

    /* The queries of the tile, or dout. */
    template <class T, int D>
    __device__ __forceinline__ void load_queries(const ra__cuda_tensor &from, int numbers,
                                                 uint32_t shared, int to, bool chunks) const
    {
        const int rows = tables.t.rows, batch = tables.t.batch;
        const auto where = [&](int row) {
            return row < rows ? at<T>(from, batch, token(row), head(row)) : nullptr;
        };
        load_rows_at<T, D, ROWS, THREADS>(shared, to, numbers, chunks, where);
    }

    /* What of a block a warp with `count` rows from `first` on sees: nothing, some, or all. */
    enum view { NOTHING, SOME, ALL };
    __device__ __forceinline__ view view_of(const place &p, int first, int count) const
    {
        const int lane = threadIdx.x & 31;
        bool some = false, all = true;
        if (lane < count) {
            const seen row = tables.rows[p.which][first + lane];
            const int lo = row.lo - p.at, hi = row.hi - p.at;
            some = lo < KEYS && hi > 0 && lo < hi;
            all = lo <= 0 && hi >= KEYS;
        }
        if (__all_sync(0xffffffffu, all)) return ALL;
        return __any_sync(0xffffffffu, some) ? SOME : NOTHING;
    }

    /* The query of a row, for score terms. */
    __device__ __forceinline__ ra::query query_for(int r) const
    {
        ra::query q;
        q.token = token(r);
        q.index = position(r);
        q.original = original(step.terms, q.index);
        q.batch = tables.t.batch;
        q.head = head(r);
        return q;
    }

    /* Is key `key` of a block not hidden from a row, by whatever? */
    template <bool TERMS>
    __device__ __forceinline__ bool visible(const place &p, int r, int key) const
    {
        if (!sees(tables.rows[p.which][r], p.at + key)) return false;
        if constexpr (!TERMS) return true;
        const span &s = span_of(p);
        return !hides(step, query_for(r), s.pos + (p.at + key) * s.pos_step);
    }
};

} // namespace ra::mma

#endif
