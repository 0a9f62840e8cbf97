/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c - runs a trial through the library, on the ranks of this process. */
#include "engine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/interrupt.h"
#include "harness/base/machine.h"
#include "harness/problem/places.h"
#include "harness/problem/sequences.h"
#include "harness/text/progress.h"
#include "resident.h"
#include "shards.h"
#include "harness/text/text.h"
#include "harness/world/world.h"
#include "ringattn_cuda.h"

/* ---- Opening --------------------------------------------------------------------------------- */

/* The order as arrays both ways. */
static int open_order(struct engine *engine)
{
    int64_t length = engine->trial->k_len;
    int status = EXIT_PASS;
    if (!engine->planner.order) return EXIT_PASS;
    engine->origin = malloc((size_t)length * sizeof *engine->origin);
    if (engine->origin)
        status = library_failed(ra_order_positions(engine->planner.order, engine->origin));
    if (engine->origin && !status) engine->indices = places_invert(engine->origin, length);
    if (status || engine->indices) return status;
    return fault("out of memory: %" PRId64 " positions", length);
}

static int open_layouts(struct engine *engine)
{
    ra_status status = RA_OK;
    for (int side = 0; side < 2 && status == RA_OK; side++)
        status = sequences_layout(engine->trial, engine->planner.pattern, engine->ranks, side == 1,
                                  &engine->layouts[side]);
    return library_failed(status);
}

/* The ranks of this process must fit into the machine together. */
static int check_machine(const struct engine *engine, const char *what, double needed)
{
    double have = (double)machine_memory();
    if (needed <= have) return EXIT_PASS;
    return refuse("%s%d rank%s need %.0f bytes (%s) together; this machine has %s", what,
                  engine->count, engine->count == 1 ? "" : "s", needed, text_bytes(needed).s,
                  text_bytes(have).s);
}

/* Tensors alone, before plans take memory to work with: a plan that gets none is a fault. Whether a
 * plan streams is not known yet. */
static int check_tensors(const struct engine *engine)
{
    double needed = 0.0;
    if (planner_may_stream(&engine->planner)) return EXIT_PASS;
    for (int i = 0; i < TENSOR_COUNT; i++) {
        struct view view;
        size_t bytes;
        if (tensor_is_backward(i) && !engine->trial->backward) continue;
        if (!view_shape(engine->trial, i, tensor_length(engine->trial, i), &view, &bytes))
            return EXIT_PASS; /* the library refuses such a problem in its own words */
        needed += (double)bytes * engine->count / engine->ranks;
    }
    return check_machine(engine, "the tensors of ", needed);
}

static int check_plans(const struct engine *engine)
{
    double needed = 0.0;
    for (int rank = engine->first; rank < engine->first + engine->count; rank++)
        needed += (double)engine->forecast.rank[rank].memory.total;
    return check_machine(engine, "the plans and tensors of ", needed);
}

static void on_trace(void *context, const ra_trace_event *event)
{
    const struct engine *engine = context;
    trace_add(engine->setup.trace, event);
}

static int open_groups(struct engine *engine)
{
    ra_group_options options = wire_options(engine->setup.wire);
    options.threads = (int)engine->trial->threads;
    options.device = trial_device(engine->trial);
    options.context = engine;
    options.on_device = engine->setup.resident;
    options.pool_threshold = engine->setup.pool < 0 ? SIZE_MAX : (size_t)engine->setup.pool;
    if (engine->setup.trace) options.trace = on_trace;
    const char *transport = engine->trial->transport;
    ra_status status;
    if (engine->joined)
        status = ra_group_join(transport, NULL, &options, &engine->groups[engine->first]);
    else if (engine->setup.link.bandwidth > 0.0)
        status = link_groups(&engine->setup.link, engine->ranks, &options, engine->groups);
    else status = ra_group_create(transport, engine->ranks, &options, engine->groups);
    if (status != RA_OK) memset(engine->groups, 0, (size_t)engine->ranks * sizeof *engine->groups);
    return library_failed(status);
}

/* ---- Bodies: what each rank's thread does ---------------------------------------------------- */

static ra_status body_fill(ra_group *group, void *context)
{
    struct engine *engine = context;
    int rank = ra_group_rank(group);
    ra_status status = RA_OK;
    for (int i = 0; !engine->streaming && i <= TENSOR_DLSE && status == RA_OK; i++) {
        if (tensor_is_backward(i) && !engine->trial->backward) continue;
        if (interrupt_seen()) return ra_transport_error(RA_ERR_ABORTED, interrupt_name());
        status = shards_fill(engine, rank, i);
    }
    return status == RA_OK && engine->maker ? resident_fill(engine, rank) : status;
}

/* A rank's progress; its context. */
struct reporter {
    struct engine *engine;
    int rank;
};

/* Work done over the ranks of this process and both passes, weighed by FLOPs. */
static double overall(const struct engine *engine)
{
    double done = 0.0, all = 0.0;
    for (int rank = engine->first; rank < engine->first + engine->count; rank++) {
        const struct forecast_rank *f = &engine->forecast.rank[rank];
        double part = (double)atomic_load(&engine->rank[rank].done) * 1e-6;
        done += engine->in_backward ? f->forward.flops + part * f->backward.flops
                                    : part * f->forward.flops;
        all += f->forward.flops + f->backward.flops;
    }
    return all > 0.0 ? done / all : 0.0;
}

static int on_progress(void *context, double done)
{
    const struct reporter *reporter = context;
    struct engine *engine = reporter->engine;
    atomic_store(&engine->rank[reporter->rank].done, (int)(done * 1e6));
    if (!engine->setup.quiet) progress_update(overall(engine));
    if (engine->joined) world_poll(); /* others may be done, and wait for this process there */
    if (!interrupt_seen()) return 0;
    /* Other processes were not, and hear this reason, not the library's. */
    ra_group_abort(engine->groups[reporter->rank], interrupt_name());
    return 1;
}

static ra_const_tensor input_of(const struct engine_rank *r, enum tensor tensor)
{
    return ra_tensor_read(resident_tensor(r, tensor));
}

static ra_attend_args forward_args(const struct engine *engine, struct reporter *reporter)
{
    const struct engine_rank *r = &engine->rank[reporter->rank];
    ra_attend_args args = ra_attend_args_default();
    args.q = input_of(r, TENSOR_Q);
    args.k = input_of(r, TENSOR_K);
    args.v = input_of(r, TENSOR_V);
    args.out = resident_tensor(r, TENSOR_OUT);
    args.lse = (float *)resident_tensor(r, TENSOR_LSE).data;
    args.progress = on_progress;
    args.context = reporter;
    args.bias = terms_view(&engine->terms, r->bias, r->counts[0]);
    args.sinks = engine->terms.sinks;
    args.dropout_seed = (uint64_t)engine->trial->seed;
    return args;
}

static ra_status body_forward(ra_group *group, void *context)
{
    struct engine *engine = context;
    struct reporter reporter = { engine, ra_group_rank(group) };
    struct engine_rank *r = &engine->rank[reporter.rank];
    ra_attend_args args = forward_args(engine, &reporter);
    if (engine->streaming) {
        streaming_begin(engine->streaming);
        args.stream = streaming_callbacks(engine->streaming);
    }
    ra_status status = ra_attend(r->plan, &args);
    return status == RA_OK ? ra_plan_stats(r->plan, &r->forward) : status;
}

static ra_gradient_args backward_args(const struct engine *engine, struct reporter *reporter)
{
    const struct engine_rank *r = &engine->rank[reporter->rank];
    ra_gradient_args args = ra_gradient_args_default();
    args.q = input_of(r, TENSOR_Q);
    args.k = input_of(r, TENSOR_K);
    args.v = input_of(r, TENSOR_V);
    args.out = input_of(r, TENSOR_OUT);
    args.lse = (const float *)input_of(r, TENSOR_LSE).data;
    args.dout = input_of(r, TENSOR_DOUT);
    args.dlse = (const float *)input_of(r, TENSOR_DLSE).data;
    args.dq = resident_tensor(r, TENSOR_DQ);
    args.dk = resident_tensor(r, TENSOR_DK);
    args.dv = resident_tensor(r, TENSOR_DV);
    args.progress = on_progress;
    args.context = reporter;
    args.bias = terms_view(&engine->terms, r->bias, r->counts[0]);
    args.sinks = engine->terms.sinks;
    args.dropout_seed = (uint64_t)engine->trial->seed;
    if (engine->terms.sinks) args.dsinks = r->dsinks;
    return args;
}

static ra_status body_backward(ra_group *group, void *context)
{
    struct engine *engine = context;
    struct reporter reporter = { engine, ra_group_rank(group) };
    struct engine_rank *r = &engine->rank[reporter.rank];
    ra_gradient_args args = backward_args(engine, &reporter);
    if (engine->streaming) args.stream = streaming_callbacks(engine->streaming);
    ra_status status = ra_gradient(r->plan, &args);
    return status == RA_OK ? ra_plan_stats(r->plan, &r->backward) : status;
}

/* Calls of one rank, one after the other. */
struct repeat {
    struct engine *engine;
    bool backward;
    int count;
    double seconds;
};

static ra_status body_repeat(ra_group *group, void *context)
{
    struct repeat *repeat = context;
    const struct engine *engine = repeat->engine;
    struct reporter reporter = { repeat->engine, ra_group_rank(group) };
    const struct engine_rank *r = &engine->rank[reporter.rank];
    ra_attend_args forward = forward_args(engine, &reporter);
    ra_gradient_args backward = backward_args(engine, &reporter);
    ra_status status = RA_OK;
    void *queue = engine->maker && repeat->count > 1 ? ra_cuda_queue(NULL) : NULL;
    forward.queue = backward.queue = queue;
    double start = machine_seconds();
    for (int i = 0; i < repeat->count && status == RA_OK; i++)
        status = repeat->backward ? ra_gradient(r->plan, &backward) : ra_attend(r->plan, &forward);
    if (queue && status == RA_OK) status = resident_wait(engine, reporter.rank, queue);
    repeat->seconds = machine_seconds() - start;
    return status;
}

/* Runs a body on every rank of this process. */
static int run_ranks(struct engine *engine, ra_rank_fn body, void *context)
{
    for (int rank = 0; rank < engine->ranks; rank++) atomic_store(&engine->rank[rank].done, 0);
    ra_status status = ra_group_run(engine->groups + engine->first, engine->count, body, context);
    int interrupted = status != RA_OK ? interrupt_check() : EXIT_PASS;
    return interrupted ? interrupted : library_failed(status);
}

/* The same with the engine; the seconds from the first start to the last end. */
static int run_body(struct engine *engine, ra_rank_fn body, double *seconds)
{
    double start = machine_seconds();
    int status = run_ranks(engine, body, engine);
    *seconds = machine_seconds() - start;
    return status;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static int open_ranks(struct engine *engine)
{
    engine->rank = calloc((size_t)engine->ranks, sizeof *engine->rank);
    engine->groups = calloc((size_t)engine->ranks, sizeof *engine->groups);
    if (!engine->rank || !engine->groups) return fault("out of memory: %d ranks", engine->ranks);
    return forecast_begin(&engine->forecast, engine->ranks);
}

/* Every rank's one plan, which says what the run will need before any tensor is there. */
static int open_plans(struct engine *engine)
{
    int status = EXIT_PASS;
    for (int rank = engine->first; rank < engine->first + engine->count && !status; rank++) {
        struct engine_rank *r = &engine->rank[rank];
        ra_status made = planner_make(&engine->planner, engine->groups[rank], rank, &r->plan);
        if (made == RA_OK)
            made = forecast_take(&engine->forecast, r->plan, rank, engine->trial->backward);
        r->memory = engine->forecast.rank[rank].memory;
        r->forward = r->backward = ra_stats_default();
        status = library_failed(made);
        if (!status) status = interrupt_check();
    }
    return status;
}

int engine_replan(struct engine *engine)
{
    for (int rank = engine->first; rank < engine->first + engine->count; rank++) {
        ra_plan_destroy(engine->rank[rank].plan);
        engine->rank[rank].plan = NULL;
    }
    return open_plans(engine);
}

/* Every process learns what the plans of the others say. */
static int share_forecast(struct engine *engine)
{
    struct forecast_rank mine = engine->forecast.rank[engine->first];
    int status = engine->joined ? world_share(&mine, engine->forecast.rank, sizeof mine)
                                : EXIT_PASS;
    if (!status) forecast_total(&engine->forecast, engine->trial);
    return status;
}

static int open_dsinks(struct engine *engine)
{
    const struct trial *t = engine->trial;
    if (!engine->terms.sinks || !t->backward) return EXIT_PASS;
    engine->dsinks = calloc((size_t)t->q_heads, sizeof *engine->dsinks);
    return engine->dsinks ? EXIT_PASS : fault("out of memory: %" PRId64 " sinks", t->q_heads);
}

/* The one rank of a plan that streams has no tensors. */
static int open_stream(struct engine *engine)
{
    const struct inputs *inputs = engine->setup.inputs;
    const struct streaming_setup setup = { .trial = engine->trial,
                                           .inputs = inputs ? inputs->files : NULL,
                                           .origin = engine->origin,
                                           .indices = engine->indices,
                                           .files = engine->setup.stream,
                                           .plan = engine->rank[0].plan };
    return streaming_open(&engine->streaming, &setup);
}

static int open_shards(struct engine *engine, int rank)
{
    const bool streams = engine->planner.sources && ra_plan_block(engine->rank[rank].plan) > 0;
    int status = shards_runs(engine, rank);
    if (!status) status = streams ? open_stream(engine) : shards_open(engine, rank);
    return status ? status : shards_terms(engine, rank);
}

static int open_tensors(struct engine *engine)
{
    int status = check_plans(engine);
    if (!status) status = terms_open(&engine->terms, engine->trial);
    if (!status) status = open_order(engine);
    if (!status) status = open_layouts(engine);
    for (int rank = engine->first; rank < engine->first + engine->count && !status; rank++)
        status = open_shards(engine, rank);
    if (!status && engine->setup.resident) status = resident_open(engine);
    return status ? status : open_dsinks(engine);
}

/* After a step that may fail on some of the processes. */
static int agree(const struct engine *engine, int status)
{
    return engine->joined ? world_agree(status) : status;
}

int engine_open(struct engine *engine, const struct engine_setup *setup)
{
    *engine = (struct engine){ .setup = *setup, .trial = setup->trial };
    engine->ranks = (int)setup->trial->ranks;
    engine->joined = world_runs(setup->trial);
    engine->first = engine->joined ? world_rank() : 0;
    engine->count = engine->joined ? 1 : engine->ranks;
    int status = planner_open(&engine->planner, setup->trial, setup->memory);
    engine->planner.sources = setup->stream && engine->ranks == 1 && !engine->joined;
    if (!status) status = check_tensors(engine);
    if (!status) status = open_ranks(engine);
    status = agree(engine, status); /* no rank waits for one that does not come */
    if (!status) status = open_groups(engine);
    if (!status) status = open_plans(engine);
    status = agree(engine, status);
    if (!status) status = share_forecast(engine);
    if (!status) status = open_tensors(engine);
    status = agree(engine, status);
    double seconds;
    if (!status) status = run_body(engine, body_fill, &seconds);
    status = agree(engine, status); /* some read their files for longer */
    if (!status) engine->threads = ra_group_threads(engine->groups[engine->first]);
    if (status) engine_close(engine);
    return status;
}

/* What processes tell one another of a pass. */
struct figures {
    ra_stats forward, backward;
    ra_memory memory;
    size_t peak_rss;
    double seconds;
};

/* Every process gets the counts of all ranks, and the time of the slowest. */
static int share_figures(struct engine *engine, double *seconds)
{
    struct engine_rank *r = &engine->rank[engine->first];
    if (!engine->joined) return EXIT_PASS;
    struct figures mine = { r->forward, r->backward, r->memory, machine_peak_rss(), *seconds };
    struct figures *all = malloc((size_t)engine->ranks * sizeof *all);
    if (!all) return fault("out of memory: %d ranks", engine->ranks);
    int status = world_share(&mine, all, sizeof mine);
    for (int rank = 0; rank < engine->ranks && !status; rank++) {
        r = &engine->rank[rank];
        r->forward = all[rank].forward;
        r->backward = all[rank].backward;
        r->memory = all[rank].memory;
        r->peak_rss = all[rank].peak_rss;
        if (all[rank].seconds > *seconds) *seconds = all[rank].seconds;
    }
    free(all);
    return status;
}

int engine_forward(struct engine *engine)
{
    engine->in_backward = false;
    progress_begin("attention", engine->setup.quiet);
    int status = run_body(engine, body_forward, &engine->forward_seconds);
    if (!engine->setup.quiet) progress_end();
    if (!status && engine->maker) status = resident_fetch(engine, false);
    return status ? status : share_figures(engine, &engine->forward_seconds);
}

/* [rank, head]; NULL if memory ran out or another process failed. */
static float *collect_dsinks(const struct engine *engine, int64_t heads)
{
    size_t bytes = (size_t)heads * sizeof(float);
    float *all = malloc((size_t)engine->ranks * bytes);
    if (all && engine->joined && world_share(engine->rank[engine->first].dsinks, all, bytes)) {
        free(all);
        return NULL;
    }
    for (int rank = 0; all && !engine->joined && rank < engine->ranks; rank++)
        memcpy(all + rank * heads, engine->rank[rank].dsinks, bytes);
    return all;
}

/* A sink belongs to all queries, so its gradient is the sum over the ranks. */
static int add_dsinks(struct engine *engine)
{
    int64_t heads = engine->trial->q_heads;
    if (!engine->dsinks) return EXIT_PASS;
    float *all = collect_dsinks(engine, heads);
    if (!all) return fault("the gradients of the sinks could not be collected");
    for (int64_t h = 0; h < heads; h++) {
        double sum = 0.0;
        for (int rank = 0; rank < engine->ranks; rank++) sum += (double)all[rank * heads + h];
        engine->dsinks[h] = (float)sum;
    }
    free(all);
    return EXIT_PASS;
}

int engine_backward(struct engine *engine)
{
    engine->in_backward = true;
    progress_begin("gradient ", engine->setup.quiet);
    int status = run_body(engine, body_backward, &engine->backward_seconds);
    if (!engine->setup.quiet) progress_end();
    if (!status && engine->maker) status = resident_fetch(engine, true);
    if (!status) status = add_dsinks(engine);
    return status ? status : share_figures(engine, &engine->backward_seconds);
}

int engine_repeat(struct engine *engine, bool backward, int count, double *seconds)
{
    struct repeat repeat = { engine, backward, count, 0.0 };
    if (engine->ranks > 1 || engine->streaming)
        return fault("only one rank with its tensors in memory repeats a pass");
    int status = run_ranks(engine, body_repeat, &repeat);
    *seconds = repeat.seconds;
    return status;
}

static void close_rank(struct engine_rank *r)
{
    ra_plan_destroy(r->plan);
    for (int i = 0; i < TENSOR_COUNT; i++) free(r->owned[i]);
    for (int side = 0; side < 2; side++) free(r->runs[side]);
    if (!r->bias_borrowed) free(r->bias);
    free(r->dsinks);
}

void engine_close(struct engine *engine)
{
    streaming_close(engine->streaming);
    resident_close(engine);
    for (int rank = 0; engine->rank && rank < engine->ranks; rank++)
        close_rank(&engine->rank[rank]);
    for (int rank = 0; engine->groups && rank < engine->ranks; rank++)
        ra_group_destroy(engine->groups[rank]);
    free(engine->rank);
    free(engine->groups);
    for (int side = 0; side < 2; side++) ra_layout_destroy(engine->layouts[side]);
    planner_close(&engine->planner);
    free(engine->origin);
    free(engine->indices);
    free(engine->dsinks);
    terms_close(&engine->terms);
    forecast_close(&engine->forecast);
    *engine = (struct engine){ .ranks = 0 };
}
