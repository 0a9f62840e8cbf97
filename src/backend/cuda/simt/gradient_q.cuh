/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_q.cuh - dq, one CTA per tile of queries.
 *
 * For each block of keys: scores = Q K^T; weights p = exp2(scores - LSE), which go to shared
 * memory; dp = dout V^T; ds = slope p scale (kept dp - delta) in their place; dq += ds K. Keys of
 * more than WIDTH dims take several passes.
 *
 * dq is added to without atomics: every query of every head is in exactly one row of a step
 * (pattern/pattern.h), so it is in exactly one tile. */
#ifndef RA__CUDA_SIMT_GRADIENT_Q_CUH
#define RA__CUDA_SIMT_GRADIENT_Q_CUH

#include "backend/cuda/simt/weights.cuh"

namespace simt
{

/* Shared memory: tables, weights, two stages. */
template <class S> struct gradient_q_memory {
    static constexpr int TABLES = (sizeof(key_tables<S>) + 127) / 128 * 128;
    static constexpr int BYTES = TABLES + 4 * (S::WEIGHTS + 2 * S::STAGE);

    __device__ static key_tables<S> &tables() { return *(key_tables<S> *)ra_shared; }
    __device__ static float *weights() { return (float *)(ra_shared + TABLES); }
    __device__ static float *stages() { return weights() + S::WEIGHTS; }
};

/* p of a block to shared memory, times the slope where there is one. The result: what is
 * dropped. */
template <class S>
__device__ inline uint64_t recompute(const ra__cuda_step &step, key_tables<S> &shared, int parity,
                                     bool masked, float (&x)[S::MR][8])
{
    float *weights = gradient_q_memory<S>::weights();
    const key_block &block = shared.block[parity];
    uint64_t dropped = 0;
    if (step.terms.any) {
        find_visible(shared, parity);
        put_weights<S>(x, weights);
        for_pairs<S>(weights, [&](int bit, int row, int column, float &at) {
            ra::score score = { -INFINITY, 1.0f, 1.0f, true };
            if (column >= shared.lo[row] && column < shared.hi[row])
                score = ra::score_of(step, query_at(step, shared, row),
                                     block.pos + column * block.pos_step, at);
            at = score.hidden ? hidden_weight() : score.slope * exp2f(score.x - shared.m[row]);
            dropped |= (uint64_t)(score.kept == 0.0f) << bit;
        });
        return dropped;
    }
    const float factor = step.scale * ra::LOG2_E;
#pragma unroll
    for (int i = 0; i < S::MR; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            x[i][j] = exp2f(__fmul_rn(x[i][j], factor) - shared.m[row_of<S>(i)]);
    if (masked) {
        marks marks = mask<S>(shared, parity, x);
        mark<S>(step, marks, x);
    }
    put_weights<S>(x, weights);
    return dropped;
}

/* ds in the place of p. */
template <class S>
__device__ inline void differentiate(const ra__cuda_step &step, const key_tables<S> &shared,
                                     uint64_t dropped, float (&dp)[S::MR][8])
{
    float *weights = gradient_q_memory<S>::weights();
    float w[S::MR][8];
    get_weights<S>(weights, w);
#pragma unroll
    for (int i = 0; i < S::MR; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            w[i][j] = score_gradient(step, w[i][j], dp[i][j], dropped >> (8 * i + j) & 1,
                                     shared.l[row_of<S>(i)]);
    put_weights<S>(w, weights);
    __syncwarp();
}

/* One pass over all keys. */
template <class S>
__device__ inline void add_dq(const ra__cuda_step &step, int first_column,
                              float (&dq)[S::MR][S::VC])
{
    using memory = gradient_q_memory<S>;
    key_tables<S> &shared = memory::tables();
    stages<S> stages = { memory::stages(), 0, NULL };
    clear(dq);
    first_block(step, shared);
    if (shared.block[0].none) return;
    first_chunk<S>(shared.feed, 1.0f, stages);
    for (int parity = 0; !shared.block[parity].none; parity ^= 1) {
        if (threadIdx.x == 0) next_block(step, shared, parity ^ 1);
        const bool masked = step.terms.any || shared.skips || shared.block[parity].masked;
        float x[S::MR][8];
        multiply_all<S>(shared.feed, product{ { SCORES, 0, parity }, { SCORES_2, 0, parity } },
                        chunks_of(step.dim), first_column, 1.0f, stages, x);
        find_columns(step, shared, parity ^ 1);
        const uint64_t dropped = recompute<S>(step, shared, parity, masked, x);
        multiply_all<S>(shared.feed, product{ { SCORES_2, 0, parity }, { SUMS, 0, parity } },
                        chunks_of(step.value_dim), first_column, 1.0f, stages, x);
        differentiate<S>(step, shared, dropped, x);
        const feed after = { shared.block[parity ^ 1].none ? NOTHING : SCORES, 0, parity ^ 1 };
        accumulate_all<S>(shared.feed, product{ { SUMS, 0, parity }, after }, first_column, 1.0f,
                          masked, memory::weights(), stages, dq);
    }
}

/* LSE and delta of the rows, and which have no weights. */
template <class S>
__device__ inline void read_rows(const ra__cuda_step &step, key_tables<S> &shared)
{
    const int row = threadIdx.x;
    if (row >= S::ROWS) return;
    shared.m[row] = shared.l[row] = 0.0f;
    if (row >= shared.tile.rows) return;
    const tile_row at = row_at(shared, row);
    const float lse = *ra::at<float>(step.lse, shared.tile.batch, at.token, at.head);
    shared.m[row] = ra::in_log2(lse);
    shared.l[row] = *ra::at<float>(step.delta, shared.tile.batch, at.token, at.head);
    if (!ra::is_weightless(lse)) return;
    shared.skip[row] = 1;
    raise_flag(shared.skips);
}

template <class S>
__global__ void __launch_bounds__(THREADS, S::CTAS)
    gradient_q_kernel(const RA_GRID_CONSTANT ra__cuda_step step)
{
    using memory = gradient_q_memory<S>;
    key_tables<S> &shared = memory::tables();
    const int64_t index = tile_index();
    if (index >= step.tiles) return;
    if (threadIdx.x == 0) {
        set_tile(ra::find_tile(step, index, 0, S::ROWS), shared);
        shared.feed.rows[SCORES] = panel_of(step, step.q, step.dim);
        shared.feed.rows[SCORES_2] = panel_of(step, step.dout, step.value_dim);
        set_columns(step, shared.feed, SCORES, 0, step.k, step.dim);
        set_columns(step, shared.feed, SCORES_2, 1, step.v, step.value_dim);
        set_columns(step, shared.feed, SUMS, 0, step.k, step.dim);
    }
    __syncthreads();
    find_rows(step, shared, SCORES, step.q);
    find_rows(step, shared, SCORES_2, step.dout);
    read_rows(step, shared);
    for (int first = 0; first < step.dim; first += S::WIDTH) {
        float dq[S::MR][S::VC];
        add_dq<S>(step, first, dq);
        give_sums<S>(dq, memory::weights(), shared.tile.rows, [&](int row, int column, float x) {
            const tile_row at = row_at(shared, row);
            column += first;
            if (column < step.dim)
                ra::at<float>(step.dq, shared.tile.batch, at.token, at.head)[column] += x;
        });
    }
}

} // namespace simt

#endif
