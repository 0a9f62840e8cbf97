/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_any_order.cuh - a CTA computes dk and dv of a tile of keys as gradient_kv.cuh does, and
 * adds the part of these keys in dq to global memory by atomic operations: 5 products instead of
 * the 7 of two kernels, but the order of sums in dq is any.
 *
 * A warp leaves its ds in shared memory, a matrix [KEYS x PAIRS] of a block of pairs; after a
 * barrier each warp multiplies some pairs of it by some columns of k:
 *     dq += scale ds^T k
 * Two warps that share keys weigh one half of the block's pairs each, and leave their p there too:
 * each needs all pairs for its own columns of dk and dv. */
#ifndef RA__BACKEND_CUDA_MMA_GRADIENT_ANY_ORDER_CUH
#define RA__BACKEND_CUDA_MMA_GRADIENT_ANY_ORDER_CUH

#include "backend/cuda/mma/gradient_kv.cuh"

namespace ra::mma
{

/* When dq of a block is computed. Later needs one barrier per block instead of two, but two buffers
 * for ds. Measured on an H200: with 64 numbers 4% faster after the next block, with 128 numbers 3%
 * faster before it. */
enum any_order_when { AT_ONCE, BEFORE_NEXT, AFTER_NEXT };

/* SIZE 0 is for the 227 KiB of shared memory of an H100, the next for the 163 KiB of an A100, the
 * last for 99 KiB. */
struct any_order_size {
    int warps, ctas; /* ctas: of an SM */
    int split, m;    /* warps that share keys; a warp has 16 m keys */
    int per_tile;    /* CTAs that share a tile of keys */
    int pairs;
    any_order_when dq;
};
constexpr any_order_size any_order_size_of(int dim, int size)
{
    constexpr any_order_size at_64[] = { { 4, 2, 1, 2, 1, 64, AFTER_NEXT },
                                         { 4, 2, 1, 2, 1, 32, AT_ONCE } };
    constexpr any_order_size at_128[] = { { 8, 1, 2, 2, 1, 64, BEFORE_NEXT },
                                          { 8, 1, 1, 1, 1, 64, AT_ONCE },
                                          { 8, 1, 2, 1, 2, 32, BEFORE_NEXT } };
    constexpr any_order_size at_256[] = { { 8, 1, 2, 1, 1, 32, BEFORE_NEXT },
                                          { 4, 1, 2, 1, 2, 16, BEFORE_NEXT } };
    return dim == 64 ? at_64[size] : dim == 128 ? at_128[size] : at_256[size];
}

template <class T_, int D_, bool TERMS_, int SIZE> struct gradient_any_order_shape {
    using T = T_;
    static constexpr int D = D_, W = WORDS<T> * D;
    static constexpr bool TERMS = TERMS_;
    static constexpr any_order_size OF = any_order_size_of(D, SIZE);
    static constexpr int WARPS = OF.warps, THREADS = 32 * WARPS, CTAS = OF.ctas;
    static constexpr int SPLIT = OF.split, M = OF.m, PER_TILE = OF.per_tile, PAIRS = OF.pairs;
    static constexpr int KEYS = WARPS / SPLIT * 16 * M;
    /* Warps that share keys have half of the pairs each, where halves are not too small. */
    static constexpr bool HALVES = SPLIT > 1 && PAIRS / SPLIT >= 16;
    /* Pairs that a warp works on at a time. */
    static constexpr int MOST = D == 128 && !TERMS ? 64 : 32;
    static constexpr int SOME = HALVES ? PAIRS / SPLIT : PAIRS < MOST ? PAIRS : MOST;
    static constexpr any_order_when DQ = OF.dq;
    static constexpr bool LATE = DQ != AT_ONCE;
    static constexpr int VALUES_AT = KEYS * LINE<W>;
    static constexpr int STAGES_AT = 2 * KEYS * LINE<W>;
    static constexpr int STAGE = 2 * PAIRS * LINE<W>; /* queries, then dout */
    static constexpr int WEIGHTS = KEYS * LINE<PAIRS>;
    static constexpr int WEIGHTS_AT = STAGES_AT + 2 * STAGE;          /* p, where warps share it */
    static constexpr int DS_AT = WEIGHTS_AT + (HALVES ? WEIGHTS : 0); /* ds */
    static constexpr int TABLES_AT = DS_AT + (LATE ? 2 : 1) * WEIGHTS;
    using Walk = parts_walk<T, PAIRS, LATE ? 4 : 3, THREADS, KEYS, TERMS, true>;
    static constexpr int BYTES = TABLES_AT + (int)sizeof(typename Walk::Tables);
};

template <class F> struct gradient_any_order_tile : gradient_kv_tile<F> {
    using kv = gradient_kv_tile<F>;
    using kv::first_column, kv::first_key, kv::how, kv::lane, kv::pairs, kv::quad, kv::shared;
    using kv::step, kv::warp;
    using typename kv::packed;
    using typename kv::sums;
    using typename kv::T;
    using typename kv::Table;
    using typename kv::view;
    static constexpr int M = kv::M, N = kv::N, K = kv::K;
    /* Of a block's dq, each warp has 16 Q_M pairs by 8 Q_N columns. */
    static constexpr int Q_M = F::PAIRS < 32 ? 1 : 2, Q_DOWN = F::PAIRS / (16 * Q_M);
    static constexpr int Q_ACROSS = F::WARPS / Q_DOWN, Q_N = F::D / (8 * Q_ACROSS);
    static_assert(F::SPLIT <= 2, "the pairs of a warp, and those of the other");

    __device__ __forceinline__ int ds_at(int index) const
    {
        return F::DS_AT + (F::LATE ? (index & 1) * F::WEIGHTS : 0);
    }
    __device__ __forceinline__ int first_pair() const { return warp() / Q_ACROSS * 16 * Q_M; }
    __device__ __forceinline__ int first_of_q() const { return warp() % Q_ACROSS * 8 * Q_N; }

    /* Weights of the warp's keys and SOME pairs, to a matrix in shared memory. A word is two pairs
     * of one key, as the lane has them; the permuted chunks keep 8 keys in different banks. */
    __device__ __forceinline__ void store(int to, int from, const packed &weights) const
    {
        const int start = to + chunk_at<F::PAIRS>(first_key() + (lane() >> 2), from / 8) +
                          4 * quad();
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int j = 0; j < K; j++) {
                    const int at = (start ^ j << 4) + (16 * i + 8 * half) * LINE<F::PAIRS>;
                    *(uint32_t *)(ra_shared + at) = weights.w[i][j][half];
                }
    }

    /* c += weights that another warp has stored, of SOME pairs from `from` on, by rows of a matrix;
     * as add() of gradient_kv.cuh. */
    __device__ __forceinline__ void add_stored(float (&c)[M][N][4], int weights, int matrix,
                                               const Table &t, int from, bool wary) const
    {
        const stored_weights<F::PAIRS> first = { moved<F::PAIRS>(
            shared + weights + first_key() * LINE<F::PAIRS> + lane_first<F::PAIRS>(lane()), 0,
            from / 16) };
        const uint32_t rows = moved<F::W>(shared + matrix + lane_first<F::W>(lane()), 0,
                                          first_column() / 16);
        if (!wary) {
            weigh_steps<false, T, F::W, F::SOME / 16>(c, first, rows);
            return;
        }
        const uint32_t found = weigh_steps<true, T, F::W, F::SOME / 16>(c, first, rows);
        if (!__any_sync(0xffffffffu, found != 0)) return;
        const gradient_any_order_tile self = *this;
        const Table *table = &t;
        const auto weight = [self, weights, from](int row, int pair) {
            return number_at<T, F::PAIRS>(ra_shared + weights, self.first_key() + row, from + pair);
        };
        const auto visible = [self, table, from](int row, int pair) {
            return self.visible(*table, from + pair, self.first_key() + row);
        };
        weigh_aside<T, F::W>(c, ra_shared + matrix, F::SOME, first_column(), weight, visible,
                             not_finite_counts{});
    }

    /* dk and dv of a block; leaves its ds. */
    __device__ __forceinline__ void block(sums &x, int index, bool whole) const
    {
        if constexpr (!F::HALVES) {
#pragma unroll 1
            for (int from = 0; from < F::PAIRS; from += F::SOME) some_pairs(x, index, from, whole);
            if constexpr (!F::LATE) __syncthreads();
        } else {
            shared_pairs(x, index, whole, [](int) {});
        }
    }

    __device__ __forceinline__ void some_pairs(sums &x, int index, int from, bool whole) const
    {
        const view seen = whole ? kv::ALL
                                : kv::template view_of<F::SOME, 16 * M>(pairs.table(index), from,
                                                                        first_key());
        const bool stores = warp() % F::SPLIT == 0;
        float s[M][K][4], dp[M][K][4];
        if (seen == kv::NOTHING) {
            clear(dp);
            if (stores) store(ds_at(index), from, packed(dp));
            return;
        }
        kv::weigh(index, from, seen, s, dp);
        const packed p(s), ds(dp);
        if (stores) store(ds_at(index), from, ds);
        kv::add_some(x, index, from, seen, p, ds);
    }

    /* Warps that share keys have stored their weights. They meet in every block, even with nothing
     * to share: racecheck took what followed for unordered where some had not. */
    __device__ __forceinline__ void meet() const
    {
        if constexpr (F::LATE) barrier_of(1 + warp() / F::SPLIT, 32 * F::SPLIT);
        else __syncthreads();
    }

    /* Where warps have halves. What is seen of them is the same for all of these warps. The pairs
     * that the warp has weighed itself come first, and meanwhile the others store theirs. */
    template <class Between>
    __device__ __forceinline__ void shared_pairs(sums &x, int index, bool whole,
                                                 const Between &between) const
    {
        const Table &t = pairs.table(index);
        const view seen = whole ? kv::ALL
                                : kv::template view_of<F::PAIRS, 16 * M>(t, 0, first_key());
        const int from = warp() % F::SPLIT * F::SOME;
        float s[M][K][4], dp[M][K][4];
        if (seen == kv::NOTHING) {
            clear(dp);
            store(ds_at(index), from, packed(dp));
            meet();
            return;
        }
        kv::weigh(index, from, seen, s, dp, between);
        const packed p(s), ds(dp);
        store(ds_at(index), from, ds);
        store(F::WEIGHTS_AT, from, p);
        kv::add_some(x, index, from, seen, p, ds);
        meet();
        const bool wary = F::TERMS || seen != kv::ALL;
        const int other = F::SOME - from, rows = other * LINE<F::W>;
        add_stored(x.dv, F::WEIGHTS_AT, kv::douts_at(index) + rows, t, other, wary);
        add_stored(x.dk, ds_at(index), kv::queries_at(index) + rows, t, other, wary);
    }

    /* The warp's pairs and columns of dq = ds^T k of a block. */
    __device__ __forceinline__ void multiply_ds(float (&dq)[Q_M][Q_N][4], int index,
                                                bool wary) const
    {
        constexpr int STEPS = F::KEYS / 16;
        const int ds = ds_at(index), column = first_of_q(), pair = first_pair();
        const transposed_weights<F::PAIRS> first = { moved<F::PAIRS>(
            shared + ds + lane_second<F::PAIRS>(lane()), 0, pair / 16) };
        const uint32_t rows = moved<F::W>(shared + lane_first<F::W>(lane()), 0, column / 16);
        clear(dq);
        if (!wary) {
            weigh_steps<false, T, F::W, STEPS>(dq, first, rows);
            return;
        }
        const uint32_t found = weigh_steps<true, T, F::W, STEPS>(dq, first, rows);
        if (!__any_sync(0xffffffffu, found != 0)) return;
        const gradient_any_order_tile self = *this;
        const Table *table = &pairs.table(index);
        const auto weight = [ds, pair](int row, int key) {
            return number_at<T, F::PAIRS>(ra_shared + ds, key, pair + row);
        };
        const auto visible = [self, table, pair](int row, int key) {
            return self.visible(*table, pair + row, key);
        };
        weigh_aside<T, F::W>(dq, ra_shared, F::KEYS, column, weight, visible, not_finite_counts{});
    }

    /* The warp's pairs of a block's dq, not yet added, where they are equally far apart. */
    struct lines {
        float *row;
        int64_t apart;
        float dq[Q_M][Q_N][4];
    };
    static constexpr int FRAGMENTS = 2 * Q_M * Q_N;

    /* Can two numbers of dq be added at a time? And are they in lines? */
    __device__ __forceinline__ bool in_twos() const
    {
        return how.pairs && first_of_q() + 8 * Q_N <= step.dim;
    }
    __device__ __forceinline__ bool has_lines(const Table &t) const
    {
        return t.in_line && in_twos();
    }
    __device__ __forceinline__ void find_lines(const Table &t, lines &l) const
    {
        l.apart = t.dq_apart;
        l.row = t.dq[0] + (first_pair() + (lane() >> 2)) * l.apart + first_of_q() + 2 * quad();
    }
    /* Adds the n-th of the fragments of lines; to be called in order. */
    __device__ __forceinline__ void add_fragment(lines &l, int n) const
    {
        const int row = n / Q_N, j = n % Q_N, i = row / 2, half = row % 2;
        if (j == 0) l.row = computed(row == 0 ? l.row : l.row + 8 * l.apart);
        add_atomic(l.row + 8 * j, l.dq[i][j][2 * half] * step.scale,
                   l.dq[i][j][2 * half + 1] * step.scale);
    }

    __device__ __forceinline__ void add_queries(int index, bool whole) const
    {
        const Table &t = pairs.table(index);
        const int column = first_of_q();
        const view seen = whole ? kv::ALL
                                : kv::template view_of<16 * Q_M, F::KEYS>(t, first_pair(), 0);
        if (seen == kv::NOTHING) return;
        lines l;
        multiply_ds(l.dq, index, F::TERMS || seen != kv::ALL);
        if (has_lines(t)) {
            find_lines(t, l);
#pragma unroll
            for (int n = 0; n < FRAGMENTS; n++) add_fragment(l, n);
            return;
        }
#pragma unroll
        for (int i = 0; i < Q_M; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int r = first_pair() + 16 * i + 8 * half + (lane() >> 2);
                float *row = t.in_line ? t.dq[0] + r * t.dq_apart : t.dq[r];
                if (!row) continue;
                if (in_twos()) add_row_atomic(row + column, l.dq[i], half, step.scale);
                else add_row_atomic(row + column, l.dq[i], half, step.dim - column, step.scale);
            }
    }

    /* A whole block and dq, without a branch: of this block, or of the one before it, which is
     * whole too; and dq has lines. Between the steps of a product go a few atomic operations: all
     * at once would fill their queue, and loads of shared memory wait behind them. */
    __device__ __forceinline__ void whole_block(sums &x, int index) const
    {
        const int of_dq = F::LATE ? index - 1 : index;
        lines l;
        if constexpr (F::DQ != BEFORE_NEXT) {
            static_assert(!F::HALVES, "pairs are not shared then");
#pragma unroll 1
            for (int from = 0; from < F::PAIRS; from += F::SOME) some_pairs(x, index, from, true);
            if constexpr (!F::LATE) __syncthreads();
        }
        multiply_ds(l.dq, of_dq, false);
        find_lines(pairs.table(of_dq), l);
        if constexpr (F::HALVES) {
            shared_pairs(x, index, true, [this, &l](int k) {
                constexpr int FEW = FRAGMENTS / (F::D / 16);
                static_assert(FEW * (F::D / 16) == FRAGMENTS, "the same number in each step");
#pragma unroll
                for (int n = 0; n < FEW; n++) add_fragment(l, FEW * k + n);
            });
        } else {
#pragma unroll
            for (int n = 0; n < FRAGMENTS; n++) add_fragment(l, n);
            if constexpr (F::DQ == BEFORE_NEXT) block(x, index, true);
        }
    }

    /* As add_all() of gradient_kv.cuh. */
    __device__ __forceinline__ void add_all(sums &x) const
    {
        int index = 0;
        bool before = false; /* was the last block whole? */
        for (; pairs.is_there(index); index++) {
            kv::arrive(index);
            const bool whole = pairs.is_whole(index), both = whole && (before || !F::LATE);
            if (both && has_lines(pairs.table(F::LATE ? index - 1 : index))) {
                whole_block(x, index);
                before = true;
                continue;
            }
            if (F::DQ == BEFORE_NEXT && index > 0) add_queries(index - 1, before);
            block(x, index, whole);
            if (F::DQ == AFTER_NEXT && index > 0) add_queries(index - 1, before);
            if (F::DQ == AT_ONCE) add_queries(index, whole);
            before = whole;
        }
        if (!F::LATE || index == 0) return;
        __syncthreads();
        add_queries(index - 1, before);
    }
};

} // namespace ra::mma

#endif
