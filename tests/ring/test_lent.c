/* SPDX-License-Identifier: Apache-2.0 */
/* test_lent.c - ranks of one process that share a device read each other's keys in place. When the
 * call of a rank has returned, its keys are the caller's again: here they become NaN at once, while
 * other ranks may still compute. RINGATTN_TEST_DEVICE names a device; on a CPU keys are copied. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/runtime.h"
#include "support/test.h"

enum { RANKS = 4, CALLS = 4, TOKENS = 8, HEADS = 2, DIM = 8, ROW = HEADS * DIM };
enum { SHARD = TOKENS * ROW, ALL = RANKS * SHARD, FEW = 2 };

/* Tensors begin one number later in every second call: keys that are not aligned are packed first,
 * and lent from there. */
struct call {
    float q[ALL + 4], k[ALL + 4], v[ALL + 4], dout[ALL + 4], out[ALL + 4];
    float dq[ALL + 4], dk[ALL + 4], dv[ALL + 4];
    float lse[RANKS * TOKENS * HEADS];
};

static void fill(struct call *calls)
{
    for (int call = 0; call < CALLS; call++) {
        float *const all[] = { calls[call].q, calls[call].k, calls[call].v, calls[call].dout };
        for (int t = 0; t < TEST_COUNT(all); t++)
            for (int i = 0; i < ALL + 4; i++)
                all[t][i] = sinf((0.7f + 0.3f * (float)t) * (float)(i + call));
    }
}

static ra_plan *make_plan(ra_group *group, const char *pattern_text)
{
    ra_problem problem = ra_problem_default();
    ra_plan_options options = ra_plan_options_default();
    ra_pattern *pattern;
    ra_plan *plan;
    assert_ok(ra_pattern_parse(pattern_text, &pattern));
    problem.pattern = pattern;
    problem.q_len = problem.k_len = RANKS * TOKENS;
    problem.q_heads = problem.kv_heads = HEADS;
    problem.dim = DIM;
    options.backward = 1;
    assert_ok(ra_plan_create(group, &problem, &options, &plan));
    ra_pattern_destroy(pattern);
    return plan;
}

static ra_status attend(ra_plan *plan, struct call *c, int at, int rows)
{
    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(c->q + at);
    args.k = ra_const_tensor_packed(c->k + at);
    args.v = ra_const_tensor_packed(c->v + at);
    args.out = ra_tensor_packed(c->out + at);
    args.lse = c->lse + rows;
    return ra_attend(plan, &args);
}

static ra_status gradient(ra_plan *plan, struct call *c, int at, int rows)
{
    ra_gradient_args args = ra_gradient_args_default();
    args.q = ra_const_tensor_packed(c->q + at);
    args.k = ra_const_tensor_packed(c->k + at);
    args.v = ra_const_tensor_packed(c->v + at);
    args.out = ra_const_tensor_packed(c->out + at);
    args.dout = ra_const_tensor_packed(c->dout + at);
    args.dq = ra_tensor_packed(c->dq + at);
    args.dk = ra_tensor_packed(c->dk + at);
    args.dv = ra_tensor_packed(c->dv + at);
    args.lse = c->lse + rows;
    return ra_gradient(plan, &args);
}

static void spoil(struct call *c, int at)
{
    float nan[SHARD];
    for (int i = 0; i < SHARD; i++) nan[i] = NAN;
    runtime_overwrite(c->k + at, nan, sizeof nan);
    runtime_overwrite(c->v + at, nan, sizeof nan);
}

static void find_in_driver(const char *name, void *function)
{
    int (*find)(const char *, void **, unsigned, unsigned long long, int *), result;
    void *entry;
    runtime_find("cudaGetDriverEntryPointByVersion", &find);
    assert_int_equal(find(name, &entry, 7000, 0, &result), 0);
    assert_non_null(entry);
    memcpy(function, &entry, sizeof entry);
}

/* Has the thread one? Kernels of Hopper need functions of the driver, which need it. */
static void expect_context(void)
{
    int (*get)(void **);
    void *context;
    if (!getenv("RINGATTN_TEST_DEVICE")) return;
    find_in_driver("cuCtxGetCurrent", &get);
    assert_int_equal(get(&context), 0);
    assert_non_null(context);
}

struct job {
    struct call *calls; /* on the device */
    const char *pattern;
    bool backward;
};

/* With `backward`, what forward leaves is there from a run before. A rank leaves the group when its
 * own calls have returned; others may still compute. */
static ra_status run_rank(ra_group *group, void *context)
{
    const struct job *job = context;
    const int rank = ra_group_rank(group), rows = rank * TOKENS * HEADS;
    ra_plan *plan = make_plan(group, job->pattern);
    ra_status status = RA_OK;
    for (int call = 0; call < CALLS && status == RA_OK; call++) {
        struct call *c = &job->calls[call];
        const int at = rank * SHARD + call % 2;
        status = job->backward ? gradient(plan, c, at, rows) : attend(plan, c, at, rows);
        expect_context();
        spoil(c, at);
    }
    ra_plan_destroy(plan);
    if (status == RA_OK) ra_group_destroy(group);
    return status;
}

static void start_ranks(ra_group **groups, ra_rank_fn body, void *context)
{
    const ra_group_options options = runtime_group_options();
    assert_ok(ra_group_create_local(RANKS, &options, groups));
    assert_ok(ra_group_run(groups, RANKS, body, context));
}

static void run_ranks(ra_rank_fn body, void *context)
{
    ra_group *groups[RANKS];
    start_ranks(groups, body, context);
    for (int i = 0; i < RANKS; i++) ra_group_destroy(groups[i]);
}

/* Contiguous shards in the order of ranks are the whole sequence. */
static void run_alone(struct call *calls, const char *pattern)
{
    ra_group *group;
    ra_group_options options = ra_group_options_default();
    options.threads = 1;
    assert_ok(ra_group_create_local(1, &options, &group));
    ra_plan *plan = make_plan(group, pattern);
    for (int call = 0; call < CALLS; call++) {
        assert_ok(attend(plan, &calls[call], call % 2, 0));
        assert_ok(gradient(plan, &calls[call], call % 2, 0));
    }
    ra_plan_destroy(plan);
    ra_group_destroy(group);
}

static void compare(const char *name, int call, const float *got, const float *want)
{
    for (int i = 0; i < ALL; i++)
        if (!(fabsf(got[i] - want[i]) <= 2e-5f))
            fail_msg("%s of call %d, rank %d: number %d is %g, not %g", name, call, i / SHARD,
                     i % SHARD, (double)got[i], (double)want[i]);
}

static void run_on_device(struct call *calls, struct job job)
{
    const size_t bytes = CALLS * sizeof *calls;
    ra_group *groups[RANKS];
    job.calls = runtime_upload(calls, bytes);
    start_ranks(groups, run_rank, &job);
    runtime_download(calls, job.calls, bytes);
}

static void check(const char *pattern, int seed)
{
    static struct call forward[CALLS], backward[CALLS], alone[CALLS];
    char text[16];
    snprintf(text, sizeof text, "%d", seed);
    setenv("RINGATTN_EMULATED_SEED", text, 1); /* another order of the work on queues */
    runtime_open();
    fill(forward);
    fill(alone);
    run_alone(alone, pattern);
    memcpy(backward, alone, sizeof backward);
    run_on_device(forward, (struct job){ .pattern = pattern });
    run_on_device(backward, (struct job){ .pattern = pattern, .backward = true });
    for (int call = 0; call < CALLS; call++) {
        const int at = call % 2;
        compare("out", call, forward[call].out + at, alone[call].out + at);
        compare("dq", call, backward[call].dq + at, alone[call].dq + at);
        compare("dk", call, backward[call].dk + at, alone[call].dk + at);
        compare("dv", call, backward[call].dv + at, alone[call].dv + at);
    }
}

static void keys_are_the_callers_again(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 6; seed++) {
        check("causal", seed);
        check("full", seed);
        check("window:9", seed);
        check("prefix:9;docs=0,5,23,32", seed); /* blocks pass through ranks that do not see them */
    }
}

/* A thread may work on another GPU than its group does. */
static void expect_device(int want)
{
    int (*get)(int *), device;
    runtime_find("cudaGetDevice", &get);
    assert_int_equal(get(&device), 0);
    assert_int_equal(device, want);
}

static void choose_device(int device)
{
    int (*set)(int);
    runtime_find("cudaSetDevice", &set);
    assert_int_equal(set(device), 0);
}

/* Has the process a context on this device, which takes memory there? */
static bool has_context(int device)
{
    int (*get_state)(int, unsigned *, int *), active;
    unsigned flags;
    find_in_driver("cuDevicePrimaryCtxGetState", &get_state);
    assert_int_equal(get_state(device, &flags, &active), 0);
    return active;
}

static ra_status work_elsewhere(ra_group *group, void *context)
{
    struct call *calls = context;
    choose_device(1);
    ra_plan *plan = make_plan(group, "causal");
    expect_device(1);
    const int rank = ra_group_rank(group), rows = rank * TOKENS * HEADS;
    ra_status status = attend(plan, calls, rank * SHARD, rows);
    expect_device(1);
    if (status == RA_OK) status = gradient(plan, calls, rank * SHARD, rows);
    expect_device(1);
    ra_plan_destroy(plan);
    expect_device(1);
    return status;
}

static void the_device_of_a_thread_stays(void **state)
{
    static struct call calls[CALLS];
    (void)state;
    if (!getenv("RINGATTN_TEST_DEVICE")) skip();
    setenv("RINGATTN_EMULATED_GPUS", "2", 1);
    runtime_open();
    fill(calls);
    struct call *there = runtime_upload(calls, sizeof calls);
    choose_device(1);
    run_ranks(work_elsewhere, there);
    expect_device(1);
    runtime_download(calls, there, sizeof calls);
}

/* One that never chose a GPU does not get a context on the first one. */
static void no_context_where_nobody_works(void **state)
{
    (void)state;
    if (!getenv("RINGATTN_TEST_DEVICE")) skip();
    setenv("RINGATTN_EMULATED_GPUS", "2", 1);
    runtime_open();
    ra_group *group;
    ra_group_options options = ra_group_options_default();
    options.device = "cuda:1";
    options.on_device = 1;
    assert_ok(ra_group_create_local(1, &options, &group));
    ra_plan_destroy(make_plan(group, "causal"));
    ra_group_destroy(group);
    assert_true(has_context(1));
    assert_false(has_context(0));
}

/* Fewer keys than ranks: some have queries and no keys. */
static ra_plan *plan_few_keys(ra_group *group)
{
    ra_problem problem = ra_problem_default();
    ra_plan *plan;
    problem.q_len = RANKS * TOKENS;
    problem.k_len = FEW;
    problem.q_heads = problem.kv_heads = HEADS;
    problem.dim = DIM;
    assert_ok(ra_plan_create(group, &problem, NULL, &plan));
    return plan;
}

static ra_status attend_few_keys(ra_group *group, void *context)
{
    struct call *c = context;
    const int rank = ra_group_rank(group), rows = rank * TOKENS * HEADS;
    ra_plan *plan = plan_few_keys(group);
    ra_attend_args args = ra_attend_args_default();
    const int64_t keys = ra_plan_k_count(plan);
    args.q = ra_const_tensor_packed(c->q + rank * SHARD);
    const int at = rank * FEW / RANKS * ROW; /* where the keys of this rank begin */
    args.k = (ra_const_tensor){ keys ? c->k + at : NULL, FEW * ROW, ROW, DIM };
    args.v = (ra_const_tensor){ keys ? c->v + at : NULL, FEW * ROW, ROW, DIM };
    args.out = ra_tensor_packed(c->out + rank * SHARD);
    args.lse = c->lse + rows;
    const ra_status status = ra_attend(plan, &args);
    ra_plan_destroy(plan);
    return status;
}

static void ranks_without_keys(void **state)
{
    static struct call ring[1], alone[1];
    ra_group *one;
    ra_group_options options = ra_group_options_default();
    (void)state;
    runtime_open();
    for (int i = 0; i < ALL + 4; i++)
        ring->q[i] = sinf(0.7f * (float)i), ring->k[i] = sinf(0.9f * (float)i),
        ring->v[i] = sinf(1.3f * (float)i);
    *alone = *ring;
    options.threads = 1;
    assert_ok(ra_group_create_local(1, &options, &one));
    ra_plan *plan = plan_few_keys(one);
    assert_ok(attend(plan, alone, 0, 0));
    ra_plan_destroy(plan);
    ra_group_destroy(one);
    struct call *there = runtime_upload(ring, sizeof ring);
    run_ranks(attend_few_keys, there);
    runtime_download(ring, there, sizeof ring);
    compare("out", 0, ring->out, alone->out);
}

/* Rank 1 stops in the middle; what it lent is freed as soon as its call has returned. */
static int stop_soon(void *context, double done)
{
    (void)context;
    return done > 0.2;
}

static ra_status run_until_failure(ra_group *group, void *context)
{
    const struct call *all = context;
    const int rank = ra_group_rank(group), rows = rank * TOKENS * HEADS;
    ra_plan *plan = make_plan(group, "full");
    struct call *own = malloc(sizeof *own);
    assert_non_null(own);
    memcpy(own, all, sizeof *own);
    struct call *there = runtime_upload(own, sizeof *own);
    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(there->q + rank * SHARD);
    args.k = ra_const_tensor_packed(there->k + rank * SHARD);
    args.v = ra_const_tensor_packed(there->v + rank * SHARD);
    args.out = ra_tensor_packed(there->out + rank * SHARD);
    args.lse = there->lse + rows;
    if (rank == 1) args.progress = stop_soon;
    const ra_status status = ra_attend(plan, &args);
    runtime_download(own, there, sizeof *own);
    ra_plan_destroy(plan);
    free(own);
    return status == RA_ERR_ABORTED || status == RA_ERR_PEER || status == RA_OK ? RA_OK : status;
}

static void a_lender_that_fails(void **state)
{
    static struct call calls[CALLS];
    (void)state;
    runtime_open();
    fill(calls);
    for (int seed = 1; seed <= 10; seed++) {
        char text[16];
        snprintf(text, sizeof text, "%d", seed);
        setenv("RINGATTN_EMULATED_SEED", text, 1);
        run_ranks(run_until_failure, calls);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_context_where_nobody_works), /* first: contexts stay */
        cmocka_unit_test(keys_are_the_callers_again),
        cmocka_unit_test(ranks_without_keys),
        cmocka_unit_test(a_lender_that_fails),
        cmocka_unit_test(the_device_of_a_thread_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
