/* SPDX-License-Identifier: Apache-2.0 */
/* test_helpers.c - every part of a loop runs once, whichever thread runs it. */
#include "support/test.h"

#include <stdatomic.h>

#include "harness/base/helpers.h"

enum { MOST = 64 };

struct counts {
    atomic_int of_part[MOST];
};

static void count_part(void *context, int index)
{
    struct counts *counts = context;
    atomic_fetch_add(&counts->of_part[index], 1);
}

static void check_loop(struct helpers *helpers, int parts)
{
    struct counts counts = { { 0 } };
    helpers_run(helpers, parts, count_part, &counts);
    for (int i = 0; i < MOST; i++)
        assert_int_equal(atomic_load(&counts.of_part[i]), i < parts ? 1 : 0);
}

static void each_part_runs_once(void **state)
{
    (void)state;
    for (int threads = 0; threads <= 5; threads++) {
        struct helpers *helpers = helpers_start(threads);
        assert_non_null(helpers);
        assert_true(helpers_threads(helpers) <= threads + 1);
        for (int again = 0; again < 200; again++)
            for (int parts = 0; parts <= 9; parts += 3) check_loop(helpers, parts);
        check_loop(helpers, MOST);
        helpers_stop(helpers);
    }
}

static void nobody_helps(void **state)
{
    (void)state;
    assert_int_equal(helpers_threads(NULL), 1);
    check_loop(NULL, 7);
    helpers_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_runs_once),
        cmocka_unit_test(nobody_helps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
