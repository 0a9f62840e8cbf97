/* SPDX-License-Identifier: Apache-2.0 */
/* test_api_versions.c - structs of older and newer callers: fields that one side does not know. */
#include "support/desk.h"

#include <math.h>

/* A caller who knows nothing of the dtypes yet is given all else, and not a byte more. */
static void parts_of_older_callers(void **state)
{
    (void)state;
    ra_part part = ra_part_default(), whole = ra_part_default();
    part.size = offsetof(ra_part, dtypes);
    part.dtypes = 77;
    assert_ok(ra_part_at("kernel", 0, &part));
    assert_ok(ra_part_at("kernel", 0, &whole));
    assert_string_equal(part.name, whole.name);
    assert_ptr_equal(part.samples, whole.samples);
    assert_int_equal(part.dtypes, 77);
    assert_true(whole.dtypes != 0 && whole.dtypes != 77);
}

/* An older caller: fields after its size hold anything and must not be read. */
static void older_callers_get_defaults(void **state)
{
    (void)state;
    ra_problem problem;
    ra_plan *plan;
    ra_memory memory = ra_memory_default();
    memset(&problem, 0xee, sizeof problem);
    problem = (ra_problem){ .size = offsetof(ra_problem, value_dim),
                            .q_len = 12,
                            .q_heads = 2,
                            .dim = 4,
                            .value_dim = -17,
                            .scale = NAN };
    assert_ok(ra_plan_create(NULL, &problem, NULL, &plan));
    assert_ok(ra_plan_memory(plan, &memory));
    assert_int_equal(memory.shard, 4 * 12 * 2 * 4 * 4); /* value_dim = dim */
    ra_plan_destroy(plan);
    ra_plan_options options = ra_plan_options_default();
    options.size = offsetof(ra_plan_options, kernel);
    options.kernel = "abacus";
    options.ranks = -1;
    problem = desk_problem();
    assert_ok(ra_plan_create(NULL, &problem, &options, &plan));
    ra_plan_destroy(plan);
}

/* A newer caller: fields we do not know must be zero. */
static void newer_callers_may_leave_new_fields_alone(void **state)
{
    (void)state;
    struct {
        ra_problem now;
        char later[24];
    } problem = { .now = desk_problem() };
    ra_plan *plan = DESK_KEPT;
    problem.now.size = sizeof problem;
    assert_ok(ra_plan_create(NULL, &problem.now, NULL, &plan));
    ra_plan_destroy(plan);
    plan = DESK_KEPT;
    for (size_t i = 0; i < sizeof problem.later; i++) {
        problem.later[i] = 1;
        assert_fails(RA_ERR_UNSUPPORTED, "ra_problem: a field is set that this library",
                     ra_plan_create(NULL, &problem.now, NULL, &plan));
        assert_ptr_equal(plan, DESK_KEPT);
        problem.later[i] = 0;
    }
}

static void newer_options_and_arguments_likewise(void **state)
{
    (void)state;
    struct {
        ra_plan_options now;
        char later[8];
    } options = { .now = ra_plan_options_default() };
    struct {
        ra_group_options now;
        char later[8];
    } group_options = { .now = ra_group_options_default() };
    struct {
        ra_attend_args now;
        char later[8];
    } args;
    struct desk d;
    ra_problem problem = desk_problem();
    ra_plan *plan = DESK_KEPT;
    ra_group *group = DESK_KEPT;
    options.now.size = sizeof options;
    options.later[3] = 1;
    assert_fails(RA_ERR_UNSUPPORTED, "ra_plan_options",
                 ra_plan_create(NULL, &problem, &options.now, &plan));
    group_options.now.size = sizeof group_options;
    group_options.later[0] = 1;
    assert_fails(RA_ERR_UNSUPPORTED, "ra_group_options",
                 ra_group_create_local(1, &group_options.now, &group));
    assert_ptr_equal(plan, DESK_KEPT);
    assert_ptr_equal(group, DESK_KEPT);
    desk_open(&d, 0);
    memset(&args, 0, sizeof args);
    args.now = d.attend;
    args.now.size = sizeof args;
    args.later[7] = 1;
    assert_fails(RA_ERR_UNSUPPORTED, "ra_attend_args", ra_attend(d.plan, &args.now));
    assert_true(d.out[0] == 5.0f);
    args.later[7] = 0;
    assert_ok(ra_attend(d.plan, &args.now));
    desk_close(&d);
}

/* Results: as much as the caller has room for; its size stays. */
static void results_fit_the_caller(void **state)
{
    (void)state;
    struct {
        ra_memory now;
        char later[16];
    } newer = { .now = ra_memory_default() };
    ra_memory older = ra_memory_default();
    ra_problem problem = desk_problem();
    ra_plan *plan;
    assert_ok(ra_plan_create(NULL, &problem, NULL, &plan));
    older.size = offsetof(ra_memory, state);
    older.state = older.total = 99;
    assert_ok(ra_plan_memory(plan, &older));
    assert_true(older.shard > 0);
    assert_int_equal(older.state, 99);
    assert_int_equal(older.total, 99);
    assert_int_equal(older.size, offsetof(ra_memory, state));
    newer.now.size = sizeof newer;
    memset(newer.later, 7, sizeof newer.later);
    assert_ok(ra_plan_memory(plan, &newer.now));
    assert_int_equal(newer.now.size, sizeof newer);
    assert_true(newer.now.total >= newer.now.shard);
    ra_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_older_callers),
        cmocka_unit_test(older_callers_get_defaults),
        cmocka_unit_test(newer_callers_may_leave_new_fields_alone),
        cmocka_unit_test(newer_options_and_arguments_likewise),
        cmocka_unit_test(results_fit_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
