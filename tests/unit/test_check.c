/* SPDX-License-Identifier: Apache-2.0 */
/* test_check.c - the check against the oracle finds what is wrong: small changes of results whose
 * scores are large, and NaN where there must be none, or none where there must be. */
#include "support/test.h"

#include <math.h>
#include <stdlib.h>

#include "harness/base/half.h"
#include "harness/check/check.h"
#include "harness/data/data.h"
#include "harness/run/engine.h"

struct run {
    struct trial trial;
    struct inputs inputs;
    struct engine engine;
};

static void run_open(struct run *run, const char *problem)
{
    *run = (struct run){ .inputs = { .data = { NULL } } };
    assert_int_equal(trial_parse(&run->trial, problem), 0);
    for (int i = 0; i <= TENSOR_DLSE; i++) {
        struct view view;
        size_t bytes;
        if (tensor_is_backward(i) && !run->trial.backward) continue;
        ra_run all = { .start = 0, .count = tensor_length(&run->trial, i), .step = 1 };
        assert_true(view_shape(&run->trial, i, all.count, &view, &bytes));
        run->inputs.data[i] = view.data = malloc(bytes);
        assert_non_null(view.data);
        assert_int_equal(data_fill(&run->trial, i, &(struct shard){ &all, 1, NULL }, &view), 0);
    }
}

static void run_passes(struct run *run)
{
    struct engine_setup setup = { .trial = &run->trial, .inputs = &run->inputs, .quiet = true };
    assert_int_equal(engine_open(&run->engine, &setup), 0);
    assert_int_equal(engine_forward(&run->engine), 0);
    if (run->trial.backward) assert_int_equal(engine_backward(&run->engine), 0);
}

static void run_close(struct run *run)
{
    engine_close(&run->engine);
    for (int i = 0; i < TENSOR_COUNT; i++) free(run->inputs.data[i]);
    trial_clear(&run->trial);
}

static void require(struct run *run, bool passes, const char *problem, const char *what)
{
    struct check check;
    assert_int_equal(check_engine_fully(&run->engine, &check), 0);
    if (check.passed != passes)
        fail_msg("%s: %s %s: %s", problem, what, passes ? "fails" : "is not found", check.what);
}

/* The first number of a row of a result. */
static char *number_at(struct run *run, enum tensor tensor, int64_t position, int64_t head)
{
    int64_t local;
    const struct view *view = engine_find(&run->engine, tensor, position, &local);
    assert_non_null(view);
    return view_row(view, 0, local, head);
}

static float get(const struct run *run, enum tensor tensor, const char *at)
{
    float value;
    half_to_float(tensor_dtype(&run->trial, tensor), at, 1, &value);
    return value;
}

static void put(const struct run *run, enum tensor tensor, float value, char *at)
{
    half_from_float(tensor_dtype(&run->trial, tensor), &value, 1, at);
}

/* ---- Large scores ---------------------------------------------------------------------------- */

/* Adds `change` to one number, and takes it back. */
static void expect_found(struct run *run, enum tensor tensor, int64_t position, float change,
                         const char *problem)
{
    char *at = number_at(run, tensor, position, 1), what[80];
    float value = get(run, tensor, at);
    snprintf(what, sizeof what, "%s changed by %.3g", tensor_name(tensor), (double)change);
    put(run, tensor, value + change, at);
    require(run, false, problem, what);
    put(run, tensor, value, at);
}

static void check_scores(const char *scores, const char *dtype, float change)
{
    struct run run;
    char problem[128];
    snprintf(problem, sizeof problem, "causal n=96 h=2 d=64 %s ring=2 %s", dtype, scores);
    run_open(&run, problem);
    run_passes(&run);
    require(&run, true, problem, "the result");
    for (int64_t position = 5; position < 96; position += 30) {
        float lse = get(&run, TENSOR_LSE, number_at(&run, TENSOR_LSE, position, 1));
        expect_found(&run, TENSOR_OUT, position, change, problem);
        expect_found(&run, TENSOR_LSE, position, 3e-5f * fmaxf(1.0f, fabsf(lse)), problem);
    }
    run_close(&run);
}

static void wrong_results_are_found_at_any_score(void **state)
{
    (void)state;
    static const struct {
        const char *scores;
        bool coarse; /* an LSE beyond 2^20: gradients are refused */
    } cases[] = { { "", false },        { "amp=50", false },     { "amp=200", false },
                  { "amp=2000", true }, { "scale=1000", false }, { "scale=100000", true } };
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        check_scores(cases[i].scores, cases[i].coarse ? "f32" : "f32 backward", 0.01f);
        check_scores(cases[i].scores, cases[i].coarse ? "bf16" : "bf16 backward", 0.2f);
        check_scores(cases[i].scores, "f16", 0.05f); /* gradients leave its range */
    }
}

/* ---- NaN ------------------------------------------------------------------------------------- */

/* Where a NaN is put; the tokens lie on different ranks, the first and the last are the edges. */
static const int64_t tokens[] = { 0, 17, 47 };

static void check_nan(const char *problem, enum tensor tensor, int64_t token)
{
    struct run run;
    char what[80];
    snprintf(what, sizeof what, "with NaN in %s of token %d", tensor_name(tensor), (int)token);
    run_open(&run, problem);
    const struct trial *t = &run.trial;
    int64_t heads = tensor_heads(t, tensor), dim = tensor_dim(t, tensor);
    put(&run, tensor, NAN,
        (char *)run.inputs.data[tensor] +
            (size_t)((token * heads + heads - 1) * dim) * half_bytes(tensor_dtype(t, tensor)));
    run_passes(&run);
    require(&run, true, problem, what);
    int64_t spoilt = 0;
    for (int64_t query = 0; query < t->q_len; query++) {
        char *at = number_at(&run, TENSOR_OUT, query, t->q_heads - 1);
        float value = get(&run, TENSOR_OUT, at);
        spoilt += isnan(value);
        if (query % 16 != 15 && query != token) continue;
        put(&run, TENSOR_OUT, isnan(value) ? 0.5f : NAN, at);
        require(&run, false, problem, isnan(value) ? "a lost NaN" : "a NaN of no origin");
        put(&run, TENSOR_OUT, value, at);
    }
    if (!spoilt) fail_msg("%s: no output is NaN %s", problem, what);
    run_close(&run);
}

static bool serves(const char *problem)
{
    struct trial trial;
    bool serves = false;
    assert_int_equal(trial_parse(&trial, problem), 0);
    assert_int_equal(forecast_serves(&trial, &serves), 0);
    trial_clear(&trial);
    return serves;
}

static void nan_goes_where_it_is_seen(void **state)
{
    (void)state;
    static const char *const patterns[] = { "full", "causal", "window:4,4", "blocks:8;local=1" };
    static const char *const ways[] = { "ring=1", "ring=3 zigzag", "ring=2 allgather" };
    static const enum tensor spoilt[] = { TENSOR_Q, TENSOR_K, TENSOR_V };
    ra_part part = ra_part_default();
    int turn = 0;
    for (int k = 0; ra_part_at("kernel", k, &part) == RA_OK; k++)
        for (int p = 0; part.usable && p < TEST_COUNT(patterns); p++)
            for (int s = 0; s < TEST_COUNT(spoilt); s++, turn++) {
                char problem[160];
                snprintf(problem, sizeof problem, "%s n=48 h=2 d=16 %s kernel=%s", patterns[p],
                         ways[turn % 3], part.name);
                if (!serves(problem)) strcat(problem, " bf16");
                check_nan(problem, spoilt[s], tokens[turn / 3 % 3]);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(wrong_results_are_found_at_any_score),
                                        cmocka_unit_test(nan_goes_where_it_is_seen) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
