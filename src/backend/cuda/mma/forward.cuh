/* SPDX-License-Identifier: Apache-2.0 */
/* forward.cuh - a CTA folds the keys that a tile of queries sees into their softmax.
 *
 * Keys and values of a block are loaded while the block before is worked on; one barrier per block.
 * Each warp owns 16 M rows: their scores, weights and sums stay in its registers. */
#ifndef RA__BACKEND_CUDA_MMA_FORWARD_CUH
#define RA__BACKEND_CUDA_MMA_FORWARD_CUH

#include "backend/cuda/mma/softmax.cuh"

namespace ra::mma
{

/* D: what dim and value_dim are padded to. SIZE 1 is for GPUs whose SMs have no room for the CTAs
 * of SIZE 0. */
template <class T_, int D_, bool TERMS_, int SIZE> struct forward_shape {
    using T = T_;
    static constexpr int D = D_, W = WORDS<T> * D;
    static constexpr bool TERMS = TERMS_;
    static constexpr bool F32 = IS_F32<T>;
    static constexpr int WARPS = F32 ? 8 : 4, THREADS = 32 * WARPS;
    /* 32 rows of a warp halve what it loads from shared memory per product; with more than 128
     * numbers, or with numbers that are split, its registers hold 16. */
    static constexpr int M = D <= 128 && !F32 ? 2 : 1, ROWS = 16 * M * WARPS;
    /* Score terms need registers of their own; and so do scores of 128 keys, which leave none for
     * queries. */
    static constexpr bool LARGE = D <= 64 && !TERMS && SIZE == 0 && !F32;
    static constexpr bool SMALL = D > 128 || (D > 64 && (TERMS || (F32 && SIZE > 0)));
    static constexpr int KEYS = LARGE ? 128 : SMALL ? 32 : 64;
    static constexpr bool Q_HELD = D <= 64 && !LARGE && !F32;
    static constexpr int CTAS = F32 ? 1 : 2;         /* of an SM */
    static constexpr int STAGE = 2 * KEYS * LINE<W>; /* keys, then values */
    static constexpr int STAGES_AT = ROWS * LINE<W>;
    static constexpr int TABLES_AT = STAGES_AT + 2 * STAGE;
    using Walk = walk<ROWS, KEYS, THREADS>;
    static constexpr int BYTES = TABLES_AT + (int)sizeof(walk_tables<ROWS>);
};

template <class F> struct forward_tile {
    static constexpr int M = F::M, N = F::D / 8, K = F::KEYS / 8;
    const ra__cuda_step &step;
    access how;
    typename F::Walk keys;
    uint32_t shared;
    using State = state<M, N>;
    using T = typename F::T;

    __device__ __forceinline__ int warp() const { return threadIdx.x >> 5; }
    __device__ __forceinline__ int quad() const { return threadIdx.x & 3; }
    __device__ __forceinline__ uint32_t queries_of_warp() const
    {
        return shared + 16 * M * warp() * LINE<F::W> + lane_first<F::W>(threadIdx.x & 31);
    }

    /* Where the state of a row is, as pointers to m, l and acc. */
    __device__ __forceinline__ state_place state_of(int r) const
    {
        const tile &t = keys.tables.t;
        return step.ranges == 1
                   ? state_at(step, t.batch, keys.token(r), keys.head(r))
                   : split_state_at(step, t.range, t.batch, keys.token(r), keys.head(r));
    }

    __device__ __forceinline__ void begin(State &x) const
    {
        clear(x.acc);
        const bool fresh = keys.tables.t.row->first || step.ranges > 1;
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int r = row_of<M>(i, half);
                x.m[i][half] = -INFINITY;
                x.l[i][half] = 0.0f;
                if (fresh || r >= keys.tables.t.rows) continue;
                const state_place from = state_of(r);
                x.m[i][half] = *from.m;
                x.l[i][half] = quad() == 0 ? *from.l : 0.0f;
#pragma unroll
                for (int j = 0; j < N; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        const int d = 8 * j + 2 * quad() + e;
                        if (d < step.value_dim) x.acc[i][j][2 * half + e] = from.acc[d];
                    }
            }
    }

    __device__ __forceinline__ int stage(int index) const
    {
        return F::STAGES_AT + (index & 1) * F::STAGE;
    }
    __device__ __forceinline__ void load(const place &p, int index) const
    {
        const int to = stage(index);
        keys.template load<T, F::D>(p, step.k, step.dim, shared, to, how.chunks);
        keys.template load<T, F::D>(p, step.v, step.value_dim, shared, to + F::STAGE / 2,
                                    how.chunks);
    }

    /* Weights by values. */
    __device__ __forceinline__ void add_values(State &x, const place &p, int index,
                                               float (&s)[M][K][4], bool wary) const
    {
        weigh<T, F::W, 4>(x.acc, s, stage(index) + F::STAGE / 2, 0, wary, [&] {
            return [self = *this, p](int r, int key) {
                return self.keys.template visible<F::TERMS>(p, 16 * M * self.warp() + r, key);
            };
        });
    }

    /* Folds one block; `q` are the warp's queries, in registers or shared memory. */
    template <class Q>
    __device__ __forceinline__ void block(State &x, const place &p, int index, const Q &q) const
    {
        const auto view = keys.view_of(p, 16 * M * warp(), 16 * M);
        const uint32_t block = shared + stage(index) + lane_second<F::W>(threadIdx.x & 31);
        float s[M][K][4];
        if (view == F::Walk::NOTHING) return;
        if (!F::TERMS && view == F::Walk::ALL) { /* most are, and need no branches */
            multiply_rows<T, F::W>(s, q, block);
            fold(x, s, step.scale * LOG2_E);
            add_values(x, p, index, s, false);
            return;
        }
        multiply_rows<T, F::W>(s, q, block);
        if constexpr (F::TERMS) {
            const uint64_t kept = score_all(keys, p, s);
            fold(x, s, 1.0f);
            if (step.terms.dropout) drop(s, kept, step.terms.kept_scale);
        } else {
            hide(keys, p, s);
            fold(x, s, step.scale * LOG2_E);
        }
        add_values(x, p, index, s, true);
    }

    template <class Q> __device__ __forceinline__ void fold_all(State &x, place p, const Q &q) const
    {
        for (int index = 0; !keys.ended(p); index++) {
            copies_wait<0>();
            __syncthreads(); /* this block has arrived, and nobody reads the one before it */
            const place after = keys.next(p, false);
            if (!keys.ended(after)) {
                load(after, index + 1);
                copies_commit();
            }
            block(x, p, index, q);
            p = after;
        }
    }

    /* out, or a state. */
    __device__ __forceinline__ void write(const State &x, int r, int i, int half,
                                          float factor) const
    {
        const bool last = keys.tables.t.row->last && step.ranges == 1;
        if (last)
            write_row(at<T>(step.out, keys.tables.t.batch, keys.token(r), keys.head(r)), x.acc[i],
                      half, step.value_dim, factor, how.pairs);
        else write_row(state_of(r).acc, x.acc[i], half, step.value_dim, 1.0f, false);
    }

    __device__ __forceinline__ void end(State &x) const
    {
        const bool last = keys.tables.t.row->last && step.ranges == 1;
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) x.l[i][half] = quad_sum(x.l[i][half]);
        /* Lane `quad` of a row's four ends the quad-th of their 2 M rows. */
        float m = x.m[0][0], l = x.l[0][0], factor = 1.0f;
        int mine = row_of<M>(0, 0);
#pragma unroll
        for (int n = 1; n < 2 * M; n++) {
            m = selected(quad() == n, x.m[n / 2][n % 2], m);
            l = selected(quad() == n, x.l[n / 2][n % 2], l);
            mine = quad() == n ? row_of<M>(n / 2, n % 2) : mine;
        }
        if (quad() < 2 * M && mine < keys.tables.t.rows) {
            if (last) {
                const int head = keys.head(mine);
                const row_end ends = end_of(m, l, sink_of(step, head));
                factor = 1.0f / ends.divisor;
                if (step.lse.data)
                    *at<float>(step.lse, keys.tables.t.batch, keys.token(mine), head) = ends.lse;
            } else {
                const state_place to = state_of(mine);
                *to.m = m;
                *to.l = l;
            }
        }
#pragma unroll
        for (int n = 0; n < 2 * M; n++) {
            const float by = __shfl_sync(0xffffffffu, factor, (threadIdx.x & 28) | n);
            const int r = row_of<M>(n / 2, n % 2);
            if (r < keys.tables.t.rows) write(x, r, n / 2, n % 2, by);
        }
    }
};

template <class F>
__global__ void __launch_bounds__(F::THREADS, F::CTAS)
    forward_kernel(const __grid_constant__ ra__cuda_step step, const access how)
{
    auto &tables = *(walk_tables<F::ROWS> *)(ra_shared + F::TABLES_AT);
    forward_tile<F> tile = { step, how, { step, tables }, shared_address(ra_shared) };
    typename forward_tile<F>::State x;
    tile.keys.start(blockIdx.x, (int)blockIdx.y);
    __syncthreads();
    tile.keys.template load_queries<typename F::T, F::D>(step.q, step.dim, tile.shared, 0,
                                                         how.chunks);
    const place first = tile.keys.open(0, 0, false);
    if (!tile.keys.ended(first)) tile.load(first, 0);
    copies_commit();
    tile.begin(x);
    if constexpr (F::Q_HELD) {
        copies_wait<0>();
        __syncthreads();
        uint32_t q[F::W / 16][F::M][4];
        load_rows<F::M, F::W>(q, tile.queries_of_warp());
        tile.fold_all(x, first, q);
    } else {
        tile.fold_all(x, first, tile.queries_of_warp());
    }
    tile.end(x);
}

} // namespace ra::mma

#endif
