/* SPDX-License-Identifier: Apache-2.0 */
/* test_choose.c - the strategy "auto": every rank chooses the same, what is chosen is what is
 * predicted to be fastest, and predictions are those of three numbers. */
#include "support/walk.h"

#include <math.h>

#include "api/handles.h"

struct question {
    const char *pattern, *partition;
    int64_t n;
    int q_heads, kv_heads, ranks;
    ra_plan_options options;
};

static void ask(const struct question *q, const char *strategy, int rank, ra_plan **out)
{
    ra_pattern *pattern;
    ra_problem problem = ra_problem_default();
    ra_plan_options options = q->options;
    assert_ok(ra_pattern_parse(q->pattern, &pattern));
    problem.pattern = pattern;
    problem.q_len = q->n;
    problem.q_heads = q->q_heads;
    problem.kv_heads = q->kv_heads;
    problem.dim = 64;
    options.strategy = strategy;
    options.partition = q->partition;
    options.kernel = "scalar";
    options.ranks = q->ranks;
    options.rank = rank;
    assert_ok(ra_plan_create(NULL, &problem, &options, out));
    ra_pattern_destroy(pattern);
}

/* What every rank chooses; they must agree. */
static void expect_choice(const struct question *q, const char *want)
{
    for (int rank = 0; rank < q->ranks; rank++) {
        ra_plan *plan;
        ask(q, "auto", rank, &plan);
        if (strcmp(ra_plan_strategy(plan), want))
            fail_msg("%s over %d ranks: rank %d chose %s, not %s: %s", q->pattern, q->ranks, rank,
                     ra_plan_strategy(plan), want, ra_plan_why(plan));
        assert_non_null(strstr(ra_plan_why(plan), want));
        assert_non_null(strstr(ra_plan_why(plan), "GFLOP/s"));
        ra_plan_destroy(plan);
    }
}

static struct question question(const char *pattern, const char *partition, int heads)
{
    return (
        struct question){ pattern, partition, 16384, heads, heads, 4, ra_plan_options_default() };
}

static void it_suits_the_problem(void **state)
{
    (void)state;
    /* The last ranks of a contiguous causal ring have most pairs; heads have all the same. */
    struct question q = question("causal", "contiguous", 8);
    expect_choice(&q, "ulysses");
    /* Balanced, and all of it hidden: the ring needs least memory. */
    q = question("causal", "zigzag", 8);
    expect_choice(&q, "ring");
    /* Sparse tokens go directly to the ranks that see them. */
    q = question("window:64", "contiguous", 8);
    expect_choice(&q, "ring");
    /* A slow network: a ring of many query heads and one KV head sends few bytes, all others
     * more. */
    q = question("full", "contiguous", 8);
    q.kv_heads = 1;
    ra_machine slow = ra_machine_default();
    slow.bandwidth = 1e8;
    q.options.machine = &slow;
    expect_choice(&q, "ring");
    /* Many KV heads on a slow network: a ring sends each of them P - 1 times. */
    q.n = 2048;
    q.kv_heads = 8;
    q.ranks = 8;
    expect_choice(&q, "ulysses");
    /* No rank is left idle. */
    q.q_heads = q.kv_heads = 1;
    expect_choice(&q, "ring");
    q.ranks = 1;
    expect_choice(&q, "ring");
}

/* A bias cannot be taken by teams. */
static void it_heeds_a_bias(void **state)
{
    (void)state;
    ra_plan *plan;
    struct question q = question("causal", "contiguous", 8);
    q.options.bias = 1;
    ask(&q, "auto", 3, &plan);
    assert_true(!strcmp(ra_plan_strategy(plan), "ring") ||
                !strcmp(ra_plan_strategy(plan), "allgather"));
    ra_plan_destroy(plan);
}

/* What does not fit is not chosen while something else does. */
static void it_keeps_a_budget(void **state)
{
    (void)state;
    ra_memory ring = ra_memory_default(), ulysses = ra_memory_default();
    struct question q = question("causal", "contiguous", 8);
    ra_plan *plan;
    ask(&q, "ring", 3, &plan);
    assert_ok(ra_plan_memory(plan, &ring));
    ra_plan_destroy(plan);
    ask(&q, "ulysses", 3, &plan);
    assert_ok(ra_plan_memory(plan, &ulysses));
    ra_plan_destroy(plan);
    assert_true(ring.total < ulysses.total);
    q.options.memory = (ring.total + ulysses.total) / 2;
    ask(&q, "auto", 3, &plan);
    assert_string_not_equal(ra_plan_strategy(plan), "ulysses");
    assert_non_null(strstr(ra_plan_why(plan), "over the budget"));
    ra_plan_destroy(plan);
}

static double predict(const ra_plan *plan, const struct ra__machine *machine)
{
    return ra__program_cost(&plan->programs, &plan->programs.forward, machine).seconds;
}

/* Seconds that a copy of f32 numbers takes, read and written: as cost.c assumes. */
static double copy_seconds(double numbers) { return 2 * 4 * numbers / 1e10; }

/* By hand: work alone, and a ring whose messages are slower than its work. */
static void predictions_are_those_of_three_numbers(void **state)
{
    (void)state;
    struct ra__machine machine = { 1e-3, 1e9, 1e12, 0.0, 1e10, 5e9 };
    struct question q = question("full", "contiguous", 2);
    ra_plan *plan;
    q.ranks = 1;
    ask(&q, "ring", 0, &plan);
    double flops = 2.0 * 16384 * 16384 * 2 * 128;
    double seconds = predict(plan, &machine);
    assert_true(fabs(seconds - flops / 1e12) < 1e-9);
    ra_plan_destroy(plan);
    q.ranks = 4;
    ask(&q, "ring", 2, &plan);
    machine.flops = 1e15;
    double hop = 1e-3 + 4096 * 2 * 128 * 4 / 1e9, own = flops / 16 / 1e15;
    double pack = copy_seconds(4096 * 2 * 128); /* before the first message */
    seconds = predict(plan, &machine);
    assert_true(fabs(seconds - (pack + 3 * hop + own)) < 1e-9);
    machine.flops = 1e11; /* and the other way round: everything but the work is hidden */
    seconds = predict(plan, &machine);
    assert_true(fabs(seconds - (pack + flops / 4 / 1e11)) < 1e-9);
    ra_plan_destroy(plan);
    /* Swaps hide nothing: P - 1 waves in, the work, P - 1 waves out. Each wave is packed before it
     * leaves, and the last one unpacked. */
    q.q_heads = q.kv_heads = 4;
    ask(&q, "ulysses", 2, &plan);
    seconds = predict(plan, &machine);
    double in = 1e-3 + 4096 * 3 * 64 * 4 / 1e9, out = 1e-3 + 4096 * (64 * 4 + 4) / 1e9;
    double copies = 4 * copy_seconds(4096 * 3 * 64) + 4 * copy_seconds(4096 * 65);
    assert_true(fabs(seconds - (3 * in + 3 * out + copies + flops * 2 / 4 / 1e11)) < 1e-9);
    ra_plan_destroy(plan);
}

/* Steps that only copy add little. */
static void check_rate(const ra_stats *stats, double flops_per_second)
{
    double over = stats->seconds / (stats->flops / flops_per_second);
    assert_true(over > 1 - 1e-9 && over < 1.05);
}

/* What is given comes before what was measured, and that before what is usual. */
static void figures_say_where_they_come_from(void **state)
{
    (void)state;
    ra_machine machine = ra_machine_default(), given = ra_machine_default();
    ra_stats stats = ra_stats_default();
    struct question q = question("full", "contiguous", 2);
    ra_plan *plan;
    q.ranks = 1;
    q.options.transport = "mpi";
    ask(&q, "ring", 0, &plan);
    assert_string_equal(ra_plan_figures(plan), "30 us (assumed), 1.2 GB/s (assumed), 100 GFLOP/s a "
                                               "rank (assumed)");
    ra_plan_destroy(plan);
    machine.latency = 7e-6;
    machine.bandwidth = 3e9;
    machine.flops = 2e11;
    machine.backward_flops = 1e11;
    q.options.measured = &machine;
    q.options.machine = &given;
    given.bandwidth = 4e9;
    q.options.backward = 1;
    ask(&q, "ring", 0, &plan);
    assert_string_equal(ra_plan_figures(plan),
                        "7 us (measured), 4 GB/s (given), 200 GFLOP/s a rank "
                        "(measured), 100 backward (measured)");
    assert_ok(ra_plan_forecast(plan, 0, &stats));
    check_rate(&stats, 2e11);
    assert_ok(ra_plan_forecast(plan, 1, &stats));
    check_rate(&stats, 1e11);
    ra_plan_destroy(plan);
    given.flops = 5e11; /* backward too, then */
    ask(&q, "ring", 0, &plan);
    assert_ok(ra_plan_forecast(plan, 1, &stats));
    check_rate(&stats, 5e11);
    ra_plan_destroy(plan);
    assert_string_equal(ra_plan_figures(NULL), "");
    machine.size = 0;
    ra_problem problem = ra_problem_default();
    problem.q_len = problem.q_heads = 1;
    problem.dim = 8;
    assert_int_equal(ra_plan_create(NULL, &problem, &q.options, &plan), RA_ERR_ARGUMENT);
}

enum { MEASURED = 3 };

static ra_status measure_rank(ra_group *group, void *context)
{
    ra_machine *machines = context;
    ra_problem problem = ra_problem_default();
    ra_plan_options options = ra_plan_options_default();
    problem.q_len = 100;
    problem.q_heads = 2;
    problem.dim = 16;
    options.backward = 1;
    return ra_group_measure(group, &problem, &options, &machines[ra_group_rank(group)]);
}

static void all_ranks_measure_the_same(void **state)
{
    (void)state;
    ra_group *groups[MEASURED];
    ra_machine machines[MEASURED];
    ra_group_options options = ra_group_options_default();
    options.threads = 1;
    for (int i = 0; i < MEASURED; i++) machines[i] = ra_machine_default();
    assert_ok(ra_group_create("local", MEASURED, &options, groups));
    assert_ok(ra_group_run(groups, MEASURED, measure_rank, machines));
    for (int i = 0; i < MEASURED; i++) {
        assert_memory_equal(&machines[i], &machines[0], sizeof machines[0]);
        ra_group_destroy(groups[i]);
    }
    assert_true(machines[0].latency > 0.0 && machines[0].latency < 60.0);
    assert_true(machines[0].bandwidth > 1e3 && machines[0].bandwidth < 1e13);
    assert_true(machines[0].flops > 1e3 && machines[0].flops < 1e15);
    assert_true(machines[0].backward_flops > 1e3 && machines[0].backward_flops < 1e15);
    assert_int_equal(ra_group_measure(NULL, NULL, NULL, &machines[0]), RA_ERR_ARGUMENT);
}

static void figures_that_are_none_are_refused(void **state)
{
    (void)state;
    const double wrong[] = { -1.0, NAN, INFINITY };
    for (int i = 0; i < TEST_COUNT(wrong); i++)
        for (int field = 0; field < 5; field++) {
            ra_problem problem = ra_problem_default();
            ra_plan_options options = ra_plan_options_default();
            ra_machine machine = ra_machine_default(), measured = ra_machine_default();
            ra_plan *plan = NULL;
            problem.q_len = 64;
            problem.q_heads = 1;
            problem.dim = 8;
            options.machine = &machine;
            options.measured = &measured;
            *(double *[]){ &machine.latency, &machine.bandwidth, &measured.flops, &machine.copy,
                           &machine.load }[field] = wrong[i];
            test_status(RA_ERR_ARGUMENT, ra_plan_create(NULL, &problem, &options, &plan), "create",
                        __FILE__, __LINE__);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_suits_the_problem),
        cmocka_unit_test(it_heeds_a_bias),
        cmocka_unit_test(it_keeps_a_budget),
        cmocka_unit_test(predictions_are_those_of_three_numbers),
        cmocka_unit_test(figures_say_where_they_come_from),
        cmocka_unit_test(figures_that_are_none_are_refused),
        cmocka_unit_test(all_ranks_measure_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
