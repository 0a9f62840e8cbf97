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
enum { SHARD = TOKENS * ROW, ALL = RANKS * SHARD };

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

struct job {
    struct call *calls; /* on the device */
    const char *pattern;
    bool backward;
};

/* With `backward`, what forward leaves is there from a run before. */
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
        spoil(c, at);
    }
    ra_plan_destroy(plan);
    return status;
}

static void run_ranks(struct job job)
{
    ra_group *groups[RANKS];
    ra_group_options options = ra_group_options_default();
    options.threads = 1;
    options.timeout = 60;
    options.device = getenv("RINGATTN_TEST_DEVICE");
    options.on_device = options.device != NULL;
    assert_ok(ra_group_create_local(RANKS, &options, groups));
    assert_ok(ra_group_run(groups, RANKS, run_rank, &job));
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
    job.calls = runtime_upload(calls, bytes);
    run_ranks(job);
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

static ra_status work_elsewhere(ra_group *group, void *context)
{
    struct call *calls = context;
    int (*set)(int);
    runtime_find("cudaSetDevice", &set);
    assert_int_equal(set(1), 0);
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
    ra_group *groups[RANKS];
    ra_group_options options = ra_group_options_default();
    options.device = getenv("RINGATTN_TEST_DEVICE");
    options.on_device = 1;
    assert_ok(ra_group_create_local(RANKS, &options, groups));
    expect_device(0);
    assert_ok(ra_group_run(groups, RANKS, work_elsewhere, there));
    for (int i = 0; i < RANKS; i++) ra_group_destroy(groups[i]);
    runtime_download(calls, there, sizeof calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(keys_are_the_callers_again),
                                        cmocka_unit_test(the_device_of_a_thread_stays) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
