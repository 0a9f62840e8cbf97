/* SPDX-License-Identifier: Apache-2.0 */
/* lab.c - runs one trial through the public API over a group in this process. */
#include "support/lab.h"

#include <stdlib.h>

#include "harness/base/half.h"
#include "harness/problem/order.h"

enum { POISON = 0xff }; /* a NaN in every dtype */

/* ---- Failing --------------------------------------------------------------------------------- */

void lab_fail(const struct lab *lab, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    print_error("%s\n  ringattn verify \"%s\"%s\n", text, lab->line,
                lab->custom ? "   (with a layout of the test's own)" : "");
    fail();
}

static void require(const struct lab *lab, ra_status status, const char *what)
{
    if (status != RA_OK) lab_fail(lab, "%s: %s: %s", what, ra_status_name(status), ra_last_error());
}

static void *need_memory(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

static bool has_tensor(const struct lab *lab, enum tensor tensor)
{
    return lab->trial.backward || !tensor_is_backward(tensor);
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* The tensor in global order, packed; inputs filled, outputs poisoned. */
static void open_whole(struct lab *lab, enum tensor tensor)
{
    struct trial packed = lab->trial;
    packed.strides = STRIDES_PACKED;
    size_t bytes;
    int64_t length = tensor_length(&lab->trial, tensor);
    struct view *view = &lab->whole[tensor];
    assert_true(view_shape(&packed, tensor, length, view, &bytes));
    view->data = need_memory(bytes);
    memset(view->data, POISON, bytes);
    ra_run all = { 0, 1, length };
    if (tensor <= TENSOR_DLSE)
        assert_int_equal(data_fill(&packed, tensor, &(struct shard){ &all, 1, NULL }, view), 0);
}

static void open_order(struct lab *lab)
{
    assert_int_equal(order_open(&lab->trial, &lab->order), 0);
    if (!lab->order) return;
    lab->origin = need_memory((size_t)lab->trial.k_len * sizeof *lab->origin);
    assert_ok(ra_order_positions(lab->order, lab->origin));
}

void lab_open(struct lab *lab, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert_true(length >= 0 && (size_t)length < sizeof text);
    *lab = (struct lab){ .custom = false };
    if (trial_parse(&lab->trial, text)) fail_msg("not a problem: %s", text);
    lab->line = trial_format(&lab->trial);
    assert_non_null(lab->line);
    assert_ok(ra_pattern_parse(lab->trial.pattern ? lab->trial.pattern : "full", &lab->pattern));
    assert_int_equal(terms_open(&lab->terms, &lab->trial), 0);
    open_order(lab);
    for (int i = 0; i < TENSOR_COUNT; i++)
        if (has_tensor(lab, i)) open_whole(lab, i);
}

void lab_use_layouts(struct lab *lab, ra_layout *queries, ra_layout *keys)
{
    lab->layouts[0] = queries;
    lab->layouts[1] = keys;
    lab->custom = true;
}

/* ---- Shards ---------------------------------------------------------------------------------- */

static void find_positions(struct lab *lab, int rank, int side)
{
    struct lab_rank *r = &lab->rank[rank];
    const ra_layout *layout = side && lab->layouts[1] ? lab->layouts[1] : lab->layouts[0];
    int64_t run_count = ra_layout_runs(layout, rank, NULL, 0), row = 0;
    ra_run *runs = need_memory((size_t)run_count * sizeof *runs);
    ra_layout_runs(layout, rank, runs, run_count);
    r->counts[side] = ra_layout_count(layout, rank);
    r->positions[side] = need_memory((size_t)r->counts[side] * sizeof **r->positions);
    for (int64_t i = 0; i < run_count; i++)
        for (int64_t j = 0; j < runs[i].count; j++) {
            int64_t index = runs[i].start + j * runs[i].step;
            r->positions[side][row++] = lab->origin ? lab->origin[index] : index;
        }
    assert_int_equal(row, r->counts[side]);
    free(runs);
}

/* Between a shard and global order, row by row. */
static void copy_rows(struct lab *lab, struct lab_rank *r, enum tensor tensor, bool to_shard)
{
    const struct view *shard = &r->shards[tensor], *whole = &lab->whole[tensor];
    int side = tensor_of_keys(tensor);
    size_t bytes = (size_t)shard->dim * half_bytes(shard->dtype);
    for (int64_t b = 0; b < lab->trial.batch; b++)
        for (int64_t i = 0; i < r->counts[side]; i++)
            for (int64_t h = 0; h < tensor_heads(&lab->trial, tensor); h++) {
                char *here = view_row(shard, b, i, h);
                char *there = view_row(whole, b, r->positions[side][i], h);
                if (to_shard) memcpy(here, there, bytes);
                else memcpy(there, here, bytes);
            }
}

static void open_shards(struct lab *lab, int rank)
{
    struct lab_rank *r = &lab->rank[rank];
    for (int side = 0; side < 2; side++) find_positions(lab, rank, side);
    r->dsinks = need_memory((size_t)lab->trial.q_heads * sizeof *r->dsinks);
    if (lab->terms.bias)
        assert_int_equal(terms_rows(&lab->terms, r->positions[0], r->counts[0], &r->bias), 0);
    for (int i = 0; i < TENSOR_COUNT; i++) {
        if (!has_tensor(lab, i)) continue;
        assert_true(view_shape(&lab->trial, i, r->counts[tensor_of_keys(i)], &r->shards[i],
                               &r->shard_bytes[i]));
        r->shards[i].data = need_memory(r->shard_bytes[i]);
        memset(r->shards[i].data, POISON, r->shard_bytes[i]);
        if (i <= TENSOR_DLSE) copy_rows(lab, r, i, true);
    }
}

/* Poisons the rows of an output once more: then nothing but poison may be left. */
static void check_gaps(struct lab *lab, struct lab_rank *r, enum tensor tensor)
{
    const struct view *shard = &r->shards[tensor];
    for (int64_t b = 0; b < lab->trial.batch; b++)
        for (int64_t i = 0; i < r->counts[tensor_of_keys(tensor)]; i++)
            for (int64_t h = 0; h < tensor_heads(&lab->trial, tensor); h++)
                memset(view_row(shard, b, i, h), POISON,
                       (size_t)shard->dim * half_bytes(shard->dtype));
    for (size_t i = 0; i < r->shard_bytes[tensor]; i++)
        if ((unsigned char)shard->data[i] != POISON)
            lab_fail(lab, "%s: something was written between its rows", tensor_name(tensor));
}

/* Inputs belong to the caller: not a bit of them may have changed. */
static void check_inputs(struct lab *lab, struct lab_rank *r, enum tensor tensor)
{
    const struct view *shard = &r->shards[tensor], *whole = &lab->whole[tensor];
    int side = tensor_of_keys(tensor);
    for (int64_t b = 0; b < lab->trial.batch; b++)
        for (int64_t i = 0; i < r->counts[side]; i++)
            for (int64_t h = 0; h < tensor_heads(&lab->trial, tensor); h++)
                if (memcmp(view_row(shard, b, i, h), view_row(whole, b, r->positions[side][i], h),
                           (size_t)shard->dim * half_bytes(shard->dtype)))
                    lab_fail(lab, "%s: the input was changed", tensor_name(tensor));
}

/* ---- Starting -------------------------------------------------------------------------------- */

static void open_layouts(struct lab *lab)
{
    const struct trial *t = &lab->trial;
    const int64_t lengths[2] = { t->q_len, t->k_len };
    for (int side = 0; side < 2 && !lab->custom; side++) {
        if (lab->layouts[side]) continue;
        require(lab,
                ra_layout_create(t->partition, lengths[side], (int)t->ranks, lab->pattern,
                                 &lab->layouts[side]),
                "layout");
    }
}

static ra_status make_plan(ra_group *group, void *context)
{
    struct lab *lab = context;
    const struct trial *t = &lab->trial;
    struct lab_rank *r = &lab->rank[ra_group_rank(group)];
    ra_problem problem = trial_problem(t);
    ra_machine machine = trial_machine(t);
    problem.pattern = lab->pattern;
    problem.order = lab->order;
    ra_plan_options options = ra_plan_options_default();
    options.strategy = t->strategy;
    options.bias = t->bias != NULL;
    options.machine = &machine;
    options.kernel = *t->kernel ? t->kernel : NULL;
    options.backward = t->backward;
    if (lab->custom) {
        options.layout = lab->layouts[0];
        options.kv_layout = lab->layouts[1];
    } else {
        options.partition = t->partition;
    }
    ra_status status = ra_plan_create(group, &problem, &options, &r->plan);
    r->memory = ra_memory_default();
    return status == RA_OK ? ra_plan_memory(r->plan, &r->memory) : status;
}

static void open_group(struct lab *lab)
{
    int ranks = (int)lab->trial.ranks;
    ra_group_options options = ra_group_options_default();
    options.threads = (int)lab->trial.threads;
    options.pool_threshold = lab->pool_threshold;
    if (lab->host) {
        assert_int_equal(lab->host->trial.ranks, ranks);
        lab->groups = lab->host->groups;
        return;
    }
    lab->groups = calloc((size_t)ranks, sizeof *lab->groups);
    assert_non_null(lab->groups);
    require(lab, ra_group_create(lab->trial.transport, ranks, &options, lab->groups), "group");
    if (lab->regroup) lab->regroup(lab->groups, ranks);
}

void lab_start(struct lab *lab)
{
    int ranks = (int)lab->trial.ranks;
    open_layouts(lab);
    lab->rank = calloc((size_t)ranks, sizeof *lab->rank);
    assert_non_null(lab->rank);
    open_group(lab);
    require(lab, ra_group_run(lab->groups, ranks, make_plan, lab), "plan");
    for (int rank = 0; rank < ranks; rank++) {
        open_shards(lab, rank);
        if (ra_plan_q_count(lab->rank[rank].plan) != lab->rank[rank].counts[0] ||
            ra_plan_k_count(lab->rank[rank].plan) != lab->rank[rank].counts[1])
            lab_fail(lab, "rank %d: the plan counts other positions than the layout", rank);
    }
}

/* ---- Running --------------------------------------------------------------------------------- */

static ra_status run_forward(ra_group *group, void *context)
{
    struct lab *lab = context;
    struct lab_rank *r = &lab->rank[ra_group_rank(group)];
    ra_attend_args args = ra_attend_args_default();
    args.q = view_input(&r->shards[TENSOR_Q]);
    args.k = view_input(&r->shards[TENSOR_K]);
    args.v = view_input(&r->shards[TENSOR_V]);
    args.out = view_tensor(&r->shards[TENSOR_OUT]);
    args.lse = lab->no_lse ? NULL : (float *)(void *)r->shards[TENSOR_LSE].data;
    args.bias = terms_view(&lab->terms, r->bias, r->counts[0]);
    args.sinks = lab->terms.sinks;
    args.dropout_seed = (uint64_t)lab->trial.seed;
    r->forward = ra_stats_default();
    ra_status status = ra_attend(r->plan, &args);
    return status == RA_OK ? ra_plan_stats(r->plan, &r->forward) : status;
}

static ra_status run_backward(ra_group *group, void *context)
{
    struct lab *lab = context;
    struct lab_rank *r = &lab->rank[ra_group_rank(group)];
    ra_gradient_args args = ra_gradient_args_default();
    args.q = view_input(&r->shards[TENSOR_Q]);
    args.k = view_input(&r->shards[TENSOR_K]);
    args.v = view_input(&r->shards[TENSOR_V]);
    args.out = view_input(&r->shards[TENSOR_OUT]);
    args.lse = (const float *)(void *)r->shards[TENSOR_LSE].data;
    args.dout = view_input(&r->shards[TENSOR_DOUT]);
    args.dlse = (const float *)(void *)r->shards[TENSOR_DLSE].data;
    args.dq = view_tensor(&r->shards[TENSOR_DQ]);
    args.dk = view_tensor(&r->shards[TENSOR_DK]);
    args.dv = view_tensor(&r->shards[TENSOR_DV]);
    args.bias = terms_view(&lab->terms, r->bias, r->counts[0]);
    args.sinks = lab->terms.sinks;
    args.dropout_seed = (uint64_t)lab->trial.seed;
    if (lab->terms.sinks) args.dsinks = r->dsinks;
    r->backward = ra_stats_default();
    ra_status status = ra_gradient(r->plan, &args);
    return status == RA_OK ? ra_plan_stats(r->plan, &r->backward) : status;
}

/* What was counted is what was forecast, and what one rank sends another receives. */
static void check_stats(struct lab *lab, bool backward)
{
    int64_t sent = 0, received = 0;
    for (int rank = 0; rank < lab->trial.ranks; rank++) {
        struct lab_rank *r = &lab->rank[rank];
        const ra_stats *got = backward ? &r->backward : &r->forward;
        ra_stats want = ra_stats_default();
        require(lab, ra_plan_forecast(r->plan, backward, &want), "forecast");
        if (got->hops != want.hops || got->bytes_sent != want.bytes_sent ||
            got->pairs != want.pairs || got->bytes_received != want.bytes_received ||
            got->flops != want.flops)
            lab_fail(lab,
                     "rank %d counted %lld hops, %lld bytes, %lld pairs; forecast %lld, %lld, %lld",
                     rank, (long long)got->hops, (long long)got->bytes_sent, (long long)got->pairs,
                     (long long)want.hops, (long long)want.bytes_sent, (long long)want.pairs);
        if (got->seconds < 0 || got->wait_seconds < 0 || got->wait_seconds > got->seconds)
            lab_fail(lab, "rank %d: waited %g of %g seconds", rank, got->wait_seconds,
                     got->seconds);
        sent += got->bytes_sent;
        received += got->bytes_received;
    }
    if (sent != received)
        lab_fail(lab, "%lld bytes sent, %lld received", (long long)sent, (long long)received);
}

static void run(struct lab *lab, ra_rank_fn body, enum tensor first, enum tensor last)
{
    int ranks = (int)lab->trial.ranks;
    require(lab, ra_group_run(lab->groups, ranks, body, lab), "run");
    check_stats(lab, body == run_backward);
    for (int rank = 0; rank < ranks; rank++)
        for (enum tensor t = first; t <= last; t++) copy_rows(lab, &lab->rank[rank], t, false);
}

ra_status lab_try(struct lab *lab)
{
    const int ranks = (int)lab->trial.ranks;
    ra_status status = ra_group_run(lab->groups, ranks, run_forward, lab);
    if (status != RA_OK || !lab->trial.backward) return status;
    return ra_group_run(lab->groups, ranks, run_backward, lab);
}

void lab_forward(struct lab *lab) { run(lab, run_forward, TENSOR_OUT, TENSOR_LSE); }

void lab_backward(struct lab *lab)
{
    size_t heads = (size_t)lab->trial.q_heads;
    run(lab, run_backward, TENSOR_DQ, TENSOR_DV);
    if (!lab->terms.sinks) return;
    free(lab->dsinks);
    lab->dsinks = need_memory(heads * sizeof *lab->dsinks);
    memset(lab->dsinks, 0, heads * sizeof *lab->dsinks);
    for (int rank = 0; rank < lab->trial.ranks; rank++)
        for (size_t h = 0; h < heads; h++) lab->dsinks[h] += lab->rank[rank].dsinks[h];
}

/* ---- Stopping -------------------------------------------------------------------------------- */

static void stop_rank(struct lab *lab, struct lab_rank *r)
{
    ra_plan_destroy(r->plan);
    r->plan = NULL;
    for (int i = 0; i < TENSOR_COUNT; i++) {
        if (!r->shards[i].data) continue;
        if (i <= TENSOR_DLSE) check_inputs(lab, r, i);
        else check_gaps(lab, r, i);
        free(r->shards[i].data);
        r->shards[i].data = NULL;
    }
    for (int side = 0; side < 2; side++) {
        free(r->positions[side]);
        r->positions[side] = NULL;
    }
    free(r->bias);
    free(r->dsinks);
    r->bias = NULL;
    r->dsinks = NULL;
}

void lab_stop(struct lab *lab)
{
    if (!lab->groups) return;
    for (int rank = 0; rank < lab->trial.ranks; rank++) stop_rank(lab, &lab->rank[rank]);
    for (int rank = 0; rank < lab->trial.ranks && !lab->host; rank++)
        ra_group_destroy(lab->groups[rank]);
    if (!lab->host) free(lab->groups);
    lab->groups = NULL;
}

void lab_close(struct lab *lab)
{
    lab_stop(lab);
    free(lab->rank);
    for (int side = 0; side < 2; side++) ra_layout_destroy(lab->layouts[side]);
    for (int i = 0; i < TENSOR_COUNT; i++) free(lab->whole[i].data);
    ra_pattern_destroy(lab->pattern);
    ra_order_destroy(lab->order);
    free(lab->origin);
    free(lab->dsinks);
    terms_close(&lab->terms);
    trial_clear(&lab->trial);
    free(lab->line);
    *lab = (struct lab){ .custom = false };
}

void lab_run(struct lab *lab)
{
    lab_start(lab);
    lab_forward(lab);
    if (lab->trial.backward) lab_backward(lab);
    lab_stop(lab);
}

/* ---- Looking --------------------------------------------------------------------------------- */

double lab_number(const struct lab *lab, enum tensor tensor, int64_t batch, int64_t position,
                  int64_t head, int64_t d)
{
    const struct view *view = &lab->whole[tensor];
    float number;
    const char *row = view_row(view, batch, position, head);
    half_to_float(view->dtype, row + (size_t)d * half_bytes(view->dtype), 1, &number);
    return (double)number;
}

int64_t lab_count(const struct lab *lab, enum tensor tensor)
{
    const struct trial *t = &lab->trial;
    return t->batch * tensor_length(t, tensor) * tensor_heads(t, tensor) * tensor_dim(t, tensor);
}

size_t lab_bytes(const struct lab *lab, enum tensor tensor)
{
    return (size_t)lab_count(lab, tensor) * half_bytes(lab->whole[tensor].dtype);
}

bool lab_same(const struct lab *a, const struct lab *b, enum tensor tensor)
{
    return lab_bytes(a, tensor) == lab_bytes(b, tensor) &&
           !memcmp(a->whole[tensor].data, b->whole[tensor].data, lab_bytes(a, tensor));
}
