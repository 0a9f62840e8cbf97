/* SPDX-License-Identifier: Apache-2.0 */
/* test_captured.c - calls of one rank that are captured in a CUDA graph: every launch of the graph
 * computes what plain calls compute from the tensors as they are then, bit for bit. Other calls of
 * the plan, which use the same workspace, run while it is captured and between the launches. */
#include <math.h>
#include <stdlib.h>

#include "support/runtime.h"
#include "support/test.h"
#include "support/walk.h"

enum { N = 70, HEADS = 2, KV_HEADS = 1, DIM = 64, Q = N * HEADS * DIM, K = N * KV_HEADS * DIM };
enum { GLOBAL = 0 }; /* cudaStreamCaptureModeGlobal: no thread may wait or allocate meanwhile */

/* Floats, or 16-bit numbers in the first halves. */
struct tensors {
    struct {
        float q[Q], k[K], v[K], dout[Q];
    } in;
    struct {
        float out[Q], lse[N * HEADS], dq[Q], dk[K], dv[K];
    } result;
};

/* Which kernels: those of a GPU of this compute capability, for this dtype. */
static const struct kind {
    const char *capability;
    ra_dtype dtype;
} kinds[] = { { "80", RA_F32 }, { "80", RA_BF16 }, { "90", RA_BF16 }, { "90", RA_F16 } };

static void fill(struct tensors *tensors, ra_dtype dtype, float step)
{
    static float numbers[Q];
    float *const to[] = { tensors->in.q, tensors->in.k, tensors->in.v, tensors->in.dout };
    const int counts[] = { Q, K, K, Q };
    memset(tensors, 0, sizeof *tensors);
    for (int t = 0; t < TEST_COUNT(to); t++) {
        for (int i = 0; i < counts[t]; i++) numbers[i] = sinf(step * (float)((t + 2) * i + 1));
        assert_ok(ra_convert(RA_F32, numbers, dtype, to[t], counts[t]));
    }
}

/* ---- The runtime ----------------------------------------------------------------------------- */

static void runtime_do(const char *name, void *handle)
{
    int (*act)(void *);
    runtime_find(name, &act);
    assert_int_equal(act(handle), 0);
}

static void *make_stream(void)
{
    int (*create)(void **, unsigned);
    void *stream = NULL;
    runtime_find("cudaStreamCreateWithFlags", &create);
    assert_int_equal(create(&stream, 1 /* cudaStreamNonBlocking */), 0);
    return stream;
}

static void *make_event(void)
{
    int (*create)(void **, unsigned);
    void *event = NULL;
    runtime_find("cudaEventCreateWithFlags", &create);
    assert_int_equal(create(&event, 2 /* cudaEventDisableTiming */), 0);
    return event;
}

/* The stream waits for what is on the other one. */
static void wait_for(void *stream, void *event, void *other)
{
    int (*record)(void *, void *), (*wait)(void *, void *, unsigned);
    runtime_find("cudaEventRecord", &record);
    runtime_find("cudaStreamWaitEvent", &wait);
    assert_int_equal(record(event, other), 0);
    assert_int_equal(wait(stream, event, 0), 0);
}

static void begin_capture(void *stream)
{
    int (*begin)(void *, int);
    runtime_find("cudaStreamBeginCapture", &begin);
    assert_int_equal(begin(stream, GLOBAL), 0);
}

static void *end_capture(void *stream)
{
    int (*end)(void *, void **), (*instantiate)(void **, void *, unsigned long long);
    void *graph = NULL, *executable = NULL;
    runtime_find("cudaStreamEndCapture", &end);
    runtime_find("cudaGraphInstantiateWithFlags", &instantiate);
    assert_int_equal(end(stream, &graph), 0);
    assert_int_equal(instantiate(&executable, graph, 0), 0);
    runtime_do("cudaGraphDestroy", graph);
    return executable;
}

static void launch(void *graph, void *stream)
{
    int (*act)(void *, void *);
    runtime_find("cudaGraphLaunch", &act);
    assert_int_equal(act(graph, stream), 0);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static ra_plan *make_plan(ra_group *group, const char *text, ra_dtype dtype)
{
    ra_problem problem = ra_problem_default();
    ra_plan_options options = ra_plan_options_default();
    ra_pattern *pattern;
    ra_plan *plan;
    assert_ok(ra_pattern_parse(text, &pattern));
    problem.pattern = pattern;
    problem.q_len = N;
    problem.q_heads = HEADS;
    problem.kv_heads = KV_HEADS;
    problem.dim = DIM;
    problem.dtype = dtype;
    options.backward = true;
    assert_ok(ra_plan_create(group, &problem, &options, &plan));
    ra_pattern_destroy(pattern);
    return plan;
}

static ra_attend_args arguments(struct tensors *t, void *stream)
{
    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(t->in.q);
    args.k = ra_const_tensor_packed(t->in.k);
    args.v = ra_const_tensor_packed(t->in.v);
    args.out = ra_tensor_packed(t->result.out);
    args.lse = t->result.lse;
    args.queue = stream;
    return args;
}

static void call(ra_plan *plan, struct tensors *t, void *stream)
{
    const ra_attend_args args = arguments(t, stream);
    assert_ok(ra_attend(plan, &args));
    ra_gradient_args back = ra_gradient_args_default();
    back.q = args.q, back.k = args.k, back.v = args.v, back.lse = args.lse;
    back.out = ra_tensor_read(args.out);
    back.dout = ra_const_tensor_packed(t->in.dout);
    back.dq = ra_tensor_packed(t->result.dq);
    back.dk = ra_tensor_packed(t->result.dk);
    back.dv = ra_tensor_packed(t->result.dv);
    back.queue = stream;
    assert_ok(ra_gradient(plan, &back));
}

/* There are new inputs, and the results are no numbers. */
static void refill(struct tensors *there, struct tensors *numbers)
{
    memset(&numbers->result, 0xff, sizeof numbers->result);
    runtime_overwrite(there, numbers, sizeof *numbers);
}

/* Two calls in one graph, on streams that nothing orders but the calls themselves. Others on the
 * last stream are no part of it. */
static void *capture(ra_plan *plan, struct tensors *const there[2], struct tensors *calls,
                     void *const streams[3])
{
    void *fork = make_event(), *join = make_event();
    begin_capture(streams[0]);
    wait_for(streams[1], fork, streams[0]);
    call(plan, calls, streams[2]);
    for (int i = 0; i < 2; i++) call(plan, there[i], streams[i]);
    call(plan, calls, streams[2]);
    wait_for(streams[0], join, streams[1]);
    void *graph = end_capture(streams[0]);
    runtime_do("cudaEventDestroy", fork);
    runtime_do("cudaEventDestroy", join);
    return graph;
}

static void compare_with_call(ra_plan *plan, struct tensors *calls, struct tensors *inputs,
                              struct tensors *captured, const char *problem)
{
    static struct tensors replayed, plain;
    runtime_overwrite(&replayed, captured, sizeof replayed);
    refill(calls, inputs);
    call(plan, calls, NULL);
    runtime_overwrite(&plain, calls, sizeof plain);
    if (memcmp(&plain.result, &replayed.result, sizeof plain.result) != 0)
        fail_msg("a launch of %s differs from a plain call", problem);
}

static void check(ra_plan *plan, ra_dtype dtype, const char *problem)
{
    static struct tensors inputs[3];
    void *streams[] = { make_stream(), make_stream(), make_stream() };
    for (int i = 0; i < 3; i++) fill(&inputs[i], dtype, 0.7f + 0.2f * (float)i);
    struct tensors *captured[] = { runtime_upload(&inputs[0], sizeof inputs[0]),
                                   runtime_upload(&inputs[1], sizeof inputs[1]) };
    struct tensors *calls = runtime_upload(&inputs[2], sizeof inputs[2]);
    call(plan, calls, NULL); /* the first one of the capture asks what this has found */
    void *graph = capture(plan, captured, calls, streams);
    call(plan, calls, NULL); /* waits for nothing of the capture */
    for (int launches = 0; launches < 2; launches++) {
        struct tensors *given[] = { &inputs[(launches + 1) % 3], &inputs[(launches + 2) % 3] };
        for (int i = 0; i < 2; i++) refill(captured[i], given[i]);
        refill(calls, &inputs[launches]);
        runtime_do("cudaStreamSynchronize", NULL);
        call(plan, calls, streams[0]);
        launch(graph, streams[0]);
        call(plan, calls, streams[0]);
        runtime_do("cudaStreamSynchronize", streams[0]);
        for (int i = 0; i < 2; i++) compare_with_call(plan, calls, given[i], captured[i], problem);
    }
    runtime_do("cudaGraphExecDestroy", graph);
    for (int i = 0; i < 3; i++) runtime_do("cudaStreamDestroy", streams[i]);
    for (int i = 0; i < 2; i++) runtime_download(&inputs[i], captured[i], sizeof inputs[i]);
    runtime_download(&inputs[2], calls, sizeof inputs[2]);
}

static void check_kind(const char *text, const struct kind *kind, int seed)
{
    char problem[192], number[16];
    ra_group *group;
    snprintf(problem, sizeof problem, "%s, dtype %d, compute capability %s", text, (int)kind->dtype,
             kind->capability);
    snprintf(number, sizeof number, "%d", seed);
    setenv("RINGATTN_EMULATED_SEED", number, 1);
    setenv("RINGATTN_EMULATED_SM", kind->capability, 1);
    runtime_open();
    const ra_group_options options = runtime_group_options();
    assert_ok(ra_group_create_local(1, &options, &group));
    ra_plan *plan = make_plan(group, text, kind->dtype);
    check(plan, kind->dtype, problem);
    ra_plan_destroy(plan);
    ra_group_destroy(group);
}

/* The first sample of each pattern, with two of the kinds in rotation. */
static void every_pattern(void **state)
{
    char text[128];
    ra_part part;
    (void)state;
    for (int i = 0; walk_part("pattern", i, &part); i++) {
        snprintf(text, sizeof text, "%.*s", (int)strcspn(part.samples, " "), part.samples);
        check_kind(text, &kinds[i % TEST_COUNT(kinds)], 2 * i);
        check_kind(text, &kinds[(i + 2) % TEST_COUNT(kinds)], 2 * i + 1);
    }
}

/* A graph would replay the counts that the host had when it was captured. */
static void counts_of_the_host_are_refused(void **state)
{
    static struct tensors tensors;
    const int64_t counts[] = { N / 2 };
    int (*end)(void *, void **);
    ra_group *group;
    ra_plan *plan;
    void *graph, *stream;
    (void)state;
    setenv("RINGATTN_EMULATED_SM", "80", 1);
    runtime_open();
    const ra_group_options options = runtime_group_options();
    assert_ok(ra_group_create_local(1, &options, &group));
    ra_problem problem = ra_problem_default();
    ra_plan_options how = ra_plan_options_default();
    problem.q_len = N;
    problem.q_heads = HEADS;
    problem.kv_heads = KV_HEADS;
    problem.dim = DIM;
    how.counts = 1;
    assert_ok(ra_plan_create(group, &problem, &how, &plan));
    struct tensors *there = runtime_upload(&tensors, sizeof tensors);
    stream = make_stream();
    ra_attend_args args = arguments(there, stream);
    args.counts = counts;
    assert_ok(ra_attend(plan, &args));
    begin_capture(stream);
    assert_fails(RA_ERR_UNSUPPORTED, "graph: counts of keys must be in device memory",
                 ra_attend(plan, &args));
    runtime_find("cudaStreamEndCapture", &end);
    if (end(stream, &graph) == 0) runtime_do("cudaGraphDestroy", graph);
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    runtime_do("cudaStreamDestroy", stream);
    runtime_download(&tensors, there, sizeof tensors);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_pattern),
                                        cmocka_unit_test(counts_of_the_host_are_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
