/* SPDX-License-Identifier: Apache-2.0 */
/* forward.cuh - attention forward, one CTA per tile of queries.
 *
 * For each block of keys: scores = Q K^T, chunk by chunk of dims; the running softmax; the weights
 * go to shared memory, where only their own warp reads them; sums += weights V, chunk by chunk of
 * keys. Values of more than WIDTH columns take several passes over all keys, which recompute the
 * scores.
 *
 * Q is multiplied by scale log2(e) on its way to shared memory, so products are scores. With score
 * terms that is done later, key by key. Score terms are a branch between the products, not kernels
 * of their own: they change neither product, and there would be twice as many kernels.
 *
 * m and l of a row are in shared memory: between two blocks registers are needed for sums. */
#ifndef RA__CUDA_SIMT_FORWARD_CUH
#define RA__CUDA_SIMT_FORWARD_CUH

#include "backend/cuda/simt/keys.cuh"
#include "backend/cuda/simt/weights.cuh"

namespace simt
{

/* Shared memory: tables, the tile's rows unless they are streamed, weights, two stages. */
template <class S> struct forward_memory {
    static constexpr int TABLES = (sizeof(key_tables<S>) + 127) / 128 * 128;

    __host__ __device__ static int row_floats(int dim)
    {
        return S::STREAM ? 0 : (dim + CHUNK - 1) / CHUNK * chunk_floats(S::ROWS);
    }
    __host__ __device__ static int bytes(int dim)
    {
        return TABLES + 4 * (row_floats(dim) + S::WEIGHTS + 2 * S::STAGE);
    }
    __device__ static key_tables<S> &tables() { return *(key_tables<S> *)ra_shared; }
    __device__ static float *rows() { return (float *)(ra_shared + TABLES); }
    __device__ static float *weights(int dim) { return rows() + row_floats(dim); }
    __device__ static float *stages(int dim) { return weights(dim) + S::WEIGHTS; }
};

/* ---- Between the products ---- */

__device__ inline float largest_of_row(float x)
{
#pragma unroll
    for (int n = 0; n < COLUMN_BITS; n++) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1 << 2 * n));
    return x;
}
__device__ inline float sum_of_row(float x)
{
#pragma unroll
    for (int n = 0; n < COLUMN_BITS; n++) x += __shfl_xor_sync(ALL_LANES, x, 1 << 2 * n);
    return x;
}

/* Scores to weights, and the state rescaled to the new maxima. A NaN is no maximum; its weight is
 * NaN. */
template <class S>
__device__ inline void softmax(key_tables<S> &shared, float (&x)[S::MR][8],
                               float (&acc)[S::MR][S::VC])
{
#pragma unroll
    for (int i = 0; i < S::MR; i++) {
        const int row = row_of<S>(i);
        const float m = shared.m[row], l = shared.l[row];
        float largest = x[i][0], sum = 0.0f;
#pragma unroll
        for (int j = 1; j < 8; j++) largest = fmaxf(largest, x[i][j]);
        largest = fmaxf(largest_of_row(largest), m);
        /* -inf: the row has seen no scores but -inf, whose weights are 0. */
        const float shift = largest == -INFINITY ? 0.0f : largest;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            x[i][j] = exp2f(x[i][j] - shift);
            sum += x[i][j];
        }
        sum = sum_of_row(sum);
        const bool raised = largest > m;
        const float factor = raised ? exp2f(m - shift) : 1.0f;
        __syncwarp(); /* all lanes of the row have read its state */
        if (lane_column() == 0) {
            shared.m[row] = largest;
            shared.l[row] = fmaf(l, factor, sum);
        }
        if (!__any_sync(ALL_LANES, raised)) continue;
#pragma unroll
        for (int j = 0; j < S::VC; j++) acc[i][j] *= factor;
    }
}

/* Products to scores with all terms. */
template <class S>
__device__ inline marks apply_terms(const ra__cuda_step &step, key_tables<S> &shared, int parity,
                                    float *weights, float (&x)[S::MR][8])
{
    const key_block &block = shared.block[parity];
    marks marks = { 0, 0 };
    find_visible(shared, parity);
    put_weights<S>(x, weights);
    for_pairs<S>(weights, [&](int bit, int row, int column, float &at) {
        ra::score score = { -INFINITY, 1.0f, 1.0f, true };
        if (column >= shared.lo[row] && column < shared.hi[row])
            score = ra::score_of(step, query_at(step, shared, row),
                                 block.pos + column * block.pos_step, at);
        at = score.x;
        marks.hidden |= (uint64_t)score.hidden << bit;
        marks.dropped |= (uint64_t)(score.kept == 0.0f) << bit;
    });
    get_weights<S>(weights, x);
    return marks;
}

/* ---- One pass over all keys ---- */

/* Products to scores without terms. Rounded as backward rounds them, so that a weight near 1 is as
 * near to it there: Q is not multiplied instead. */
template <class S> __device__ inline void scale(const ra__cuda_step &step, float (&x)[S::MR][8])
{
    const float factor = step.scale * ra::LOG2_E;
#pragma unroll
    for (int i = 0; i < S::MR; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) x[i][j] = __fmul_rn(x[i][j], factor);
}

template <class S>
__device__ inline void fold(const ra__cuda_step &step, int first_column, float (&acc)[S::MR][S::VC])
{
    using memory = forward_memory<S>;
    key_tables<S> &shared = memory::tables();
    float *weights = memory::weights(step.dim);
    stages<S> stages = { memory::stages(step.dim), 0, memory::rows() };
    const float factor = 1.0f;

    first_block(step, shared);
    if (shared.block[0].none) return;
    first_chunk<S>(shared.feed, factor, stages);
    for (int parity = 0; !shared.block[parity].none; parity ^= 1) {
        if (threadIdx.x == 0) next_block(step, shared, parity ^ 1);
        const bool masked = step.terms.any || shared.block[parity].masked;
        marks marks = { 0, 0 };
        float x[S::MR][8];
        multiply_all<S>(shared.feed, product{ { SCORES, 0, parity }, { SUMS, 0, parity } },
                        chunks_of(step.dim), first_column, factor, stages, x);
        find_columns(step, shared, parity ^ 1);
        if (!step.terms.any) scale<S>(step, x);
        if (step.terms.any) marks = apply_terms<S>(step, shared, parity, weights, x);
        else if (masked) marks = mask<S>(shared, parity, x);
        softmax<S>(shared, x, acc);
        if (masked) mark<S>(step, marks, x);
        put_weights<S>(x, weights);
        __syncwarp();
        const feed after = { shared.block[parity ^ 1].none ? NOTHING : SCORES, 0, parity ^ 1 };
        accumulate_all<S>(shared.feed, product{ { SUMS, 0, parity }, after }, first_column, factor,
                          masked, weights, stages, acc);
    }
}

/* ---- The ends of a tile ---- */

/* Where the state of a row is: in the step's tensors, or that of a range of split keys. */
__device__ inline ra::state_place state_of(const ra__cuda_step &step, const ra::tile &tile,
                                           const tile_row &row)
{
    return step.ranges == 1 ? ra::state_at(step, tile.batch, row.token, row.head)
                            : ra::split_state_at(step, tile.range, tile.batch, row.token, row.head);
}

template <class S>
__device__ inline void begin(const ra__cuda_step &step, key_tables<S> &shared, int first_column,
                             float (&acc)[S::MR][S::VC])
{
    const ra::tile &tile = shared.tile;
    const bool empty = step.ranges > 1 || tile.row->first;
    clear(acc);
    if (threadIdx.x < S::ROWS) {
        const int row = threadIdx.x;
        const bool read = !empty && row < tile.rows;
        const ra::state_place at = state_of(step, tile, row_at(shared, row));
        shared.m[row] = read ? *at.m : -INFINITY;
        shared.l[row] = read ? *at.l : 0.0f;
    }
    if (empty) return;
    take_sums<S>(acc, forward_memory<S>::weights(step.dim), tile.rows, [&](int row, int column) {
        const float *from = state_of(step, tile, row_at(shared, row)).acc;
        return first_column + column < step.value_dim ? from[first_column + column] : 0.0f;
    });
}

/* Writes m and l, or the LSE. Leaves in shared.l what sums are multiplied by. */
template <class S>
__device__ inline void end_row(const ra__cuda_step &step, key_tables<S> &shared, bool last,
                               bool write)
{
    const ra::tile &tile = shared.tile;
    const int row = threadIdx.x;
    if (row >= tile.rows) return;
    const float m = shared.m[row], l = shared.l[row];
    const tile_row where = row_at(shared, row);
    if (!last) {
        const ra::state_place at = state_of(step, tile, where);
        if (write) *at.m = m;
        if (write) *at.l = l;
        return;
    }
    const ra::row_end end = ra::end_of(m, l, ra::sink_of(step, where.head));
    shared.l[row] = l == 0.0f ? 0.0f : 1.0f / end.divisor;
    if (write && step.lse.data)
        *ra::at<float>(step.lse, tile.batch, where.token, where.head) = end.lse;
}

__device__ inline void store(const ra__cuda_step &step, int batch, const tile_row &row, int column,
                             float x)
{
    const ra__cuda_tensor &out = step.out;
    const int64_t at = batch * out.batch + row.token * out.token + row.head * out.head;
    store_one(step.dtype, out.data, at + column, x);
}

template <class S>
__device__ inline void end(const ra__cuda_step &step, key_tables<S> &shared, int first_column,
                           const float (&acc)[S::MR][S::VC])
{
    const ra::tile &tile = shared.tile;
    const bool last = step.ranges == 1 && tile.row->last;
    const bool last_pass = first_column + S::WIDTH >= step.value_dim;
    __syncthreads(); /* m and l of a row were written by one of its lanes */
    end_row(step, shared, last, last_pass);
    __syncthreads();
    give_sums<S>(acc, forward_memory<S>::weights(step.dim), tile.rows,
                 [&](int row, int column, float x) {
                     const tile_row where = row_at(shared, row);
                     column += first_column;
                     if (column >= step.value_dim) return;
                     if (!last) state_of(step, tile, where).acc[column] = x;
                     else store(step, tile.batch, where, column, x * shared.l[row]);
                 });
}

template <class S>
__global__ void __launch_bounds__(THREADS, S::CTAS)
    forward_kernel(const RA_GRID_CONSTANT ra__cuda_step step)
{
    using memory = forward_memory<S>;
    key_tables<S> &shared = memory::tables();
    const int64_t index = tile_index();
    if (index >= step.tiles) return;
    if (threadIdx.x == 0) {
        set_tile(ra::find_tile(step, index, blockIdx.y, S::ROWS), shared);
        shared.feed.rows[SCORES] = panel_of(step, step.q, step.dim);
        set_columns(step, shared.feed, SCORES, 0, step.k, step.dim);
        set_columns(step, shared.feed, SUMS, 1, step.v, step.value_dim);
    }
    __syncthreads();
    find_rows(step, shared, SCORES, step.q);
    __syncthreads();
    if (!S::STREAM) load_tile<S>(shared.feed, 1.0f, memory::rows());
    for (int first = 0; first < step.value_dim; first += S::WIDTH) {
        float acc[S::MR][S::VC];
        begin<S>(step, shared, first, acc);
        fold<S>(step, first, acc);
        end<S>(step, shared, first, acc);
        __syncthreads(); /* the next pass starts with other m and l */
    }
}

} // namespace simt

#endif
