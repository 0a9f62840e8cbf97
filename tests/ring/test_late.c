/* SPDX-License-Identifier: Apache-2.0 */
/* test_late.c - the engine with a backend and a transport that take every freedom their contracts
 * leave (support/late.h): whatever the conformance grid computes comes out bit for bit as with the
 * CPU backend and the local transport. Short runs take every so-many-th problem. */
#include "support/late.h"
#include "support/fixture.h"

#include <string.h>

#include "harness/grid/grid.h"

/* ---- The grid -------------------------------------------------------------------------------- */

struct mode {
    const char *name;
    bool backend, transport;
};
static const struct mode modes[] = { { "late backend", true, false },
                                     { "late transport", false, true },
                                     { "both", true, true } };

static const struct mode *current;

static void use_late(ra_group **groups, int ranks)
{
    late_use(groups, ranks, current->backend, current->transport);
}

static void run_lab(struct fixture *fixture, const char *problem, const struct mode *mode)
{
    current = mode;
    fixture_open(fixture, "%s", problem);
    fixture->regroup = mode ? use_late : NULL;
    fixture_run(fixture);
}

static void compare(const char *problem, const struct mode *mode)
{
    struct fixture plain, late;
    run_lab(&plain, problem, NULL);
    run_lab(&late, problem, mode);
    const enum tensor forward[] = { TENSOR_OUT, TENSOR_LSE };
    const enum tensor backward[] = { TENSOR_DQ, TENSOR_DK, TENSOR_DV };
    for (int i = 0; i < TEST_COUNT(forward); i++)
        if (!fixture_same(&plain, &late, forward[i]))
            fixture_fail(&late, "%s: %s differs", mode->name, tensor_name(forward[i]));
    for (int i = 0; i < TEST_COUNT(backward) && plain.trial.backward; i++)
        if (!fixture_same(&plain, &late, backward[i]))
            fixture_fail(&late, "%s: %s differs", mode->name, tensor_name(backward[i]));
    fixture_close(&plain);
    fixture_close(&late);
    assert_int_equal(late_bytes(), 0);
    assert_int_equal(late_in_flight(), 0);
}

static void the_conformance_grid(void **state)
{
    (void)state;
    struct grid grid;
    const int stride = test_long() ? 1 : test_slow() ? 149 : 41;
    assert_int_equal(grid_open(&grid, NULL, NULL, true), 0);
    int run = 0;
    for (int i = 0; i < grid.count; i += stride, run++)
        if (!strstr(grid.cases[i].text, " mpi"))
            compare(grid.cases[i].text, &modes[run % TEST_COUNT(modes)]);
    grid_close(&grid, false);
    assert_true(run > 20);
}

/* Every strategy, with ranks that differ in what they have to do. */
static void rings_of_every_kind(void **state)
{
    (void)state;
    static const char *const problems[] = {
        "causal n=300 h=4/2 d=16 ring=4 zigzag backward",
        "causal n=257 h=4 d=16 ring=5 contiguous backward",
        "window:40 n=300 h=2 d=8 ring=3 backward",
        "full n=190 h=4/2 d=16 dv=8 ring=4 allgather striped backward",
        "causal n=200 h=4/2 d=16 ring=4 ulysses backward",
        "causal n=200 h=8/2 d=16 ring=4 2d:2x2 zigzag backward bf16",
        "dilated:40/1,120/2 n=240 h=4/2 d=8 ring=3 backward",
        "dilated:64/1,128/4 n=256 h=8/4 d=8 ring=4 allgather backward",
        "causal n=128 h=2 d=8 b=3 ring=3 sinks softcap=20 alibi dropout=0.2 backward",
        "full n=1 nk=65536 h=4/2 d=16 ring=2",
        "causal n=300 h=4/2 d=16 stream:64 backward",
        "dilated:40/1,120/2 n=250 h=4/2 d=8 stream:50 backward bf16",
    };
    for (int i = 0; i < TEST_COUNT(problems); i++)
        for (int m = 0; m < TEST_COUNT(modes); m++) compare(problems[i], &modes[m]);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

/* Runs a problem whose n-th step or round fails; RA_OK where it has fewer. */
static ra_status run_failing(int step, int round)
{
    struct fixture fixture;
    current = &modes[2];
    fixture_open(&fixture, "causal n=150 h=4/2 d=8 ring=3 zigzag backward");
    fixture.regroup = use_late;
    fixture_start(&fixture);
    late_fail(step, round);
    ra_status status = lab_try(&fixture);
    late_fail(-1, -1);
    assert_int_equal(late_in_flight(), 0); /* nothing goes on after the call */
    fixture_close(&fixture);
    assert_int_equal(late_bytes(), 0);
    return status;
}

static void every_step_and_every_round_may_fail(void **state)
{
    (void)state;
    int steps = 0, rounds = 0;
    while (run_failing(steps, -1) != RA_OK) steps++;
    while (run_failing(-1, rounds) != RA_OK) rounds++;
    assert_true(steps > 60); /* of three ranks, forward and backward */
    assert_true(rounds > 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_of_every_kind),
        cmocka_unit_test(the_conformance_grid),
        cmocka_unit_test(every_step_and_every_round_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
