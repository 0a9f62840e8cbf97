/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory.c - bytes per rank: what plans say against the formulas, against what an allocator
 * really gave, and against budgets; and that running allocates nothing. */
#include "support/counter.h"
#include "support/fixture.h"
#include "support/walk.h"

#include <malloc.h>
#include <stdlib.h>

#include "harness/run/forecast.h"

/* ---- Asking ---------------------------------------------------------------------------------- */

static ra_memory ask(const char *problem, int rank)
{
    struct trial trial;
    ra_plan *plan;
    ra_memory memory = ra_memory_default();
    assert_int_equal(trial_parse(&trial, problem), 0);
    assert_int_equal(forecast_plan(&trial, 0, rank, &plan), 0);
    assert_ok(ra_plan_memory(plan, &memory));
    ra_plan_destroy(plan);
    trial_clear(&trial);
    return memory;
}

static void expect_bytes(const char *problem, const char *what, size_t got, size_t want)
{
    if (got == want) return;
    print_error("%s: %zu bytes, but %zu are right\n  ringattn plan: %s\n", what, got, want,
                problem);
    fail();
}

/* ---- Formulas -------------------------------------------------------------------------------- */

/* n=960 h=6/2 d=8 dv=12 b=3, e bytes per element. */
static void check_formulas(int ranks, const char *dtype, size_t e, const char *pattern, int rank)
{
    char problem[128];
    size_t q = 960 / (size_t)ranks, k = q, several = ranks > 1,
           visitors = ranks > 2 ? 3 : several * 2;
    size_t shard = 3 * (q * 6 + k * 2) * 20 * e, block = 3 * k * 2 * 20;
    snprintf(problem, sizeof problem, "%s n=960 h=6/2 d=8 dv=12 b=3 %s ring=%d", pattern, dtype,
             ranks);
    ra_memory m = ask(problem, rank);
    expect_bytes(problem, "shard", m.shard, shard);
    expect_bytes(problem, "travel", m.travel, several * 2 * block * e);
    expect_bytes(problem, "state", m.state, several * 3 * q * 6 * (12 + 2) * 4);
    expect_bytes(problem, "gradient", m.gradient, 0);
    expect_bytes(problem, "total", m.total,
                 m.shard + m.travel + m.state + m.gradient + m.workspace + m.bookkeeping);
    strcat(problem, " backward");
    m = ask(problem, rank);
    expect_bytes(problem, "shard", m.shard, 2 * shard + 3 * q * 6 * 4);
    expect_bytes(problem, "travel", m.travel, several * 2 * block * e);
    expect_bytes(problem, "state", m.state, several * 3 * q * 6 * (12 + 2) * 4);
    expect_bytes(problem, "gradient", m.gradient,
                 3 * q * 6 * (8 + 1) * 4 + (1 + visitors) * block * 4);
}

static void ring_bytes_follow_the_formulas(void **state)
{
    (void)state;
    static const int ranks[] = { 1, 2, 4, 16 };
    for (int i = 0; i < TEST_COUNT(ranks); i++)
        for (int rank = 0; rank<ranks[i]; rank += ranks[i]> 4 ? 5 : 1) {
            check_formulas(ranks[i], "f32", 4, "full", rank);
            check_formulas(ranks[i], "bf16", 2, "full", rank);
            check_formulas(ranks[i], "f16", 2, "full", rank);
        }
}

/* State only where rows span hops: a rank that sees its own keys alone needs none, nor blocks. */
static void rows_that_stay_need_no_state(void **state)
{
    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        ra_memory m = ask("full;docs=0,16,32,48,64 n=64 h=2 d=8 ring=4 backward", rank);
        assert_int_equal(m.state, 0);
        assert_int_equal(m.travel, 0);
        assert_int_equal(m.gradient, (16 * 2 * 9 + 16 * 2 * 16) * 4);
    }
    assert_int_equal(ask("causal n=64 h=2 d=8 ring=4", 0).state, 0);
    assert_int_equal(ask("causal n=64 h=2 d=8 ring=4 allgather", 3).state, 0);
    assert_int_not_equal(ask("causal n=64 h=2 d=8 ring=4", 1).state, 0);
}

/* Allgather: all keys seen, the own block packed, and two on their way. */
static void allgather_bytes_follow_the_formulas(void **state)
{
    (void)state;
    char problem[128];
    for (int ranks = 1; ranks <= 16; ranks *= 2) {
        size_t q = 960 / (size_t)ranks, several = ranks > 1, waves = ranks > 2 ? 2 : several;
        size_t row = 3 * 2 * 20;
        snprintf(problem, sizeof problem,
                 "full n=960 h=6/2 d=8 dv=12 b=3 bf16 ring=%d allgather backward", ranks);
        ra_memory m = ask(problem, ranks / 2);
        expect_bytes(problem, "travel", m.travel, several * (960 + (1 + waves) * q) * row * 2);
        expect_bytes(problem, "state", m.state, 0);
        expect_bytes(problem, "gradient", m.gradient,
                     3 * q * 6 * 9 * 4 + (q + several * (960 + (1 + waves) * q)) * row * 4);
    }
}

/* Teams: the head slice with its LSE, and a message out, one or two in; h=8/4, so that slices are
 * equal, or, 8 members, h=8/2, where 4 members share a KV head. */
static void check_team(int u, int r, const char *dtype, size_t e, bool shared)
{
    char problem[128];
    size_t ranks = (size_t)(u * r), kv = shared ? 2 : 4, hq = 8 / (size_t)u;
    size_t hkv = shared ? 1 : kv / (size_t)u, n = 960 / (size_t)r, q = 960 / ranks;
    size_t sums = shared ? 4 : e, several = r > 1, visitors = r > 2 ? 3 : several * 2;
    size_t arrivals = u > 2 ? 2 : u > 1, block = 3 * n * hkv * 20;
    size_t in = 3 * q * (hq * 8 * e + hkv * 20 * e), out = 3 * q * hq * (12 * e + 4);
    size_t share = u > 1 ? 3 * n * ((hq + hkv) * 20 * e + hq * 4) : 0;
    snprintf(problem, sizeof problem, "full n=960 h=8/%d d=8 dv=12 b=3 %s ring=%d 2d:%dx%d",
             (int)kv, dtype, (int)ranks, u, r);
    ra_memory m = ask(problem, (int)ranks / 2);
    size_t message = in > out ? in : out;
    expect_bytes(problem, "travel", m.travel,
                 share + (u > 1) * (1 + arrivals) * message + several * 2 * block * e);
    expect_bytes(problem, "state", m.state, several * 3 * n * hq * 14 * 4);
    expect_bytes(problem, "shard", m.shard, 3 * q * (8 + kv) * 20 * e);
    strcat(problem, " backward");
    m = ask(problem, (int)ranks / 2);
    size_t in_back = 3 * q * (hq * (20 * e + 8) + hkv * 20 * e);
    size_t out_back = 3 * q * (hq * 8 * e + hkv * 20 * sums);
    message = in_back > out_back ? in_back : out_back;
    expect_bytes(problem, "travel", m.travel,
                 share + (u > 1) * (1 + arrivals) * message + several * 2 * block * e);
    expect_bytes(problem, "gradient", m.gradient,
                 3 * n * hq * 9 * 4 + (1 + visitors) * block * 4 + (u > 1) * 3 * q * 8 * 4 +
                     shared * 3 * q * kv * 20 * 4);
}

static void team_bytes_follow_the_formulas(void **state)
{
    (void)state;
    static const int sizes[][2] = { { 1, 1 }, { 1, 4 }, { 2, 1 }, { 2, 2 },
                                    { 2, 4 }, { 4, 1 }, { 4, 2 }, { 4, 4 } };
    for (int i = 0; i < TEST_COUNT(sizes); i++) {
        check_team(sizes[i][0], sizes[i][1], "f32", 4, false);
        check_team(sizes[i][0], sizes[i][1], "bf16", 2, false);
    }
    for (int r = 1; r <= 4; r *= 2) {
        check_team(8, r, "f32", 4, true);
        check_team(8, r, "bf16", 2, true);
    }
}

static void total_is_near_the_formula_and_falls_with_ranks(void **state)
{
    (void)state;
    char problem[128];
    double before = 0;
    for (int ranks = 1; ranks <= 16; ranks *= 2) {
        snprintf(problem, sizeof problem, "full n=65536 h=8 d=64 ring=%d", ranks);
        ra_memory m = ask(problem, ranks - 1);
        double q = 65536.0 / ranks, formula = 4 * q * 8 * 64 * 4;
        if (ranks > 1) formula += 2 * q * 8 * 128 * 4 + q * 8 * 66 * 4;
        if ((double)m.total < formula || (double)m.total > 1.05 * formula)
            fail_msg("%s: %zu bytes, the formula says %.0f", problem, m.total, formula);
        if (ranks > 2 && ((double)m.total > 0.525 * before || (double)m.total < 0.475 * before))
            fail_msg("%s: %zu bytes, %.0f on half as many ranks", problem, m.total, before);
        before = (double)m.total;
    }
}

/* Scratch is for the largest job: little where queries and keys are few, and never more than a
 * bound. A kernel that holds one row at a time has nothing to save. */
static void check_workspace(const char *kernel, const char *dtype, const char *more)
{
    enum { SHORT = 4, LONG = 1 << 18, ONE_ROW = 1 << 16 };
    char problem[128];
    size_t least = 0, before = 0;
    for (int64_t n = SHORT; n <= (int64_t)1 << 26; n *= 16) {
        snprintf(problem, sizeof problem, "causal n=%lld h=4 d=64 ring=2 threads=3 kernel=%s %s %s",
                 (long long)n, kernel, dtype, more);
        size_t bytes = ask(problem, 1).workspace;
        if (n == SHORT) least = bytes;
        if (bytes < before || n > LONG) expect_bytes(problem, "workspace", bytes, before);
        before = bytes;
    }
    assert_true(least > 0);
    if (before > ONE_ROW && least > before / 4 * 3)
        fail_msg("%s: %zu bytes, and %zu for 4 tokens", problem, before, least);
}

static void workspace_is_for_the_largest_job(void **state)
{
    (void)state;
    static const char *const more[] = { "", "backward", "allgather backward" };
    ra_part kernel;
    const char *dtype;
    for (int k = 0; walk_kernel(k, &kernel, &dtype); k++)
        for (int i = 0; i < TEST_COUNT(more); i++) check_workspace(kernel.name, dtype, more[i]);
}

/* A plan is a few steps per rank, however long the sequence. */
static void bookkeeping_does_not_grow_with_n(void **state)
{
    (void)state;
    static const char *const partitions[] = { "contiguous", "zigzag", "striped" };
    static const char *const strategies[] = { "ring", "ulysses", "2d:2x4" };
    char problem[128];
    for (int i = 0; i < 3 * TEST_COUNT(partitions); i++) {
        snprintf(problem, sizeof problem, "causal n=1024 ring=8 %s %s backward", partitions[i % 3],
                 strategies[i / 3]);
        size_t small = ask(problem, 3).bookkeeping;
        snprintf(problem, sizeof problem, "causal n=536870912 ring=8 %s %s backward",
                 partitions[i % 3], strategies[i / 3]);
        expect_bytes(problem, "bookkeeping", ask(problem, 3).bookkeeping, small);
    }
}

/* Rows that repeat are kept once, so the same holds for regular sparse patterns. */
static void bookkeeping_of_sparse_plans_does_not_grow_with_n(void **state)
{
    (void)state;
    static const char *const patterns[] = { "dilated:512/1,1024/2,2048/4", "dilated:2048/4;causal",
                                            "blocks:64;local=4;global=1",
                                            "blocks:64;dilated=4/2;levels=4/2;causal" };
    static const char *const partitions[] = { "contiguous", "zigzag", "striped" };
    char problem[160];
    for (int i = 0; i < 3 * TEST_COUNT(patterns); i++) {
        size_t bytes[2];
        for (int large = 0; large < 2; large++) {
            snprintf(problem, sizeof problem, "%s n=%d h=4 d=64 ring=8 %s backward",
                     patterns[i / 3], large ? 524288 : 131072, partitions[i % 3]);
            bytes[large] = ask(problem, 3).bookkeeping;
        }
        if (bytes[1] > bytes[0] + 1024)
            fail_msg("%s: %zu bytes, but %zu at a quarter of the length", problem, bytes[1],
                     bytes[0]);
    }
}

/* ---- What the allocator gave ----------------------------------------------------------------- */

/* A lone plan of a problem, with its group. */
struct lone {
    ra_group *group;
    ra_plan *plan;
    ra_memory memory;
};

static ra_problem lone_problem(void)
{
    ra_problem problem = ra_problem_default();
    problem.q_len = 4096;
    problem.q_heads = 4;
    problem.dim = 64;
    return problem;
}

/* Bytes the allocator gave for plans of a whole group, against the sum of what they say. */
struct plans {
    ra_plan *plan[8];
    const char *strategy;
    bool decode; /* few queries, so that keys are split */
    ra_memory memory[8];
};

static ra_status plan_body(ra_group *group, void *context)
{
    struct plans *plans = context;
    int rank = ra_group_rank(group);
    ra_problem problem = lone_problem();
    ra_plan_options options = ra_plan_options_default();
    if (plans->decode) problem.q_len = 2, problem.k_len = 33000, problem.dim = 8;
    options.backward = !plans->decode;
    options.strategy = plans->strategy;
    plans->memory[rank] = ra_memory_default();
    ra_status status = ra_plan_create(group, &problem, &options, &plans->plan[rank]);
    return status == RA_OK ? ra_plan_memory(plans->plan[rank], &plans->memory[rank]) : status;
}

static void check_given(int ranks, const char *strategy, bool decode)
{
    /* Beside the account stand the plan itself, its pattern, its layouts, and headers. */
    enum { BESIDE = 24 * 1024 };
    static struct counter counter;
    struct plans plans = { .strategy = strategy, .decode = decode };
    ra_group *groups[8];
    counter_install(&counter);
    assert_ok(ra_group_create_local(ranks, NULL, groups));
    size_t before = atomic_load(&counter.held), said = 0;
    counter_reset(&counter);
    assert_ok(ra_group_run(groups, ranks, plan_body, &plans));
    size_t given = atomic_load(&counter.held) - before, peak = atomic_load(&counter.peak) - before;
    assert_int_equal(atomic_load(&counter.held), ra_allocated_bytes());
    for (int i = 0; i < ranks; i++) said += plans.memory[i].total - plans.memory[i].shard;
    if (given < said || given > said + (size_t)ranks * BESIDE)
        fail_msg("%s, %d ranks: %zu bytes given, %zu accounted", strategy, ranks, given, said);
    if (peak > said + (size_t)ranks * BESIDE)
        fail_msg("%s, %d ranks: %zu bytes at the peak, %zu accounted", strategy, ranks, peak, said);
    for (int i = 0; i < ranks; i++) ra_plan_destroy(plans.plan[i]);
    assert_int_equal(atomic_load(&counter.held), before);
    for (int i = 0; i < ranks; i++) ra_group_destroy(groups[i]);
    counter_remove(&counter);
}

static void the_allocator_gave_what_is_accounted(void **state)
{
    (void)state;
    static const char *const strategies[] = { "ring", "allgather", "ulysses", "2d", "auto" };
    for (int ranks = 1; ranks <= 8; ranks++)
        for (int i = 0; i < TEST_COUNT(strategies); i++) {
            check_given(ranks, strategies[i], false);
            check_given(ranks, strategies[i], true);
        }
}

/* Asking costs no buffers. */
static void a_plan_without_a_group_is_small(void **state)
{
    (void)state;
    static struct counter counter;
    counter_install(&counter);
    ra_memory m = ask("full n=16777216 h=32 d=128 ring=16 backward", 7);
    assert_true(m.travel > (size_t)1 << 30);
    assert_true(atomic_load(&counter.peak) < (size_t)1 << 20);
    counter_remove(&counter);
}

/* When memory runs out, at whichever allocation, nothing is left behind. */
static void running_out_of_memory_leaves_nothing(void **state)
{
    (void)state;
    static struct counter counter;
    int refused = 0;
    counter_install(&counter);
    for (int allowed = 0;; allowed++) {
        ra_group *group = NULL;
        struct plans plans = { .strategy = "ring" };
        atomic_store(&counter.left, allowed);
        ra_status status = ra_group_create_local(1, NULL, &group);
        if (status == RA_OK) status = plan_body(group, &plans);
        ra_plan_destroy(plans.plan[0]);
        ra_group_destroy(group);
        assert_int_equal(atomic_load(&counter.held), 0);
        if (status == RA_OK) break;
        assert_int_equal(status, RA_ERR_MEMORY);
        assert_true(strlen(ra_last_error()) > 0);
        refused++;
    }
    assert_true(refused > 10);
    counter_remove(&counter);
}

/* ---- Budgets --------------------------------------------------------------------------------- */

static ra_status plan_within(ra_group *group, size_t budget, struct lone *lone)
{
    ra_problem problem = lone_problem();
    ra_plan_options options = ra_plan_options_default();
    options.backward = 1;
    options.memory = budget;
    lone->memory = ra_memory_default();
    ra_status status = ra_plan_create(group, &problem, &options, &lone->plan);
    return status == RA_OK ? ra_plan_memory(lone->plan, &lone->memory) : status;
}

static void a_budget_is_kept_or_refused(void **state)
{
    (void)state;
    static struct counter counter;
    struct lone lone;
    char bytes[32];
    counter_install(&counter);
    assert_ok(ra_group_create_local(1, NULL, &lone.group));
    assert_ok(plan_within(lone.group, 0, &lone));
    size_t total = lone.memory.total;
    ra_plan_destroy(lone.plan);
    assert_true(total > (size_t)1 << 20);

    assert_ok(plan_within(lone.group, total, &lone));
    ra_plan_destroy(lone.plan);
    counter_reset(&counter);
    lone.plan = NULL;
    assert_fails(RA_ERR_BUDGET, "needs", plan_within(lone.group, total / 2, &lone));
    assert_null(lone.plan);
    snprintf(bytes, sizeof bytes, "%zu", total / 2);
    assert_non_null(strstr(ra_last_error(), bytes));
    assert_true(atomic_load(&counter.largest) < (size_t)64 * 1024);
    ra_group_destroy(lone.group);
    counter_remove(&counter);
}

/* `total` is compared with a budget: one byte less is refused, and the sentence names it. */
static void a_budget_is_held_against_the_total(void **state)
{
    (void)state;
    struct lone lone;
    char bytes[32];
    assert_ok(ra_group_create_local(1, NULL, &lone.group));
    assert_ok(plan_within(lone.group, 0, &lone));
    size_t total = lone.memory.total;
    ra_plan_destroy(lone.plan);
    lone.plan = NULL;
    ra_status status = plan_within(lone.group, total - 1, &lone);
    ra_plan_destroy(lone.plan);
    ra_group_destroy(lone.group);
    assert_int_equal(status, RA_ERR_BUDGET);
    snprintf(bytes, sizeof bytes, "%zu", total);
    assert_non_null(strstr(ra_last_error(), bytes));
}

/* ---- Running allocates nothing --------------------------------------------------------------- */

static size_t heap_in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void check_running(const char *problem)
{
    struct counter counter;
    struct fixture fixture;
    counter_install(&counter);
    fixture_open(&fixture, "%s backward", problem);
    fixture_start(&fixture);
    for (int round = 0; round < 3; round++) {
        size_t calls = atomic_load(&counter.calls);
        fixture_forward(&fixture);
        fixture_backward(&fixture);
        /* ra_group_run() keeps a list of its threads: one piece per call. */
        if (atomic_load(&counter.calls) != calls + 2)
            fixture_fail(&fixture, "round %d allocated %zu times", round,
                         atomic_load(&counter.calls) - calls - 2);
    }
    fixture_close(&fixture);
    counter_remove(&counter);
}

static void running_allocates_nothing(void **state)
{
    (void)state;
    static const char *const ways[] = { "ring=1",           "ring=4",         "ring=3 zigzag",
                                        "ring=4 allgather", "ring=3 ulysses", "ring=4 2d",
                                        "ring=4 auto" };
    char problem[128];
    for (int i = 0; i < TEST_COUNT(ways); i++) {
        snprintf(problem, sizeof problem, "causal n=200 h=2 d=16 %s threads=2", ways[i]);
        check_running(problem);
    }
}

/* Whatever the pattern, the order and the terms. */
static void running_anything_allocates_nothing(void **state)
{
    (void)state;
    static const char *const terms[] = { "", "alibi softcap=4", "sinks bias=add dropout=0.2",
                                         "bias=maskheads" };
    ra_part partition, strategy;
    char sample[96], order[64], problem[256];
    int turn = 0;
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int o = 0; walk_order(o, order, sizeof order); o++)
            for (int s = 0; walk_usable("strategy", s, &strategy); s++, turn++) {
                walk_usable("partition", turn % 3, &partition);
                snprintf(problem, sizeof problem,
                         "%s n=100 h=4/2 d=8 order=%s %s ring=%d %s %s threads=%d", sample, order,
                         terms[(turn + turn / 8) % 4], 1 + turn % 5, partition.name,
                         walk_strategy(&strategy, terms[(turn + turn / 8) % 4]), 1 + turn / 2 % 2);
                check_running(problem);
            }
}

/* The same with the C library's own count, on one thread without ra_group_run(). */
static void running_does_not_touch_the_heap(void **state)
{
    (void)state;
    ra_group *group;
    struct plans plans = { .strategy = "ring" };
    enum { COUNT = 4096 * 4 * 64 };
    float *q = calloc(COUNT, sizeof *q), *out = calloc(COUNT, sizeof *out);
    float *lse = calloc(4096 * 4, sizeof *lse);
    ra_group_options options = ra_group_options_default();
    options.threads = 1;
    assert_ok(ra_group_create_local(1, &options, &group));
    ra_problem problem = lone_problem();
    ra_pattern *pattern;
    assert_ok(ra_pattern_window(20, 3, &pattern));
    problem.pattern = pattern;
    assert_ok(ra_plan_create(group, &problem, NULL, &plans.plan[0]));
    ra_attend_args args = ra_attend_args_default();
    args.q = args.k = args.v = ra_const_tensor_packed(q);
    args.out = ra_tensor_packed(out);
    args.lse = lse;
    assert_ok(ra_attend(plans.plan[0], &args));
    size_t before = heap_in_use();
    assert_ok(ra_attend(plans.plan[0], &args));
    assert_int_equal(heap_in_use(), before);
    ra_plan_destroy(plans.plan[0]);
    ra_pattern_destroy(pattern);
    ra_group_destroy(group);
    free(q);
    free(out);
    free(lse);
}

/* ---- The pool -------------------------------------------------------------------------------- */

static ra_pool pool_of(const struct fixture *fixture, int rank)
{
    ra_pool pool = ra_pool_default();
    assert_ok(ra_group_pool(fixture->groups[rank], &pool));
    return pool;
}

/* Bytes of a plan that can be in the pool: all but shards and bookkeeping. */
static size_t pooled(const struct fixture *fixture, int rank)
{
    const ra_memory *m = &fixture->rank[rank].memory;
    return m->travel + m->state + m->gradient + m->workspace;
}

static void expect_same(const struct fixture *got, const struct fixture *alone)
{
    for (enum tensor t = TENSOR_OUT; t < TENSOR_COUNT; t++)
        if (!fixture_same(got, alone, t))
            fixture_fail(got, "%s: other bits than alone in its group", tensor_name(t));
}

/* Two plans of one group, one after the other in every way: forward and backward of one may have
 * the other's work between them. */
static void check_pair(const char *one, const char *other)
{
    struct fixture labs[2], alone[2];
    const char *const problems[2] = { one, other };
    for (int i = 0; i < 2; i++) {
        fixture_open(&alone[i], "%s backward", problems[i]);
        fixture_run(&alone[i]);
        fixture_open(&labs[i], "%s backward", problems[i]);
    }
    labs[0].pool_threshold = 1;
    labs[1].host = &labs[0];
    fixture_start(&labs[0]);
    fixture_start(&labs[1]);
    for (int round = 0; round < 2; round++) {
        fixture_forward(&labs[0]);
        fixture_forward(&labs[1]);
        fixture_backward(&labs[0]);
        fixture_backward(&labs[1]);
        fixture_forward(&labs[round]);
    }
    for (int rank = 0; rank < labs[0].trial.ranks; rank++) {
        size_t a = pooled(&labs[0], rank), b = pooled(&labs[1], rank);
        ra_pool pool = pool_of(&labs[0], rank);
        if (pool.bytes >= a + b || pool.bytes < (a > b ? a : b) || !pool.hits)
            fixture_fail(&labs[1],
                         "rank %d: a pool of %zu bytes (%lld hits) for plans of %zu and %zu", rank,
                         pool.bytes, (long long)pool.hits, a, b);
        assert_int_equal(pool.bytes_idle, 0);
    }
    for (int i = 1; i >= 0; i--) {
        expect_same(&labs[i], &alone[i]);
        fixture_close(&labs[i]);
        fixture_close(&alone[i]);
    }
}

static void plans_of_a_group_share_their_buffers(void **state)
{
    (void)state;
    check_pair("causal n=90 h=4/2 d=8 ring=3", "full n=90 h=4/2 d=8 ring=3");
    check_pair("dilated:20/1,90/2 n=90 h=4/2 d=8 ring=3", "causal n=70 h=4/2 d=8 ring=3 zigzag");
    check_pair("blocks:8;local=2;global=1 n=90 h=4/2 d=8 ring=4",
               "dilated:60/2;causal n=90 h=4/2 d=8 ring=4 order=hilbert alibi");
    check_pair("window:9 n=90 h=4/2 d=8 ring=4 allgather",
               "full n=64 h=4/2 d=8 ring=4 dropout=0.2");
    check_pair("full n=90 h=4/2 d=8 bf16 ring=2", "full n=90 h=2 d=16 dv=4 ring=2 sinks bias=add");
}

/* The figures: the same plan again costs nothing, and idle buffers can be freed. */
static void the_pool_counts(void **state)
{
    (void)state;
    struct fixture labs[2];
    for (int i = 0; i < 2; i++)
        fixture_open(&labs[i], "dilated:40/1,120/2 n=120 h=4/2 d=8 ring=3 backward");
    labs[0].pool_threshold = 1;
    labs[1].host = &labs[0];
    fixture_start(&labs[0]);
    for (int rank = 0; rank < 3; rank++) {
        ra_pool pool = pool_of(&labs[0], rank);
        assert_int_equal(pool.threshold, 1);
        assert_int_equal(pool.bytes, pooled(&labs[0], rank));
        assert_int_equal(pool.misses, pool.buffers);
        assert_int_equal(pool.hits, 0);
        assert_int_equal(pool.bytes_idle, 0);
    }
    fixture_start(&labs[1]);
    for (int rank = 0; rank < 3; rank++) {
        ra_pool pool = pool_of(&labs[0], rank);
        assert_int_equal(pool.bytes, pooled(&labs[0], rank)); /* two plans, the bytes of one */
        assert_int_equal(pool.hits, pool.buffers);
        assert_int_equal(pool.misses, pool.buffers);
        assert_int_equal(pooled(&labs[1], rank), pooled(&labs[0], rank));
    }
    for (int i = 0; i < 2; i++)
        for (int rank = 0; rank < 3; rank++) {
            ra_plan_destroy(labs[i].rank[rank].plan);
            labs[i].rank[rank].plan = NULL;
            ra_pool pool = pool_of(&labs[0], rank);
            assert_int_equal(pool.bytes_idle, i ? pool.bytes : 0);
            assert_ok(ra_group_trim(labs[0].groups[rank]));
            assert_int_equal(pool_of(&labs[0], rank).bytes, i ? 0 : pool.bytes);
        }
    fixture_close(&labs[1]);
    fixture_close(&labs[0]);
}

/* Below the threshold buffers are a plan's own. */
static void small_buffers_stay_out_of_the_pool(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, "full n=64 h=2 d=8 ring=2");
    fixture_start(&fixture);
    for (int rank = 0; rank < 2; rank++) {
        ra_pool pool = pool_of(&fixture, rank);
        assert_int_equal(pool.threshold, (size_t)16 << 20);
        assert_int_equal(pool.buffers, 0);
        assert_int_equal(pool.hits + pool.misses, 0);
    }
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_bytes_follow_the_formulas),
        cmocka_unit_test(rows_that_stay_need_no_state),
        cmocka_unit_test(allgather_bytes_follow_the_formulas),
        cmocka_unit_test(team_bytes_follow_the_formulas),
        cmocka_unit_test(total_is_near_the_formula_and_falls_with_ranks),
        cmocka_unit_test(workspace_is_for_the_largest_job),
        cmocka_unit_test(bookkeeping_does_not_grow_with_n),
        cmocka_unit_test(bookkeeping_of_sparse_plans_does_not_grow_with_n),
        cmocka_unit_test(the_allocator_gave_what_is_accounted),
        cmocka_unit_test(a_plan_without_a_group_is_small),
        cmocka_unit_test(running_out_of_memory_leaves_nothing),
        cmocka_unit_test(a_budget_is_kept_or_refused),
        cmocka_unit_test(a_budget_is_held_against_the_total),
        cmocka_unit_test(running_allocates_nothing),
        cmocka_unit_test(running_anything_allocates_nothing),
        cmocka_unit_test(running_does_not_touch_the_heap),
        cmocka_unit_test(plans_of_a_group_share_their_buffers),
        cmocka_unit_test(the_pool_counts),
        cmocka_unit_test(small_buffers_stay_out_of_the_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
