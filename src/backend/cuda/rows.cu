/* SPDX-License-Identifier: Apache-2.0 */
/* rows.cu - steps over rows that are not attention: MERGE, and counting pairs. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/score.cuh"
#include "backend/cuda/steps.h"

namespace
{

enum { THREADS = 128, WARP = 32 };
enum { MERGE_THREADS = 256 }; /* a warp for each row of a tile, or for two */

/* ---- MERGE ----------------------------------------------------------------------------------- */

template <class T> __device__ T narrow(float x);
template <> __device__ float narrow(float x) { return x; }
template <> __device__ __nv_bfloat16 narrow(float x) { return __float2bfloat16_rn(x); }
template <> __device__ __half narrow(float x) { return __float2half_rn(x); }

__device__ float factor(float m, float to) { return (float)exp2((double)m - to); }

/* The largest number of a warp, and the sum in a fixed order. */
__device__ float warp_max(float x)
{
    for (int i = WARP / 2; i > 0; i /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
}
__device__ float warp_sum(float x)
{
    for (int i = WARP / 2; i > 0; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

/* A warp per row. Lanes share the ranges, two at most each, to find m, l and the factors of all
 * states; then they share the columns, four at a time: enough loads are on their way. */
template <class T>
__device__ void merge_row(const ra__cuda_step &step, const ra::tile &t, int r, int lane)
{
    enum { EACH = RA__CUDA_RANGES / WARP, COLUMNS = 4 };
    const int64_t token = t.token(t.query(r));
    const int head = t.head_of(r);
    const ra::state_place own = ra::state_at(step, t.batch, token, head);
    const bool starts = t.row->first, ends = t.row->last;
    const float m0 = starts ? -INFINITY : *own.m, l0 = starts ? 0.0f : *own.l;
    const auto part = [&](int range) {
        return ra::split_state_at(step, range, t.batch, token, head);
    };
    float factors[EACH], m = m0, l = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int range = i * WARP + lane;
        factors[i] = range < step.ranges ? *part(range).m : -INFINITY;
        m = fmaxf(m, factors[i]);
    }
    m = warp_max(m);
    const float shift = m == -INFINITY ? 0.0f : m, kept = factor(m0, shift);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int range = i * WARP + lane;
        factors[i] = factor(factors[i], shift);
        if (range < step.ranges) l += *part(range).l * factors[i];
    }
    l = l0 * kept + warp_sum(l); /* after it m and l of the row have been read by all lanes */
    const ra::row_end end = ra::end_of(m, l, ends ? ra::sink_of(step, head) : -INFINITY);
    T *out = ra::at<T>(step.out, t.batch, token, head);
    for (int first = lane; first - lane < step.value_dim; first += COLUMNS * WARP) {
        float sums[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            const int d = first + c * WARP;
            sums[c] = starts || d >= step.value_dim ? 0.0f : own.acc[d] * kept;
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll 4
            for (int n = 0; n < WARP && i * WARP + n < step.ranges; n++) {
                const float by = __shfl_sync(0xffffffffu, factors[i], n);
                const float *acc = part(i * WARP + n).acc;
#pragma unroll
                for (int c = 0; c < COLUMNS; c++)
                    if (first + c * WARP < step.value_dim) sums[c] += acc[first + c * WARP] * by;
            }
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            const int d = first + c * WARP;
            if (d >= step.value_dim) continue;
            if (ends) out[d] = narrow<T>(l == 0.0f ? 0.0f : sums[c] / end.divisor);
            else own.acc[d] = sums[c];
        }
    }
    if (lane != 0) return;
    if (ends && step.lse.data) *ra::at<float>(step.lse, t.batch, token, head) = end.lse;
    if (!ends) {
        *own.m = m;
        *own.l = l;
    }
}

template <class T>
__global__ void __launch_bounds__(MERGE_THREADS)
    merge_kernel(const ra__cuda_step step, int tile_rows)
{
    const ra::tile t = ra::find_tile(step, blockIdx.x, 0, tile_rows);
    for (int r = threadIdx.x / WARP; r < t.rows; r += MERGE_THREADS / WARP)
        merge_row<T>(step, t, r, threadIdx.x % WARP);
}

/* ---- Pairs ----------------------------------------------------------------------------------- */

/* Keys [lo, hi) of a run that the mask of an order lets a query see. */
__device__ int64_t unmasked(const ra__cuda_terms &terms, const ra__cuda_run &run, int64_t index,
                            ra::range seen)
{
    if (!terms.see_from) return seen.hi - seen.lo;
    int64_t count = 0;
    for (int64_t i = seen.lo; i < seen.hi; i++) {
        const int64_t key = ra::original(terms, run.pos + i * run.pos_step);
        count += key >= terms.see_from[index] && key < terms.see_to[index];
    }
    return count;
}

/* Some blocks per slot, its queries among their threads. Rows of a family may differ in their
 * pairs: their keys need not advance with their queries. */
__global__ void __launch_bounds__(THREADS)
    pairs_kernel(const ra__cuda_step step, unsigned long long *count)
{
    const ra__cuda_row *row = &step.rows[step.slots[blockIdx.x].row];
    int64_t sum = 0;
    for (int64_t i = (int64_t)blockIdx.y * THREADS + threadIdx.x; i < row->repeat * row->q_count;
         i += (int64_t)gridDim.y * THREADS) {
        const int64_t repeat = i / row->q_count, query = i % row->q_count;
        const int64_t index = row->q_pos + repeat * row->q_pos_advance + query * row->q_pos_step;
        for (int n = 0; n < row->run_count; n++) {
            const ra__cuda_run run = ra::run_at(step, row, repeat, n);
            sum += unmasked(step.terms, run, index, ra::seen_by(run, index));
        }
    }
    if (sum) atomicAdd(count, (unsigned long long)(sum * row->heads * step.batch));
}

} // namespace

int ra__cuda_merge_launch(const struct ra__cuda_step *step, int tile_rows, void *stream)
{
    if (step->dtype == RA__CUDA_F32)
        return ra::launch_blocks(merge_kernel<float>, step->tiles, MERGE_THREADS, stream, *step,
                                 tile_rows);
    if (step->dtype == RA__CUDA_BF16)
        return ra::launch_blocks(merge_kernel<__nv_bfloat16>, step->tiles, MERGE_THREADS, stream,
                                 *step, tile_rows);
    return ra::launch_blocks(merge_kernel<__half>, step->tiles, MERGE_THREADS, stream, *step,
                             tile_rows);
}

int ra__cuda_pairs_launch(const struct ra__cuda_step *step, unsigned long long *count, void *stream)
{
    enum { PARTS = 16 }; /* of a long row */
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)step->slot_count, PARTS);
    config.blockDim = dim3(THREADS);
    config.stream = (cudaStream_t)stream;
    return cudaLaunchKernelEx(&config, pairs_kernel, *step, count);
}
