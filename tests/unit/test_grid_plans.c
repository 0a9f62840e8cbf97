/* SPDX-License-Identifier: Apache-2.0 */
/* test_grid_plans.c - every problem of the conformance grid can be planned. Tests run few of them;
 * one that the library refuses would be found by a user of `ringattn verify`. */
#include "support/test.h"

#include "harness/grid/grid.h"
#include "harness/problem/order.h"
#include "harness/problem/trial.h"

static void plan_case(const char *text)
{
    struct trial t;
    ra_pattern *pattern;
    ra_order *order = NULL;
    ra_plan *plan;
    assert_int_equal(trial_parse(&t, text), 0);
    assert_ok(ra_pattern_parse(t.pattern ? t.pattern : "full", &pattern));
    assert_int_equal(order_open(&t, &order), 0);
    ra_problem problem = trial_problem(&t);
    problem.pattern = pattern;
    problem.order = order;
    ra_plan_options options = ra_plan_options_default();
    options.strategy = t.strategy;
    options.partition = t.partition;
    options.ranks = (int)t.ranks;
    options.kernel = *t.kernel ? t.kernel : NULL;
    options.backward = t.backward;
    options.bias = t.bias != NULL;
    const ra_status status = ra_plan_create(NULL, &problem, &options, &plan);
    if (status != RA_OK) fail_msg("%s: %s", text, ra_last_error());
    ra_plan_destroy(plan);
    ra_order_destroy(order);
    ra_pattern_destroy(pattern);
    trial_clear(&t);
}

static void every_case_has_a_plan(void **state)
{
    (void)state;
    struct grid grid;
    assert_int_equal(grid_open(&grid, NULL, NULL, true), 0);
    assert_true(grid.count > 5000);
    for (int i = 0; i < grid.count; i += test_slow() ? 7 : 1) plan_case(grid.cases[i].text);
    grid_close(&grid, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_case_has_a_plan) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
