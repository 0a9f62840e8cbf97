/* SPDX-License-Identifier: Apache-2.0 */
/* issue.c - one step: where its numbers are, and the launches of it. */
#include <string.h>

#include "backend/cuda/cuda.h"

/* ---- Where things are ------------------------------------------------------------------------ */

static struct ra__cuda_tensor tensor_in(const struct ra__cuda_running *run, enum ra__buffer buffer)
{
    const struct ra__location *place = &run->launch->call->at[buffer];
    const struct ra__storage *s = &place->storage;
    return (struct ra__cuda_tensor){ place->data, s->batch_stride, s->token_stride,
                                     s->one_head ? 0 : s->head_stride };
}

/* The same from a number of each token and head on. */
static struct ra__cuda_tensor tensor_from(const struct ra__cuda_running *run,
                                          enum ra__buffer buffer, int number)
{
    struct ra__cuda_tensor tensor = tensor_in(run, buffer);
    const ra_dtype dtype = run->launch->call->at[buffer].storage.dtype;
    if (tensor.data) tensor.data = (char *)tensor.data + (size_t)number * ra__dtype_bytes(dtype);
    return tensor;
}

/* ---- Score terms ----------------------------------------------------------------------------- */

static ra_status set_terms(const struct ra__cuda_running *run, cudaStream_t stream,
                           struct ra__cuda_terms *terms)
{
    const struct ra__call *call = run->launch->call;
    const struct ra__terms *given = &call->terms;
    const struct ra__cuda_plan *plan = run->plan;
    *terms = (struct ra__cuda_terms){ .any = 0 };
    RA__TRY(ra__cuda_set_bias(run, stream, terms));
    if (!call->has_terms) return RA_OK;
    const size_t heads = (size_t)run->program->program->caller.shape.q_heads;
    /* Sinks end a row and leave its scores alone. */
    terms->any = terms->any || given->softcap > 0.0f || given->alibi || given->dropout ||
                 given->origin;
    terms->softcap = given->softcap;
    terms->alibi = plan->alibi;
    terms->dropout = given->dropout;
    terms->kept_scale = given->kept_scale;
    terms->drop_below = given->drop_below;
    terms->seed = given->seed;
    terms->origin = plan->origin;
    terms->see_from = plan->see_from;
    terms->see_to = plan->see_to;
    bool here;
    if (!given->sinks) return RA_OK;
    RA__TRY(ra__cuda_where_is(run->device, given->sinks, "sinks", &here));
    RA__CUDA_TRY(cudaMemcpyAsync(plan->sinks, given->sinks, heads * sizeof(float),
                                 cudaMemcpyDefault, stream));
    terms->sinks = plan->sinks;
    return RA_OK;
}

/* ---- ATTEND, GRADIENT, MERGE ----------------------------------------------------------------- */

static void set_keys(const struct ra__cuda_running *run, const struct ra__side *work,
                     struct ra__cuda_step *out)
{
    const enum ra__buffer from = run->launch->step->from;
    const bool own = from == RA__OWN_KV;
    const enum ra__buffer k = own ? work->k : from;
    const enum ra__buffer v = own ? work->v : ra__values_of(run->program->program, from);
    if (from == RA__NO_BUFFER) return; /* rows without a key */
    out->k = tensor_in(run, k);
    out->v = tensor_from(run, v, k == v ? work->shape.dim : 0);
}

_Static_assert((int)RA__CUDA_RANGES == (int)RA__MOST_RANGES, "the same number on both sides");

static void set_split(const struct ra__cuda_running *run, const struct ra__side *work,
                      struct ra__cuda_step *out)
{
    const struct ra__program *program = run->program->program;
    out->ranges = program->split.ranges;
    out->range_keys = program->split.keys;
    out->split_states = (float *)run->launch->call->at[RA__SPLIT_STATE].data;
    out->split_queries = program->work.queries;
    out->split_rows = work->shape.batch * program->work.queries * work->shape.q_heads;
}

/* Counts of the host that are all the same need no copy: most calls of decoding have such. */
static ra_status set_counts(const struct ra__cuda_running *run, cudaStream_t stream,
                            struct ra__cuda_step *out)
{
    const int64_t *counts = run->launch->call->counts;
    bool here;
    if (!counts) return RA_OK;
    RA__TRY(ra__cuda_where_is(run->device, counts, "counts of keys", &here));
    out->k_len = run->program->program->work.shape.k_len;
    bool same = !here;
    for (int i = 1; i < out->batch && same; i++) same = counts[i] == counts[0];
    if (same) {
        out->missing = out->k_len - ra__min(ra__max(counts[0], 0), out->k_len);
        return RA_OK;
    }
    out->counts = run->plan->counts;
    RA__CUDA_TRY(cudaMemcpyAsync(run->plan->counts, counts, (size_t)out->batch * sizeof *counts,
                                 cudaMemcpyDefault, stream));
    return RA_OK;
}

static ra_status make_step(const struct ra__cuda_running *run, cudaStream_t stream,
                           struct ra__cuda_step *out)
{
    const struct ra__program *program = run->program->program;
    const struct ra__step *step = run->launch->step;
    const struct ra__side *work = ra__work_side(program, step);
    const struct ra__shape *s = &work->shape;
    const struct ra__cuda_step_table *table = &run->program->steps[step - program->steps];
    *out = (struct ra__cuda_step){
        .dtype = (int32_t)s->dtype,
        .batch = (int32_t)s->batch,
        .q_heads = s->q_heads,
        .kv_heads = s->kv_heads,
        .dim = s->dim,
        .value_dim = s->value_dim,
        .first_head = work->first_head,
        .scale = s->scale,
        .rows = run->program->tables.rows,
        .runs = run->program->tables.runs,
        .slots = run->program->tables.slots + table->first_slot,
        .slot_count = table->slot_count,
        .sections = table->sections,
        .tiles = table->tiles,
        .ranges = 1,
        .q = tensor_in(run, work->q),
        .out = tensor_in(run, work->out),
        .lse = tensor_in(run, work->lse),
    };
    set_keys(run, work, out);
    return set_terms(run, stream, &out->terms);
}

/* By a kernel with schedules of its own, or RA__CUDA_NOT_TAKEN. */
static int run_own(const struct ra__cuda_running *run, const struct ra__cuda_step *step,
                   cudaStream_t stream)
{
    const struct ra__launch *launch = run->launch;
    if (!run->program->own) return RA__CUDA_NOT_TAKEN;
    return run->plan->scheduler->run(run->program->own,
                                     (int)(launch->step - run->program->program->steps),
                                     launch->call, step, stream);
}

static bool writes_queries(const struct ra__cuda_running *run)
{
    return run->program->own &&
           run->plan->scheduler->writes_queries(run->program->own, run->launch->call);
}

static ra_status attend(const struct ra__cuda_running *run, struct ra__cuda_queue *queue)
{
    const struct ra__program *program = run->program->program;
    struct ra__cuda_step step;
    RA__TRY(make_step(run, queue->stream, &step));
    set_split(run, ra__work_side(program, run->launch->step), &step);
    step.m = tensor_in(run, RA__STATE_M);
    step.l = tensor_in(run, RA__STATE_L);
    step.acc = tensor_in(run, RA__STATE_ACC);
    if (run->launch->step->op == RA__OP_ATTEND) {
        RA__TRY(set_counts(run, queue->stream, &step));
        const int own = run_own(run, &step, queue->stream);
        if (own != RA__CUDA_NOT_TAKEN) return ra__cuda_check(own, "attend");
        return ra__cuda_check(run->plan->kernel->forward(&step, queue->stream), "attend");
    }
    const struct ra__shape *s = &program->work.shape;
    const struct ra__cuda_tiling tiling = run->plan->kernel->tiling((int)s->dtype, s->dim,
                                                                    s->value_dim);
    return ra__cuda_check(ra__cuda_merge_launch(&step, tiling.tile_rows, queue->stream), "merge");
}

/* By the kernel that reads tables. */
static ra_status run_gradient(const struct ra__cuda_running *run, struct ra__cuda_step out,
                              cudaStream_t stream)
{
    const struct ra__program *program = run->program->program;
    const struct ra__cuda_step_table *table =
        &run->program->steps[run->launch->step - program->steps];
    const struct ra__kernel *kernel = run->plan->kernel;
    if (run->program->writes_keys) {
        out.dk = tensor_in(run, program->caller.dk);
        out.dv = tensor_in(run, program->caller.dv);
        out.writes_keys = 1;
    }
    const bool at_once = program->any_order && kernel->gradient_any_order && !out.terms.any &&
                         out.scale > 0.0f;
    out.parts = run->program->tables.parts;
    if (!at_once) RA__TRY(ra__cuda_check(kernel->gradient_q(&out, stream), "gradient of q"));
    for (int i = 0; i < table->wave_count; i++) {
        const struct ra__cuda_wave *wave = &run->program->waves[table->first_wave + i];
        out.key_tiles = run->program->tables.key_tiles + wave->first;
        out.key_tile_count = wave->count;
        RA__TRY(ra__cuda_check(at_once ? kernel->gradient_any_order(&out, stream)
                                       : kernel->gradient_kv(&out, stream),
                               "gradient of k, v"));
    }
    return RA_OK;
}

static ra_status gradient(const struct ra__cuda_running *run, struct ra__cuda_queue *queue)
{
    const struct ra__step *step = run->launch->step;
    const struct ra__side *work = ra__work_side(run->program->program, step);
    struct ra__cuda_step out;
    RA__TRY(make_step(run, queue->stream, &out));
    out.dout = tensor_in(run, work->dout);
    out.delta = tensor_in(run, work->delta);
    out.dq = tensor_in(run, work->sum_q);
    out.dk = tensor_in(run, step->to);
    out.dv = tensor_from(run, step->to, work->shape.dim);
    const int own = run_own(run, &out, queue->stream);
    RA__TRY(own != RA__CUDA_NOT_TAKEN ? ra__cuda_check(own, "gradient")
                                      : run_gradient(run, out, queue->stream));
    return ra__cuda_add_dbias(run, &out, queue);
}

/* ---- Queries --------------------------------------------------------------------------------- */

static struct ra__cuda_queries queries_of(const struct ra__cuda_running *run)
{
    const struct ra__program *program = run->program->program;
    const struct ra__step *step = run->launch->step;
    const struct ra__side *caller = ra__caller_side(program, step);
    return (struct ra__cuda_queries){
        .dtype = (int32_t)caller->shape.dtype,
        .batch = (int32_t)caller->shape.batch,
        .heads = caller->shape.q_heads,
        .value_dim = caller->shape.value_dim,
        .queries = ra__caller_queries(program, step),
        .out = tensor_in(run, caller->out),
        .dout = tensor_in(run, caller->dout),
        .lse = tensor_in(run, caller->lse),
        .dlse = tensor_in(run, caller->dlse),
        .delta = tensor_in(run, caller->delta),
        .report = run->device->found,
        .sums = run->plan->sink_sums,
        .dsinks = run->plan->dsinks,
        .start = step->window.first == 0,
    };
}

static ra_status delta(const struct ra__cuda_running *run, struct ra__cuda_queue *queue)
{
    const struct ra__cuda_queries queries = queries_of(run);
    RA__TRY(ra__cuda_check(ra__cuda_delta_launch(&queries, queue->stream), "delta"));
    RA__CUDA_TRY(cudaMemcpyAsync(run->device->report, queries.report, sizeof *queries.report,
                                 cudaMemcpyDeviceToHost, queue->stream));
    return RA_OK;
}

static ra_status sinks(const struct ra__cuda_running *run, struct ra__cuda_queue *queue)
{
    const struct ra__call *call = run->launch->call;
    struct ra__cuda_queries queries = queries_of(run);
    const size_t bytes = (size_t)queries.heads * sizeof(float);
    bool here;
    if (!call->terms.sinks || !call->at[RA__DSINKS].data) return RA_OK;
    RA__TRY(ra__cuda_where_is(run->device, call->at[RA__DSINKS].data, "the gradient of the sinks",
                              &here));
    RA__CUDA_TRY(cudaMemcpyAsync(run->plan->sinks, call->terms.sinks, bytes, cudaMemcpyDefault,
                                 queue->stream));
    queries.sinks = run->plan->sinks;
    RA__TRY(ra__cuda_check(ra__cuda_sinks_launch(&queries, queue->stream), "sinks"));
    if (!here) RA__TRY(ra__cuda_host_after_queue(run->device, queue, run->launch->heartbeat));
    RA__CUDA_TRY(cudaMemcpyAsync(call->at[RA__DSINKS].data, run->plan->dsinks, bytes,
                                 cudaMemcpyDefault, queue->stream));
    return RA_OK;
}

/* ---- GATHER ---------------------------------------------------------------------------------- */

static struct ra__cuda_place place_of(const struct ra__location *location)
{
    const struct ra__storage *s = &location->storage;
    return (struct ra__cuda_place){ location->data,  (int32_t)s->dtype, s->message,
                                    s->batch_stride, s->token_stride,   s->head_stride };
}

static ra_status add_place(const struct ra__cuda_running *run, struct ra__cuda_gather *gather,
                           int *count, enum ra__buffer buffer)
{
    if (buffer == RA__NO_BUFFER || gather->place_of[buffer] < *count) return RA_OK;
    if (*count == RA__CUDA_PLACES)
        return ra__cuda_fail(RA_ERR_UNSUPPORTED, "cuda: a step with more than %d buffers",
                             RA__CUDA_PLACES);
    gather->places[*count] = place_of(&run->launch->call->at[buffer]);
    /* Sums that nobody adds to are neither cleared nor finished. */
    if ((buffer == RA__SUM_OWN && run->program->writes_keys) ||
        (buffer == RA__SUM_Q && writes_queries(run)))
        gather->places[*count].data = NULL;
    gather->place_of[buffer] = (uint8_t)(*count)++;
    return RA_OK;
}

static ra_status gather(const struct ra__cuda_running *run, struct ra__cuda_queue *queue)
{
    const int own = run_own(run, NULL, queue->stream);
    if (own != RA__CUDA_NOT_TAKEN) return ra__cuda_check(own, "gather");
    const struct ra__program *program = run->program->program;
    const struct ra__step *step = run->launch->step;
    struct ra__cuda_gather out = { .pieces = run->program->tables.pieces + step->first_piece,
                                   .piece_count = step->piece_count,
                                   .batch = (int32_t)program->work.shape.batch,
                                   .items = run->program->steps[step - program->steps].items };
    int count = 0;
    memset(out.place_of, 0xff, sizeof out.place_of);
    for (int i = 0; i < step->piece_count; i++) {
        const struct ra__piece *piece = &program->pieces[step->first_piece + i];
        RA__TRY(add_place(run, &out, &count, piece->to.buffer));
        RA__TRY(add_place(run, &out, &count, piece->from.buffer));
    }
    return ra__cuda_check(ra__cuda_gather_launch(&out, queue->stream), "gather");
}

/* ---- Issuing --------------------------------------------------------------------------------- */

/* Where ranks share the GPU, what is gathered does not wait in line with attention, and gradients
 * of an uneven ring go by rank. */
static enum ra__cuda_queue_name queue_of(const struct ra__program *program, enum ra__op op)
{
    const bool shared = program->device_ranks > 1;
    if (op == RA__OP_LOAD) return RA__CUDA_LOAD;
    if (op == RA__OP_STORE || (op == RA__OP_GATHER && shared)) return RA__CUDA_STORE;
    if (op == RA__OP_GRADIENT && shared && program->uneven) return RA__CUDA_GRADIENT;
    return RA__CUDA_COMPUTE;
}

/* Messages wait for events of steps. */
bool ra__cuda_has_one_queue(const struct ra__program *program)
{
    for (int i = 0; i < program->step_count; i++) {
        const enum ra__op op = program->steps[i].op;
        if (op == RA__OP_EXCHANGE || queue_of(program, op) != RA__CUDA_COMPUTE) return false;
    }
    return true;
}

static ra_status run_step(const struct ra__cuda_running *run, struct ra__cuda_queue *queue)
{
    const enum ra__op op = run->launch->step->op;
    if (op == RA__OP_LOAD) return ra__cuda_load(run, queue);
    if (op == RA__OP_STORE) return ra__cuda_store(run, queue);
    RA__TRY(ra__cuda_queue_after(queue, run->launch));
    RA__TRY(ra__cuda_begin_dbias(run, queue));
    switch (op) {
    case RA__OP_GATHER: return gather(run, queue);
    case RA__OP_DELTA: return delta(run, queue);
    case RA__OP_SINKS: return sinks(run, queue);
    case RA__OP_MERGE:
    case RA__OP_ATTEND: return attend(run, queue);
    case RA__OP_GRADIENT: return gradient(run, queue);
    default: return ra__cuda_fail(RA_ERR_UNSUPPORTED, "cuda: a step of kind %d", (int)op);
    }
}

/* Its pairs count when it is done, or at once where the caller does not wait for it. */
static void note_pairs(const struct ra__cuda_running *run, const struct ra__event *done)
{
    struct ra__cuda_plan *plan = run->plan;
    const int64_t pairs = run->program->pairs[run->launch->step - run->program->program->steps];
    if (pairs == 0) return;
    if (run->device->caller.follows) {
        plan->pairs += pairs;
        return;
    }
    ra__cuda_collect_pairs(plan);
    if (plan->pending_count == RA__CUDA_PENDING) { /* far ahead: count the oldest early */
        plan->pairs += plan->pending[plan->pending_first].pairs;
        plan->pending_first = (plan->pending_first + 1) % RA__CUDA_PENDING;
        plan->pending_count--;
    }
    const int last = (plan->pending_first + plan->pending_count++) % RA__CUDA_PENDING;
    plan->pending[last] = (struct ra__cuda_pending){ *done, pairs };
}

ra_status ra__cuda_issue(void *device, void *prepared, const struct ra__launch *launch,
                         struct ra__event *done)
{
    struct ra__cuda_plan *plan = prepared;
    const struct ra__cuda_running run = { device, plan, &plan->programs[launch->direction],
                                          launch };
    struct ra__cuda_queue *queue =
        &run.device->queues[queue_of(run.program->program, launch->step->op)];
    const struct ra__cuda_caller *caller = &run.device->caller;
    const struct ra__event none = { NULL, 0 };
    RA__CUDA_VISIT(visit);
    RA__TRY(ra__cuda_enter(device, &visit));
    RA__TRY(run_step(&run, queue));
    *done = none; /* on a stream of the caller each step is after the one before */
    if (!caller->own_compute) RA__TRY(ra__cuda_queue_mark(queue, done));
    note_pairs(&run, done);
    if (launch->step->op == RA__OP_DELTA) run.device->reported = caller->follows ? none : *done;
    return RA_OK;
}
