/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - one call: where the buffers of its program are, and its score terms. */
#include <string.h>

#include "core/philox.h"
#include "exec/exec.h"
#include "exec/location.h"

void ra__call_prepare(struct ra__exec *exec)
{
    *exec->call = (struct ra__call){ .run = 0 };
    for (int i = 0; i < RA__BUFFERS; i++)
        if (ra__buffer_facts((enum ra__buffer)i)->provider != RA__BY_CALLER)
            exec->call->at[i] = (struct ra__location){ .data = exec->buffers[i],
                                                       .storage = exec->plan->storage[i] };
}

static void set_tensors(struct ra__exec *exec, const struct ra__io *io)
{
    const struct ra__side *caller = &exec->plan->forward.caller;
    const ra_dtype dtype = caller->shape.dtype;
    struct ra__location *at = exec->call->at;
    ra__locate_tensor(&at[RA__Q], &io->q, dtype);
    ra__locate_tensor(&at[RA__K], &io->k, dtype);
    ra__locate_tensor(&at[RA__V], &io->v, dtype);
    ra__locate_tensor(&at[RA__OUT], &io->out, dtype);
    ra__locate_packed(&at[RA__LSE], io->lse, caller->queries, caller->shape.q_heads, 1);
    at[RA__DSINKS].data = (char *)io->dsinks;
    if (!exec->plan->caller.backward) return;
    ra__locate_packed(&at[RA__DLSE], io->dlse, caller->queries, caller->shape.q_heads, 1);
    ra__locate_tensor(&at[RA__DOUT], &io->dout, dtype);
    ra__locate_tensor(&at[RA__DQ], &io->dq, dtype);
    ra__locate_tensor(&at[RA__DK], &io->dk, dtype);
    ra__locate_tensor(&at[RA__DV], &io->dv, dtype);
}

/* Steps add to the gradient of the bias, key by key: it starts at 0. A backend with memory of its
 * own clears it itself, wherever it is. */
static void clear_dbias(const struct ra__side *caller, const struct ra__io *io)
{
    const struct ra__shape *s = &caller->shape;
    const ra_bias *bias = &io->bias;
    for (int64_t batch = 0; batch < (bias->batch_stride ? s->batch : 1); batch++)
        for (int64_t head = 0; head < (bias->head_stride ? s->q_heads : 1); head++)
            for (int64_t query = 0; query < caller->queries; query++)
                memset(io->dbias + batch * bias->batch_stride + head * bias->head_stride +
                           query * bias->query_stride,
                       0, (size_t)s->k_len * sizeof(float));
}

/* Rows by callbacks instead of memory; NULL where there is no such callback. */
static const ra_rows *rows_of(const ra_rows *rows, bool read)
{
    const bool given = read ? rows->read != NULL : rows->write != NULL;
    return given ? rows : NULL;
}

static void set_rows(struct ra__exec *exec, const ra_stream *stream, enum ra__direction direction)
{
    const bool back = direction == RA__BACKWARD;
    const struct {
        enum ra__buffer buffer;
        const ra_rows *rows;
        bool read, f32;
    } all[] = {
        { RA__Q, &stream->q, true, false },
        { RA__K, &stream->k, true, false },
        { RA__V, &stream->v, true, false },
        { RA__OUT, &stream->out, back, false },
        { RA__LSE, &stream->lse, back, true },
        { RA__DOUT, &stream->dout, true, false },
        { RA__DLSE, &stream->dlse, true, true },
        { RA__DQ, &stream->dq, false, false },
        { RA__DK, &stream->dk, false, false },
        { RA__DV, &stream->dv, false, false },
        { RA__SPILL_A, &stream->partial_dq[0], true, true },
        { RA__SPILL_B, &stream->partial_dq[1], true, true },
    };
    const ra_dtype dtype = exec->plan->caller.shape.dtype;
    for (int i = 0; i < RA__COUNT(all); i++)
        exec->call->at[all[i].buffer] = (struct ra__location){
            .storage.dtype = all[i].f32 ? RA_F32 : dtype, .rows = rows_of(all[i].rows, all[i].read)
        };
}

/* What the caller leaves out has no copy on the device either. */
static void set_copies(struct ra__exec *exec)
{
    if (exec->plan->forward.work.lse == RA__LSE) return; /* no copies */
    static const enum ra__buffer copies[][2] = { { RA__DEVICE_LSE, RA__LSE },
                                                 { RA__NEXT_LSE, RA__LSE },
                                                 { RA__DEVICE_DLSE, RA__DLSE },
                                                 { RA__NEXT_DLSE, RA__DLSE } };
    struct ra__location *at = exec->call->at;
    for (int i = 0; i < RA__COUNT(copies); i++) {
        const struct ra__location *tensor = &at[copies[i][1]];
        at[copies[i][0]].data = tensor->data || tensor->rows ? exec->buffers[copies[i][0]] : NULL;
    }
}

void ra__call_set(struct ra__exec *exec, enum ra__direction direction, const struct ra__io *io)
{
    const struct ra__problem_terms *terms = exec->terms;
    exec->call->run++;
    set_tensors(exec, io);
    if (io->stream) set_rows(exec, io->stream, direction);
    set_copies(exec);
    exec->call->stream = io->stream;
    exec->call->bias = io->bias;
    exec->call->dbias = io->dbias;
    exec->call->counts = io->counts;
    if (io->dbias && exec->rank->backend->host) clear_dbias(&exec->plan->forward.caller, io);
    exec->call->terms = (struct ra__terms){
        .softcap = terms->softcap,
        .alibi = terms->alibi,
        .sinks = io->sinks,
        .dropout = terms->dropout > 0.0,
        .drop_below = ra__philox_limit(terms->dropout),
        .kept_scale = (float)(1.0 / (1.0 - terms->dropout)),
        .seed = io->seed,
        .origin = terms->origin,
        .see_from = terms->see_from,
        .see_to = terms->see_to,
    };
    exec->call->has_terms = terms->softcap > 0.0f || terms->alibi || io->sinks ||
                            terms->dropout > 0.0 || terms->origin;
}
