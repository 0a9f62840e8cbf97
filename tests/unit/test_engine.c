/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine.c - a run plans once per rank, and the forecast is that of the plans it runs. The
 * linker sends the harness's calls of ra_plan_create here (--wrap). */
#include "support/test.h"

#include "harness/run/engine.h"

ra_status __real_ra_plan_create(ra_group *, const ra_problem *, const ra_plan_options *,
                                ra_plan **);
ra_status __wrap_ra_plan_create(ra_group *, const ra_problem *, const ra_plan_options *,
                                ra_plan **);

static int plans;

ra_status __wrap_ra_plan_create(ra_group *group, const ra_problem *problem,
                                const ra_plan_options *options, ra_plan **out)
{
    plans++;
    return __real_ra_plan_create(group, problem, options, out);
}

static void check_run(const char *problem)
{
    struct trial trial;
    struct engine engine;
    struct engine_setup setup = { .trial = &trial, .quiet = true };
    assert_int_equal(trial_parse(&trial, problem), 0);
    plans = 0;
    assert_int_equal(engine_open(&engine, &setup), 0);
    assert_int_equal(engine_forward(&engine), 0);
    if (trial.backward) assert_int_equal(engine_backward(&engine), 0);
    assert_int_equal(plans, trial.ranks);
    int64_t pairs = 0;
    for (int rank = 0; rank < engine.ranks; rank++) {
        const struct forecast_rank *f = &engine.forecast.rank[rank];
        const struct engine_rank *r = &engine.rank[rank];
        assert_int_equal(f->forward.bytes_sent, r->forward.bytes_sent);
        assert_int_equal(f->backward.bytes_sent, r->backward.bytes_sent);
        assert_int_equal(f->memory.total, r->memory.total);
        pairs += r->forward.pairs;
    }
    assert_int_equal(engine.forecast.pairs, pairs);
    assert_string_equal(engine.forecast.strategy, ra_plan_strategy(engine.rank[0].plan));
    engine_close(&engine);
    trial_clear(&trial);
}

static void a_run_plans_once_per_rank(void **state)
{
    (void)state;
    check_run("full n=40 h=2 d=8");
    check_run("causal n=61 h=4/2 d=16 ring=4 zigzag backward");
    check_run("causal n=61 h=4/2 d=16 ring=3 allgather order=shuffled:3");
    check_run("full n=64 h=4 d=16 ring=4 auto latency=1e-6 bandwidth=1e9 flops=1e9");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_run_plans_once_per_rank) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
