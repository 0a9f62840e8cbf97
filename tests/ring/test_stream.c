/* SPDX-License-Identifier: Apache-2.0 */
/* test_stream.c - the strategy stream: every pattern and term in small blocks against the oracle;
 * tensors behind callbacks give the bits of tensors in memory; runs that were broken off anywhere
 * and resumed give the bits of a run that was not; every callback may fail. */
#include "support/expect.h"
#include "support/late.h"
#include "support/walk.h"

#include <stdlib.h>
#include <string.h>

#include "harness/base/half.h"
#include "ringattn_stream.h"

/* ---- Against the oracle ---------------------------------------------------------------------- */

static int stride(void) { return test_long() ? 1 : test_slow() ? 31 : 7; }

static const char *const words[] = {
    "n=67 h=4/2 d=8",       "n=61 h=2 d=16 dv=8 b=2",          "n=67 h=4 d=8 softcap=3",
    "n=67 h=4/2 d=8 alibi", "n=67 h=2 d=8 bias=batch b=2",     "n=67 h=4 d=8 bias=mask",
    "n=67 h=4/1 d=8 sinks", "n=67 h=2 d=8 dropout=0.2 seed=5", "n=67 h=2 d=8 order=shuffled:3",
};
static const int blocks[] = { 1, 7, 16, 33, 64, 100 };

static void run_problem(const char *problem, int turn)
{
    ra_part kernel;
    struct fixture fixture;
    int kernels = 0;
    while (walk_usable("kernel", kernels, &kernel)) kernels++;
    walk_usable("kernel", turn % kernels, &kernel);
    fixture_open(&fixture, "%s %s stream:%d kernel=%s threads=%d backward", problem,
                 walk_dtype(&kernel, turn / kernels), blocks[turn % TEST_COUNT(blocks)],
                 kernel.name, 1 + turn % 3);
    fixture_run(&fixture);
    expect_lab(&fixture);
    fixture_close(&fixture);
}

static void every_pattern_and_term(void **state)
{
    (void)state;
    char sample[256], problem[512];
    int turn = 0;
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int w = 0; w < TEST_COUNT(words); w++) {
            if (++turn % stride()) continue;
            snprintf(problem, sizeof problem, "%s %s", sample, words[w]);
            run_problem(problem, turn / stride());
        }
    expect_forget();
}

static void few_queries_and_other_lengths(void **state)
{
    (void)state;
    static const char *const problems[] = {
        "causal n=1 nk=100 h=4/2 d=8",
        "full n=5 nk=40000 h=2 d=8",
        "causal n=100 nk=30 h=2 d=8",
        "window:9,3 n=40 nk=130 h=2 d=8",
        "full n=7 nk=1 h=2 d=8",
        "causal n=1 h=2 d=8",
        "dilated:8/1,32/4 n=9 nk=100 h=8 d=8",
        /* one of the two windows never sees a key, so its queries are not loaded */
        "dilated:61/61 n=61 h=4 d=16 kernel=scalar",
        "dilated:61/61 n=61 h=4 d=16",
    };
    for (int i = 0; i < TEST_COUNT(problems); i++)
        for (int b = 0; b < TEST_COUNT(blocks); b += 2) {
            struct fixture fixture;
            fixture_open(&fixture, "%s stream:%d threads=2%s", problems[i],
                         i == 1 ? 5000 << b : blocks[b], i == 1 ? "" : " backward");
            fixture_run(&fixture);
            expect_lab(&fixture);
            fixture_close(&fixture);
        }
    expect_forget();
}

/* ---- Callbacks ------------------------------------------------------------------------------- */

/* Tensors of a fixture behind callbacks, and a journal of finished units. */
struct shelf {
    struct fixture *fixture;
    struct column {
        struct shelf *shelf;
        enum tensor tensor;
        char *data;
        size_t row; /* bytes of a position */
        int64_t length;
    } columns[TENSOR_COUNT + 2];
    bool finished[2][256];
    int calls_left; /* until one fails; -1: none does */
    int resumed;    /* units that were skipped */
    void **queue;   /* of ra_stream */
    bool late;      /* on a device with memory of its own, whose queues run late */
};

static ra_status count_call(struct shelf *shelf)
{
    if (shelf->calls_left < 0 || shelf->calls_left-- > 0) return RA_OK;
    return ra_transport_error(RA_ERR_SYSTEM, "the disk is full, says the test");
}

static ra_status read_rows(void *context, int64_t batch, int64_t first, int64_t count, void *to)
{
    const struct column *c = context;
    ra_status status = count_call(c->shelf);
    if (first < 0 || count < 1 || first + count > c->length) abort();
    memcpy(to, c->data + (size_t)(batch * c->length + first) * c->row, (size_t)count * c->row);
    return status;
}

static ra_status write_rows(void *context, int64_t batch, int64_t first, int64_t count,
                            const void *from)
{
    const struct column *c = context;
    ra_status status = count_call(c->shelf);
    if (first < 0 || count < 1 || first + count > c->length) abort();
    /* A write that fails may have written a part. */
    size_t bytes = (size_t)count * c->row / (status == RA_OK ? 1 : 2);
    memcpy(c->data + (size_t)(batch * c->length + first) * c->row, from, bytes);
    return status;
}

static int was_finished(void *context, int backward, int64_t unit)
{
    struct shelf *shelf = context;
    return shelf->finished[backward][unit];
}

static ra_status unit_done(void *context, int backward, int64_t unit)
{
    struct shelf *shelf = context;
    ra_status status = count_call(shelf);
    if (status == RA_OK) shelf->finished[backward][unit] = true;
    return status;
}

static void shelf_open(struct shelf *shelf, struct fixture *fixture)
{
    *shelf = (struct shelf){ .fixture = fixture, .calls_left = -1 };
    for (int i = 0; i < TENSOR_COUNT + 2; i++) {
        enum tensor tensor = i < TENSOR_COUNT ? (enum tensor)i : TENSOR_DQ;
        const struct trial *t = &fixture->trial;
        struct column *c = &shelf->columns[i];
        size_t element = i < TENSOR_COUNT ? half_bytes(tensor_dtype(t, tensor)) : sizeof(float);
        c->shelf = shelf;
        c->tensor = tensor;
        c->length = tensor_length(t, tensor);
        c->row = (size_t)(tensor_heads(t, tensor) * tensor_dim(t, tensor)) * element;
        size_t bytes = (size_t)(t->batch * c->length) * c->row;
        c->data = malloc(bytes);
        memset(c->data, 0x7f, bytes);
        if (tensor <= TENSOR_DLSE) memcpy(c->data, fixture->whole[tensor].data, bytes);
    }
}

static void shelf_close(struct shelf *shelf)
{
    for (int i = 0; i < TENSOR_COUNT + 2; i++) free(shelf->columns[i].data);
}

static ra_rows rows_of(struct shelf *shelf, int column)
{
    return (ra_rows){ read_rows, write_rows, &shelf->columns[column] };
}

static ra_stream stream_of(struct shelf *shelf)
{
    ra_stream stream = ra_stream_default();
    stream.q = rows_of(shelf, TENSOR_Q);
    stream.k = rows_of(shelf, TENSOR_K);
    stream.v = rows_of(shelf, TENSOR_V);
    stream.out = rows_of(shelf, TENSOR_OUT);
    stream.lse = rows_of(shelf, TENSOR_LSE);
    stream.dout = rows_of(shelf, TENSOR_DOUT);
    stream.dlse = rows_of(shelf, TENSOR_DLSE);
    stream.dq = rows_of(shelf, TENSOR_DQ);
    stream.dk = rows_of(shelf, TENSOR_DK);
    stream.dv = rows_of(shelf, TENSOR_DV);
    stream.partial_dq[0] = rows_of(shelf, TENSOR_COUNT);
    stream.partial_dq[1] = rows_of(shelf, TENSOR_COUNT + 1);
    stream.finished = was_finished;
    stream.done = unit_done;
    stream.context = shelf;
    stream.queue = shelf->queue;
    return stream;
}

/* One run, forward and backward, of a process of its own, as it were. */
static ra_status run_shelf(struct shelf *shelf)
{
    const struct trial *t = &shelf->fixture->trial;
    ra_stream stream = stream_of(shelf);
    const size_t held = ra_allocated_bytes();
    ra_group *group;
    ra_plan *plan = NULL;
    ra_problem problem = trial_problem(t);
    problem.pattern = shelf->fixture->pattern;
    ra_plan_options options = ra_plan_options_default();
    options.strategy = t->strategy;
    options.sources = options.backward = 1;
    assert_int_equal(ra_group_create_local(1, NULL, &group), RA_OK);
    if (shelf->late) late_use(&group, 1, true, false);
    ra_status status = ra_plan_create(group, &problem, &options, &plan);
    assert_int_equal(status, RA_OK);
    assert_in_range(ra_plan_units(plan, 0), 1, 256);
    assert_in_range(ra_plan_units(plan, 1), 1, 256);
    ra_attend_args attend = ra_attend_args_default();
    attend.stream = &stream;
    attend.sinks = shelf->fixture->terms.sinks;
    status = ra_attend(plan, &attend);
    ra_gradient_args gradient = ra_gradient_args_default();
    gradient.stream = &stream;
    gradient.sinks = shelf->fixture->terms.sinks;
    if (status == RA_OK) status = ra_gradient(plan, &gradient);
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    assert_int_equal(ra_allocated_bytes(), held);
    return status;
}

static void expect_same(const struct shelf *shelf, const struct fixture *memory, const char *when)
{
    for (int i = TENSOR_OUT; i < TENSOR_COUNT; i++)
        if (memcmp(shelf->columns[i].data, memory->whole[i].data, fixture_bytes(memory, i)))
            fixture_fail(memory, "%s differs %s", tensor_name(i), when);
}

static const char *const problems[] = {
    "causal n=70 h=4/2 d=8 dv=12 stream:16 backward",
    "dilated:16/1,32/2 n=100 h=4 d=8 b=2 stream:32 bf16 backward",
    "window:9 n=64 h=2 d=8 sinks stream:20 f16 backward",
    "full n=20 h=2 d=8 stream:64 backward",
    "blocks:8;strided=3 n=60 h=2 d=8 stream:16 backward",
};

static void callbacks_give_the_bits_of_memory(void **state)
{
    (void)state;
    for (int i = 0; i < TEST_COUNT(problems); i++) {
        struct fixture fixture;
        struct shelf shelf;
        fixture_open(&fixture, "%s", problems[i]);
        fixture_run(&fixture);
        shelf_open(&shelf, &fixture);
        assert_int_equal(run_shelf(&shelf), RA_OK);
        expect_same(&shelf, &fixture, "from memory");
        shelf_close(&shelf);
        fixture_close(&fixture);
    }
}

/* A CPU has no queues. */
static void rows_on_a_device_need_one(void **state)
{
    (void)state;
    struct fixture fixture;
    struct shelf shelf;
    void *queue = NULL;
    fixture_open(&fixture, "%s", problems[0]);
    fixture_run(&fixture);
    shelf_open(&shelf, &fixture);
    shelf.queue = &queue;
    assert_int_equal(run_shelf(&shelf), RA_ERR_ARGUMENT);
    assert_non_null(strstr(ra_last_error(), "queue is for rows in memory of a device"));
    shelf_close(&shelf);
    fixture_close(&fixture);
}

/* The n-th call of a callback fails, for every n, again and again until the run is done. */
static void break_off_and_resume(bool late)
{
    for (int i = 0; i < TEST_COUNT(problems); i++) {
        struct fixture fixture;
        fixture_open(&fixture, "%s", problems[i]);
        fixture_run(&fixture);
        const int step = test_long() ? 1 : 7;
        for (int calls = 1 + i;; calls += step) {
            struct shelf shelf;
            shelf_open(&shelf, &fixture);
            shelf.calls_left = calls;
            shelf.late = late;
            ra_status status = run_shelf(&shelf);
            if (status != RA_OK) {
                assert_int_equal(status, RA_ERR_SYSTEM);
                assert_non_null(strstr(ra_last_error(), "the disk is full, says the test"));
                shelf.calls_left = -1;
                assert_int_equal(run_shelf(&shelf), RA_OK);
            }
            expect_same(&shelf, &fixture, "after it was resumed");
            shelf_close(&shelf);
            if (status == RA_OK) break;
        }
        fixture_close(&fixture);
    }
}

static void broken_off_anywhere_and_resumed(void **state)
{
    (void)state;
    break_off_and_resume(false);
}

/* The host issues loads and stores out of order there; a unit still ends with its last store. */
static void the_same_on_a_device_with_memory_of_its_own(void **state)
{
    (void)state;
    break_off_and_resume(true);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static ra_status make_plan(ra_plan_options *options, int64_t tokens, ra_plan **plan)
{
    ra_problem problem = ra_problem_default();
    ra_pattern *pattern;
    assert_int_equal(ra_pattern_parse("dilated:256/1,512/2", &pattern), RA_OK);
    problem.pattern = pattern;
    problem.q_len = tokens;
    problem.q_heads = 8;
    problem.dim = 64;
    problem.dtype = RA_BF16;
    ra_status status = ra_plan_create(NULL, &problem, options, plan);
    ra_pattern_destroy(pattern);
    return status;
}

static void a_budget_is_kept(void **state)
{
    (void)state;
    for (int backward = 0; backward < 2; backward++)
        for (size_t megabytes = 32; megabytes <= 512; megabytes *= 2) {
            ra_plan_options options = ra_plan_options_default();
            ra_memory memory = ra_memory_default();
            ra_plan *plan;
            options.strategy = "auto";
            options.sources = 1;
            options.backward = backward;
            options.memory = megabytes << 20;
            assert_int_equal(make_plan(&options, 1 << 20, &plan), RA_OK);
            assert_int_equal(strncmp(ra_plan_strategy(plan), "stream:", 7), 0);
            assert_int_equal(ra_plan_memory(plan, &memory), RA_OK);
            assert_int_equal(memory.shard, 0);
            assert_true(memory.total <= options.memory);
            assert_true(memory.total >= options.memory / 2 || megabytes > 256);
            ra_plan_destroy(plan);
        }
}

static void auto_takes_it_only_if_nothing_else_fits(void **state)
{
    (void)state;
    ra_plan_options options = ra_plan_options_default();
    ra_plan *plan;
    options.strategy = "auto";
    options.sources = 1;
    options.memory = (size_t)1 << 30;
    assert_int_equal(make_plan(&options, 4096, &plan), RA_OK);
    assert_string_equal(ra_plan_strategy(plan), "ring");
    assert_int_equal(ra_plan_units(plan, 0), 0);
    assert_int_equal(ra_plan_block(plan), 0);
    ra_plan_destroy(plan);
    options.sources = 0; /* tensors in memory are above the budget in any case */
    options.memory = (size_t)8 << 20;
    assert_int_equal(make_plan(&options, 1 << 20, &plan), RA_ERR_BUDGET);
}

static void refused(void **state)
{
    (void)state;
    static const char *const wrong[] = { "stream:", "stream:0", "stream:-1", "stream:8x",
                                         "stream:x" };
    ra_plan_options options = ra_plan_options_default();
    ra_plan *plan;
    for (int i = 0; i < TEST_COUNT(wrong); i++) {
        options.strategy = wrong[i];
        assert_int_equal(make_plan(&options, 64, &plan), RA_ERR_ARGUMENT);
    }
    options.strategy = "stream";
    options.ranks = 2;
    assert_int_equal(make_plan(&options, 64, &plan), RA_ERR_UNSUPPORTED);
    assert_non_null(strstr(ra_last_error(), "one rank"));
    options = ra_plan_options_default();
    options.strategy = "stream";
    options.memory = 65536;
    options.sources = 1;
    assert_int_equal(make_plan(&options, 1 << 20, &plan), RA_ERR_BUDGET);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_and_term),
        cmocka_unit_test(few_queries_and_other_lengths),
        cmocka_unit_test(callbacks_give_the_bits_of_memory),
        cmocka_unit_test(rows_on_a_device_need_one),
        cmocka_unit_test(broken_off_anywhere_and_resumed),
        cmocka_unit_test(the_same_on_a_device_with_memory_of_its_own),
        cmocka_unit_test(a_budget_is_kept),
        cmocka_unit_test(auto_takes_it_only_if_nothing_else_fits),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
