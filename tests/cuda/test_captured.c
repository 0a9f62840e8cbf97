/* SPDX-License-Identifier: Apache-2.0 */
/* test_captured.c - a call of one rank, captured in a CUDA graph: every launch of the graph computes
 * what a plain call does, bit for bit, on what is in the tensors then. It captures the first call of
 * a plan, and other calls of that plan come between launches, with the same memory to work in. */
#include <math.h>
#include <stdlib.h>

#include "support/runtime.h"
#include "support/test.h"
#include "support/walk.h"

enum { N = 100, HEADS = 4, KV_HEADS = 2, DIM = 64, Q = N * HEADS * DIM, K = N * KV_HEADS * DIM };
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

static void call(ra_plan *plan, struct tensors *t, void *stream)
{
    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(t->in.q);
    args.k = ra_const_tensor_packed(t->in.k);
    args.v = ra_const_tensor_packed(t->in.v);
    args.out = ra_tensor_packed(t->result.out);
    args.lse = t->result.lse;
    args.queue = stream;
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

static void check(ra_plan *plan, ra_dtype dtype, const char *problem)
{
    static struct tensors first, second, third, replayed, plain;
    void *stream = make_stream();
    fill(&first, dtype, 0.7f);
    fill(&second, dtype, 0.9f);
    fill(&third, dtype, 1.1f);
    struct tensors *graphs = runtime_upload(&first, sizeof first);
    struct tensors *calls = runtime_upload(&third, sizeof third);
    begin_capture(stream);
    call(plan, graphs, stream);
    void *graph = end_capture(stream);
    call(plan, calls, NULL); /* waits for nothing of the capture */
    for (int launches = 0; launches < 2; launches++) {
        refill(graphs, launches ? &first : &second);
        refill(calls, &third);
        runtime_do("cudaStreamSynchronize", NULL);
        call(plan, calls, stream);
        launch(graph, stream);
        call(plan, calls, stream);
        runtime_do("cudaStreamSynchronize", stream);
        runtime_overwrite(&replayed, graphs, sizeof replayed);
        refill(calls, launches ? &first : &second);
        call(plan, calls, NULL);
        runtime_overwrite(&plain, calls, sizeof plain);
        if (memcmp(&plain.result, &replayed.result, sizeof plain.result) != 0)
            fail_msg("launch %d of %s differs from a plain call", launches, problem);
    }
    runtime_do("cudaGraphExecDestroy", graph);
    runtime_do("cudaStreamDestroy", stream);
    runtime_download(&third, calls, sizeof third);
    runtime_download(&first, graphs, sizeof first);
}

static void every_pattern(void **state)
{
    char text[128], problem[192], seed[16];
    ra_group *group;
    (void)state;
    for (int i = 0; walk_sample(i, text, sizeof text); i++) {
        const struct kind *kind = &kinds[i % TEST_COUNT(kinds)];
        snprintf(problem, sizeof problem, "%s, dtype %d, compute capability %s", text,
                 (int)kind->dtype, kind->capability);
        snprintf(seed, sizeof seed, "%d", i);
        setenv("RINGATTN_EMULATED_SEED", seed, 1);
        setenv("RINGATTN_EMULATED_SM", kind->capability, 1);
        runtime_open();
        const ra_group_options options = runtime_group_options();
        assert_ok(ra_group_create_local(1, &options, &group));
        ra_plan *plan = make_plan(group, text, kind->dtype);
        check(plan, kind->dtype, problem);
        ra_plan_destroy(plan);
        ra_group_destroy(group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_pattern) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
