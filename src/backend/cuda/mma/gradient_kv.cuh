/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_kv.cuh - a CTA computes dk and dv of a tile of keys. Each warp owns 16 M keys and works
 * on transposed scores, so that its weights are the first operand of the next product without
 * leaving its registers:
 *     s = k q    dp = v dout    dv += kept p dout    dk += scale ds q
 * Where registers cannot hold all columns of dk and dv, SPLIT warps share keys: each computes all
 * weights and adds up its own columns. */
#ifndef RA__BACKEND_CUDA_MMA_GRADIENT_KV_CUH
#define RA__BACKEND_CUDA_MMA_GRADIENT_KV_CUH

#include "backend/cuda/mma/parts.cuh"
#include "backend/cuda/mma/products.cuh"
#include "backend/cuda/mma/terms.cuh"

namespace ra::mma
{

/* SIZE 1 is for devices with little shared memory. */
template <class T_, int D_, bool TERMS_, int SIZE> struct gradient_kv_shape {
    using T = T_;
    static constexpr int D = D_, W = WORDS<T> * D;
    static constexpr bool TERMS = TERMS_;
    static constexpr bool SMALL = D <= 64 && !IS_F32<T>;
    static_assert(!IS_F32<T> || D <= 128, "f32: a warp has all columns");
    static constexpr int M = SMALL ? 2 : 1, SPLIT = D <= 128 ? 1 : 2;
    static constexpr int WARPS = SMALL ? 4 : 8, THREADS = 32 * WARPS;
    static constexpr int CTAS = SMALL ? 2 : 1;
    static constexpr int KEYS = WARPS / SPLIT * 16 * M;
    static constexpr int PER_TILE = 1; /* CTAs that share a tile of keys */
    static constexpr int PAIRS = SIZE > 0 ? 16 : W <= 128 ? 64 : 32;
    /* Pairs that a warp works on at a time. */
    static constexpr int SOME = SIZE > 0 ? 16 : W == 128 && D == 128 && !TERMS ? 64 : 32;
    static constexpr int VALUES_AT = KEYS * LINE<W>;
    static constexpr int STAGES_AT = 2 * KEYS * LINE<W>;
    static constexpr int STAGE = 2 * PAIRS * LINE<W>; /* queries, then dout */
    static constexpr int TABLES_AT = STAGES_AT + 2 * STAGE;
    using Walk = parts_walk<T, PAIRS, 3, THREADS, KEYS, TERMS, false>;
    static constexpr int BYTES = TABLES_AT + (int)sizeof(typename Walk::Tables);
};

template <class F> struct gradient_kv_tile {
    using Shape = F;
    using T = typename F::T;
    using Table = typename F::Walk::Table;
    static constexpr int M = F::M, N = F::D / 8 / F::SPLIT, K = F::SOME / 8;
    using packed = packed_weights<T, M, K>;
    const ra__cuda_step &step;
    access how;
    typename F::Walk pairs;
    uint32_t shared;

    struct sums {
        float dk[M][N][4], dv[M][N][4];
    };

    __device__ __forceinline__ int lane() const { return threadIdx.x & 31; }
    __device__ __forceinline__ int quad() const { return threadIdx.x & 3; }
    __device__ __forceinline__ int warp() const { return threadIdx.x >> 5; }
    /* The first key of the warp, and the first of its columns. */
    __device__ __forceinline__ int first_key() const { return warp() / F::SPLIT * 16 * M; }
    __device__ __forceinline__ int first_column() const
    {
        return F::SPLIT == 1 ? 0 : warp() % F::SPLIT * 8 * N;
    }
    __device__ __forceinline__ int key_of(int i, int half) const
    {
        return first_key() + 16 * i + 8 * half + (lane() >> 2);
    }
    __device__ __forceinline__ int stage(int index) const
    {
        return F::STAGES_AT + (index & 1) * F::STAGE;
    }

    __device__ __forceinline__ void load_keys(const ra__cuda_tensor &from, int numbers,
                                              int to) const
    {
        const T *first = at<T>(from, pairs.batch(), pairs.token_of(0), pairs.kv_head());
        const int64_t stride = pairs.tables.head.token_step * from.token;
        load_strided<T, F::D, F::KEYS, F::THREADS>(shared, to, first, stride, 0,
                                                   pairs.tables.head.count, numbers, how.chunks);
    }
    __device__ __forceinline__ void load_pairs(int index) const
    {
        const int to = stage(index);
        pairs.template load<F::D>(index, shared, to, to + F::STAGE / 2, how.chunks);
    }

    /* What COUNT pairs from `from` on see of KEYS keys from `key` on. */
    enum view { NOTHING, PART, ALL };
    template <int COUNT, int KEYS>
    __device__ __forceinline__ view view_of(const Table &t, int from, int key) const
    {
        bool some = false, all = true;
#pragma unroll
        for (int n = 0; n < (COUNT + 31) / 32; n++) {
            const int r = from + (32 * n + lane()) % COUNT;
            const int lo = t.lo[r] - key, hi = t.hi[r] - key;
            some = some || (lo < KEYS && hi > 0 && lo < hi);
            all = all && lo <= 0 && hi >= KEYS && !is_weightless(t.lse[r]);
        }
        if (__all_sync(0xffffffffu, all)) return ALL;
        return __any_sync(0xffffffffu, some) ? PART : NOTHING;
    }

    /* s becomes p, dp becomes ds; HIDING: 0 where the pair does not see the key. */
    template <bool HIDING>
    __device__ __forceinline__ void differentiate(const Table &t, int from, float (&s)[M][K][4],
                                                  float (&dp)[M][K][4]) const
    {
        const float to_log2 = step.scale * LOG2_E;
#pragma unroll
        for (int j = 0; j < K; j++) {
            const int r = from + 8 * j + 2 * quad();
            const float2 lse = *(const float2 *)&t.lse[r], delta = *(const float2 *)&t.delta[r];
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    float &p = s[i][j][n], &ds = dp[i][j][n];
                    p = exp2_fast(fmaf(p, to_log2, -LOG2_E * (n & 1 ? lse.y : lse.x)));
                    ds = p * (ds - (n & 1 ? delta.y : delta.x));
                    if constexpr (HIDING) {
                        if (!t.sees(r + (n & 1), key_of(i, n >> 1))) p = ds = 0.0f;
                    }
                }
        }
    }
    __device__ __forceinline__ void differentiate_terms(const Table &t, int from,
                                                        float (&s)[M][K][4],
                                                        float (&dp)[M][K][4]) const
    {
#pragma unroll 1
        for (int j = 0; j < K; j++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int r = from + 8 * j + 2 * quad() + e;
                const query q = pairs.query_for(t, r);
#pragma unroll
                for (int i = 0; i < M; i++)
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        float &x = s[i][0][2 * half + e], &back = dp[i][0][2 * half + e];
                        const int key = key_of(i, half);
                        score now = { 0.0f, 0.0f, 0.0f, true };
                        if (t.sees(r, key)) now = score_of(step, q, t.pos + key * t.pos_step, x);
                        const float p = exp2_fast(now.x - LOG2_E * t.lse[r]);
                        const float ds = now.slope * (p * (now.kept * back - t.delta[r]));
                        x = now.hidden ? 0.0f : now.kept * p;
                        back = now.hidden ? 0.0f : ds;
                    }
            }
            rotate(s);
            rotate(dp);
        }
    }

    /* Does pair r see the key, and no term hides it? */
    __device__ __forceinline__ bool visible(const Table &t, int r, int key) const
    {
        if (!t.sees(r, key)) return false;
        if constexpr (!F::TERMS) return true;
        return !hides(step, pairs.query_for(t, r), t.pos + key * t.pos_step);
    }

    /* c += weights by rows of a matrix at an offset, as add_values() of forward.cuh. */
    __device__ __forceinline__ void add(float (&c)[M][N][4], const packed &w, int matrix,
                                        const Table &t, int from, bool wary) const
    {
        mma::weigh<T, F::W, 2>(c, w, matrix, first_column(), wary, [&] {
            return [self = *this, table = &t, from](int row, int pair) {
                return self.visible(*table, from + pair, self.first_key() + row);
            };
        });
    }

    /* Where the queries of a block are, and their dout. */
    __device__ __forceinline__ int queries_at(int index) const { return stage(index); }
    __device__ __forceinline__ int douts_at(int index) const { return stage(index) + F::STAGE / 2; }

    /* Of SOME pairs: s becomes p, the weights, and dp becomes ds. For between(k) see
     * rows_by_rows(). */
    template <class Between>
    __device__ __forceinline__ void weigh(int index, int from, view seen, float (&s)[M][K][4],
                                          float (&dp)[M][K][4], const Between &between) const
    {
        const Table &t = pairs.table(index);
        const int queries = queries_at(index) + from * LINE<F::W>;
        const int douts = douts_at(index) + from * LINE<F::W>;
        const uint32_t keys = shared + first_key() * LINE<F::W> + lane_first<F::W>(lane());
        multiply_rows<T, F::W>(s, keys, shared + queries + lane_second<F::W>(lane()), between);
        multiply_rows<T, F::W>(dp, keys + F::VALUES_AT, shared + douts + lane_second<F::W>(lane()));
        if constexpr (F::TERMS) differentiate_terms(t, from, s, dp);
        else if (seen == ALL) differentiate<false>(t, from, s, dp);
        else differentiate<true>(t, from, s, dp);
    }
    __device__ __forceinline__ void weigh(int index, int from, view seen, float (&s)[M][K][4],
                                          float (&dp)[M][K][4]) const
    {
        weigh(index, from, seen, s, dp, [](int) {});
    }

    __device__ __forceinline__ void add_some(sums &x, int index, int from, view seen,
                                             const packed &p, const packed &ds) const
    {
        const Table &t = pairs.table(index);
        const bool wary = F::TERMS || seen != ALL;
        add(x.dv, p, douts_at(index) + from * LINE<F::W>, t, from, wary);
        add(x.dk, ds, queries_at(index) + from * LINE<F::W>, t, from, wary);
    }

    /* `whole`: all is seen, see is_whole(). */
    __device__ __forceinline__ void some_pairs(sums &x, int index, int from, bool whole) const
    {
        const view seen = whole ? ALL
                                : view_of<F::SOME, 16 * M>(pairs.table(index), from, first_key());
        if (seen == NOTHING) return;
        float s[M][K][4], dp[M][K][4];
        weigh(index, from, seen, s, dp);
        add_some(x, index, from, seen, packed(s), packed(dp));
    }

    /* Waits for a block, starts the copies of the next one and describes the one after that. */
    __device__ __forceinline__ void arrive(int index) const
    {
        copies_wait<0>();
        __syncthreads(); /* this block has arrived, and nobody reads the one before it */
        if (pairs.is_there(index + 1)) load_pairs(index + 1);
        pairs.describe(pairs.next(index + 1), index + 2);
        copies_commit();
    }

    /* From the first block on, which is being copied; the second is described. */
    __device__ __forceinline__ void add_all(sums &x) const
    {
        for (int index = 0; pairs.is_there(index); index++) {
            arrive(index);
            if (!F::TERMS && pairs.is_whole(index)) { /* most are, and need no branches */
#pragma unroll 1
                for (int from = 0; from < F::PAIRS; from += F::SOME)
                    some_pairs(x, index, from, true);
                continue;
            }
#pragma unroll 1
            for (int from = 0; from < F::PAIRS; from += F::SOME) some_pairs(x, index, from, false);
        }
    }

    template <int COUNT>
    __device__ __forceinline__ void end_row(const ra__cuda_tensor &to, int64_t token,
                                            const float (&c)[COUNT][4], int half, int numbers,
                                            float factor) const
    {
        const int column = first_column(), batch = pairs.batch(), head = pairs.kv_head();
        if (step.writes_keys)
            write_row(at<T>(to, batch, token, head) + column, c, half, numbers - column, factor,
                      how.pairs);
        else
            add_row(at<float>(to, batch, token, head) + column, c, half, numbers - column, factor,
                    how.pairs);
    }

    __device__ __forceinline__ void end(const sums &x) const
    {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int key = key_of(i, half);
                if (key >= pairs.tables.head.count) continue;
                const int64_t token = pairs.token_of(key);
                end_row(step.dk, token, x.dk[i], half, step.dim, step.scale);
                end_row(step.dv, token, x.dv[i], half, step.value_dim, 1.0f);
            }
    }
};

/* Tile: gradient_kv_tile, or what extends it. */
template <class Tile>
__global__ void __launch_bounds__(Tile::Shape::THREADS, Tile::Shape::CTAS)
    gradient_kv_kernel(const __grid_constant__ ra__cuda_step step, const access how)
{
    using F = typename Tile::Shape;
    const key_place at = find_key_tile(step, blockIdx.x / F::PER_TILE);
    const int first_key = (int)blockIdx.x % F::PER_TILE * F::KEYS;
    const ra__cuda_key_tile &keys = step.key_tiles[at.tile];
    if (keys.kv_head >= 0 && keys.kv_head != at.kv_head) return;
    if (first_key >= keys.count) return;
    auto &tables = *(typename F::Walk::Tables *)(ra_shared + F::TABLES_AT);
    const Tile tile = { step, how, { step, tables }, shared_address(ra_shared) };
    if (threadIdx.x == 0) tile.pairs.start(keys, first_key, at.batch, at.kv_head);
    __syncthreads();
    tile.load_keys(step.k, step.dim, 0);
    tile.load_keys(step.v, step.value_dim, F::VALUES_AT);
    tile.pairs.describe(tile.pairs.open(0), 0);
    __syncthreads();
    tile.pairs.describe(tile.pairs.next(0), 1);
    if (tile.pairs.is_there(0)) tile.load_pairs(0);
    copies_commit();
    typename Tile::sums x;
    clear(x.dk);
    clear(x.dv);
    tile.add_all(x);
    tile.end(x);
}

} // namespace ra::mma

#endif
