/* SPDX-License-Identifier: Apache-2.0 */
/* test_queued.c - calls on a queue of the caller, which return when they are issued, of ranks whose
 * messages callbacks send: a message of the next call must not overwrite what the call before still
 * reads. And calls without a queue, after copies on the default one. RINGATTN_TEST_DEVICE names a
 * device with queues; on a CPU a call is complete when it returns. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/mailbox.h"
#include "support/runtime.h"
#include "support/test.h"

enum { RANKS = 3, CALLS = 6, TOKENS = 8, HEADS = 2, DIM = 8, ROW = HEADS * DIM };
enum { SHARD = TOKENS * ROW, ALL = RANKS * SHARD };
enum { NON_BLOCKING = 1 }; /* as CUDA has it */
#define DEFAULT_STREAM ((void *)0x1)

/* Every call has numbers of its own. Under causal attention the first rank only sends, and the last
 * one only receives, so nothing but the messages themselves keeps its host waiting. */
struct calls {
    float q[CALLS][ALL], k[CALLS][ALL], v[CALLS][ALL], dout[CALLS][ALL];
    float out[CALLS][ALL], lse[CALLS][RANKS * TOKENS * HEADS];
    float dq[CALLS][ALL], dk[CALLS][ALL], dv[CALLS][ALL];
};

static void fill(struct calls *calls)
{
    float *const all[] = { calls->q[0], calls->k[0], calls->v[0], calls->dout[0] };
    for (int t = 0; t < TEST_COUNT(all); t++)
        for (int i = 0; i < CALLS * ALL; i++) all[t][i] = sinf((0.7f + 0.3f * (float)t) * (float)i);
}

/* ---- Queues of the device, by the runtime that its plug-in uses ------------------------------ */

static void *make_queue(void)
{
    int (*create)(void **, unsigned);
    void *queue = NULL;
    if (!getenv("RINGATTN_TEST_DEVICE")) return NULL;
    runtime_find("cudaStreamCreateWithFlags", &create);
    assert_int_equal(create(&queue, NON_BLOCKING), 0);
    return queue;
}

static void finish_queue(void *queue)
{
    int (*wait)(void *);
    runtime_find("cudaStreamSynchronize", &wait);
    assert_int_equal(wait(queue), 0);
}

static void end_queue(void *queue)
{
    int (*destroy)(void *);
    if (!queue) return;
    finish_queue(queue);
    runtime_find("cudaStreamDestroy", &destroy);
    assert_int_equal(destroy(queue), 0);
}

/* What the caller has put on its queue before its calls: it works for a while. The emulation runs
 * it on the thread that waits for the queue, so that is another one than those of the ranks. */
struct delay {
    void *queue;
    int milliseconds; /* at most */
    atomic_bool started, released;
    pthread_t thread;
};

static void work_for_a_while(void *context)
{
    struct delay *delay = context;
    const struct timespec moment = { .tv_nsec = 1000000 };
    atomic_store(&delay->started, true);
    for (int i = 0; i < delay->milliseconds && !atomic_load(&delay->released); i++)
        nanosleep(&moment, NULL);
}

static void *wait_for_queue(void *context)
{
    int (*wait)(void *);
    runtime_find("cudaStreamSynchronize", &wait);
    wait(((struct delay *)context)->queue);
    return NULL;
}

/* After what is on the queue. */
static void delay_put(struct delay *delay, void *queue, int milliseconds)
{
    int (*launch)(void *, void (*)(void *), void *);
    *delay = (struct delay){ .queue = queue, .milliseconds = milliseconds };
    if (!queue) return;
    runtime_find("cudaLaunchHostFunc", &launch);
    assert_int_equal(launch(queue, work_for_a_while, delay), 0);
    assert_int_equal(pthread_create(&delay->thread, NULL, wait_for_queue, delay), 0);
}

static void delay_wait(const struct delay *delay)
{
    while (delay->queue && !atomic_load(&delay->started)) sched_yield();
}

static void delay_start(struct delay *delay, void *queue)
{
    delay_put(delay, queue, 20);
    delay_wait(delay);
}

static void delay_end(struct delay *delay)
{
    if (delay->queue) pthread_join(delay->thread, NULL);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* Nothing is sent: each rank has a document. */
static const char own_documents[] = "full;docs=0,8,16,24";

static ra_plan *make_plan_of(ra_group *group, const char *text, bool backward)
{
    ra_problem problem = ra_problem_default();
    ra_plan_options options = ra_plan_options_default();
    ra_pattern *pattern;
    ra_plan *plan;
    assert_ok(ra_pattern_parse(text, &pattern));
    problem.pattern = pattern;
    problem.q_len = problem.k_len = RANKS * TOKENS;
    problem.q_heads = problem.kv_heads = HEADS;
    problem.dim = DIM;
    options.backward = backward;
    assert_ok(ra_plan_create(group, &problem, &options, &plan));
    ra_pattern_destroy(pattern);
    return plan;
}

static ra_plan *make_plan(ra_group *group, bool backward)
{
    return make_plan_of(group, "causal", backward);
}

/* One call on the shard that starts at this token. */
static ra_status run_call(ra_plan *plan, struct calls *c, int call, int token, bool backward,
                          void *queue)
{
    const int64_t at = (int64_t)token * ROW;
    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(c->q[call] + at);
    args.k = ra_const_tensor_packed(c->k[call] + at);
    args.v = ra_const_tensor_packed(c->v[call] + at);
    args.out = ra_tensor_packed(c->out[call] + at);
    args.lse = c->lse[call] + token * HEADS;
    args.queue = queue;
    ra_status status = ra_attend(plan, &args);
    if (status != RA_OK || !backward) return status;
    ra_gradient_args back = ra_gradient_args_default();
    back.q = args.q, back.k = args.k, back.v = args.v, back.lse = args.lse;
    back.out = ra_tensor_read(args.out);
    back.dout = ra_const_tensor_packed(c->dout[call] + at);
    back.dq = ra_tensor_packed(c->dq[call] + at);
    back.dk = ra_tensor_packed(c->dk[call] + at);
    back.dv = ra_tensor_packed(c->dv[call] + at);
    back.queue = queue;
    return ra_gradient(plan, &back);
}

struct job {
    struct calls *calls;
    bool backward;
};

/* All calls use the memory of the first one. */
struct copied {
    struct calls *there, *outputs; /* on the device, on the host */
    const struct calls *inputs;
};

static ra_status run_rank(ra_group *group, void *context)
{
    const struct job *job = context;
    ra_plan *plan = make_plan(group, job->backward);
    void *queue = make_queue();
    struct delay delay;
    ra_status status = RA_OK;
    delay_start(&delay, ra_group_rank(group) == RANKS - 1 ? queue : NULL);
    for (int call = 0; call < CALLS && status == RA_OK; call++)
        status = run_call(plan, job->calls, call, TOKENS * ra_group_rank(group), job->backward,
                          queue);
    delay_end(&delay);
    end_queue(queue);
    ra_plan_destroy(plan);
    return status;
}

static void run_ranks(struct calls *calls, bool backward)
{
    struct job job = { calls, backward };
    struct mailbox box;
    struct mailbox_rank seats[RANKS];
    ra_group *groups[RANKS];
    const ra_group_options options = runtime_group_options();
    mailbox_open(&box, seats, RANKS);
    for (int i = 0; i < RANKS; i++) {
        ra_transport_callbacks callbacks = mailbox_callbacks(&seats[i]);
        assert_ok(ra_group_create_custom(RANKS, i, &callbacks, &options, &groups[i]));
    }
    assert_ok(ra_group_run(groups, RANKS, run_rank, &job));
    for (int i = 0; i < RANKS; i++) ra_group_destroy(groups[i]);
    mailbox_close(&box, seats, RANKS);
}

static ra_status copy_and_call(ra_group *group, void *context)
{
    const struct copied *c = context;
    const int ranks = ra_group_ranks(group), token = TOKENS * ra_group_rank(group);
    const size_t at = (size_t)token * ROW, bytes = sizeof(float) * ALL / (size_t)ranks;
    ra_plan *plan = make_plan(group, false);
    ra_status status = RA_OK;
    for (int call = 0; call < CALLS && status == RA_OK; call++) {
        runtime_overwrite(c->there->q[0] + at, c->inputs->q[call] + at, bytes);
        runtime_overwrite(c->there->k[0] + at, c->inputs->k[call] + at, bytes);
        runtime_overwrite(c->there->v[0] + at, c->inputs->v[call] + at, bytes);
        status = run_call(plan, c->there, 0, token, false, NULL);
        runtime_overwrite(c->outputs->out[call] + at, c->there->out[0] + at, bytes);
    }
    ra_plan_destroy(plan);
    return status;
}

static void run_alone(struct calls *calls, bool backward)
{
    ra_group *group;
    ra_group_options options = ra_group_options_default();
    options.threads = 1;
    assert_ok(ra_group_create_local(1, &options, &group));
    ra_plan *plan = make_plan(group, backward);
    for (int call = 0; call < CALLS; call++)
        assert_ok(run_call(plan, calls, call, 0, backward, NULL));
    ra_plan_destroy(plan);
    ra_group_destroy(group);
}

static void compare(const char *name, const float *got, const float *want)
{
    for (int i = 0; i < CALLS * ALL; i++)
        if (!(fabsf(got[i] - want[i]) <= 2e-5f))
            fail_msg("%s of call %d, rank %d: number %d is %g, not %g", name, i / ALL,
                     i % ALL / SHARD, i % SHARD, (double)got[i], (double)want[i]);
}

static void compare_all(const struct calls *got, const struct calls *want, bool backward)
{
    compare("out", got->out[0], want->out[0]);
    if (!backward) return;
    compare("dq", got->dq[0], want->dq[0]);
    compare("dk", got->dk[0], want->dk[0]);
    compare("dv", got->dv[0], want->dv[0]);
}

static void check(bool backward, int seed)
{
    static struct calls queued, plain;
    char text[16];
    snprintf(text, sizeof text, "%d", seed);
    setenv("RINGATTN_EMULATED_SEED", text, 1); /* another order of the work on queues */
    runtime_open();
    fill(&queued);
    fill(&plain);
    /* In memory of the device: nothing then waits for it but what has to. */
    struct calls *there = runtime_upload(&queued, sizeof queued);
    run_ranks(there, backward);
    runtime_download(&queued, there, sizeof queued);
    run_alone(&plain, backward);
    compare_all(&queued, &plain, backward);
}

static void calls_in_a_row(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 6; seed++) check(seed % 2 == 0, seed);
}

/* Queries are the results of the call before: each call starts when that has ended. */
static ra_status run_chained(ra_plan *plan, struct calls *c, int call, int token, void *queue)
{
    const int64_t at = (int64_t)token * ROW;
    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed((call ? c->out[call - 1] : c->q[0]) + at);
    args.k = ra_const_tensor_packed(c->k[call] + at);
    args.v = ra_const_tensor_packed(c->v[call] + at);
    args.out = ra_tensor_packed(c->out[call] + at);
    args.queue = queue;
    return ra_attend(plan, &args);
}

/* Plans that exchange messages need several queues of ours, others run on the caller's. */
static const struct mixed {
    const char *pattern;
    int queue;
} mixed[CALLS] = { { own_documents, 0 }, { "causal", 1 },      { own_documents, 0 },
                   { "causal", 0 },      { own_documents, 1 }, { own_documents, 0 } };

static ra_status run_mixed_rank(ra_group *group, void *context)
{
    struct calls *calls = context;
    ra_plan *plans[CALLS];
    void *queues[] = { make_queue(), make_queue() };
    struct delay delay;
    ra_status status = RA_OK;
    for (int call = 0; call < CALLS; call++)
        plans[call] = make_plan_of(group, mixed[call].pattern, false);
    delay_start(&delay, queues[0]);
    for (int call = 0; call < CALLS && status == RA_OK; call++)
        status = run_chained(plans[call], calls, call, TOKENS * ra_group_rank(group),
                             queues[mixed[call].queue]);
    delay_end(&delay);
    for (int i = 0; i < 2; i++) end_queue(queues[i]);
    for (int call = 0; call < CALLS; call++) ra_plan_destroy(plans[call]);
    return status;
}

static void run_mixed_alone(struct calls *calls)
{
    ra_group *group;
    ra_group_options options = ra_group_options_default();
    options.threads = 1;
    assert_ok(ra_group_create_local(1, &options, &group));
    for (int call = 0; call < CALLS; call++) {
        ra_plan *plan = make_plan_of(group, mixed[call].pattern, false);
        assert_ok(run_chained(plan, calls, call, 0, NULL));
        ra_plan_destroy(plan);
    }
    ra_group_destroy(group);
}

static void plans_of_both_kinds_on_several_queues(void **state)
{
    static struct calls queued, plain;
    char text[16];
    (void)state;
    fill(&plain);
    run_mixed_alone(&plain);
    for (int seed = 1; seed <= 12; seed++) {
        ra_group *groups[RANKS];
        snprintf(text, sizeof text, "%d", seed);
        setenv("RINGATTN_EMULATED_SEED", text, 1);
        runtime_open();
        fill(&queued);
        struct calls *there = runtime_upload(&queued, sizeof queued);
        const ra_group_options options = runtime_group_options();
        assert_ok(ra_group_create_local(RANKS, &options, groups));
        assert_ok(ra_group_run(groups, RANKS, run_mixed_rank, there));
        for (int i = 0; i < RANKS; i++) ra_group_destroy(groups[i]);
        runtime_download(&queued, there, sizeof queued);
        compare_all(&queued, &plain, false);
    }
}

/* Ranks of one process lend their keys to one another in place. */
static void check_copies(int ranks, int seed)
{
    static struct calls memory, copied, plain;
    ra_group *groups[RANKS];
    char text[16];
    snprintf(text, sizeof text, "%d", seed);
    setenv("RINGATTN_EMULATED_SEED", text, 1);
    runtime_open();
    fill(&plain);
    const ra_group_options options = runtime_group_options();
    struct copied c = { runtime_upload(&memory, sizeof memory), &copied, &plain };
    assert_ok(ra_group_create_local(ranks, &options, groups));
    assert_ok(ra_group_run(groups, ranks, copy_and_call, &c));
    for (int i = 0; i < ranks; i++) ra_group_destroy(groups[i]);
    run_alone(&plain, false);
    compare("out", copied.out[0], plain.out[0]);
    runtime_download(&memory, c.there, sizeof memory);
}

static void calls_after_copies(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 6; seed++) check_copies(1, seed);
    for (int seed = 1; seed <= 12; seed++) check_copies(RANKS, seed);
}

/* Calls of one rank on several queues, and without one, by plans that share the memory that they
 * work in: each call starts after the one before it, wherever that is. */
static void check_queues(ra_group *group, struct calls *there, void *const queues[3], int seed)
{
    static const int queue_of[CALLS] = { 0, 1, 2, 1, 0, 0 }, plan_of[CALLS] = { 0, 1, 0, 0, 0, 1 };
    ra_plan *plans[] = { make_plan(group, true), make_plan(group, true) };
    struct delay delay;
    delay_start(&delay, queues[seed % 2]);
    for (int call = 0; call < CALLS; call++)
        assert_ok(run_call(plans[plan_of[call]], there, call, 0, true, queues[queue_of[call]]));
    for (int i = 0; i < TEST_COUNT(plans); i++) ra_plan_destroy(plans[i]);
    delay_end(&delay);
}

static void calls_on_several_queues(void **state)
{
    static struct calls queued, plain;
    char text[16];
    (void)state;
    fill(&plain);
    run_alone(&plain, true);
    for (int seed = 1; seed <= 12; seed++) {
        ra_group *group;
        snprintf(text, sizeof text, "%d", seed);
        setenv("RINGATTN_EMULATED_SEED", text, 1);
        runtime_open();
        fill(&queued);
        ra_group_options options = runtime_group_options();
        options.pool_threshold = 1;
        struct calls *there = runtime_upload(&queued, sizeof queued);
        void *queues[] = { make_queue(), make_queue(), NULL };
        assert_ok(ra_group_create_local(1, &options, &group));
        check_queues(group, there, queues, seed);
        ra_group_destroy(group);
        for (int i = 0; i < 2; i++) end_queue(queues[i]);
        runtime_download(&queued, there, sizeof queued);
        compare_all(&queued, &plain, true);
    }
}

/* An error that the device finds after a call has returned is that of a later call, even if another
 * call came in between. */
static void errors_come_later(void **state)
{
    static struct calls queued;
    ra_group *group;
    (void)state;
    if (!getenv("RINGATTN_TEST_DEVICE")) skip();
    runtime_open();
    fill(&queued);
    for (int i = 0; i < ALL; i++) queued.q[0][i] *= 0x1p24f; /* an LSE that is too coarse for f32 */
    const ra_group_options options = runtime_group_options();
    struct calls *there = runtime_upload(&queued, sizeof queued);
    assert_ok(ra_group_create_local(1, &options, &group));
    ra_plan *plan = make_plan(group, true), *other = make_plan(group, true);
    void *queue = make_queue();
    assert_ok(run_call(plan, there, 0, 0, true, queue));
    const ra_status early = run_call(other, there, 1, 0, true, queue);
    if (early == RA_OK) finish_queue(queue);
    const ra_status late = run_call(other, there, 2, 0, true, queue);
    assert_int_equal(early == RA_OK ? late : early, RA_ERR_UNSUPPORTED);
    ra_plan_destroy(plan);
    ra_plan_destroy(other);
    ra_group_destroy(group);
    end_queue(queue);
    runtime_download(&queued, there, sizeof queued);
}

/* Also if the host is always ahead: the last call has never ended when the next one asks. */
static void errors_come_while_calls_run(void **state)
{
    static struct calls queued;
    ra_group *group;
    struct delay before, between;
    (void)state;
    if (!getenv("RINGATTN_TEST_DEVICE")) skip();
    runtime_open();
    fill(&queued);
    for (int i = 0; i < ALL; i++) queued.q[0][i] *= 0x1p24f;
    const ra_group_options options = runtime_group_options();
    struct calls *there = runtime_upload(&queued, sizeof queued);
    assert_ok(ra_group_create_local(1, &options, &group));
    ra_plan *plan = make_plan(group, true);
    void *queue = make_queue();
    delay_put(&before, queue, 5000);
    delay_wait(&before);
    assert_ok(run_call(plan, there, 0, 0, true, queue));
    delay_put(&between, queue, 200);
    ra_status status = run_call(plan, there, 1, 0, true, queue);
    atomic_store(&before.released, true);
    delay_wait(&between); /* the first call has ended, and the second one has not begun */
    if (status == RA_OK) status = run_call(plan, there, 2, 0, true, queue);
    assert_int_equal(status, RA_ERR_UNSUPPORTED);
    delay_end(&before);
    delay_end(&between);
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    end_queue(queue);
    runtime_download(&queued, there, sizeof queued);
}

static void use_gpu(int number)
{
    int (*set)(int);
    runtime_find("cudaSetDevice", &set);
    assert_int_equal(set(number), 0);
}

/* The default stream of the rank's GPU, not of the one that the thread has chosen. */
static void the_default_stream_is_that_of_the_rank(void **state)
{
    static struct calls queued, plain;
    ra_group *group;
    (void)state;
    if (!getenv("RINGATTN_TEST_DEVICE")) skip();
    setenv("RINGATTN_EMULATED_GPUS", "2", 1);
    runtime_open();
    use_gpu(1);
    fill(&queued);
    struct calls *there = runtime_upload(&queued, sizeof queued);
    use_gpu(0);
    void *here = runtime_upload(&plain, sizeof plain); /* the thread works there */
    ra_group_options options = runtime_group_options();
    options.device = "cuda:1";
    assert_ok(ra_group_create_local(1, &options, &group));
    ra_plan *plan = make_plan(group, true);
    for (int call = 0; call < CALLS; call++)
        assert_ok(run_call(plan, there, call, 0, true, DEFAULT_STREAM));
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    runtime_download(&plain, here, sizeof plain);
    use_gpu(1);
    runtime_download(&queued, there, sizeof queued);
    use_gpu(0);
    unsetenv("RINGATTN_EMULATED_GPUS");
    fill(&plain);
    run_alone(&plain, true);
    compare_all(&queued, &plain, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_in_a_row),
        cmocka_unit_test(plans_of_both_kinds_on_several_queues),
        cmocka_unit_test(calls_after_copies),
        cmocka_unit_test(calls_on_several_queues),
        cmocka_unit_test(errors_come_later),
        cmocka_unit_test(errors_come_while_calls_run),
        cmocka_unit_test(the_default_stream_is_that_of_the_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
