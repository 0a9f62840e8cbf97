/* SPDX-License-Identifier: Apache-2.0 */
/* decode.cuh - few queries against many keys: a CTA folds the keys of one range into the softmax of
 * at most 16 rows. Memory bounds it, so several blocks of keys are on their way at a time, and
 * little is done with each: a warp takes 16 keys of every block for all rows. In the end the states
 * of the warps become one, which MERGE adds to those of the other ranges. */
#ifndef RA__BACKEND_CUDA_MMA_DECODE_CUH
#define RA__BACKEND_CUDA_MMA_DECODE_CUH

#include "backend/cuda/mma/softmax.cuh"

namespace ra::mma
{

/* SIZE 1 is for GPUs whose SMs have no room for two CTAs of SIZE 0. */
template <class T_, int D_, int SIZE> struct decode_shape {
    using T = T_;
    static constexpr int D = D_, W = WORDS<T> * D, STAGES = SIZE ? 2 : D <= 64 ? 4 : 3;
    static constexpr int CTAS = 2; /* of an SM */
    static constexpr int ROWS = 16;
    static constexpr int WARPS = D <= 128 ? 4 : 2, THREADS = 32 * WARPS;
    static constexpr int KEYS = 16 * WARPS;
    static constexpr bool Q_HELD = D <= 128;         /* queries in registers */
    static constexpr int STAGE = 2 * KEYS * LINE<W>; /* keys, then values */
    static constexpr int STAGES_AT = ROWS * LINE<W>;
    static constexpr int TABLES_AT = STAGES_AT + STAGES * STAGE;
    using Walk = walk<ROWS, KEYS, THREADS>;
    static constexpr int BYTES = TABLES_AT + (int)sizeof(walk_tables<ROWS>);
};

/* States of the warps, in the memory of the stages: acc, then m and l. */
template <class F> struct decode_states {
    float acc[F::WARPS][F::ROWS][F::D];
    float m[F::WARPS][F::ROWS], l[F::WARPS][F::ROWS];
};

/* Blocks on their way, oldest first. */
template <int STAGES> struct decode_queue {
    place blocks[STAGES - 1];
    int count;

    __device__ __forceinline__ void push(const place &p)
    {
#pragma unroll
        for (int i = 0; i < STAGES - 1; i++)
            if (i == count) blocks[i] = p;
        count++;
    }
    __device__ __forceinline__ place pop(void)
    {
        const place first = blocks[0];
#pragma unroll
        for (int i = 0; i + 1 < STAGES - 1; i++) blocks[i] = blocks[i + 1];
        count--;
        return first;
    }
};

template <class F> struct decode_tile {
    static constexpr int N = F::D / 8, K = 2, PENDING = F::STAGES - 2;
    const ra__cuda_step &step;
    access how;
    typename F::Walk keys;
    uint32_t shared;
    using State = state<1, N>;

    __device__ __forceinline__ int lane() const { return threadIdx.x & 31; }
    /* The first key of a block that is the warp's. */
    __device__ __forceinline__ int first_key() const { return 16 * (int)(threadIdx.x >> 5); }
    __device__ __forceinline__ int stage(int index) const
    {
        return F::STAGES_AT + index % F::STAGES * F::STAGE;
    }

    /* What is loaded next; `ended` after the last block. Tables hold two runs: the next one is
     * opened when the block that is worked on is of the newest. */
    struct reader {
        place next;
        bool opened, ended;
        int loaded;
    };
    __device__ __forceinline__ void open(reader &r, const place &current) const
    {
        if (r.opened || r.ended || current.which != r.next.which) return;
        r.next = keys.open(r.next.run + 1, r.next.which ^ 1, false);
        r.ended = keys.ended(r.next);
        r.opened = !r.ended;
    }
    __device__ __forceinline__ void load(reader &r, decode_queue<F::STAGES> &queue) const
    {
        if (r.opened) {
            const int to = stage(r.loaded++);
            keys.template load<typename F::T, F::D>(r.next, step.k, step.dim, shared, to,
                                                    how.chunks);
            keys.template load<typename F::T, F::D>(r.next, step.v, step.value_dim, shared,
                                                    to + F::STAGE / 2, how.chunks);
            queue.push(r.next);
            r.opened = r.next.at + F::KEYS < keys.span_of(r.next).hi;
            if (r.opened) r.next.at += F::KEYS;
        }
        copies_commit();
    }

    /* What the rows see of the warp's keys: nothing, some, or all of them. */
    enum view { NOTHING, SOME, ALL };
    __device__ __forceinline__ view view_of(const place &p) const
    {
        bool some = false, all = true;
        if (lane() < keys.tables.t.rows) {
            const seen row = keys.tables.rows[p.which][lane()];
            const int from = p.at + first_key();
            some = row.lo < from + 16 && row.hi > from && row.lo < row.hi;
            all = row.lo <= from && row.hi >= from + 16;
        }
        if (__all_sync(0xffffffffu, all)) return ALL;
        return __any_sync(0xffffffffu, some) ? SOME : NOTHING;
    }

    __device__ __forceinline__ void hide_keys(const place &p, float (&s)[1][K][4]) const
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const seen row = keys.tables.rows[p.which][8 * half + (lane() >> 2)];
            const int from = p.at + first_key() + 2 * (lane() & 3);
#pragma unroll
            for (int j = 0; j < K; j++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (!sees(row, from + 8 * j + e)) s[0][j][2 * half + e] = -INFINITY;
        }
    }

    /* `q` are the queries, in registers or shared memory. */
    template <class Q>
    __device__ __forceinline__ void block(State &x, const place &p, int index, const Q &q) const
    {
        const view seen = view_of(p);
        if (seen == NOTHING) return;
        const int at = stage(index) + first_key() * LINE<F::W>, values = at + F::STAGE / 2;
        float s[1][K][4];
        multiply_rows<typename F::T, F::W>(s, q, shared + at + lane_second<F::W>(lane()));
        if (seen == SOME) hide_keys(p, s);
        fold(x, s, step.scale * LOG2_E);
        weigh<typename F::T, F::W, 4>(x.acc, s, values, 0, seen != ALL, [&] {
            return [self = *this, p](int r, int key) {
                return self.keys.template visible<false>(p, r, self.first_key() + key);
            };
        });
    }

    template <class Q>
    __device__ __forceinline__ void fold_all(State &x, reader &r, decode_queue<F::STAGES> &queue,
                                             const Q &q) const
    {
        for (int index = 0; queue.count > 0; index++) {
            if (queue.count == F::STAGES - 1) copies_wait<PENDING>();
            else copies_wait<0>();
            __syncthreads(); /* this block has arrived, and nobody reads the one before it */
            const place now = queue.pop();
            open(r, now);
            load(r, queue);
            block(x, now, index, q);
        }
    }

    /* The warp's state to shared memory. */
    __device__ __forceinline__ void leave(State &x, decode_states<F> &to) const
    {
        const int warp = threadIdx.x >> 5, quad = lane() & 3;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = 8 * half + (lane() >> 2);
            const float l = quad_sum(x.l[0][half]);
            if (quad == 0) {
                to.m[warp][r] = x.m[0][half];
                to.l[warp][r] = l;
            }
#pragma unroll
            for (int j = 0; j < N; j++)
                *(float2 *)&to.acc[warp][r][8 * j + 2 * quad] = make_float2(
                    x.acc[0][j][2 * half], x.acc[0][j][2 * half + 1]);
        }
    }

    /* One state out of those of all warps, in the order of their keys. */
    __device__ __forceinline__ void end(const decode_states<F> &from) const
    {
        const tile &t = keys.tables.t;
        for (int i = threadIdx.x; i < t.rows * F::D; i += F::THREADS) {
            const int r = i / F::D, d = i % F::D;
            if (d >= step.value_dim) continue;
            const state_place to = split_state_at(step, t.range, t.batch, keys.token(r),
                                                  keys.head(r));
            float m = from.m[0][r], l = 0.0f, acc = 0.0f;
            for (int w = 1; w < F::WARPS; w++) m = fmaxf(m, from.m[w][r]);
            /* A warp that has seen nothing, or only NaN, has -inf; NaN must stay. */
            const float shift = m == -INFINITY ? 0.0f : m;
            for (int w = 0; w < F::WARPS; w++) {
                const float factor = exp2_fast(from.m[w][r] - shift);
                l += from.l[w][r] * factor;
                acc += from.acc[w][r][d] * factor;
            }
            to.acc[d] = acc;
            if (d > 0) continue;
            *to.m = m;
            *to.l = l;
        }
    }
};

template <class F>
__global__ void __launch_bounds__(F::THREADS)
    decode_kernel(const __grid_constant__ ra__cuda_step step, const access how)
{
    static_assert(sizeof(decode_states<F>) <= F::STAGES * F::STAGE, "in the memory of the stages");
    using Tile = decode_tile<F>;
    auto &tables = *(walk_tables<F::ROWS> *)(ra_shared + F::TABLES_AT);
    const Tile tile = { step, how, { step, tables }, shared_address(ra_shared) };
    tile.keys.start(blockIdx.x, (int)blockIdx.y);
    __syncthreads();
    tile.keys.template load_queries<typename F::T, F::D>(step.q, step.dim, tile.shared, 0,
                                                         how.chunks);
    const place first = tile.keys.open(0, 0, false);
    const bool none = tile.keys.ended(first);
    typename Tile::reader r = { first, !none, none, 0 };
    decode_queue<F::STAGES> queue = {};
#pragma unroll
    for (int i = 0; i < F::STAGES - 1; i++) {
        if (i > 0) tile.open(r, queue.blocks[0]);
        tile.load(r, queue);
    }
    copies_wait<Tile::PENDING>(); /* queries came with the first block */
    __syncthreads();
    typename Tile::State x;
    clear(x.acc);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        x.m[0][half] = -INFINITY;
        x.l[0][half] = 0.0f;
    }
    const uint32_t queries = tile.shared + lane_first<F::W>(threadIdx.x & 31);
    if constexpr (F::Q_HELD) {
        uint32_t q[F::W / 16][1][4];
        load_rows<1, F::W>(q, queries);
        tile.fold_all(x, r, queue, q);
    } else {
        tile.fold_all(x, r, queue, queries);
    }
    __syncthreads(); /* nobody reads the last block */
    auto &states = *(decode_states<F> *)(ra_shared + F::STAGES_AT);
    tile.leave(x, states);
    __syncthreads();
    tile.end(states);
}

} // namespace ra::mma

#endif
