/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - one call: where the buffers of its program are, and its score terms. */
#include "core/philox.h"
#include "exec/exec.h"
#include "exec/location.h"

void ra__call_prepare(struct ra__exec *exec)
{
    for (int i = 0; i < RA__BUFFERS; i++)
        exec->call.at[i] = (struct ra__location){ exec->buffers[i], exec->plan->storage[i] };
}

static void set_tensors(struct ra__exec *exec, const struct ra__io *io)
{
    const struct ra__side *caller = &exec->plan->forward.caller;
    const ra_dtype dtype = caller->shape.dtype;
    struct ra__location *at = exec->call.at;
    at[RA__Q] = ra__tensor_at(&io->q, dtype);
    at[RA__K] = ra__tensor_at(&io->k, dtype);
    at[RA__V] = ra__tensor_at(&io->v, dtype);
    at[RA__OUT] = ra__tensor_at(&io->out, dtype);
    at[RA__LSE] = ra__packed_at(io->lse, caller->queries, caller->shape.q_heads, 1);
    at[RA__DSINKS].data = (char *)io->dsinks;
    /* What the caller leaves out has no copy on the device either. */
    at[RA__DEVICE_LSE].data = io->lse ? exec->buffers[RA__DEVICE_LSE] : NULL;
    at[RA__DEVICE_DLSE].data = io->dlse ? exec->buffers[RA__DEVICE_DLSE] : NULL;
    if (!exec->plan->caller.backward) return;
    at[RA__DLSE] = ra__packed_at(io->dlse, caller->queries, caller->shape.q_heads, 1);
    at[RA__DOUT] = ra__tensor_at(&io->dout, dtype);
    at[RA__DQ] = ra__tensor_at(&io->dq, dtype);
    at[RA__DK] = ra__tensor_at(&io->dk, dtype);
    at[RA__DV] = ra__tensor_at(&io->dv, dtype);
}

void ra__call_set(struct ra__exec *exec, const struct ra__io *io)
{
    const struct ra__problem_terms *terms = exec->terms;
    set_tensors(exec, io);
    exec->call.bias = io->bias;
    exec->call.terms = (struct ra__terms){
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
    exec->call.has_terms = terms->softcap > 0.0f || terms->alibi || io->sinks ||
                           terms->dropout > 0.0 || terms->origin;
}
