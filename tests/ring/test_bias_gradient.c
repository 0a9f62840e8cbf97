/* SPDX-License-Identifier: Apache-2.0 */
/* test_bias_gradient.c - the gradient of an added bias against its definition in double precision:
 * p (dout.v - dout.out), summed over what shares the bias. RINGATTN_TEST_DEVICE names another
 * device than the CPU. */
#include <math.h>
#include <stdlib.h>

#include "support/test.h"
#include "support/walk.h"

enum { N = 37, BATCH = 2, HEADS = 4, KV_HEADS = 2, DIM = 8, MOST_RANKS = 4 };
enum { Q_ROW = HEADS * DIM, K_ROW = KV_HEADS * DIM, MOST_BIAS = BATCH * HEADS * N * N };

/* One problem, all of it in global order. */
struct problem {
    const char *pattern, *partition, *strategy;
    int ranks;
    bool batches, heads; /* has the bias one plane for each? */
    float softcap;
    ra_pattern *parsed;
    ra_layout *layout;
    float q[BATCH * N * Q_ROW], k[BATCH * N * K_ROW], v[BATCH * N * K_ROW], dout[BATCH * N * Q_ROW];
    float bias[MOST_BIAS], dbias[MOST_BIAS], want[MOST_BIAS];
};

static int planes(const struct problem *p)
{
    return (p->batches ? BATCH : 1) * (p->heads ? HEADS : 1);
}

static size_t plane_of(const struct problem *p, int batch, int head)
{
    return (size_t)((p->batches ? batch : 0) * (p->heads ? HEADS : 1) + (p->heads ? head : 0));
}

static void fill(float *to, size_t count, float step)
{
    for (size_t i = 0; i < count; i++) to[i] = 0.8f * sinf(step * (float)(i + 1));
}

static ra_problem problem_of(const struct problem *p)
{
    ra_problem problem = ra_problem_default();
    problem.pattern = p->parsed;
    problem.batch = BATCH;
    problem.q_len = N;
    problem.q_heads = HEADS;
    problem.kv_heads = KV_HEADS;
    problem.dim = DIM;
    problem.softcap = p->softcap;
    return problem;
}

static void problem_open(struct problem *p)
{
    assert_ok(ra_pattern_parse(p->pattern, &p->parsed));
    assert_ok(ra_layout_create(p->partition, N, p->ranks, p->parsed, &p->layout));
    fill(p->q, TEST_COUNT(p->q), 0.7f);
    fill(p->k, TEST_COUNT(p->k), 1.3f);
    fill(p->v, TEST_COUNT(p->v), 1.9f);
    fill(p->dout, TEST_COUNT(p->dout), 0.3f);
    fill(p->bias, TEST_COUNT(p->bias), 2.3f);
    for (int i = 0; i < MOST_BIAS; i += 11) p->bias[i] = -INFINITY; /* hidden */
    memset(p->want, 0, sizeof p->want);
}

static void problem_close(struct problem *p)
{
    ra_pattern_destroy(p->parsed);
    ra_layout_destroy(p->layout);
}

/* ---- By definition --------------------------------------------------------------------------- */

static double dot(const float *a, const float *b)
{
    double sum = 0.0;
    for (int d = 0; d < DIM; d++) sum += (double)a[d] * (double)b[d];
    return sum;
}

static void want_row(struct problem *p, int batch, int head, int query)
{
    const ra_problem problem = problem_of(p);
    const int kv = head / (HEADS / KV_HEADS);
    const size_t at = (plane_of(p, batch, head) * N + (size_t)query) * N;
    const float *q = p->q + (batch * N + query) * Q_ROW + head * DIM;
    const float *dout = p->dout + (batch * N + query) * Q_ROW + head * DIM;
    uint8_t seen[N];
    double weight[N], dp[N], sum = 0.0, delta = 0.0;
    assert_ok(ra_problem_row(&problem, head, query, seen));
    for (int j = 0; j < N; j++) {
        const size_t key = (size_t)((batch * N + j) * K_ROW + kv * DIM);
        double x = dot(q, p->k + key) / sqrt((double)DIM);
        if (p->softcap > 0.0f) x = (double)p->softcap * tanh(x / (double)p->softcap);
        weight[j] = seen[j] * exp(x + (double)p->bias[at + (size_t)j]);
        dp[j] = dot(dout, p->v + key);
        sum += weight[j];
    }
    for (int j = 0; j < N; j++) delta += sum > 0.0 ? weight[j] / sum * dp[j] : 0.0;
    for (int j = 0; j < N && sum > 0.0; j++)
        p->want[at + (size_t)j] += (float)(weight[j] / sum * (dp[j] - delta));
}

/* ---- By the library -------------------------------------------------------------------------- */

/* Numbers of each position, [batch, position, width], of one rank. */
static float *take(const struct problem *p, int rank, const float *from, int width)
{
    const int64_t count = ra_layout_count(p->layout, rank);
    float *to = calloc((size_t)(BATCH * count * width) + 1, sizeof *to);
    const ra_array array = { from, to, BATCH, (size_t)width * sizeof *to };
    assert_non_null(to);
    assert_ok(ra_layout_take(p->layout, rank, &array, 1));
    return to;
}

/* Rows of all planes of the bias that belong to the queries of a rank, PITCH numbers apart. */
enum { PITCH = N + 3 };

static float *take_bias(const struct problem *p, int rank, int64_t rows)
{
    float *packed = calloc((size_t)(rows * N) + 1, sizeof *packed);
    float *wide = malloc((size_t)(rows * PITCH + 1) * sizeof *wide);
    assert_true(packed && wide);
    const ra_array array = { p->bias, packed, planes(p), N * sizeof *packed };
    assert_ok(ra_layout_take(p->layout, rank, &array, 1));
    for (int64_t i = 0; i < rows * PITCH; i++)
        wide[i] = i % PITCH < N ? packed[i / PITCH * N + i % PITCH] : NAN;
    free(packed);
    return wide;
}

/* What is between the rows must be as it was. */
static void give_bias(struct problem *p, int rank, int64_t rows, const float *wide)
{
    float *packed = calloc((size_t)(rows * N) + 1, sizeof *packed);
    assert_non_null(packed);
    for (int64_t i = 0; i < rows * PITCH; i++)
        if (i % PITCH < N) packed[i / PITCH * N + i % PITCH] = wide[i];
        else assert_true(isnan(wide[i]));
    const ra_array array = { packed, p->dbias, planes(p), N * sizeof *packed };
    assert_ok(ra_layout_give(p->layout, rank, &array, 1));
    free(packed);
}

static ra_status run_rank(ra_group *group, void *context)
{
    struct problem *p = context;
    const int rank = ra_group_rank(group);
    const int64_t count = ra_layout_count(p->layout, rank);
    const ra_problem problem = problem_of(p);
    ra_plan_options options = ra_plan_options_default();
    options.partition = p->partition;
    options.strategy = p->strategy;
    options.backward = options.bias = 1;
    ra_plan *plan;
    assert_ok(ra_plan_create(group, &problem, &options, &plan));
    float *q = take(p, rank, p->q, Q_ROW), *k = take(p, rank, p->k, K_ROW);
    float *v = take(p, rank, p->v, K_ROW), *dout = take(p, rank, p->dout, Q_ROW);
    const int64_t rows = planes(p) * count;
    const size_t bytes = (size_t)(rows * PITCH + 1) * sizeof(float);
    float *bias = take_bias(p, rank, rows), *dbias = malloc(bytes), *again = malloc(bytes);
    float *numbers = calloc((size_t)(BATCH * count * (3 * Q_ROW + 2 * K_ROW + HEADS)) + 1,
                            sizeof *numbers);
    assert_true(dbias && again && numbers);
    for (int64_t i = 0; i <= rows * PITCH; i++) dbias[i] = again[i] = NAN;
    float *out = numbers, *lse = out + BATCH * count * Q_ROW, *dq = lse + BATCH * count * HEADS;
    float *dk = dq + BATCH * count * Q_ROW, *dv = dk + BATCH * count * K_ROW;
    const ra_bias given = { .data = bias,
                            .batch_stride = p->batches ? (p->heads ? HEADS : 1) * count * PITCH : 0,
                            .head_stride = p->heads ? count * PITCH : 0,
                            .query_stride = PITCH };
    ra_attend_args forward = ra_attend_args_default();
    forward.q = ra_const_tensor_packed(q);
    forward.k = ra_const_tensor_packed(k);
    forward.v = ra_const_tensor_packed(v);
    forward.out = ra_tensor_packed(out);
    forward.lse = lse;
    forward.bias = given;
    assert_ok(ra_attend(plan, &forward));
    ra_gradient_args backward = ra_gradient_args_default();
    backward.q = forward.q;
    backward.k = forward.k;
    backward.v = forward.v;
    backward.out = ra_tensor_read(forward.out);
    backward.lse = lse;
    backward.dout = ra_const_tensor_packed(dout);
    backward.dq = ra_tensor_packed(dq);
    backward.dk = ra_tensor_packed(dk);
    backward.dv = ra_tensor_packed(dv);
    backward.bias = given;
    backward.dbias = dbias;
    assert_ok(ra_gradient(plan, &backward));
    backward.dbias = again;
    assert_ok(ra_gradient(plan, &backward));
    assert_memory_equal(dbias, again, bytes);
    give_bias(p, rank, rows, dbias);
    ra_plan_destroy(plan);
    float *const all[] = { q, k, v, dout, bias, dbias, again, numbers };
    for (int i = 0; i < TEST_COUNT(all); i++) free(all[i]);
    return RA_OK;
}

static ra_group_options options_of(int threads)
{
    ra_group_options options = ra_group_options_default();
    options.threads = threads;
    options.device = getenv("RINGATTN_TEST_DEVICE");
    return options;
}

static void check(struct problem *p, int threads)
{
    ra_group *groups[MOST_RANKS];
    const ra_group_options options = options_of(threads);
    problem_open(p);
    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < N; i++) want_row(p, b, h, i);
    assert_ok(ra_group_create_local(p->ranks, &options, groups));
    assert_ok(ra_group_run(groups, p->ranks, run_rank, p));
    for (int i = 0; i < p->ranks; i++) ra_group_destroy(groups[i]);
    for (int i = 0; i < planes(p) * N * N; i++)
        if (!(fabsf(p->dbias[i] - p->want[i]) <= 2e-5f))
            fail_msg("%s %s %s on %d: number %d is %g, not %g", p->pattern, p->partition,
                     p->strategy, p->ranks, i, (double)p->dbias[i], (double)p->want[i]);
    problem_close(p);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static const struct {
    const char *partition, *strategy;
    int ranks;
} ways[] = { { "contiguous", "ring", 1 },
             { "zigzag", "ring", 3 },
             { "striped", "allgather", 2 },
             { "contiguous", "ring", 4 },
             { "contiguous", "stream:8", 1 } };

static void every_pattern_on_every_ring(void **state)
{
    (void)state;
    static struct problem p;
    char sample[64];
    /* An emulated device takes its time: each pattern in one way. */
    const bool slow = getenv("RINGATTN_TEST_DEVICE") != NULL;
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int w = slow ? i % TEST_COUNT(ways) : 0; w < TEST_COUNT(ways);
             w += slow ? TEST_COUNT(ways) : 1) {
            p = (struct problem){ .pattern = sample,
                                  .partition = ways[w].partition,
                                  .strategy = ways[w].strategy,
                                  .ranks = ways[w].ranks,
                                  .batches = (i + w) % 2,
                                  .heads = (i + w) / 2 % 2,
                                  .softcap = i % 3 ? 0.0f : 1.5f };
            check(&p, 1 + w % 2);
        }
}

static void threads_do_not_change_bits(void **state)
{
    (void)state;
    static struct problem p;
    static float alone[MOST_BIAS];
    for (int threads = 1; threads <= 3; threads++) {
        p = (struct problem){
            .pattern = "causal", .partition = "contiguous", .strategy = "ring", .ranks = 1
        };
        check(&p, threads);
        if (threads == 1) memcpy(alone, p.dbias, sizeof alone);
        assert_memory_equal(alone, p.dbias, sizeof(float) * N * N);
    }
}

/* ---- Other terms, by differences ------------------------------------------------------------- */

enum { FEW = 19, FEW_ROW = HEADS * DIM };

/* Under an order, with dropout, sinks and a gradient through the LSE. */
struct terms_run {
    ra_order *order;
    float q[FEW * FEW_ROW], dout[FEW * FEW_ROW], dlse[FEW * HEADS], sinks[HEADS];
    float bias[HEADS * FEW * FEW], dbias[HEADS * FEW * FEW];
    float out[FEW * FEW_ROW], lse[FEW * HEADS], spare[3][FEW * FEW_ROW];
};

/* What is differentiated: sum(dout out) + sum(dlse lse). */
static double total_of(struct terms_run *run, bool backward)
{
    ra_group *group;
    ra_plan *plan;
    ra_plan_options options = ra_plan_options_default();
    options.backward = options.bias = 1;
    ra_problem problem = ra_problem_default();
    problem.order = run->order;
    problem.q_len = FEW;
    problem.q_heads = HEADS;
    problem.dim = DIM;
    problem.dropout = 0.3;
    const ra_group_options one = options_of(1);
    assert_ok(ra_group_create_local(1, &one, &group));
    assert_ok(ra_plan_create(group, &problem, &options, &plan));
    ra_attend_args forward = ra_attend_args_default();
    forward.q = forward.k = forward.v = ra_const_tensor_packed(run->q);
    forward.out = ra_tensor_packed(run->out);
    forward.lse = run->lse;
    forward.bias = (ra_bias){ .data = run->bias, .head_stride = FEW * FEW };
    forward.sinks = run->sinks;
    forward.dropout_seed = 5;
    assert_ok(ra_attend(plan, &forward));
    double total = 0.0;
    for (int i = 0; i < FEW * FEW_ROW; i++) total += (double)run->dout[i] * (double)run->out[i];
    for (int i = 0; i < FEW * HEADS; i++) total += (double)run->dlse[i] * (double)run->lse[i];
    ra_gradient_args args = ra_gradient_args_default();
    args.q = args.k = args.v = forward.q;
    args.out = ra_tensor_read(forward.out);
    args.lse = run->lse;
    args.dout = ra_const_tensor_packed(run->dout);
    args.dlse = run->dlse;
    args.dq = ra_tensor_packed(run->spare[0]);
    args.dk = ra_tensor_packed(run->spare[1]);
    args.dv = ra_tensor_packed(run->spare[2]);
    args.bias = forward.bias;
    args.sinks = run->sinks;
    args.dropout_seed = 5;
    args.dbias = run->dbias;
    if (backward) assert_ok(ra_gradient(plan, &args));
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    return total;
}

static void other_terms_are_in_it(void **state)
{
    (void)state;
    static struct terms_run run;
    static float before[HEADS * FEW * FEW], direction[HEADS * FEW * FEW];
    assert_ok(ra_order_parse("shuffled:3", FEW, &run.order));
    fill(run.q, TEST_COUNT(run.q), 0.7f);
    fill(run.dout, TEST_COUNT(run.dout), 0.3f);
    fill(run.dlse, TEST_COUNT(run.dlse), 0.9f);
    fill(run.sinks, HEADS, 1.7f);
    fill(before, TEST_COUNT(before), 2.3f);
    for (int trial = 0; trial < 6; trial++) {
        double slope = 0.0, ends[2];
        fill(direction, TEST_COUNT(direction), 0.11f + 0.7f * (float)trial);
        for (int end = 0; end < 2; end++) {
            for (int i = 0; i < TEST_COUNT(before); i++)
                run.bias[i] = before[i] + (end ? 0.01f : -0.01f) * direction[i];
            ends[end] = total_of(&run, false);
        }
        memcpy(run.bias, before, sizeof before);
        total_of(&run, true);
        for (int i = 0; i < TEST_COUNT(before); i++)
            slope += (double)run.dbias[i] * (double)direction[i];
        const double want = (ends[1] - ends[0]) / 0.02;
        if (!(fabs(slope - want) <= 2e-3 * (1.0 + fabs(want))))
            fail_msg("direction %d: %g, not %g", trial, slope, want);
    }
    ra_order_destroy(run.order);
}

static void without_a_bias_it_is_refused(void **state)
{
    (void)state;
    ra_group *group;
    ra_plan *plan;
    ra_plan_options options = ra_plan_options_default();
    options.backward = options.bias = 1;
    ra_problem problem = ra_problem_default();
    problem.q_len = problem.q_heads = problem.dim = 1;
    float x[12] = { 0.0f }, dbias = 0.0f;
    const uint8_t byte = 1;
    assert_ok(ra_group_create_local(1, NULL, &group));
    assert_ok(ra_plan_create(group, &problem, &options, &plan));
    ra_gradient_args args = ra_gradient_args_default();
    args.q = args.k = args.v = args.out = args.dout = ra_const_tensor_packed(x);
    args.lse = x + 1;
    args.dq = ra_tensor_packed(x + 2);
    args.dk = ra_tensor_packed(x + 3);
    args.dv = ra_tensor_packed(x + 4);
    args.dbias = &dbias;
    assert_fails(RA_ERR_ARGUMENT, "without a bias that is added", ra_gradient(plan, &args));
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    float bias[4] = { 1.0f, 2.0f, 3.0f, 4.0f };
    const struct {
        ra_bias bias;
        float *dbias;
        const char *says;
    } wrong[] = {
        { { .data = &byte, .mask = 1 }, &dbias, "without a bias that is added" },
        { { .data = bias }, bias, "dbias: has the memory of bias" },
        { { .data = bias }, (float *)(void *)((char *)bias + 2), "not aligned" },
        { { .data = bias, .query_stride = 1 }, &dbias, "overlap" },
    };
    problem.q_len = 2;
    for (int i = 0; i < TEST_COUNT(wrong); i++) {
        assert_ok(ra_group_create_local(1, NULL, &group));
        assert_ok(ra_plan_create(group, &problem, &options, &plan));
        args.bias = wrong[i].bias;
        args.dbias = wrong[i].dbias;
        args.dq = ra_tensor_packed(x + 2);
        args.dk = ra_tensor_packed(x + 4);
        args.dv = ra_tensor_packed(x + 6);
        assert_fails(RA_ERR_ARGUMENT, wrong[i].says, ra_gradient(plan, &args));
        ra_plan_destroy(plan);
        ra_group_destroy(group);
    }
    for (int i = 0; i < 4; i++) assert_true(bias[i] == 1.0f + (float)i); /* nothing was written */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_on_every_ring),
        cmocka_unit_test(threads_do_not_change_bits),
        cmocka_unit_test(other_terms_are_in_it),
        cmocka_unit_test(without_a_bias_it_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
