/* SPDX-License-Identifier: Apache-2.0 */
/* test_api_plans.c - wrong problems, options, layouts and questions: plans refuse them with a
 * status, a sentence and no change. */
#include "support/desk.h"

#include <math.h>

/* ---- Problems -------------------------------------------------------------------------------- */

static void refuse(ra_problem problem, ra_status status, const char *sentence)
{
    ra_plan *plan = DESK_KEPT;
    ra_state *state = DESK_KEPT;
    size_t held = ra_allocated_bytes();
    assert_fails(status, sentence, ra_plan_create(NULL, &problem, NULL, &plan));
    assert_fails(status, sentence, ra_state_create(&problem, NULL, &state));
    assert_ptr_equal(plan, DESK_KEPT);
    assert_ptr_equal(state, DESK_KEPT);
    assert_int_equal(ra_allocated_bytes(), held);
}

static void wrong_problems_are_refused(void **state)
{
    (void)state;
    ra_problem p;
#define REFUSE(field, value, sentence)                                                             \
    p = desk_problem();                                                                            \
    p.field = value;                                                                               \
    refuse(p, RA_ERR_ARGUMENT, sentence)
    REFUSE(size, 0, "size is not set; start from ra_problem_default()");
    REFUSE(dtype, (ra_dtype)7, "7 is no dtype");
    REFUSE(dtype, (ra_dtype)-1, "-1 is no dtype");
    REFUSE(batch, -1, "batch is -1");
    REFUSE(batch, INT64_MAX, "batch is");
    REFUSE(q_len, -1, "q_len is -1");
    REFUSE(q_len, INT64_MAX, "q_len is");
    REFUSE(k_len, -5, "k_len is -5");
    REFUSE(q_heads, 0, "q_heads is 0");
    REFUSE(q_heads, -2, "q_heads is -2");
    REFUSE(q_heads, INT32_MAX, "q_heads is");
    REFUSE(kv_heads, -1, "kv_heads is -1");
    REFUSE(kv_heads, 3, "2 query heads are not a multiple of 3 KV heads");
    REFUSE(kv_heads, 4, "are not a multiple");
    REFUSE(dim, 0, "dim is 0, but must be 1 to 576");
    REFUSE(dim, 577, "dim is 577");
    REFUSE(dim, -4, "dim is -4");
    REFUSE(value_dim, 577, "value_dim is 577");
    REFUSE(value_dim, -1, "value_dim is -1");
    REFUSE(scale, NAN, "scale is not a finite number");
    REFUSE(scale, INFINITY, "scale is not a finite number");
    REFUSE(softcap, -1.0f, "softcap is -1, but must be 0 or 1e-30 to 1e30");
    REFUSE(softcap, NAN, "must be 0 or 1e-30 to 1e30");
    REFUSE(softcap, 3e38f, "must be 0 or 1e-30 to 1e30");
    REFUSE(softcap, 1e-40f, "must be 0 or 1e-30 to 1e30");
    REFUSE(dropout, -0.1, "dropout is -0.1, but must be 0 to below 1");
    REFUSE(dropout, 1.0, "dropout is 1, but must be 0 to below 1");
    REFUSE(dropout, NAN, "must be 0 to below 1");
#undef REFUSE
    p = desk_problem();
    p.batch = INT32_MAX;
    p.q_len = p.k_len = (int64_t)1 << 40;
    p.q_heads = 65536;
    refuse(p, RA_ERR_ARGUMENT, "exceeds 2^63");
}

static void problems_and_patterns_must_fit(void **state)
{
    (void)state;
    ra_pattern *pattern;
    ra_problem p = desk_problem();
    assert_ok(ra_pattern_parse("prefix:2", &pattern));
    p.pattern = pattern;
    p.k_len = 5;
    refuse(p, RA_ERR_UNSUPPORTED, "prefix: more queries (12) than keys (5)");
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_parse("full;docs=0,4,9", &pattern));
    p.pattern = pattern;
    refuse(p, RA_ERR_UNSUPPORTED, "documents");
    p.k_len = 0;
    refuse(p, RA_ERR_ARGUMENT, "the last bound is 9, but there are 12");
    ra_pattern_destroy(pattern);
}

static void the_largest_dims_are_accepted(void **state)
{
    (void)state;
    ra_problem p = desk_problem();
    ra_plan *plan;
    p.dim = p.value_dim = 576;
    assert_ok(ra_plan_create(NULL, &p, NULL, &plan));
    ra_plan_destroy(plan);
}

/* ---- Plan options ---------------------------------------------------------------------------- */

static void refuse_options(ra_plan_options options, ra_status status, const char *sentence)
{
    ra_problem problem = desk_problem();
    ra_plan *plan = DESK_KEPT;
    size_t held = ra_allocated_bytes();
    assert_fails(status, sentence, ra_plan_create(NULL, &problem, &options, &plan));
    assert_ptr_equal(plan, DESK_KEPT);
    assert_int_equal(ra_allocated_bytes(), held);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    ra_plan_options o;
#define REFUSE(field, value, sentence)                                                             \
    o = ra_plan_options_default();                                                                 \
    o.field = value;                                                                               \
    refuse_options(o, RA_ERR_ARGUMENT, sentence)
    REFUSE(size, 0, "size is not set; start from ra_plan_options_default()");
    REFUSE(strategy, "teleport", "\"teleport\" is not known; there are ring, allgather");
    REFUSE(strategy, "", "is not known");
    REFUSE(partition, "spiral", "\"spiral\" is not known");
    REFUSE(partition, "zigzag;perdoc", "the pattern has no documents");
    REFUSE(kernel, "abacus", "abacus");
    REFUSE(ranks, -1, "of -1 ranks");
    REFUSE(ranks, INT32_MAX, "there may be 1 to 4096");
    REFUSE(rank, 1, "rank 1 of 1 ranks");
    REFUSE(rank, -1, "rank -1 of 1 ranks");
    REFUSE(threads, -2, "-2 threads");
#undef REFUSE
    o = ra_plan_options_default();
    o.memory = 16;
    refuse_options(o, RA_ERR_BUDGET, "the budget is 16 B (16 bytes): shard ");
    ra_plan *plan = DESK_KEPT;
    ra_problem problem = desk_problem();
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_create(NULL, NULL, NULL, &plan));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_create(NULL, &problem, NULL, NULL));
    assert_ptr_equal(plan, DESK_KEPT);
}

static void wrong_layouts_of_plans_are_refused(void **state)
{
    (void)state;
    ra_layout *fits, *longer, *wider;
    assert_ok(ra_layout_create(NULL, 12, 2, NULL, &fits));
    assert_ok(ra_layout_create(NULL, 13, 2, NULL, &longer));
    assert_ok(ra_layout_create(NULL, 12, 3, NULL, &wider));
    ra_plan_options o = ra_plan_options_default();
    o.ranks = 2;
    o.layout = longer;
    refuse_options(o, RA_ERR_ARGUMENT, "is for 13 positions over 2 ranks, not 12 over 2");
    o.layout = wider;
    refuse_options(o, RA_ERR_ARGUMENT, "is for 12 positions over 3 ranks, not 12 over 2");
    o.layout = NULL;
    o.kv_layout = fits;
    refuse_options(o, RA_ERR_ARGUMENT, "kv_layout is given without layout");
    o.layout = fits;
    o.kv_layout = longer;
    refuse_options(o, RA_ERR_ARGUMENT, "the layout of the keys");
    o.kv_layout = NULL;
    o.partition = "zigzag";
    refuse_options(o, RA_ERR_ARGUMENT, "both a partition and a layout");
    ra_problem problem = desk_problem();
    problem.k_len = 20;
    o.partition = NULL;
    ra_plan *plan = DESK_KEPT;
    assert_fails(RA_ERR_ARGUMENT, "kv_layout is missing",
                 ra_plan_create(NULL, &problem, &o, &plan));
    assert_ptr_equal(plan, DESK_KEPT);
    ra_layout_destroy(fits);
    ra_layout_destroy(longer);
    ra_layout_destroy(wider);
}

/* ---- Asking plans ---------------------------------------------------------------------------- */

static void ignore_line(void *context, const char *line) { (void)context, (void)line; }

static void wrong_questions_to_plans_are_refused(void **state)
{
    (void)state;
    ra_problem problem = desk_problem();
    ra_plan *plan;
    ra_stats stats = ra_stats_default();
    ra_memory memory = ra_memory_default();
    assert_ok(ra_plan_create(NULL, &problem, NULL, &plan));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_stats(NULL, &stats));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_stats(plan, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_forecast(NULL, 0, &stats));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_forecast(plan, 0, NULL));
    assert_fails(RA_ERR_ARGUMENT, "made without backward", ra_plan_forecast(plan, 1, &stats));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_memory(NULL, &memory));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_memory(plan, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_explain(NULL, 0, ignore_line, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_plan_explain(plan, 0, NULL, NULL));
    assert_fails(RA_ERR_ARGUMENT, "made without backward",
                 ra_plan_explain(plan, 1, ignore_line, NULL));
    stats.size = 0;
    assert_fails(RA_ERR_ARGUMENT, "size is not set", ra_plan_forecast(plan, 0, &stats));
    memory.size = 3;
    assert_fails(RA_ERR_ARGUMENT, "size is not set", ra_plan_memory(plan, &memory));
    assert_int_equal(memory.total, 0);
    ra_plan_destroy(plan);
}

/* Before any run there is nothing to report: zeros, whatever the struct held. */
static void a_plan_that_never_ran_tells_zeros(void **state)
{
    (void)state;
    ra_problem problem = desk_problem();
    ra_plan *plan;
    ra_stats stats = ra_stats_default();
    stats.hops = stats.pairs = 77;
    assert_ok(ra_plan_create(NULL, &problem, NULL, &plan));
    assert_ok(ra_plan_stats(plan, &stats));
    assert_int_equal(stats.hops, 0);
    assert_int_equal(stats.pairs, 0);
    assert_int_equal(stats.size, sizeof stats);
    ra_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_problems_are_refused),
        cmocka_unit_test(problems_and_patterns_must_fit),
        cmocka_unit_test(the_largest_dims_are_accepted),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(wrong_layouts_of_plans_are_refused),
        cmocka_unit_test(wrong_questions_to_plans_are_refused),
        cmocka_unit_test(a_plan_that_never_ran_tells_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
