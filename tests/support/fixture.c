/* SPDX-License-Identifier: Apache-2.0 */
/* fixture.c - runs one trial through the public API over a group in this process. */
#include "support/fixture.h"

#include <stdlib.h>

#include "harness/base/half.h"
#include "harness/problem/order.h"
#include "harness/problem/sequences.h"

enum { POISON = 0xff }; /* a NaN in every dtype */

/* ---- Failing --------------------------------------------------------------------------------- */

void fixture_fail(const struct fixture *fixture, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    print_error("%s\n  ringattn verify \"%s\"%s\n", text, fixture->line,
                fixture->custom ? "   (with a layout of the test's own)" : "");
    fail();
}

static void require(const struct fixture *fixture, ra_status status, const char *what)
{
    if (status != RA_OK)
        fixture_fail(fixture, "%s: %s: %s", what, ra_status_name(status), ra_last_error());
}

static void *need_memory(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

static bool has_tensor(const struct fixture *fixture, enum tensor tensor)
{
    return fixture->trial.backward || !tensor_is_backward(tensor);
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* The tensor in global order, packed; inputs filled, outputs poisoned. */
static void open_whole(struct fixture *fixture, enum tensor tensor)
{
    struct trial packed = fixture->trial;
    packed.strides = STRIDES_PACKED;
    size_t bytes;
    int64_t length = tensor_length(&fixture->trial, tensor);
    struct view *view = &fixture->whole[tensor];
    assert_true(view_shape(&packed, tensor, length, view, &bytes));
    view->data = need_memory(bytes);
    memset(view->data, POISON, bytes);
    ra_run all = { 0, 1, length };
    if (tensor <= TENSOR_DLSE)
        assert_int_equal(data_fill(&packed, tensor, &(struct shard){ &all, 1, NULL }, view), 0);
}

static void open_order(struct fixture *fixture)
{
    assert_int_equal(order_open(&fixture->trial, &fixture->order), 0);
    if (!fixture->order) return;
    fixture->origin = need_memory((size_t)fixture->trial.k_len * sizeof *fixture->origin);
    assert_ok(ra_order_positions(fixture->order, fixture->origin));
}

void fixture_open(struct fixture *fixture, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert_true(length >= 0 && (size_t)length < sizeof text);
    *fixture = (struct fixture){ .custom = false };
    if (trial_parse(&fixture->trial, text)) fail_msg("not a problem: %s", text);
    fixture->line = trial_format(&fixture->trial);
    assert_non_null(fixture->line);
    assert_ok(ra_pattern_parse(fixture->trial.pattern ? fixture->trial.pattern : "full",
                               &fixture->pattern));
    assert_int_equal(terms_open(&fixture->terms, &fixture->trial), 0);
    open_order(fixture);
    for (int i = 0; i < TENSOR_COUNT; i++)
        if (has_tensor(fixture, i)) open_whole(fixture, i);
}

void fixture_use_layouts(struct fixture *fixture, ra_layout *queries, ra_layout *keys)
{
    fixture->layouts[0] = queries;
    fixture->layouts[1] = keys;
    fixture->custom = true;
}

/* ---- Shards ---------------------------------------------------------------------------------- */

static void find_positions(struct fixture *fixture, int rank, int side)
{
    struct fixture_rank *r = &fixture->rank[rank];
    const ra_layout *layout = side && fixture->layouts[1] ? fixture->layouts[1]
                                                          : fixture->layouts[0];
    int64_t run_count = ra_layout_runs(layout, rank, NULL, 0), row = 0;
    ra_run *runs = need_memory((size_t)run_count * sizeof *runs);
    ra_layout_runs(layout, rank, runs, run_count);
    r->counts[side] = ra_layout_count(layout, rank);
    r->positions[side] = need_memory((size_t)r->counts[side] * sizeof **r->positions);
    for (int64_t i = 0; i < run_count; i++)
        for (int64_t j = 0; j < runs[i].count; j++) {
            int64_t index = runs[i].start + j * runs[i].step;
            r->positions[side][row++] = fixture->origin ? fixture->origin[index] : index;
        }
    assert_int_equal(row, r->counts[side]);
    free(runs);
}

/* Between a shard and global order, row by row. */
static void copy_rows(struct fixture *fixture, struct fixture_rank *r, enum tensor tensor,
                      bool to_shard)
{
    const struct view *shard = &r->shards[tensor], *whole = &fixture->whole[tensor];
    int side = tensor_of_keys(tensor);
    size_t bytes = (size_t)shard->dim * half_bytes(shard->dtype);
    for (int64_t b = 0; b < fixture->trial.batch; b++)
        for (int64_t i = 0; i < r->counts[side]; i++)
            for (int64_t h = 0; h < tensor_heads(&fixture->trial, tensor); h++) {
                char *here = view_row(shard, b, i, h);
                char *there = view_row(whole, b, r->positions[side][i], h);
                if (to_shard) memcpy(here, there, bytes);
                else memcpy(there, here, bytes);
            }
}

static void open_shards(struct fixture *fixture, int rank)
{
    struct fixture_rank *r = &fixture->rank[rank];
    for (int side = 0; side < 2; side++) find_positions(fixture, rank, side);
    r->dsinks = need_memory((size_t)fixture->trial.q_heads * sizeof *r->dsinks);
    if (fixture->terms.bias)
        assert_int_equal(terms_rows(&fixture->terms, r->positions[0], r->counts[0], &r->bias), 0);
    for (int i = 0; i < TENSOR_COUNT; i++) {
        if (!has_tensor(fixture, i)) continue;
        assert_true(view_shape(&fixture->trial, i, r->counts[tensor_of_keys(i)], &r->shards[i],
                               &r->shard_bytes[i]));
        r->shards[i].data = need_memory(r->shard_bytes[i]);
        memset(r->shards[i].data, POISON, r->shard_bytes[i]);
        if (i <= TENSOR_DLSE) copy_rows(fixture, r, i, true);
    }
}

/* Poisons the rows of an output once more: then nothing but poison may be left. */
static void check_gaps(struct fixture *fixture, struct fixture_rank *r, enum tensor tensor)
{
    const struct view *shard = &r->shards[tensor];
    for (int64_t b = 0; b < fixture->trial.batch; b++)
        for (int64_t i = 0; i < r->counts[tensor_of_keys(tensor)]; i++)
            for (int64_t h = 0; h < tensor_heads(&fixture->trial, tensor); h++)
                memset(view_row(shard, b, i, h), POISON,
                       (size_t)shard->dim * half_bytes(shard->dtype));
    for (size_t i = 0; i < r->shard_bytes[tensor]; i++)
        if ((unsigned char)shard->data[i] != POISON)
            fixture_fail(fixture, "%s: something was written between its rows",
                         tensor_name(tensor));
}

/* Inputs belong to the caller: not a bit of them may have changed. */
static void check_inputs(struct fixture *fixture, struct fixture_rank *r, enum tensor tensor)
{
    const struct view *shard = &r->shards[tensor], *whole = &fixture->whole[tensor];
    int side = tensor_of_keys(tensor);
    for (int64_t b = 0; b < fixture->trial.batch; b++)
        for (int64_t i = 0; i < r->counts[side]; i++)
            for (int64_t h = 0; h < tensor_heads(&fixture->trial, tensor); h++)
                if (memcmp(view_row(shard, b, i, h), view_row(whole, b, r->positions[side][i], h),
                           (size_t)shard->dim * half_bytes(shard->dtype)))
                    fixture_fail(fixture, "%s: the input was changed", tensor_name(tensor));
}

/* ---- Starting -------------------------------------------------------------------------------- */

static void open_layouts(struct fixture *fixture)
{
    const struct trial *t = &fixture->trial;
    for (int side = 0; side < 2 && !fixture->custom; side++) {
        if (fixture->layouts[side]) continue;
        require(fixture,
                sequences_layout(t, fixture->pattern, (int)t->ranks, side == 1,
                                 &fixture->layouts[side]),
                "layout");
    }
}

static ra_status make_plan(ra_group *group, void *context)
{
    struct fixture *fixture = context;
    const struct trial *t = &fixture->trial;
    struct fixture_rank *r = &fixture->rank[ra_group_rank(group)];
    ra_problem problem = trial_problem(t);
    ra_machine machine = trial_machine(t);
    problem.pattern = fixture->pattern;
    problem.order = fixture->order;
    ra_plan_options options = ra_plan_options_default();
    options.strategy = t->strategy;
    options.bias = t->bias != NULL;
    options.machine = &machine;
    options.kernel = *t->kernel ? t->kernel : NULL;
    options.backward = t->backward;
    if (fixture->custom) {
        options.layout = fixture->layouts[0];
        options.kv_layout = fixture->layouts[1];
    } else {
        options.partition = t->partition;
    }
    ra_status status = ra_plan_create(group, &problem, &options, &r->plan);
    r->memory = ra_memory_default();
    return status == RA_OK ? ra_plan_memory(r->plan, &r->memory) : status;
}

static void open_group(struct fixture *fixture)
{
    int ranks = (int)fixture->trial.ranks;
    ra_group_options options = ra_group_options_default();
    options.threads = (int)fixture->trial.threads;
    options.pool_threshold = fixture->pool_threshold;
    if (fixture->host) {
        assert_int_equal(fixture->host->trial.ranks, ranks);
        fixture->groups = fixture->host->groups;
        return;
    }
    fixture->groups = calloc((size_t)ranks, sizeof *fixture->groups);
    assert_non_null(fixture->groups);
    require(fixture, ra_group_create(fixture->trial.transport, ranks, &options, fixture->groups),
            "group");
    if (fixture->regroup) fixture->regroup(fixture->groups, ranks);
}

void fixture_start(struct fixture *fixture)
{
    int ranks = (int)fixture->trial.ranks;
    open_layouts(fixture);
    fixture->rank = calloc((size_t)ranks, sizeof *fixture->rank);
    assert_non_null(fixture->rank);
    open_group(fixture);
    require(fixture, ra_group_run(fixture->groups, ranks, make_plan, fixture), "plan");
    for (int rank = 0; rank < ranks; rank++) {
        open_shards(fixture, rank);
        if (ra_plan_q_count(fixture->rank[rank].plan) != fixture->rank[rank].counts[0] ||
            ra_plan_k_count(fixture->rank[rank].plan) != fixture->rank[rank].counts[1])
            fixture_fail(fixture, "rank %d: the plan counts other positions than the layout", rank);
    }
}

/* ---- Running --------------------------------------------------------------------------------- */

static ra_status run_forward(ra_group *group, void *context)
{
    struct fixture *fixture = context;
    struct fixture_rank *r = &fixture->rank[ra_group_rank(group)];
    ra_attend_args args = ra_attend_args_default();
    args.q = view_input(&r->shards[TENSOR_Q]);
    args.k = view_input(&r->shards[TENSOR_K]);
    args.v = view_input(&r->shards[TENSOR_V]);
    args.out = view_tensor(&r->shards[TENSOR_OUT]);
    args.lse = fixture->no_lse ? NULL : (float *)(void *)r->shards[TENSOR_LSE].data;
    args.bias = terms_view(&fixture->terms, r->bias, r->counts[0]);
    args.sinks = fixture->terms.sinks;
    args.dropout_seed = (uint64_t)fixture->trial.seed;
    r->forward = ra_stats_default();
    ra_status status = ra_attend(r->plan, &args);
    return status == RA_OK ? ra_plan_stats(r->plan, &r->forward) : status;
}

static ra_status run_backward(ra_group *group, void *context)
{
    struct fixture *fixture = context;
    struct fixture_rank *r = &fixture->rank[ra_group_rank(group)];
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
    args.bias = terms_view(&fixture->terms, r->bias, r->counts[0]);
    args.sinks = fixture->terms.sinks;
    args.dropout_seed = (uint64_t)fixture->trial.seed;
    if (fixture->terms.sinks) args.dsinks = r->dsinks;
    r->backward = ra_stats_default();
    ra_status status = ra_gradient(r->plan, &args);
    return status == RA_OK ? ra_plan_stats(r->plan, &r->backward) : status;
}

/* What was counted is what was forecast, and what one rank sends another receives. */
static void check_stats(struct fixture *fixture, bool backward)
{
    int64_t sent = 0, received = 0;
    for (int rank = 0; rank < fixture->trial.ranks; rank++) {
        struct fixture_rank *r = &fixture->rank[rank];
        const ra_stats *got = backward ? &r->backward : &r->forward;
        ra_stats want = ra_stats_default();
        require(fixture, ra_plan_forecast(r->plan, backward, &want), "forecast");
        if (got->hops != want.hops || got->bytes_sent != want.bytes_sent ||
            got->pairs != want.pairs || got->bytes_received != want.bytes_received ||
            got->flops != want.flops)
            fixture_fail(
                fixture,
                "rank %d counted %lld hops, %lld bytes, %lld pairs; forecast %lld, %lld, %lld",
                rank, (long long)got->hops, (long long)got->bytes_sent, (long long)got->pairs,
                (long long)want.hops, (long long)want.bytes_sent, (long long)want.pairs);
        if (got->seconds < 0 || got->wait_seconds < 0 || got->wait_seconds > got->seconds)
            fixture_fail(fixture, "rank %d: waited %g of %g seconds", rank, got->wait_seconds,
                         got->seconds);
        sent += got->bytes_sent;
        received += got->bytes_received;
    }
    if (sent != received)
        fixture_fail(fixture, "%lld bytes sent, %lld received", (long long)sent,
                     (long long)received);
}

static void run(struct fixture *fixture, ra_rank_fn body, enum tensor first, enum tensor last)
{
    int ranks = (int)fixture->trial.ranks;
    require(fixture, ra_group_run(fixture->groups, ranks, body, fixture), "run");
    check_stats(fixture, body == run_backward);
    for (int rank = 0; rank < ranks; rank++)
        for (enum tensor t = first; t <= last; t++)
            copy_rows(fixture, &fixture->rank[rank], t, false);
}

ra_status lab_try(struct fixture *fixture)
{
    const int ranks = (int)fixture->trial.ranks;
    ra_status status = ra_group_run(fixture->groups, ranks, run_forward, fixture);
    if (status != RA_OK || !fixture->trial.backward) return status;
    return ra_group_run(fixture->groups, ranks, run_backward, fixture);
}

void fixture_forward(struct fixture *fixture) { run(fixture, run_forward, TENSOR_OUT, TENSOR_LSE); }

void fixture_backward(struct fixture *fixture)
{
    size_t heads = (size_t)fixture->trial.q_heads;
    run(fixture, run_backward, TENSOR_DQ, TENSOR_DV);
    if (!fixture->terms.sinks) return;
    free(fixture->dsinks);
    fixture->dsinks = need_memory(heads * sizeof *fixture->dsinks);
    memset(fixture->dsinks, 0, heads * sizeof *fixture->dsinks);
    for (int rank = 0; rank < fixture->trial.ranks; rank++)
        for (size_t h = 0; h < heads; h++) fixture->dsinks[h] += fixture->rank[rank].dsinks[h];
}

/* ---- Stopping -------------------------------------------------------------------------------- */

static void stop_rank(struct fixture *fixture, struct fixture_rank *r)
{
    ra_plan_destroy(r->plan);
    r->plan = NULL;
    for (int i = 0; i < TENSOR_COUNT; i++) {
        if (!r->shards[i].data) continue;
        if (i <= TENSOR_DLSE) check_inputs(fixture, r, i);
        else check_gaps(fixture, r, i);
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

void fixture_stop(struct fixture *fixture)
{
    if (!fixture->groups) return;
    for (int rank = 0; rank < fixture->trial.ranks; rank++)
        stop_rank(fixture, &fixture->rank[rank]);
    for (int rank = 0; rank < fixture->trial.ranks && !fixture->host; rank++)
        ra_group_destroy(fixture->groups[rank]);
    if (!fixture->host) free(fixture->groups);
    fixture->groups = NULL;
}

void fixture_close(struct fixture *fixture)
{
    fixture_stop(fixture);
    free(fixture->rank);
    for (int side = 0; side < 2; side++) ra_layout_destroy(fixture->layouts[side]);
    for (int i = 0; i < TENSOR_COUNT; i++) free(fixture->whole[i].data);
    ra_pattern_destroy(fixture->pattern);
    ra_order_destroy(fixture->order);
    free(fixture->origin);
    free(fixture->dsinks);
    terms_close(&fixture->terms);
    trial_clear(&fixture->trial);
    free(fixture->line);
    *fixture = (struct fixture){ .custom = false };
}

void fixture_run(struct fixture *fixture)
{
    fixture_start(fixture);
    fixture_forward(fixture);
    if (fixture->trial.backward) fixture_backward(fixture);
    fixture_stop(fixture);
}

/* ---- Looking --------------------------------------------------------------------------------- */

double fixture_number(const struct fixture *fixture, enum tensor tensor, int64_t batch,
                      int64_t position, int64_t head, int64_t d)
{
    const struct view *view = &fixture->whole[tensor];
    float number;
    const char *row = view_row(view, batch, position, head);
    half_to_float(view->dtype, row + (size_t)d * half_bytes(view->dtype), 1, &number);
    return (double)number;
}

int64_t fixture_count(const struct fixture *fixture, enum tensor tensor)
{
    const struct trial *t = &fixture->trial;
    return t->batch * tensor_length(t, tensor) * tensor_heads(t, tensor) * tensor_dim(t, tensor);
}

size_t fixture_bytes(const struct fixture *fixture, enum tensor tensor)
{
    return (size_t)fixture_count(fixture, tensor) * half_bytes(fixture->whole[tensor].dtype);
}

bool fixture_same(const struct fixture *a, const struct fixture *b, enum tensor tensor)
{
    return fixture_bytes(a, tensor) == fixture_bytes(b, tensor) &&
           !memcmp(a->whole[tensor].data, b->whole[tensor].data, fixture_bytes(a, tensor));
}
