/* SPDX-License-Identifier: Apache-2.0 */
/* copy.c - LOAD and STORE: pieces between the caller and the device. The caller's end is memory of
 * the host or of a device, or rows that callbacks give and take. */
#include "backend/cuda/cuda.h"

/* One end of a piece in bytes. */
struct end {
    char *data; /* NULL: a tensor that the caller does not want */
    int64_t batch, token, head;
    size_t element;
    ra_dtype dtype;
};

static struct end find_end(const struct ra__cuda_running *run, const struct ra__piece *piece,
                           const struct ra__end *end)
{
    const struct ra__location *place = &run->launch->call->at[end->buffer];
    const struct ra__storage *s = &place->storage;
    if (s->message) {
        const int64_t token = piece->width * (int64_t)ra__dtype_bytes(piece->message);
        return (struct end){
            place->data + end->token, token * piece->tokens * piece->heads, token,
            token * piece->tokens,    ra__dtype_bytes(piece->message),      piece->message
        };
    }
    const int64_t element = (int64_t)ra__dtype_bytes(s->dtype);
    const int64_t at = end->token * s->token_stride + end->head * s->head_stride + end->number;
    return (struct end){ place->data ? place->data + at * element : NULL,
                         s->batch_stride * element,
                         s->token_stride * end->step * element,
                         s->head_stride * element,
                         (size_t)element,
                         s->dtype };
}

/* `count` times `bytes` bytes, that far apart on both sides. */
static ra_status copy_rows(char *to, int64_t to_step, const char *from, int64_t from_step,
                           size_t bytes, int64_t count, cudaStream_t stream)
{
    const int64_t most = INT32_MAX, width = (int64_t)bytes;
    if ((to_step == width && from_step == width) || count == 1) {
        RA__CUDA_TRY(cudaMemcpyAsync(to, from, bytes * (size_t)count, cudaMemcpyDefault, stream));
        return RA_OK;
    }
    if (to_step >= width && from_step >= width && to_step <= most && from_step <= most) {
        RA__CUDA_TRY(cudaMemcpy2DAsync(to, (size_t)to_step, from, (size_t)from_step, bytes,
                                       (size_t)count, cudaMemcpyDefault, stream));
        return RA_OK;
    }
    for (int64_t i = 0; i < count; i++) /* rows that overlap, or are very far apart */
        RA__CUDA_TRY(cudaMemcpyAsync(to + i * to_step, from + i * from_step, bytes,
                                     cudaMemcpyDefault, stream));
    return RA_OK;
}

/* Tokens of one batch item between two ends. */
static ra_status copy_tokens(const struct ra__piece *piece, const struct end *to,
                             const struct end *from, int64_t tokens, cudaStream_t stream)
{
    const size_t bytes = (size_t)piece->width * to->element;
    const bool dense = to->head == (int64_t)bytes && from->head == (int64_t)bytes;
    if (dense || piece->heads == 1)
        return copy_rows(to->data, to->token, from->data, from->token, bytes * (size_t)piece->heads,
                         tokens, stream);
    for (int h = 0; h < piece->heads; h++)
        RA__TRY(copy_rows(to->data + h * to->head, to->token, from->data + h * from->head,
                          from->token, bytes, tokens, stream));
    return RA_OK;
}

static struct end moved(struct end end, int64_t batch, int64_t token)
{
    end.data += batch * end.batch + token * end.token;
    return end;
}

/* ---- Sums that are stored in 16 bits --------------------------------------------------------- */

/* Packed rows of one batch item. */
static struct end packed_rows(const struct ra__piece *piece, char *data, ra_dtype dtype)
{
    const int64_t head = piece->width * (int64_t)ra__dtype_bytes(dtype);
    return (struct end){ data, 0, head * piece->heads, head, ra__dtype_bytes(dtype), dtype };
}

/* How many rows of this dtype pass through the memory that there is for them. */
static int64_t rows_at_once(const struct ra__piece *piece, ra_dtype dtype)
{
    const struct end row = packed_rows(piece, NULL, dtype);
    return ra__max(RA__CUDA_ROWS_BYTES / row.token, 1);
}

static ra_status check_row(const struct ra__piece *piece, ra_dtype dtype)
{
    const struct end row = packed_rows(piece, NULL, dtype);
    if (row.token <= RA__CUDA_ROWS_BYTES) return RA_OK;
    return ra__cuda_fail(RA_ERR_UNSUPPORTED, "cuda: rows of %lld bytes; at most %d",
                         (long long)row.token, RA__CUDA_ROWS_BYTES);
}

/* Tokens of f32 sums, rounded to another dtype: into memory of the device, from where they can be
 * copied. */
static ra_status narrow_tokens(const struct ra__cuda_running *run, const struct ra__piece *piece,
                               const struct end *from, ra_dtype dtype, int64_t tokens,
                               cudaStream_t stream)
{
    struct ra__cuda_device *device = run->device;
    RA__TRY(check_row(piece, dtype));
    if (!device->narrow) RA__CUDA_TRY(cudaMalloc((void **)&device->narrow, RA__CUDA_ROWS_BYTES));
    const struct ra__cuda_narrow narrow = { (const float *)from->data,
                                            from->token / (int64_t)sizeof(float),
                                            from->head / (int64_t)sizeof(float),
                                            tokens,
                                            piece->heads,
                                            piece->width,
                                            (int32_t)dtype,
                                            device->narrow };
    return ra__cuda_check(ra__cuda_narrow_launch(&narrow, stream), "narrow");
}

/* Tokens of one batch item, converted where the dtypes differ. */
static ra_status copy_converted(const struct ra__cuda_running *run, const struct ra__piece *piece,
                                const struct end *to, const struct end *from, int64_t tokens,
                                cudaStream_t stream)
{
    if (to->dtype == from->dtype) return copy_tokens(piece, to, from, tokens, stream);
    const int64_t most = rows_at_once(piece, to->dtype);
    for (int64_t first = 0; first < tokens; first += most) {
        const int64_t count = ra__min(most, tokens - first);
        const struct end there = moved(*to, 0, first), here = moved(*from, 0, first);
        RA__TRY(narrow_tokens(run, piece, &here, to->dtype, count, stream));
        const struct end rounded = packed_rows(piece, run->device->narrow, to->dtype);
        RA__TRY(copy_tokens(piece, &there, &rounded, count, stream));
    }
    return RA_OK;
}

static ra_status copy_memory(const struct ra__cuda_running *run, const struct ra__piece *piece,
                             cudaStream_t stream)
{
    const struct end to = find_end(run, piece, &piece->to);
    const struct end from = find_end(run, piece, &piece->from);
    if (!to.data || !from.data) return RA_OK;
    for (int64_t batch = 0; batch < run->program->program->work.shape.batch; batch++) {
        const struct end a = moved(to, batch, 0), b = moved(from, batch, 0);
        RA__TRY(copy_converted(run, piece, &a, &b, piece->tokens, stream));
    }
    return RA_OK;
}

/* ---- Rows of callbacks ----------------------------------------------------------------------- */

static ra_status call_back(const ra_rows *rows, bool load, int64_t batch, int64_t first,
                           int64_t count, void *packed)
{
    const ra_status status = load ? rows->read(rows->context, batch, first, count, packed)
                                  : rows->write(rows->context, batch, first, count, packed);
    if (status == RA_OK || *ra__cuda_host->last_error()) return status;
    return ra__cuda_fail(status, "a callback for rows failed");
}

/* A piece of one batch item between callbacks and a buffer. */
struct called {
    const struct ra__cuda_running *run;
    const struct ra__piece *piece;
    const ra_rows *rows;
    ra_dtype dtype; /* of the caller's tensor */
    bool load;
    int64_t batch, first; /* the first position of the tensor */
    struct end inside;
};

static struct called called_of(const struct ra__cuda_running *run, const struct ra__piece *piece,
                               int64_t batch)
{
    const bool load = run->launch->step->op == RA__OP_LOAD;
    const struct ra__end *outside = load ? &piece->from : &piece->to;
    const struct ra__location *tensor = &run->launch->call->at[outside->buffer];
    const struct end inside = find_end(run, piece, load ? &piece->to : &piece->from);
    return (struct called){ run,  piece, tensor->rows,   tensor->storage.dtype,
                            load, batch, outside->token, moved(inside, batch, 0) };
}

/* Copies between memory that rows pass through and the buffer. */
static ra_status copy_staged(const struct called *c, char *staging, int64_t first, int64_t count,
                             cudaStream_t stream)
{
    const struct end packed = packed_rows(c->piece, staging, c->dtype);
    const struct end there = moved(c->inside, 0, first);
    return copy_converted(c->run, c->piece, c->load ? &there : &packed, c->load ? &packed : &there,
                          count, stream);
}

/* The next pinned memory, free to be written. */
static ra_status next_staging(const struct called *c, struct ra__cuda_staging **out)
{
    struct ra__cuda_device *device = c->run->device;
    struct ra__cuda_staging *p = *out = &device->staging[device->staged ^= 1];
    if (!p->rows) RA__CUDA_TRY(cudaMallocHost((void **)&p->rows, RA__CUDA_ROWS_BYTES));
    return ra__cuda_wait(device, &p->copy, c->run->launch->heartbeat);
}

/* Rows in host memory go through pinned memory, a part at a time: while one part is copied, the
 * callback is at work on another. */
static ra_status load_called(const struct called *c, struct ra__cuda_queue *queue)
{
    const int64_t most = rows_at_once(c->piece, c->dtype);
    for (int64_t first = 0; first < c->piece->tokens; first += most) {
        const int64_t count = ra__min(most, c->piece->tokens - first);
        struct ra__cuda_staging *p;
        RA__TRY(next_staging(c, &p));
        RA__TRY(call_back(c->rows, true, c->batch, c->first + first, count, p->rows));
        RA__TRY(copy_staged(c, p->rows, first, count, queue->stream));
        RA__TRY(ra__cuda_queue_mark(queue, &p->copy));
    }
    return RA_OK;
}

static ra_status store_called(const struct called *c, struct ra__cuda_queue *queue)
{
    const int64_t most = rows_at_once(c->piece, c->dtype), all = c->piece->tokens;
    struct ra__cuda_staging *before = NULL, *p = NULL;
    for (int64_t first = 0; first < all + most; first += most, before = p) {
        if (first < all) {
            RA__TRY(next_staging(c, &p));
            RA__TRY(copy_staged(c, p->rows, first, ra__min(most, all - first), queue->stream));
            RA__TRY(ra__cuda_queue_mark(queue, &p->copy));
        }
        if (!before) continue;
        RA__TRY(ra__cuda_wait(c->run->device, &before->copy, c->run->launch->heartbeat));
        RA__TRY(call_back(c->rows, false, c->batch, c->first + first - most,
                          ra__min(most, all - first + most), before->rows));
    }
    return RA_OK;
}

static ra_status copy_called(const struct called *c, struct ra__cuda_queue *queue)
{
    RA__TRY(check_row(c->piece, c->dtype));
    return c->load ? load_called(c, queue) : store_called(c, queue);
}

static bool is_packed(const struct called *c)
{
    const struct end row = packed_rows(c->piece, NULL, c->dtype);
    return c->inside.dtype == c->dtype && c->inside.token == row.token &&
           (c->inside.head == row.head || c->piece->heads == 1);
}

/* Rows in memory of the device: in the buffer itself where that is packed, otherwise through memory
 * of this queue, a part at a time. Nothing waits on the host. */
static ra_status copy_queued(const struct called *c, struct ra__cuda_queue *queue)
{
    const bool packed = is_packed(c);
    const int64_t most = packed ? c->piece->tokens : rows_at_once(c->piece, c->dtype);
    if (!packed) RA__TRY(check_row(c->piece, c->dtype));
    if (!packed && !queue->rows)
        RA__CUDA_TRY(cudaMalloc((void **)&queue->rows, RA__CUDA_ROWS_BYTES));
    for (int64_t first = 0; first < c->piece->tokens; first += most) {
        const int64_t count = ra__min(most, c->piece->tokens - first);
        char *rows = packed ? c->inside.data : queue->rows;
        if (!packed && !c->load) RA__TRY(copy_staged(c, rows, first, count, queue->stream));
        *c->run->launch->call->stream->queue = queue->stream;
        RA__TRY(call_back(c->rows, c->load, c->batch, c->first + first, count, rows));
        if (!packed && c->load) RA__TRY(copy_staged(c, rows, first, count, queue->stream));
    }
    return RA_OK;
}

static bool is_queued(const struct ra__launch *launch)
{
    return launch->call->stream && launch->call->stream->queue;
}

static ra_status copy_piece(const struct ra__cuda_running *run, const struct ra__piece *piece,
                            struct ra__cuda_queue *queue)
{
    const bool load = run->launch->step->op == RA__OP_LOAD;
    const struct ra__location *at = run->launch->call->at;
    const struct ra__location *tensor = &at[load ? piece->from.buffer : piece->to.buffer];
    const struct ra__location *buffer = &at[load ? piece->to.buffer : piece->from.buffer];
    if (piece->width == 0) { /* bytes of a message */
        const char *from = at[piece->from.buffer].data + piece->from.token;
        RA__CUDA_TRY(cudaMemcpyAsync(at[piece->to.buffer].data + piece->to.token, from,
                                     (size_t)piece->tokens, cudaMemcpyDefault, queue->stream));
        return RA_OK;
    }
    if (!tensor->rows || !buffer->data) return copy_memory(run, piece, queue->stream);
    for (int64_t batch = 0; batch < run->program->program->work.shape.batch; batch++) {
        const struct called called = called_of(run, piece, batch);
        RA__TRY(is_queued(run->launch) ? copy_queued(&called, queue) : copy_called(&called, queue));
    }
    return RA_OK;
}

static ra_status copy_pieces(const struct ra__cuda_running *run, struct ra__cuda_queue *queue)
{
    const struct ra__step *step = run->launch->step;
    for (int i = 0; i < step->piece_count; i++)
        RA__TRY(copy_piece(run, &run->program->program->pieces[step->first_piece + i], queue));
    return RA_OK;
}

ra_status ra__cuda_load(const struct ra__cuda_running *run, struct ra__cuda_queue *queue)
{
    RA__TRY(ra__cuda_queue_after(queue, run->launch));
    return copy_pieces(run, queue);
}

/* A copy to pageable memory blocks the caller until it is done, so the host waits for the steps
 * before it first, with a heartbeat. Rows that stay on the device need no host. */
ra_status ra__cuda_store(const struct ra__cuda_running *run, struct ra__cuda_queue *queue)
{
    const struct ra__step *step = run->launch->step;
    const ra_stream *stream = run->launch->call->stream;
    RA__TRY(is_queued(run->launch) ? ra__cuda_queue_after(queue, run->launch)
                                   : ra__cuda_host_after(run->device, run->launch));
    RA__TRY(copy_pieces(run, queue));
    if (!step->ends_unit || !stream || !stream->done) return RA_OK;
    RA__CUDA_TRY(cudaStreamSynchronize(queue->stream));
    const ra_status status = stream->done(stream->context, run->launch->direction == RA__BACKWARD,
                                          step->unit - 1);
    if (status == RA_OK || *ra__cuda_host->last_error()) return status;
    return ra__cuda_fail(status, "the callback of a finished unit failed");
}
