/* SPDX-License-Identifier: Apache-2.0 */
/* test_grid_plans.c - every problem of the conformance grid can be planned, and its programs stay
 * inside of their buffers. Tests run few of them; one that the library refuses would be found by a
 * user of `ringattn verify`, and a key outside of a buffer by nobody, as long as kernels add 0 to
 * it: on a GPU small integers after the buffer became 0 that way. */
#include "support/test.h"

#include "api/handles.h"
#include "harness/grid/grid.h"
#include "harness/problem/order.h"
#include "harness/problem/trial.h"

/* Tokens that a step finds in a buffer of K and V, or of their gradients. */
static int64_t tokens_in(const struct ra__program *program, enum ra__buffer buffer)
{
    const struct ra__storage *storage = &program->storage[buffer];
    return storage->tokens ? storage->tokens : program->work.keys;
}

static void check_run(const char *text, const struct ra__program *program,
                      const struct ra__step *step, const struct ra__plan_row *row, int key)
{
    const enum ra__buffer buffers[] = { step->from,
                                        step->op == RA__OP_GRADIENT ? step->to : step->from };
    for (int64_t repeat = 0; repeat < row->repeat; repeat += ra__max(row->repeat - 1, 1)) {
        const struct ra__key_run run = ra__key_run_at(&program->keys[key], &program->advances[key],
                                                      repeat);
        const int64_t last = run.token + (run.count - 1) * run.token_step;
        for (int i = 0; i < RA__COUNT(buffers); i++)
            if (run.token < 0 || last >= tokens_in(program, buffers[i]))
                fail_msg("%s: keys %lld to %lld of a buffer of %lld tokens", text,
                         (long long)run.token, (long long)last,
                         (long long)tokens_in(program, buffers[i]));
    }
}

static void check_program(const char *text, const struct ra__program *program)
{
    for (int s = 0; s < program->step_count; s++) {
        const struct ra__step *step = &program->steps[s];
        if (step->op != RA__OP_ATTEND && step->op != RA__OP_GRADIENT) continue;
        for (int r = step->first_row; r < step->first_row + step->row_count; r++) {
            const struct ra__plan_row *row = &program->rows[r];
            for (int i = 0; i < row->key_count; i++)
                check_run(text, program, step, row, row->first_key + i);
        }
    }
}

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
    /* The first rank, one in the middle, and the last, which sees the fewest keys under zigzag. */
    const int ranks[] = { 0, (int)t.ranks / 2, (int)t.ranks - 1 };
    for (int i = 0; i < TEST_COUNT(ranks); i++) {
        options.rank = ranks[i];
        const ra_status status = ra_plan_create(NULL, &problem, &options, &plan);
        if (status != RA_OK) fail_msg("%s: %s", text, ra_last_error());
        check_program(text, &plan->programs.forward);
        if (t.backward) check_program(text, &plan->programs.backward);
        ra_plan_destroy(plan);
    }
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
