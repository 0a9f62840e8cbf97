/* SPDX-License-Identifier: Apache-2.0 */
/* test_api_null.c - NULL for every handle, array and result: harmless where that is allowed,
 * refused with a sentence and no change elsewhere. */
#include "support/desk.h"

static void destroying_nothing_is_allowed(void **state)
{
    (void)state;
    ra_pattern_destroy(NULL);
    ra_layout_destroy(NULL);
    ra_group_destroy(NULL);
    ra_plan_destroy(NULL);
    ra_state_destroy(NULL);
    ra_group_abort(NULL, "nobody");
}

static void questions_to_nobody_have_answers(void **state)
{
    (void)state;
    size_t bytes = 7;
    assert_int_equal(ra_group_rank(NULL), -1);
    assert_int_equal(ra_group_ranks(NULL), 0);
    assert_int_equal(ra_group_threads(NULL), 0);
    assert_int_equal(ra_plan_q_count(NULL), 0);
    assert_int_equal(ra_plan_k_count(NULL), 0);
    assert_string_equal(ra_plan_kernel(NULL), "");
    assert_int_equal(ra_layout_runs(NULL, 0, NULL, 0), 0);
    assert_null(ra_state_data(NULL, &bytes));
    assert_int_equal(bytes, 0);
    assert_null(ra_state_data(NULL, NULL));
}

static void null_patterns(void **state)
{
    (void)state;
    static const int64_t bounds[] = { 0, 4 };
    static const ra_branch branches[] = { { 4, 1 } };
    static const uint8_t active[1] = { 1 };
    ra_pattern *pattern;
    ra_problem problem = ra_problem_default();
    uint8_t seen[4];
    problem.q_len = 4;
    problem.q_heads = 1;
    problem.dim = 8;
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_full(NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_causal(NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_window(1, 1, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_prefix(1, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_parse("full", NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_parse(NULL, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_set_causal(NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_set_documents(NULL, bounds, 2));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_format(NULL, NULL, 0, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_dilated(NULL, 1, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_dilated(branches, 1, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_blocks(4, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_add(NULL, "local=1"));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_add_bitmap(NULL, 1, 1, active));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_problem_row(NULL, 0, 0, seen));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_problem_row(&problem, 0, 0, NULL));
    assert_ok(ra_pattern_full(&pattern));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_set_documents(pattern, NULL, 2));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_format(pattern, NULL, 5, NULL));
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_blocks(4, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_add(pattern, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_pattern_add_bitmap(pattern, 1, 1, NULL));
    ra_pattern_destroy(pattern);
}

static void null_layouts(void **state)
{
    (void)state;
    static const ra_run runs[] = { { 0, 1, 4 } };
    static const int64_t counts[] = { 1 };
    ra_layout *layout = DESK_KEPT;
    int32_t from[4] = { 0 }, to[4] = { 1, 1, 1, 1 };
    ra_array array = { from, to, 1, 4 }, hollow = { NULL, to, 1, 4 };
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_create("zigzag", 4, 1, NULL, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_create_custom(4, 1, NULL, counts, &layout));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_create_custom(4, 1, runs, NULL, &layout));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_create_custom(4, 1, runs, counts, NULL));
    assert_ptr_equal(layout, DESK_KEPT);
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_permute(NULL, &array, 1));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_restore(NULL, &array, 1));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_take(NULL, 0, &array, 1));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_give(NULL, 0, &array, 1));
    assert_ok(ra_layout_create(NULL, 4, 1, NULL, &layout));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_permute(layout, NULL, 1));
    assert_fails(RA_ERR_ARGUMENT, "array 0 has no data", ra_layout_permute(layout, &hollow, 1));
    assert_fails(RA_ERR_ARGUMENT, "array 0 has no data", ra_layout_take(layout, 0, &hollow, 1));
    assert_fails(RA_ERR_ARGUMENT, "rank 1 of 1", ra_layout_take(layout, 1, &array, 1));
    assert_fails(RA_ERR_ARGUMENT, "rank -1 of 1", ra_layout_give(layout, -1, &array, 1));
    for (int i = 0; i < 4; i++) assert_int_equal(to[i], 1); /* nothing was written */
    assert_ok(ra_layout_permute(layout, NULL, 0));
    ra_layout_destroy(layout);
}

/* Numbers of an array that cannot be. */
static void absurd_arrays_are_refused(void **state)
{
    (void)state;
    ra_layout *layout;
    int32_t from[4] = { 0 }, to[4] = { 1, 1, 1, 1 };
    ra_array negative = { from, to, -1, 4 }, array = { from, to, 1, 4 };
    assert_ok(ra_layout_create(NULL, 4, 1, NULL, &layout));
    ra_status batch = ra_layout_permute(layout, &negative, 1),
              count = ra_layout_permute(layout, &array, -1);
    ra_layout_destroy(layout);
    assert_int_equal(batch, RA_ERR_ARGUMENT);
    assert_int_equal(count, RA_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(destroying_nothing_is_allowed),
        cmocka_unit_test(questions_to_nobody_have_answers),
        cmocka_unit_test(null_patterns),
        cmocka_unit_test(null_layouts),
        cmocka_unit_test(absurd_arrays_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
