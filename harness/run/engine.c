/* engine.c - runs a trial through the library, on the ranks of this process. */
#include "engine.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/half.h"
#include "harness/base/machine.h"
#include "harness/problem/order.h"
#include "harness/problem/places.h"
#include "harness/text/progress.h"
#include "shardfile.h"
#include "harness/text/text.h"
#include "harness/world/world.h"

/* ---- Opening --------------------------------------------------------------------------------- */

/* The order, as a handle and as arrays both ways. */
static int open_order(struct engine *engine)
{
    int64_t length = engine->trial->k_len;
    int status = order_open(engine->trial, &engine->order);
    if (status || !engine->order) return status;
    engine->origin = malloc((size_t)length * sizeof *engine->origin);
    if (engine->origin) status = library_failed(ra_order_positions(engine->order, engine->origin));
    if (engine->origin && !status) engine->indices = places_invert(engine->origin, length);
    if (status || engine->indices) return status;
    return fault("out of memory: %" PRId64 " positions", length);
}

static int open_layouts(struct engine *engine)
{
    const struct trial *t = engine->trial;
    const int64_t lengths[2] = { t->q_len, t->k_len };
    ra_status status = ra_pattern_parse(t->pattern ? t->pattern : "full", &engine->pattern);
    for (int side = 0; side < 2 && status == RA_OK; side++)
        status = ra_layout_create(t->partition, lengths[side], engine->ranks, engine->pattern,
                                  &engine->layouts[side]);
    return library_failed(status);
}

/* The ranks of this process must fit into the machine together. */
static int check_machine(const struct engine *engine)
{
    double needed = 0.0, have = (double)machine_memory();
    for (int rank = engine->first; rank < engine->first + engine->count; rank++)
        needed += (double)engine->forecast.rank[rank].memory.total;
    if (needed <= have) return EXIT_PASS;
    return refuse("%d rank%s %.0f bytes (%s) together; this machine has %s", engine->count,
                  engine->count == 1 ? " needs" : "s need", needed, text_bytes(needed).s,
                  text_bytes(have).s);
}

static int open_runs(struct engine *engine, int rank)
{
    struct engine_rank *r = &engine->rank[rank];
    for (int side = 0; side < 2; side++) {
        r->counts[side] = ra_layout_count(engine->layouts[side], rank);
        r->run_counts[side] = ra_layout_runs(engine->layouts[side], rank, NULL, 0);
        r->runs[side] = calloc((size_t)r->run_counts[side] + 1, sizeof *r->runs[side]);
        if (!r->runs[side]) return fault("out of memory: %" PRId64 " runs", r->run_counts[side]);
        ra_layout_runs(engine->layouts[side], rank, r->runs[side], r->run_counts[side]);
    }
    return EXIT_PASS;
}

/* One rank alone has everything in place. */
static bool in_place(const struct engine *engine) { return engine->ranks == 1 && !engine->order; }

/* So it works on the inputs where they are. */
static bool is_borrowed(const struct engine *engine, enum tensor tensor)
{
    return in_place(engine) && engine->setup.inputs && engine->setup.inputs->data[tensor];
}

/* The original position of every query of a rank; NULL if memory ran out. */
static int64_t *list_queries(const struct engine *engine, const struct engine_rank *r)
{
    int64_t *queries = malloc(((size_t)r->counts[0] + 1) * sizeof *queries), count = 0;
    for (int64_t i = 0; queries && i < r->run_counts[0]; i++)
        for (int64_t j = 0; j < r->runs[0][i].count; j++) {
            int64_t index = r->runs[0][i].start + j * r->runs[0][i].step;
            queries[count++] = engine->origin ? engine->origin[index] : index;
        }
    return queries;
}

/* The bias of a rank's queries, and room for the gradient of the sinks. */
static int open_terms(struct engine *engine, int rank)
{
    struct engine_rank *r = &engine->rank[rank];
    const struct terms *terms = &engine->terms;
    r->dsinks = calloc((size_t)engine->trial->q_heads, sizeof *r->dsinks);
    if (!r->dsinks) return fault("out of memory: %" PRId64 " sinks", engine->trial->q_heads);
    if (!terms->bias) return EXIT_PASS;
    r->bias_borrowed = in_place(engine);
    int64_t *queries = r->bias_borrowed ? NULL : list_queries(engine, r);
    if (!r->bias_borrowed && !queries)
        return fault("out of memory: %" PRId64 " queries", r->counts[0]);
    int status = terms_rows(terms, queries, r->counts[0], &r->bias);
    free(queries);
    return status;
}

static int open_shards(struct engine *engine, int rank)
{
    struct engine_rank *r = &engine->rank[rank];
    for (int i = 0; i < TENSOR_COUNT; i++) {
        size_t bytes;
        if (tensor_is_backward(i) && !engine->trial->backward) continue;
        if (!view_shape(engine->trial, i, r->counts[tensor_of_keys(i)], &r->views[i], &bytes))
            return refuse("%s needs more bytes than can be counted", tensor_name(i));
        if (is_borrowed(engine, i)) {
            r->views[i].data = engine->setup.inputs->data[i];
            continue;
        }
        r->owned[i] = machine_tensor(bytes);
        if (!r->owned[i]) return fault("out of memory: %zu bytes for %s", bytes, tensor_name(i));
        r->views[i].data = r->owned[i];
    }
    return EXIT_PASS;
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
    options.context = engine;
    if (engine->setup.trace) options.trace = on_trace;
    ra_status status = engine->joined ? ra_group_join(engine->trial->transport, NULL, &options,
                                                      &engine->groups[engine->first])
                                      : ra_group_create(engine->trial->transport, engine->ranks,
                                                        &options, engine->groups);
    if (status != RA_OK) memset(engine->groups, 0, (size_t)engine->ranks * sizeof *engine->groups);
    return library_failed(status);
}

/* ---- Bodies: what each rank's thread does ---------------------------------------------------- */

/* Between a shard and a whole tensor in original order, both packed, under an order. */
static void copy_ordered(const struct engine *engine, int rank, enum tensor tensor, char *whole,
                         bool to_shard)
{
    const struct engine_rank *r = &engine->rank[rank];
    const struct view *view = &r->views[tensor];
    int side = tensor_of_keys(tensor);
    size_t bytes = (size_t)view->position_stride * half_bytes(view->dtype);
    size_t length = (size_t)tensor_length(engine->trial, tensor);
    for (size_t b = 0; b < (size_t)engine->trial->batch; b++) {
        char *shard = view->data + b * (size_t)r->counts[side] * bytes;
        for (int64_t i = 0; i < r->run_counts[side]; i++)
            for (int64_t j = 0; j < r->runs[side][i].count; j++, shard += bytes) {
                int64_t index = r->runs[side][i].start + j * r->runs[side][i].step;
                char *there = whole + (b * length + (size_t)engine->origin[index]) * bytes;
                if (to_shard) memcpy(shard, there, bytes);
                else memcpy(there, shard, bytes);
            }
    }
}

static ra_status fill_tensor(struct engine *engine, int rank, enum tensor tensor)
{
    struct engine_rank *r = &engine->rank[rank];
    int side = tensor_of_keys(tensor);
    const struct inputs *inputs = engine->setup.inputs;
    if (is_borrowed(engine, tensor)) return RA_OK;
    if (!inputs) {
        struct shard shard = { r->runs[side], r->run_counts[side], engine->origin };
        int status = data_fill_places(engine->trial, tensor, &shard, &r->views[tensor]);
        return status ? ra_transport_error(RA_ERR_MEMORY, "out of memory") : RA_OK;
    }
    if (inputs->files[tensor]) {
        struct shard shard = { r->runs[side], r->run_counts[side], engine->origin };
        return shardfile_read(inputs->files[tensor], engine->trial, tensor, &shard,
                              &r->views[tensor]);
    }
    if (!inputs->data[tensor]) { /* only dlse may be missing: no gradient through the LSE */
        memset(r->views[tensor].data, 0,
               (size_t)(r->views[tensor].batch_stride * engine->trial->batch) *
                   half_bytes(r->views[tensor].dtype));
        return RA_OK;
    }
    if (engine->order) {
        copy_ordered(engine, rank, tensor, inputs->data[tensor], true);
        return RA_OK;
    }
    ra_array array = { inputs->data[tensor], r->views[tensor].data, engine->trial->batch,
                       (size_t)r->views[tensor].position_stride *
                           half_bytes(r->views[tensor].dtype) };
    return ra_layout_take(engine->layouts[side], rank, &array, 1);
}

static ra_status make_plan(struct engine *engine, ra_group *group, struct engine_rank *r)
{
    const struct trial *t = engine->trial;
    ra_problem problem = trial_problem(t);
    ra_machine machine = trial_machine(t);
    problem.pattern = engine->pattern;
    problem.order = engine->order;
    ra_plan_options options = ra_plan_options_default();
    options.strategy = t->strategy;
    options.bias = t->bias != NULL;
    options.machine = &machine;
    options.measured = t->measured;
    options.partition = t->partition;
    options.kernel = *t->kernel ? t->kernel : NULL;
    options.backward = t->backward;
    options.memory = (size_t)engine->setup.memory;
    ra_status status = ra_plan_create(group, &problem, &options, &r->plan);
    if (status == RA_OK) status = ra_plan_memory(r->plan, &r->memory);
    return status;
}

static ra_status body_prepare(ra_group *group, void *context)
{
    struct engine *engine = context;
    int rank = ra_group_rank(group);
    ra_status status = make_plan(engine, group, &engine->rank[rank]);
    for (int i = 0; i <= TENSOR_DLSE && status == RA_OK; i++) {
        if (tensor_is_backward(i) && !engine->trial->backward) continue;
        if (machine_interrupted())
            return ra_transport_error(RA_ERR_ABORTED, machine_interruption());
        status = fill_tensor(engine, rank, i);
    }
    return status;
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
    if (!machine_interrupted()) return 0;
    /* Other processes were not, and hear this reason, not the library's. */
    ra_group_abort(engine->groups[reporter->rank], machine_interruption());
    return 1;
}

static ra_status body_forward(ra_group *group, void *context)
{
    struct engine *engine = context;
    int rank = ra_group_rank(group);
    struct engine_rank *r = &engine->rank[rank];
    struct reporter reporter = { engine, rank };
    ra_attend_args args = ra_attend_args_default();
    args.q = view_input(&r->views[TENSOR_Q]);
    args.k = view_input(&r->views[TENSOR_K]);
    args.v = view_input(&r->views[TENSOR_V]);
    args.out = view_tensor(&r->views[TENSOR_OUT]);
    args.lse = (float *)(void *)r->views[TENSOR_LSE].data;
    args.progress = on_progress;
    args.context = &reporter;
    args.bias = terms_view(&engine->terms, r->bias, r->counts[0]);
    args.sinks = engine->terms.sinks;
    args.dropout_seed = (uint64_t)engine->trial->seed;
    ra_status status = ra_attend(r->plan, &args);
    return status == RA_OK ? ra_plan_stats(r->plan, &r->forward) : status;
}

static ra_status body_backward(ra_group *group, void *context)
{
    struct engine *engine = context;
    int rank = ra_group_rank(group);
    struct engine_rank *r = &engine->rank[rank];
    struct reporter reporter = { engine, rank };
    ra_gradient_args args = ra_gradient_args_default();
    args.q = view_input(&r->views[TENSOR_Q]);
    args.k = view_input(&r->views[TENSOR_K]);
    args.v = view_input(&r->views[TENSOR_V]);
    args.out = view_input(&r->views[TENSOR_OUT]);
    args.lse = (const float *)(void *)r->views[TENSOR_LSE].data;
    args.dout = view_input(&r->views[TENSOR_DOUT]);
    args.dlse = (const float *)(void *)r->views[TENSOR_DLSE].data;
    args.dq = view_tensor(&r->views[TENSOR_DQ]);
    args.dk = view_tensor(&r->views[TENSOR_DK]);
    args.dv = view_tensor(&r->views[TENSOR_DV]);
    args.progress = on_progress;
    args.context = &reporter;
    args.bias = terms_view(&engine->terms, r->bias, r->counts[0]);
    args.sinks = engine->terms.sinks;
    args.dropout_seed = (uint64_t)engine->trial->seed;
    if (engine->terms.sinks) args.dsinks = r->dsinks;
    ra_status status = ra_gradient(r->plan, &args);
    return status == RA_OK ? ra_plan_stats(r->plan, &r->backward) : status;
}

/* Runs a body on every rank of this process; the seconds from the first start to the last end. */
static int run_body(struct engine *engine, ra_rank_fn body, double *seconds)
{
    double start = machine_seconds();
    for (int rank = 0; rank < engine->ranks; rank++) atomic_store(&engine->rank[rank].done, 0);
    ra_status status = ra_group_run(engine->groups + engine->first, engine->count, body, engine);
    *seconds = machine_seconds() - start;
    int interrupted = status != RA_OK ? machine_go_on() : EXIT_PASS;
    return interrupted ? interrupted : library_failed(status);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static int open_ranks(struct engine *engine)
{
    engine->rank = calloc((size_t)engine->ranks, sizeof *engine->rank);
    engine->groups = calloc((size_t)engine->ranks, sizeof *engine->groups);
    if (!engine->rank || !engine->groups) return fault("out of memory: %d ranks", engine->ranks);
    for (int rank = engine->first; rank < engine->first + engine->count; rank++) {
        struct engine_rank *r = &engine->rank[rank];
        r->forward = r->backward = ra_stats_default();
        r->memory = ra_memory_default();
        int status = open_runs(engine, rank);
        if (!status) status = open_shards(engine, rank);
        if (!status) status = open_terms(engine, rank);
        if (status) return status;
    }
    return EXIT_PASS;
}

static int open_dsinks(struct engine *engine)
{
    const struct trial *t = engine->trial;
    if (!engine->terms.sinks || !t->backward) return EXIT_PASS;
    engine->dsinks = calloc((size_t)t->q_heads, sizeof *engine->dsinks);
    return engine->dsinks ? EXIT_PASS : fault("out of memory: %" PRId64 " sinks", t->q_heads);
}

int engine_open(struct engine *engine, const struct engine_setup *setup)
{
    *engine = (struct engine){ .setup = *setup, .trial = setup->trial };
    engine->ranks = (int)setup->trial->ranks;
    engine->joined = world_runs(setup->trial);
    engine->first = engine->joined ? world_rank() : 0;
    engine->count = engine->joined ? 1 : engine->ranks;
    int status = forecast_open(&engine->forecast, setup->trial, setup->memory);
    if (!status) status = check_machine(engine);
    if (!status) status = terms_open(&engine->terms, setup->trial);
    if (!status) status = open_order(engine);
    if (!status) status = open_layouts(engine);
    if (!status) status = open_ranks(engine);
    if (!status) status = open_dsinks(engine);
    if (engine->joined) status = world_agree(status); /* no rank waits for one that does not come */
    if (!status) status = open_groups(engine);
    double seconds;
    if (!status) status = run_body(engine, body_prepare, &seconds);
    if (engine->joined) status = world_agree(status); /* some read their files for longer */
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
    if (!status) status = add_dsinks(engine);
    return status ? status : share_figures(engine, &engine->backward_seconds);
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
    for (int rank = 0; engine->rank && rank < engine->ranks; rank++)
        close_rank(&engine->rank[rank]);
    for (int rank = 0; engine->groups && rank < engine->ranks; rank++)
        ra_group_destroy(engine->groups[rank]);
    free(engine->rank);
    free(engine->groups);
    for (int side = 0; side < 2; side++) ra_layout_destroy(engine->layouts[side]);
    ra_pattern_destroy(engine->pattern);
    ra_order_destroy(engine->order);
    free(engine->origin);
    free(engine->indices);
    free(engine->dsinks);
    terms_close(&engine->terms);
    forecast_close(&engine->forecast);
    *engine = (struct engine){ .ranks = 0 };
}

/* ---- Looking at results ---------------------------------------------------------------------- */

/* The place of an index in a list of runs; -1 if it is not there. */
static int64_t find_in_runs(const ra_run *runs, int64_t count, int64_t index)
{
    int64_t before = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t offset = index - runs[i].start;
        if (offset >= 0 && offset % runs[i].step == 0 && offset / runs[i].step < runs[i].count)
            return before + offset / runs[i].step;
        before += runs[i].count;
    }
    return -1;
}

const struct view *engine_find(const struct engine *engine, enum tensor tensor, int64_t position,
                               int64_t *local)
{
    int side = tensor_of_keys(tensor);
    int64_t index = engine->indices ? engine->indices[position] : position;
    for (int rank = engine->first; rank < engine->first + engine->count; rank++) {
        const struct engine_rank *r = &engine->rank[rank];
        *local = find_in_runs(r->runs[side], r->run_counts[side], index);
        if (*local >= 0) return &r->views[tensor];
    }
    return NULL;
}

void engine_read(const struct engine *engine, enum tensor tensor, int64_t batch, int64_t position,
                 int64_t head, float *to)
{
    int64_t local;
    const struct view *view = engine_find(engine, tensor, position, &local);
    if (view) view_read(view, batch, local, head, to);
    else to[0] = NAN; /* no rank owns it: no check may pass */
}

int engine_gather(const struct engine *engine, enum tensor tensor, const void **data, void **memory)
{
    const struct trial *t = engine->trial;
    struct view view = engine->rank[0].views[tensor];
    int side = tensor_of_keys(tensor);
    size_t position_bytes = (size_t)view.position_stride * half_bytes(view.dtype);
    size_t bytes = position_bytes * (size_t)tensor_length(t, tensor) * (size_t)t->batch;
    *memory = NULL;
    *data = view.data;
    if (in_place(engine)) return EXIT_PASS;
    *memory = malloc(bytes);
    if (!*memory) return fault("out of memory: %zu bytes for %s", bytes, tensor_name(tensor));
    *data = *memory;
    for (int rank = 0; rank < engine->ranks; rank++) {
        if (engine->order) {
            copy_ordered(engine, rank, tensor, *memory, false);
            continue;
        }
        ra_array array = { engine->rank[rank].views[tensor].data, *memory, t->batch,
                           position_bytes };
        ra_status status = ra_layout_give(engine->layouts[side], rank, &array, 1);
        if (status != RA_OK) {
            free(*memory);
            return library_failed(status);
        }
    }
    return EXIT_PASS;
}
