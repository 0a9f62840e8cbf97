/* SPDX-License-Identifier: Apache-2.0 */
/* dbias.cu - the gradient of the bias, as backend/cpu/bias.c has it: p (kept dout.v - delta),
 * summed over the heads and batch items that share it.
 *
 * One launch per row family of a step, since rows of other heads may share the bias; one after the
 * other they add in a fixed order. A block of threads has SIDE queries and adds batch items, heads
 * and runs of keys in ascending order. The keys of a single run are shared by PARTS blocks; two
 * runs may have the same key, as in dilated rows, and then one block has all keys. So whoever adds
 * to a number does it in the same order every time. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "backend/cuda/score.cuh"
#include "backend/cuda/steps.h"

extern __shared__ __align__(128) unsigned char ra_shared[];

namespace
{

enum {
    SIDE = 32,            /* queries, keys */
    EACH = 2,             /* of them for a thread */
    ACROSS = SIDE / EACH, /* threads */
    THREADS = ACROSS * ACROSS,
    DIMS = 32, /* of a row in shared memory */
    PITCH = DIMS + 1,
    PARTS = 8,
    SHARED_BYTES = 2 * SIDE * PITCH * 4
};

template <class T> __device__ float wide(T x) { return (float)x; }
template <> __device__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
template <> __device__ float wide(__half x) { return __half2float(x); }

/* SIDE rows of one head of a tensor, `count` of them there. */
struct rows {
    ra__cuda_tensor tensor;
    int batch, head, count;
    int64_t token, step;
};

/* Some dims of the rows, in f32; 0 where there is nothing. */
template <class T> __device__ void load(const rows &from, int first, int width, float *to)
{
    for (int i = threadIdx.x; i < SIDE * DIMS; i += THREADS) {
        const int row = i / DIMS, d = first + i % DIMS;
        const bool there = row < from.count && d < width;
        to[row * PITCH + i % DIMS] = there ? wide(ra::at<T>(from.tensor, from.batch,
                                                            from.token + row * from.step,
                                                            from.head)[d])
                                           : 0.0f;
    }
}

/* Products of the thread's rows of `a` and of `b`. */
template <class T>
__device__ void multiply(const rows &a, const rows &b, int width, float (&x)[EACH][EACH])
{
    float *left = (float *)ra_shared, *right = left + SIDE * PITCH;
    const int y = threadIdx.x / ACROSS, z = threadIdx.x % ACROSS;
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) x[i][j] = 0.0f;
    for (int first = 0; first < width; first += DIMS) {
        __syncthreads(); /* all have used what was there */
        load<T>(a, first, width, left);
        load<T>(b, first, width, right);
        __syncthreads();
        for (int d = 0; d < DIMS; d++)
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++)
                    x[i][j] += left[(y + i * ACROSS) * PITCH + d] *
                               right[(z + j * ACROSS) * PITCH + d];
    }
}

/* One head of one batch item, and keys [from, from + count) of a run. */
template <class T>
__device__ void add_block(const ra__cuda_step &step, const ra::tile &t, const ra__cuda_run &run,
                          int64_t from, int count, float *to)
{
    const rows q = { step.q, t.batch, t.head, t.rows, t.token(t.first), t.row->q_token_step };
    const rows k = { step.k,        t.batch, t.kv_head, count, run.token + from * run.token_step,
                     run.token_step };
    rows dout = q, v = k;
    dout.tensor = step.dout;
    v.tensor = step.v;
    float qk[EACH][EACH], dp[EACH][EACH];
    multiply<T>(q, k, step.dim, qk);
    multiply<T>(dout, v, step.value_dim, dp);
    for (int i = 0; i < EACH; i++) {
        const int r = threadIdx.x / ACROSS + i * ACROSS;
        if (r >= t.rows) continue;
        const ra::query query = ra::query_of(step, t, r);
        const ra::range seen = ra::seen_by(run, query.index);
        const float lse = *ra::at<float>(step.lse, t.batch, query.token, t.head);
        const float delta = *ra::at<float>(step.delta, t.batch, query.token, t.head);
        if (ra::is_weightless(lse)) continue;
        for (int j = 0; j < EACH; j++) {
            const int64_t key = from + threadIdx.x % ACROSS + j * ACROSS;
            if (key < seen.lo || key >= seen.hi || key >= from + count) continue;
            const int64_t index = run.pos + key * run.pos_step;
            const ra::score score = ra::score_of(step, query, index, qk[i][j]);
            if (score.hidden) continue;
            const float p = exp2f(score.x - ra::in_log2(lse));
            to[query.token * step.terms.bias_query + ra::original(step.terms, index)] +=
                p * (score.kept * dp[i][j] - delta);
        }
    }
}

/* One head of one batch item, all keys that are this block's. */
template <class T> __device__ void add_head(const ra__cuda_step &step, const ra::tile &t, float *to)
{
    for (int n = 0; n < t.row->run_count; n++) {
        const ra__cuda_run run = ra::run_at(step, t.row, t.repeat, n);
        const int64_t lo = ra::seen_by(run, t.position(t.first)).lo;
        const int64_t hi = ra::seen_by(run, t.position(t.first + t.rows - 1)).hi;
        for (int64_t from = lo + (int64_t)blockIdx.y * SIDE; from < hi; from += gridDim.y * SIDE)
            add_block<T>(step, t, run, from, (int)ra::least(SIDE, hi - from), to);
    }
}

/* Blocks: planes of the bias with the queries of all rows of the family; and parts of the keys. */
template <class T>
__global__ void __launch_bounds__(THREADS, 1)
    dbias_kernel(const ra__cuda_step step, const ra__cuda_dbias dbias)
{
    const ra__cuda_row *row = &step.rows[dbias.row];
    const ra__cuda_terms &terms = step.terms;
    const int64_t chunks = ra::ceil_div(row->q_count, SIDE), all = row->repeat * chunks;
    const int planes = terms.bias_head ? row->heads : 1; /* of a batch item */
    const int batch = (int)(blockIdx.x / all) / planes, plane = (int)(blockIdx.x / all) % planes;
    const int batches = terms.bias_batch ? batch + 1 : step.batch;
    const int heads = terms.bias_head ? plane + 1 : row->heads;
    ra::tile t;
    t.row = row;
    t.repeat = blockIdx.x % all / chunks;
    t.first = blockIdx.x % all % chunks * SIDE;
    t.rows = (int)ra::least(SIDE, row->q_count - t.first);
    t.group = 1;
    t.range = 0;
    for (t.batch = batch; t.batch < batches; t.batch++)
        for (int h = plane; h < heads; h++) {
            t.head = row->head + h * row->head_step;
            t.kv_head = t.head / (step.q_heads / step.kv_heads);
            add_head<T>(step, t, dbias.to + t.batch * terms.bias_batch + t.head * terms.bias_head);
        }
}

template <class T> int launch(const ra__cuda_step &step, const ra__cuda_dbias &dbias, void *stream)
{
    const int64_t chunks = (dbias.queries + SIDE - 1) / SIDE;
    const int64_t planes = (int64_t)(step.terms.bias_batch ? step.batch : 1) *
                           (step.terms.bias_head ? dbias.heads : 1);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(planes * dbias.repeat * chunks), dbias.runs == 1 ? PARTS : 1);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = SHARED_BYTES;
    config.stream = (cudaStream_t)stream;
    return cudaLaunchKernelEx(&config, dbias_kernel<T>, step, dbias);
}

} // namespace

int ra__cuda_dbias_launch(const struct ra__cuda_step *step, const struct ra__cuda_dbias *dbias,
                          void *stream)
{
    if (dbias->queries == 0 || dbias->heads == 0) return cudaSuccess;
    if (step->dtype == RA__CUDA_F32) return launch<float>(*step, *dbias, stream);
    if (step->dtype == RA__CUDA_BF16) return launch<__nv_bfloat16>(*step, *dbias, stream);
    return launch<__half>(*step, *dbias, stream);
}
