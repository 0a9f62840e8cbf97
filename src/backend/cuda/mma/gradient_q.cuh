/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_q.cuh - a CTA computes dq of a tile of queries: for each block of keys that they see,
 *     s = q k    dp = dout v    ds = slope p (kept dp - delta)    dq += scale ds k
 * Blocks are loaded as in forward.cuh. Rows without weights see no key. */
#ifndef RA__BACKEND_CUDA_MMA_GRADIENT_Q_CUH
#define RA__BACKEND_CUDA_MMA_GRADIENT_Q_CUH

#include "backend/cuda/mma/softmax.cuh"

namespace ra::mma
{

/* SIZE 1 is for devices with little shared memory. */
template <class T_, int D_, bool TERMS_, int SIZE> struct gradient_q_shape {
    using T = T_;
    static constexpr int D = D_, W = WORDS<T> * D;
    static constexpr bool TERMS = TERMS_;
    static constexpr bool F32 = IS_F32<T>;
    static constexpr int WARPS = F32 ? 8 : 4, THREADS = 32 * WARPS;
    static constexpr int M = D <= 128 && !F32 ? 2 : 1, ROWS = 16 * M * WARPS;
    /* Registers hold s, dp and dq. */
    static constexpr int KEYS = SIZE > 0 ? 16 : D <= 64 && !TERMS && !F32 ? 64 : 32;
    static constexpr int CTAS = D <= (F32 ? 64 : 128) ? 2 : 1;
    static constexpr int DOUT_AT = ROWS * LINE<W>;
    static constexpr int STAGES_AT = 2 * ROWS * LINE<W>;
    static constexpr int STAGE = 2 * KEYS * LINE<W>; /* keys, then values */
    static constexpr int TABLES_AT = STAGES_AT + 2 * STAGE;
    using Walk = walk<ROWS, KEYS, THREADS>;
    static constexpr int BYTES = TABLES_AT + (int)sizeof(walk_tables<ROWS>);
};

template <class F> struct gradient_q_tile {
    static constexpr int M = F::M, N = F::D / 8, K = F::KEYS / 8;
    using T = typename F::T;
    const ra__cuda_step &step;
    access how;
    typename F::Walk keys;
    uint32_t shared;

    /* Of a thread's rows. */
    struct ends {
        float lse[M][2], delta[M][2]; /* lse in units of log2 */
    };

    __device__ __forceinline__ int warp() const { return threadIdx.x >> 5; }
    __device__ __forceinline__ int quad() const { return threadIdx.x & 3; }

    __device__ __forceinline__ float lse_of(int r) const
    {
        return *at<float>(step.lse, keys.tables.t.batch, keys.token(r), keys.head(r));
    }
    /* Is the row of this thread one without weights? */
    __device__ __forceinline__ bool blind() const
    {
        const int r = keys.thread();
        return r < keys.tables.t.rows && is_weightless(lse_of(r));
    }

    __device__ __forceinline__ void load_ends(ends &e) const
    {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int r = row_of<M>(i, half);
                e.lse[i][half] = e.delta[i][half] = 0.0f;
                if (r >= keys.tables.t.rows) continue;
                e.lse[i][half] = lse_of(r) * LOG2_E;
                e.delta[i][half] = *at<float>(step.delta, keys.tables.t.batch, keys.token(r),
                                              keys.head(r));
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

    /* s becomes ds. */
    __device__ __forceinline__ void differentiate(const ends &e, float (&s)[M][K][4],
                                                  const float (&dp)[M][K][4]) const
    {
        const float to_log2 = step.scale * LOG2_E;
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < K; j++)
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const float p = exp2_fast(fmaf(s[i][j][n], to_log2, -e.lse[i][n >> 1]));
                    s[i][j][n] = p * (dp[i][j][n] - e.delta[i][n >> 1]);
                }
    }
    /* What a row does not see gets no ds. */
    __device__ __forceinline__ void hide_gradients(const place &p, float (&s)[M][K][4]) const
    {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const seen row = keys.tables.rows[p.which][row_of<M>(i, half)];
                const int lo = row.lo - p.at - 2 * quad(), hi = row.hi - p.at - 2 * quad();
#pragma unroll
                for (int j = 0; j < K; j++)
#pragma unroll
                    for (int n = 0; n < 2; n++)
                        if (8 * j + n < lo || 8 * j + n >= hi) s[i][j][2 * half + n] = 0.0f;
            }
    }
    /* Both with score terms. */
    __device__ __forceinline__ void differentiate_terms(const place &p, const ends &e,
                                                        float (&s)[M][K][4],
                                                        float (&dp)[M][K][4]) const
    {
        const span &in = keys.span_of(p);
#pragma unroll 1
        for (int j = 0; j < K; j++) {
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int r = row_of<M>(i, half);
                    const seen row = keys.tables.rows[p.which][r];
                    const query q = keys.query_for(r);
#pragma unroll
                    for (int n = 0; n < 2; n++) {
                        const int key = p.at + 8 * j + 2 * quad() + n;
                        float &x = s[i][0][2 * half + n];
                        score now = { 0.0f, 0.0f, 0.0f, true };
                        if (sees(row, key)) now = score_of(step, q, in.pos + key * in.pos_step, x);
                        const float weight = exp2_fast(now.x - e.lse[i][half]);
                        const float back = now.kept * dp[i][0][2 * half + n] - e.delta[i][half];
                        x = now.hidden ? 0.0f : now.slope * (weight * back);
                    }
                }
            rotate(s);
            rotate(dp);
        }
    }

    /* dq += ds k, as add_values() of forward.cuh. */
    __device__ __forceinline__ void add_keys(float (&dq)[M][N][4], const place &p, int index,
                                             const float (&ds)[M][K][4], bool wary) const
    {
        weigh<T, F::W, F::D <= 64 ? 2 : 4>(dq, ds, stage(index), 0, wary, [&] {
            return [self = *this, p](int r, int key) {
                return self.keys.template visible<F::TERMS>(p, 16 * M * self.warp() + r, key);
            };
        });
    }

    /* s = q k and dp = dout v of a block. */
    __device__ __forceinline__ void multiply(int index, float (&s)[M][K][4],
                                             float (&dp)[M][K][4]) const
    {
        const int lane = threadIdx.x & 31;
        const uint32_t rows = shared + 16 * M * warp() * LINE<F::W> + lane_first<F::W>(lane);
        const uint32_t block = shared + stage(index) + lane_second<F::W>(lane);
        multiply_rows<T, F::W>(s, rows, block);
        multiply_rows<T, F::W>(dp, rows + F::DOUT_AT, block + F::STAGE / 2);
    }

    __device__ __forceinline__ void block(float (&dq)[M][N][4], const place &p, int index,
                                          const ends &e) const
    {
        const auto view = keys.view_of(p, 16 * M * warp(), 16 * M);
        float s[M][K][4], dp[M][K][4];
        if (view == F::Walk::NOTHING) return;
        if (!F::TERMS && view == F::Walk::ALL) { /* most are, and need no branches */
            multiply(index, s, dp);
            differentiate(e, s, dp);
            add_keys(dq, p, index, s, false);
            return;
        }
        multiply(index, s, dp);
        if constexpr (F::TERMS) {
            differentiate_terms(p, e, s, dp);
        } else {
            differentiate(e, s, dp);
            hide_gradients(p, s);
        }
        add_keys(dq, p, index, s, true);
    }

    __device__ __forceinline__ void add_all(float (&dq)[M][N][4], place p, bool blind,
                                            const ends &e) const
    {
        for (int index = 0; !keys.ended(p); index++) {
            copies_wait<0>();
            __syncthreads(); /* this block has arrived, and nobody reads the one before it */
            const place after = keys.next(p, blind);
            if (!keys.ended(after)) {
                load(after, index + 1);
                copies_commit();
            }
            block(dq, p, index, e);
            p = after;
        }
    }

    __device__ __forceinline__ void end(const float (&dq)[M][N][4]) const
    {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int r = row_of<M>(i, half);
                if (r >= keys.tables.t.rows) continue;
                float *to = at<float>(step.dq, keys.tables.t.batch, keys.token(r), keys.head(r));
                add_row(to, dq[i], half, step.dim, step.scale, how.pairs);
            }
    }
};

template <class F>
__global__ void __launch_bounds__(F::THREADS, F::CTAS)
    gradient_q_kernel(const __grid_constant__ ra__cuda_step step, const access how)
{
    auto &tables = *(walk_tables<F::ROWS> *)(ra_shared + F::TABLES_AT);
    const gradient_q_tile<F> tile = { step, how, { step, tables }, shared_address(ra_shared) };
    tile.keys.start(blockIdx.x, 0);
    __syncthreads();
    tile.keys.template load_queries<typename F::T, F::D>(step.q, step.dim, tile.shared, 0,
                                                         how.chunks);
    tile.keys.template load_queries<typename F::T, F::D>(step.dout, step.value_dim, tile.shared,
                                                         F::DOUT_AT, how.chunks);
    const bool blind = tile.blind();
    const place first = tile.keys.open(0, 0, blind);
    if (!tile.keys.ended(first)) tile.load(first, 0);
    copies_commit();
    typename gradient_q_tile<F>::ends e;
    tile.load_ends(e);
    float dq[F::M][F::D / 8][4];
    clear(dq);
    tile.add_all(dq, first, blind, e);
    tile.end(dq);
}

} // namespace ra::mma

#endif
