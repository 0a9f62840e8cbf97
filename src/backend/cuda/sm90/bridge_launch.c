/* SPDX-License-Identifier: Apache-2.0 */
/* bridge_launch.c - one step of one call on the Hopper kernels.
 *
 * Whether a call can be run depends on where its tensors are: the copy engine takes addresses and
 * strides that are multiples of 16 bytes. The answer is the same for all steps of a call that
 * exchange states, since it is asked for all of them. */
#include <string.h>

#include "backend/cuda/sm90/bridge.h"
#include "backend/cuda/sm90/bridge_ends.h"

/* ---- What a call has ------------------------------------------------------------------------- */

/* Strides of one of something are never used. */
static bool stride_fits(int64_t stride, int64_t count)
{
    return count <= 1 || (stride > 0 && stride % 8 == 0);
}

static bool tensor_fits(const struct ra__call *call, enum ra__buffer buffer, int64_t rows,
                        int64_t heads, int64_t batch)
{
    const struct ra__location *at = &call->at[buffer];
    const struct ra__storage *s = &at->storage;
    return at->data && (uintptr_t)at->data % 16 == 0 && stride_fits(s->token_stride, rows) &&
           stride_fits(s->head_stride, s->one_head ? 1 : heads) &&
           stride_fits(s->batch_stride, batch);
}

static bool line_fits(const struct ra__sm90_line *line)
{
    const int64_t most = (int64_t)1 << 30, at = line->pos - line->token * line->step;
    return !line->bent && line->step < most && at > -most && at < most;
}

static int extras_of(const struct ra__sm90_program *p, const struct ra__call *call)
{
    const bool forward = p->program->direction == RA__FORWARD;
    return (forward && call->terms.sinks ? RA__SM90_WITH_SINKS : 0) |
           (call->bias.data ? RA__SM90_WITH_BIAS : 0);
}

static bool terms_fit(const struct ra__sm90_program *p, const struct ra__call *call,
                      const struct ra__sm90_step *step, const struct ra__sm90_work *work)
{
    const int extras = extras_of(p, call);
    const bool placed = p->terms & (RA__SM90_SLOPES | RA__SM90_DROPOUT) ||
                        extras & RA__SM90_WITH_BIAS;
    if (!work->extras[extras]) return false;
    if (!placed) return true;
    return !p->origin && line_fits(&step->q_line) && line_fits(&step->k_line);
}

static bool work_fits(const struct ra__sm90_program *p, const struct ra__call *call, int index,
                      const struct ra__sm90_work *work)
{
    const struct ra__step *step = &p->program->steps[index];
    const struct ra__side *side = ra__work_side(p->program, step);
    const struct ra__shape *s = &side->shape;
    const bool own = step->from == RA__OWN_KV || step->from == RA__NO_BUFFER;
    const bool back = p->program->direction == RA__BACKWARD;
    const enum ra__buffer k = own ? side->k : step->from;
    const enum ra__buffer v = own ? side->v : ra__values_of(p->program, step->from);
    return tensor_fits(call, side->q, work->q_rows, s->q_heads, s->batch) &&
           tensor_fits(call, back ? side->dout : side->out, work->q_rows, s->q_heads, s->batch) &&
           (work->k_rows == 0 || (tensor_fits(call, k, work->k_rows, s->kv_heads, s->batch) &&
                                  tensor_fits(call, v, work->k_rows, s->kv_heads, s->batch))) &&
           (!work->direct || (tensor_fits(call, side->dq, work->q_rows, s->q_heads, s->batch) &&
                              tensor_fits(call, side->dk, work->k_rows, s->kv_heads, s->batch) &&
                              tensor_fits(call, side->dv, work->k_rows, s->kv_heads, s->batch))) &&
           terms_fit(p, call, &p->steps[index], work);
}

static bool step_fits(const struct ra__sm90_program *p, const struct ra__call *call, int index)
{
    const struct ra__sm90_step *step = &p->steps[index];
    return !step->taken || work_fits(p, call, index, &p->works[step->work]);
}

/* Where states are carried, all steps must fit. */
static bool call_fits(const struct ra__sm90_program *p, const struct ra__call *call, int index)
{
    if (call->counts) return false;
    if (!p->carried) return step_fits(p, call, index);
    for (int i = 0; i < p->program->step_count; i++)
        if (!step_fits(p, call, i)) return false;
    return true;
}

/* ---- Arguments ------------------------------------------------------------------------------- */

/* Strides that are not used are made such as the copy engine accepts. */
static struct ra__sm90_tensor tensor_of(const struct ra__cuda_tensor *x, int32_t rows, int heads,
                                        int batch, int dim)
{
    return (struct ra__sm90_tensor){ .data = x->data,
                                     .rows = rows > 0 ? rows : 1,
                                     .heads = heads,
                                     .batch = batch,
                                     .row_stride = rows > 1 ? x->token : dim,
                                     .head_stride = heads > 1 ? x->head : dim,
                                     .batch_stride = batch > 1 ? x->batch : dim };
}

static struct ra__sm90_column column_of(const struct ra__cuda_tensor *x)
{
    return (struct ra__sm90_column){ x->data, x->token, x->head, x->batch };
}

static void set_line(const struct ra__sm90_line *line, int32_t *pos, int32_t *step)
{
    const bool fits = line->known && line_fits(line);
    *step = fits && line->step ? (int32_t)line->step : 1;
    *pos = fits ? (int32_t)(line->pos - line->token * *step) : 0;
}

static struct ra__sm90_terms terms_of(const struct ra__cuda_step *step,
                                      const struct ra__sm90_step *own)
{
    const struct ra__cuda_terms *t = &step->terms;
    struct ra__sm90_terms out = {
        .softcap = t->softcap,
        .slopes = t->alibi ? t->alibi + step->first_head : NULL,
        .sinks = t->sinks ? t->sinks + step->first_head : NULL,
        .bias = t->bias,
        .bias_bytes = t->bias_mask ? 1 : 4,
        .bias_row_stride = t->bias_query,
        .bias_head_stride = t->bias_head,
        .bias_batch_stride = t->bias_batch,
        .drop_below = t->dropout ? t->drop_below : 0,
        .seed = t->seed,
        .kept_scale = t->dropout ? t->kept_scale : 1,
    };
    set_line(&own->q_line, &out.q_pos, &out.q_step);
    set_line(&own->k_line, &out.k_pos, &out.k_step);
    return out;
}

static struct ra__sm90_needs needs_of(const struct ra__sm90_work *work, int extras)
{
    struct ra__sm90_needs needs = work->needs;
    if (extras & RA__SM90_WITH_SINKS) needs.terms |= RA__SM90_SINKS;
    if (extras & RA__SM90_WITH_BIAS) needs.terms |= RA__SM90_BIAS;
    return needs;
}

/* ---- Forward --------------------------------------------------------------------------------- */

static int attend(const struct ra__sm90_program *p, int index, const struct ra__call *call,
                  const struct ra__cuda_step *step, void *stream)
{
    const struct ra__sm90_work *work = &p->works[p->steps[index].work];
    const struct ra__sm90_scratch scratch = ra__sm90_scratch_of(work, &p->program->work.shape,
                                                                p->scratch);
    const struct ra__sm90_needs needs = needs_of(work, extras_of(p, call));
    const int kv_heads = work->one_head ? 1 : step->kv_heads;
    struct ra__sm90_forward args = {
        .q = tensor_of(&step->q, work->q_rows, step->q_heads, step->batch, step->dim),
        .k = tensor_of(&step->k, work->k_rows, kv_heads, step->batch, step->dim),
        .v = tensor_of(&step->v, work->k_rows, kv_heads, step->batch, step->dim),
        .out = tensor_of(&step->out, work->q_rows, step->q_heads, step->batch, step->dim),
        .lse = column_of(&step->lse),
        .m = column_of(&step->m),
        .l = column_of(&step->l),
        .acc = column_of(&step->acc),
        .scale = step->scale,
        .items = work->schedule.items,
        .runs = work->schedule.runs,
        .merges = work->schedule.merges,
        .queues = work->schedule.queues,
        .clusters = work->schedule.clusters,
        .merge_count = work->schedule.merge_count,
        .parts = scratch.parts,
        .failed = scratch.failed,
        /* Rows that go on from a state are written by the repair where they are not finite. */
        .hides = work->schedule.hides || step->terms.bias || p->carried,
        .crowded = p->program->device_ranks > 1,
        .terms = terms_of(step, &p->steps[index]),
    };
    if (work->k_rows == 0) args.k = args.v = args.q; /* no key is read, but a map needs memory */
    for (int i = 0; i < RA__SM90_VIEWS; i++) args.views[i] = work->views[i];
    return ra__sm90_forward_launch(&args, &needs, stream);
}

/* ---- Backward -------------------------------------------------------------------------------- */

/* The same tensor from a batch item and a head on. */
static struct ra__cuda_tensor moved(struct ra__cuda_tensor x, int64_t batch, int64_t head,
                                    size_t bytes)
{
    if (x.data) x.data = (char *)x.data + (batch * x.batch + head * x.head) * (int64_t)bytes;
    return x;
}

/* A batch item and a KV head of a step, as a step of its own; `bytes` of a number of dq, dk, dv. */
static struct ra__cuda_step step_of_head(const struct ra__cuda_step *step, int batch, int kv_head,
                                         size_t bytes)
{
    const int group = step->q_heads / step->kv_heads, head = kv_head * group;
    const struct ra__cuda_terms *t = &step->terms;
    const int64_t bias = batch * t->bias_batch + head * t->bias_head;
    struct ra__cuda_step out = *step;
    out.batch = 1;
    out.q_heads = group;
    out.kv_heads = 1;
    out.first_head += head;
    out.q = moved(step->q, batch, head, 2);
    out.dout = moved(step->dout, batch, head, 2);
    out.k = moved(step->k, batch, kv_head, 2);
    out.v = moved(step->v, batch, kv_head, 2);
    out.lse = moved(step->lse, batch, head, sizeof(float));
    out.delta = moved(step->delta, batch, head, sizeof(float));
    out.dq = moved(step->dq, batch, head, bytes);
    out.dk = moved(step->dk, batch, kv_head, bytes);
    out.dv = moved(step->dv, batch, kv_head, bytes);
    if (t->bias) out.terms.bias = (const char *)t->bias + bias * (t->bias_mask ? 1 : 4);
    return out;
}

/* Does dq stay in the workspace from one step of this call to the next? */
static bool call_keeps_dq(const struct ra__sm90_program *p, const struct ra__call *call)
{
    bool kept = p->first_gradient >= 0;
    for (int i = 0; kept && i < p->program->step_count; i++) kept = step_fits(p, call, i);
    return kept;
}

int ra__sm90_writes_queries(const void *schedule, const struct ra__call *call)
{
    const struct ra__sm90_program *p = schedule;
    const struct ra__side *caller = &p->program->caller;
    return p->finishes_dq && call_keeps_dq(p, call) &&
           tensor_fits(call, caller->dq, caller->queries, caller->shape.q_heads,
                       caller->shape.batch);
}

/* What a GRADIENT step does to dq besides adding to it. */
struct dq_span {
    bool starts, ends; /* the workspace is set up; dq leaves it */
    bool result;       /* as the caller wants it; otherwise as a sum */
    int rows;          /* queries that have dq */
};

static struct dq_span span_of(const struct ra__sm90_program *p, const struct ra__call *call,
                              int index, const struct ra__sm90_work *work)
{
    if (!call_keeps_dq(p, call)) return (struct dq_span){ true, true, work->direct, work->q_rows };
    return (struct dq_span){ index == p->first_gradient, index == p->last_gradient,
                             ra__sm90_writes_queries(p, call), (int)p->program->work.queries };
}

static struct ra__sm90_ends ends_of(const struct ra__cuda_step *step,
                                    const struct ra__sm90_work *work, struct dq_span span,
                                    const struct ra__sm90_scratch *scratch)
{
    struct ra__sm90_ends ends = { .dim = step->dim,
                                  .block_queries = work->shape.block_keys,
                                  .batch = step->batch,
                                  .heads = step->q_heads,
                                  .rows = span.rows,
                                  .padded_rows = work->padded_rows,
                                  .scale = step->scale,
                                  .lse = step->lse,
                                  .delta = step->delta,
                                  .dq = step->dq,
                                  .dq_dtype = span.result ? step->dtype : RA__CUDA_F32,
                                  .lse2 = scratch->lse2,
                                  .own_delta = scratch->delta,
                                  .dq_sum = scratch->dq_sum,
                                  .clears = !work->sets_dq,
                                  .block_views = work->block_views };
    memcpy(ends.views, work->views, sizeof ends.views);
    memcpy(ends.view_starts, work->view_starts, sizeof ends.view_starts);
    return ends;
}

/* A GRADIENT step, or of it one KV head of a batch item. */
struct gradient {
    const struct ra__sm90_work *work;
    int index, extras;
    struct dq_span span;
};

static int launch_gradient(const struct ra__sm90_program *p, const struct gradient *gradient,
                           const struct ra__cuda_step *step, void *stream)
{
    const struct ra__sm90_work *work = gradient->work;
    const struct dq_span span = gradient->span;
    const struct ra__sm90_scratch scratch = ra__sm90_scratch_of(work, &p->program->work.shape,
                                                                p->scratch);
    const struct ra__sm90_needs needs = needs_of(work, gradient->extras);
    const struct ra__sm90_ends ends = ends_of(step, work, span, &scratch);
    const int kv_heads = work->one_head ? 1 : step->kv_heads;
    struct ra__sm90_backward args = {
        .q = tensor_of(&step->q, work->q_rows, step->q_heads, step->batch, step->dim),
        .k = tensor_of(&step->k, work->k_rows, kv_heads, step->batch, step->dim),
        .v = tensor_of(&step->v, work->k_rows, kv_heads, step->batch, step->dim),
        .dout = tensor_of(&step->dout, work->q_rows, step->q_heads, step->batch, step->dim),
        .dk = tensor_of(&step->dk, work->k_rows, kv_heads, step->batch, step->dim),
        .dv = tensor_of(&step->dv, work->k_rows, kv_heads, step->batch, step->dim),
        .scale = step->scale,
        .items = work->schedule.items,
        .runs = work->schedule.runs,
        .merges = work->schedule.merges,
        .queues = work->schedule.queues,
        .clusters = work->schedule.clusters,
        .merge_count = work->schedule.merge_count,
        .padded_rows = work->padded_rows,
        .lse2 = scratch.lse2,
        .delta = scratch.delta,
        .dq_sum = scratch.dq_sum,
        .parts = scratch.parts,
        .ranks = work->ranks,
        .rank_starts = work->rank_starts,
        .turns = scratch.turns,
        .fresh = span.starts && work->sets_dq,
        .terms = terms_of(step, &p->steps[gradient->index]),
        .dk_sum = column_of(&step->dk),
        .dv_sum = column_of(&step->dv),
        .flags = 0, /* what comes before and after is in bridge_ends.cu */
        .item_flags = p->steps[gradient->index].partner >= 0 ? RA__SM90_FIRST : 0,
    };
    memcpy(args.views, work->views, sizeof args.views);
    memcpy(args.view_starts, work->view_starts, sizeof args.view_starts);
    int error = span.starts ? ra__sm90_start_gradient(&ends, stream) : 0;
    if (!error) error = ra__sm90_backward_launch(&args, &needs, stream);
    if (!error && span.ends) error = ra__sm90_end_gradient(&ends, stream);
    return error;
}

static struct ra__cuda_tensor result_of(const struct ra__call *call, enum ra__buffer buffer)
{
    const struct ra__location *at = &call->at[buffer];
    return (struct ra__cuda_tensor){ at->data, at->storage.batch_stride, at->storage.token_stride,
                                     at->storage.head_stride };
}

/* The same step with results of the call in place of sums: of dq alone, or of dq, dk and dv. */
static struct ra__cuda_step step_with_results(const struct ra__sm90_program *p,
                                              const struct ra__call *call,
                                              const struct gradient *gradient,
                                              const struct ra__cuda_step *step)
{
    const struct ra__side *caller = &p->program->caller;
    struct ra__cuda_step out = *step;
    if (gradient->span.result) out.dq = result_of(call, caller->dq);
    if (!gradient->work->direct) return out;
    out.dk = result_of(call, caller->dk);
    out.dv = result_of(call, caller->dv);
    return out;
}

static int gradient(const struct ra__sm90_program *p, int index, const struct ra__call *call,
                    const struct ra__cuda_step *given, void *stream)
{
    const struct ra__sm90_work *work = &p->works[p->steps[index].work];
    const struct gradient gradient = { work, index, extras_of(p, call),
                                       span_of(p, call, index, work) };
    const struct ra__cuda_step step = step_with_results(p, call, &gradient, given);
    if (work->k_rows == 0) return 0; /* nobody sees anything */
    if (!work->by_head) return launch_gradient(p, &gradient, &step, stream);
    for (int i = 0; i < step.batch * step.kv_heads; i++) {
        const struct ra__cuda_step one = step_of_head(&step, i / step.kv_heads, i % step.kv_heads,
                                                      work->direct ? 2 : sizeof(float));
        const int error = launch_gradient(p, &gradient, &one, stream);
        if (error) return error;
    }
    return 0;
}

int ra__sm90_run(const void *schedule, int index, const struct ra__call *call,
                 const struct ra__cuda_step *step, void *stream)
{
    const struct ra__sm90_program *p = schedule;
    if (p->program->steps[index].op == RA__OP_GATHER) { /* of sums, which it may do without */
        const int user = p->direct >= 0 ? p->direct : p->steps[index].partner;
        return user >= 0 && call_fits(p, call, user) ? 0 : RA__CUDA_NOT_TAKEN;
    }
    if (!p->steps[index].taken || !call_fits(p, call, index)) return RA__CUDA_NOT_TAKEN;
    if (!step->q.data) return RA__CUDA_NOT_TAKEN; /* no row of it sees a key: q was not loaded */
    return p->program->direction == RA__FORWARD ? attend(p, index, call, step, stream)
                                                : gradient(p, index, call, step, stream);
}
