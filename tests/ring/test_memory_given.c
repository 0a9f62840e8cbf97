/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory_given.c - bytes per rank: what plans say against what an allocator really gave, and
 * against budgets; and that running allocates nothing. */
#include "support/ask.h"
#include "support/counter.h"
#include "support/fixture.h"
#include "support/walk.h"

#include <malloc.h>
#include <stdlib.h>

/* ---- What the allocator gave ----------------------------------------------------------------- */

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
    ra_memory m = ask_memory("full n=16777216 h=32 d=128 ring=16 backward", 7);
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

/* A lone plan of a problem, with its group. */
struct lone {
    ra_group *group;
    ra_plan *plan;
    ra_memory memory;
};

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_allocator_gave_what_is_accounted),
        cmocka_unit_test(a_plan_without_a_group_is_small),
        cmocka_unit_test(running_out_of_memory_leaves_nothing),
        cmocka_unit_test(a_budget_is_kept_or_refused),
        cmocka_unit_test(a_budget_is_held_against_the_total),
        cmocka_unit_test(running_allocates_nothing),
        cmocka_unit_test(running_anything_allocates_nothing),
        cmocka_unit_test(running_does_not_touch_the_heap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
