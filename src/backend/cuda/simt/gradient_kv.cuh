/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_kv.cuh - dk and dv, one CTA per tile of keys, KV head and batch item.
 *
 * For each block of queries: scores = K Q^T; weights p = exp2(scores - LSE), which go to shared
 * memory; dv += kept p dout; dp = V dout^T; ds = slope p scale (kept dp - delta) in their place;
 * dk += ds Q. Dims of more than WIDTH take several passes. No other CTA of the launch adds to these
 * keys, so there are no atomics, and the order of sums is that of the parts. */
#ifndef RA__CUDA_SIMT_GRADIENT_KV_CUH
#define RA__CUDA_SIMT_GRADIENT_KV_CUH

#include "backend/cuda/simt/queries.cuh"
#include "backend/cuda/simt/weights.cuh"

namespace simt
{

/* Shared memory: tables, two stages, weights; with score terms, slope p beside kept p, unless that
 * is in local memory. */
template <class S> struct gradient_kv_memory {
    static constexpr int TABLES = (sizeof(query_tables<S>) + 127) / 128 * 128;

    __host__ __device__ static constexpr int bytes(bool terms)
    {
        return TABLES + 4 * (2 * S::STAGE + (terms && !S::LOCAL ? 2 : 1) * S::WEIGHTS);
    }
    __device__ static query_tables<S> &tables() { return *(query_tables<S> *)ra_shared; }
    __device__ static float *stages() { return (float *)(ra_shared + TABLES); }
    __device__ static float *weights() { return stages() + 2 * S::STAGE; }
    __device__ static float *gradients(bool terms)
    {
        return weights() + (terms && !S::LOCAL ? S::WEIGHTS : 0);
    }
};

/* Slope p of a thread's pairs, from recompute() to differentiate(). */
template <class S> struct slopes {
    float p[S::LOCAL ? 8 * S::MR : 1]; /* as bits of what is dropped */

    __device__ void put(int bit, int row, int column, float x)
    {
        if constexpr (S::LOCAL) p[bit] = x;
        else gradient_kv_memory<S>::gradients(true)[weight_at<S>(column, row)] = x;
    }
    __device__ void get(bool terms, float (&x)[S::MR][8]) const
    {
        if constexpr (S::LOCAL) {
            if (terms) {
#pragma unroll
                for (int i = 0; i < 8 * S::MR; i++) x[i / 8][i % 8] = p[i];
                return;
            }
        }
        get_weights<S>(gradient_kv_memory<S>::gradients(terms), x);
    }
};

/* Hides the pairs of a masked block. */
template <class S>
__device__ inline void hide(const query_tables<S> &shared, int parity, float (&p)[S::MR][8])
{
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int column = column_of(j);
        const int lo = shared.lo[parity][column], hi = shared.hi[parity][column];
#pragma unroll
        for (int i = 0; i < S::MR; i++)
            if (row_of<S>(i) < lo || row_of<S>(i) >= hi) p[i][j] = hidden_weight();
    }
}

/* The same as recompute() of gradient_q.cuh with all terms: kept p to `weights`. */
template <class S>
__device__ inline uint64_t recompute_terms(const ra__cuda_step &step, const query_tables<S> &shared,
                                           int parity, float (&x)[S::MR][8], slopes<S> &slope_p)
{
    using memory = gradient_kv_memory<S>;
    uint64_t dropped = 0;
    put_weights<S>(x, memory::weights());
    for_pairs<S>(memory::weights(), [&](int bit, int row, int column, float &at) {
        ra::score score = { -INFINITY, 1.0f, 1.0f, true };
        if (row >= shared.lo[parity][column] && row < shared.hi[parity][column])
            score = ra::score_of(step, query_at(step, shared, parity, column),
                                 shared.key_pos[parity] + row * shared.key_step[parity], at);
        const float p = exp2f(score.x - shared.lse[parity][column]);
        at = score.hidden ? hidden_weight() : p * score.kept;
        slope_p.put(bit, row, column, score.hidden ? hidden_weight() : p * score.slope);
        dropped |= (uint64_t)(score.kept == 0.0f) << bit;
    });
    return dropped;
}

/* p of a block to shared memory. The result: what is dropped. */
template <class S>
__device__ inline uint64_t recompute(const ra__cuda_step &step, const query_tables<S> &shared,
                                     int parity, float (&x)[S::MR][8], slopes<S> &slope_p)
{
    if (step.terms.any) return recompute_terms<S>(step, shared, parity, x, slope_p);
    const float factor = step.scale * ra::LOG2_E;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const float lse = shared.lse[parity][column_of(j)];
#pragma unroll
        for (int i = 0; i < S::MR; i++) x[i][j] = exp2f(__fmul_rn(x[i][j], factor) - lse);
    }
    if (shared.block[parity].masked) hide<S>(shared, parity, x);
    put_weights<S>(x, gradient_kv_memory<S>::weights());
    return 0;
}

/* ds to shared memory. */
template <class S>
__device__ inline void differentiate(const ra__cuda_step &step, const query_tables<S> &shared,
                                     int parity, uint64_t dropped, const slopes<S> &slope_p,
                                     float (&dp)[S::MR][8])
{
    float w[S::MR][8];
    slope_p.get(step.terms.any, w);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const float delta = shared.delta[parity][column_of(j)];
#pragma unroll
        for (int i = 0; i < S::MR; i++)
            w[i][j] = score_gradient(step, w[i][j], dp[i][j], dropped >> (8 * i + j) & 1, delta);
    }
    put_weights<S>(w, gradient_kv_memory<S>::gradients(step.terms.any));
    __syncwarp();
}

/* One pass over all queries: columns first_column .. of dk and dv, where there are any. */
template <class S>
__device__ inline void add_dkv(const ra__cuda_step &step, int first_column,
                               float (&dk)[S::MR][S::VC], float (&dv)[S::MR][S::VC])
{
    using memory = gradient_kv_memory<S>;
    query_tables<S> &shared = memory::tables();
    stages<S> stages = { memory::stages(), 0, NULL };
    const bool has_dk = first_column < step.dim, has_dv = first_column < step.value_dim;
    clear(dk);
    clear(dv);
    first_block(step, shared);
    if (shared.block[0].none) return;
    first_chunk<S>(shared.feed, 1.0f, stages);
    for (int parity = 0; !shared.block[parity].none; parity ^= 1) {
        if (threadIdx.x == 0)
            next_block(step, shared, shared.block[parity], shared.block[parity ^ 1]);
        const bool masked = step.terms.any || shared.block[parity].masked;
        const feed scores = { SCORES, 0, parity }, dp = { SCORES_2, 0, parity };
        const feed to_dv = { SUMS, 0, parity }, to_dk = { SUMS_2, 0, parity };
        const feed after = { SCORES, 0, parity ^ 1 }, end = { NOTHING, 0, 0 };
        float x[S::MR][8];
        slopes<S> slope_p;
        multiply_all<S>(shared.feed, product{ scores, has_dv ? to_dv : dp }, chunks_of(step.dim),
                        first_column, 1.0f, stages, x);
        find_columns(step, shared, parity ^ 1);
        const uint64_t dropped = recompute<S>(step, shared, parity, x, slope_p);
        const feed next = shared.block[parity ^ 1].none ? end : after;
        __syncwarp();
        if (has_dv)
            accumulate_all<S>(shared.feed, product{ to_dv, has_dk ? dp : next }, first_column, 1.0f,
                              masked, memory::weights(), stages, dv);
        if (!has_dk) continue;
        multiply_all<S>(shared.feed, product{ dp, to_dk }, chunks_of(step.value_dim), first_column,
                        1.0f, stages, x);
        differentiate<S>(step, shared, parity, dropped, slope_p, x);
        accumulate_all<S>(shared.feed, product{ to_dk, next }, first_column, 1.0f, masked,
                          memory::gradients(step.terms.any), stages, dk);
    }
}

template <class S>
__device__ inline void add_to(const ra__cuda_tensor &to, const query_tables<S> &shared,
                              int first_column, int width, float *scratch,
                              const float (&sums)[S::MR][S::VC])
{
    if (first_column >= width) return;
    give_sums<S>(sums, scratch, shared.tile.count, [&](int row, int column, float x) {
        const int64_t token = shared.tile.token + row * shared.tile.token_step;
        column += first_column;
        if (column < width) ra::at<float>(to, shared.batch, token, shared.kv_head)[column] += x;
    });
}

/* A tile of one KV head has no work in those of the others. */
template <class S>
__global__ void __launch_bounds__(THREADS, S::CTAS)
    gradient_kv_kernel(const RA_GRID_CONSTANT ra__cuda_step step)
{
    using memory = gradient_kv_memory<S>;
    query_tables<S> &shared = memory::tables();
    const int64_t index = tile_index();
    if (index >= (int64_t)step.key_tile_count * step.batch * step.kv_heads) return;
    const ra::key_place at = ra::find_key_tile(step, index);
    const ra__cuda_key_tile tile = step.key_tiles[at.tile];
    if (tile.kv_head >= 0 && tile.kv_head != at.kv_head) return;
    if (threadIdx.x == 0) {
        shared.tile = tile;
        shared.batch = at.batch;
        shared.kv_head = at.kv_head;
        shared.feed.not_finite = 0;
        shared.feed.rows[SCORES] = panel_of(step, step.k, step.dim);
        shared.feed.rows[SCORES_2] = panel_of(step, step.v, step.value_dim);
        set_columns(step, shared.feed, SCORES, 0, step.q, step.dim);
        set_columns(step, shared.feed, SCORES_2, 1, step.dout, step.value_dim);
        set_columns(step, shared.feed, SUMS, 1, step.dout, step.value_dim);
        set_columns(step, shared.feed, SUMS_2, 0, step.q, step.dim);
    }
    __syncthreads();
    find_rows(step, shared);
    for (int first = 0; first < step.dim || first < step.value_dim; first += S::WIDTH) {
        float dk[S::MR][S::VC], dv[S::MR][S::VC];
        add_dkv<S>(step, first, dk, dv);
        add_to<S>(step.dk, shared, first, step.dim, memory::weights(), dk);
        add_to<S>(step.dv, shared, first, step.value_dim, memory::weights(), dv);
    }
}

} // namespace simt

#endif
