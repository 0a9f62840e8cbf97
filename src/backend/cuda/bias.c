/* SPDX-License-Identifier: Apache-2.0 */
/* bias.c - a bias and its gradient, each in memory of the device or of the host. In host memory
 * they have a copy on the device. It is not part of the plan's budget: a caller who has room for a
 * matrix of scores is not short of memory. */
#include "backend/cuda/cuda.h"

/* The bytes of a bias from its first to its last element. */
static size_t bias_bytes(const struct ra__cuda_running *run)
{
    const ra_bias *bias = &run->launch->call->bias;
    const struct ra__side *caller = &run->program->program->caller;
    const struct ra__shape *s = &caller->shape;
    const int64_t last = (s->batch - 1) * bias->batch_stride +
                         (s->q_heads - 1) * bias->head_stride +
                         (ra__max(caller->queries, 1) - 1) * bias->query_stride + s->k_len;
    return (size_t)last * (bias->mask ? 1 : sizeof(float));
}

static ra_status make_room(struct ra__cuda_twin *twin, size_t bytes, cudaStream_t stream)
{
    if (bytes <= twin->bytes) return RA_OK;
    RA__CUDA_TRY(cudaStreamSynchronize(stream));
    cudaFree(twin->data);
    *twin = (struct ra__cuda_twin){ .data = NULL };
    if (cudaMalloc(&twin->data, bytes) != cudaSuccess) {
        cudaGetLastError();
        return ra__cuda_fail(RA_ERR_MEMORY, "cuda: %zu bytes for a copy of the bias", bytes);
    }
    twin->bytes = bytes;
    return RA_OK;
}

/* ---- The bias -------------------------------------------------------------------------------- */

/* Once per run. */
static ra_status load_bias(const struct ra__cuda_running *run, cudaStream_t stream)
{
    struct ra__cuda_twin *twin = &run->plan->bias;
    const struct ra__call *call = run->launch->call;
    const size_t bytes = bias_bytes(run);
    if (twin->data && twin->run == call->run) return RA_OK;
    RA__TRY(make_room(twin, bytes, stream));
    RA__CUDA_TRY(
        cudaMemcpyAsync(twin->data, call->bias.data, bytes, cudaMemcpyHostToDevice, stream));
    twin->run = call->run;
    return RA_OK;
}

ra_status ra__cuda_set_bias(const struct ra__cuda_running *run, cudaStream_t stream,
                            struct ra__cuda_terms *terms)
{
    const ra_bias *bias = &run->launch->call->bias;
    bool here;
    if (!bias->data) return RA_OK;
    RA__TRY(ra__cuda_where_is(run->device, bias->data, "a bias", &here));
    if (!here) RA__TRY(load_bias(run, stream));
    const int64_t first = run->launch->step->window.first * bias->query_stride;
    const char *data = here ? bias->data : run->plan->bias.data;
    terms->any = true;
    terms->bias = data + first * (bias->mask ? 1 : (int64_t)sizeof(float));
    terms->bias_mask = bias->mask != 0;
    terms->bias_batch = bias->batch_stride;
    terms->bias_head = bias->head_stride;
    terms->bias_query = bias->query_stride;
    return RA_OK;
}

/* ---- Its gradient ---------------------------------------------------------------------------- */

/* Calls move() for each plane: what batch items and heads do not share. */
static ra_status each_plane(const struct ra__cuda_running *run, float *to, const float *from,
                            cudaError_t (*move)(float *to, const float *from, size_t pitch,
                                                size_t width, size_t rows, cudaStream_t stream),
                            cudaStream_t stream)
{
    const ra_bias *bias = &run->launch->call->bias;
    const struct ra__side *caller = &run->program->program->caller;
    const struct ra__shape *s = &caller->shape;
    const size_t pitch = (size_t)bias->query_stride * sizeof(float);
    for (int64_t batch = 0; batch < (bias->batch_stride ? s->batch : 1); batch++)
        for (int64_t head = 0; head < (bias->head_stride ? s->q_heads : 1); head++) {
            const int64_t at = batch * bias->batch_stride + head * bias->head_stride;
            RA__CUDA_TRY(move(to + at, from + at, pitch, (size_t)s->k_len * sizeof(float),
                              (size_t)caller->queries, stream));
        }
    return RA_OK;
}

static cudaError_t clear(float *to, const float *from, size_t pitch, size_t width, size_t rows,
                         cudaStream_t stream)
{
    (void)from;
    return cudaMemset2DAsync(to, pitch, 0, width, rows, stream);
}

static cudaError_t fetch(float *to, const float *from, size_t pitch, size_t width, size_t rows,
                         cudaStream_t stream)
{
    return cudaMemcpy2DAsync(to, pitch, from, pitch, width, rows, cudaMemcpyDeviceToHost, stream);
}

/* Where it is summed: the caller's memory, or the twin of that. */
static float *dbias_of(const struct ra__cuda_running *run)
{
    float *given = run->launch->call->dbias;
    return ra__cuda_is_on_device(given) ? given : run->plan->dbias.data;
}

static ra_status fetch_dbias(const struct ra__cuda_running *run, struct ra__cuda_queue *queue)
{
    const struct ra__call *call = run->launch->call;
    if (ra__cuda_is_on_device(call->dbias)) return RA_OK;
    RA__TRY(ra__cuda_host_after_queue(run->device, queue, run->launch->heartbeat));
    return each_plane(run, call->dbias, run->plan->dbias.data, fetch, queue->stream);
}

static int count_gradients(const struct ra__program *program)
{
    int count = 0;
    for (int i = 0; i < program->step_count; i++) count += program->steps[i].op == RA__OP_GRADIENT;
    return count;
}

ra_status ra__cuda_begin_dbias(const struct ra__cuda_running *run, struct ra__cuda_queue *queue)
{
    const struct ra__call *call = run->launch->call;
    struct ra__cuda_twin *twin = &run->plan->dbias;
    bool here;
    if (!call->dbias || run->launch->direction != RA__BACKWARD || twin->run == call->run)
        return RA_OK;
    RA__TRY(ra__cuda_where_is(run->device, call->dbias, "the gradient of a bias", &here));
    if (!here) RA__TRY(make_room(twin, bias_bytes(run), queue->stream));
    twin->run = call->run;
    RA__TRY(each_plane(run, dbias_of(run), dbias_of(run), clear, queue->stream));
    run->plan->dbias_left = count_gradients(run->program->program);
    return run->plan->dbias_left > 0 ? RA_OK : fetch_dbias(run, queue);
}

ra_status ra__cuda_add_dbias(const struct ra__cuda_running *run, const struct ra__cuda_step *step,
                             struct ra__cuda_queue *queue)
{
    const struct ra__call *call = run->launch->call;
    const struct ra__program *program = run->program->program;
    const struct ra__step *of = run->launch->step;
    if (!call->dbias) return RA_OK;
    float *to = dbias_of(run) + of->window.first * call->bias.query_stride;
    for (int i = of->first_row; i < of->first_row + of->row_count; i++) {
        const struct ra__plan_row *row = &program->rows[i];
        const struct ra__cuda_dbias rows = {
            to, i, row->repeat, row->q_count, (int32_t)row->heads.count, row->key_count
        };
        RA__TRY(ra__cuda_check(ra__cuda_dbias_launch(step, &rows, queue->stream),
                               "gradient of the bias"));
    }
    return --run->plan->dbias_left == 0 ? fetch_dbias(run, queue) : RA_OK;
}
