/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_scores.c - scores of any scale and size, up to those that f32 cannot hold. */
#include "support/job_worlds.h"

#include <math.h>

#include "core/status.h"

/* A scale that reverses the order of scores, makes all the same, or scores that differ in their
 * last digits only. */
static void any_scale(void **state)
{
    (void)state;
    const float scales[] = { -0.2f, -1.0f, 0.0f, -0.0f, 1e-20f, -1e-20f, 1e-40f };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < 4 * RA__COUNT(scales); n++) {
            struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                              .dtype = on->dtype,
                                                              .terms = n & 1 ? JOB_ALL : 0,
                                                              .dim = 64,
                                                              .value_dim = 10,
                                                              .heads = 2,
                                                              .q_count = 13,
                                                              .q_pos = 50,
                                                              .q_pos_step = 7,
                                                              .runs = job_causal_run,
                                                              .run_count = 1,
                                                              .magnitude = n & 2 ? 200 : 3 });
            w.shape.scale = scales[n / 4];
            w.reach *= fmax(1.0, fabs((double)w.shape.scale) * 8.0);
            job_reference(&w);
            job_run_backward(&w);
            job_expect_backward(&w);
            job_run_forward(&w);
            job_expect_forward(&w);
            job_free(&w);
        }
}

/* q.k is a number, but times the scale it is none: the row is NaN, and not 0 or the mean of others.
 * Far below 0 such a score is -inf, and weighs nothing. */
static void scores_too_large_for_f32(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 0, 1, 40, JOB_FULL } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < 4; n++) {
            struct job_world w = job_rows_world(on, 2, 3, 3, runs, 1);
            w.shape.scale = n & 1 ? -0x1p118f : 0x1p118f;
            for (int64_t i = 0; i < 3; i++)
                for (int d = 0; d < 2; d++) job_put(&w, w.q, i, 0, d, i == 1 ? 64.0f : 0.0f);
            for (int64_t j = 0; j < 40; j++)
                for (int d = 0; d < 2; d++) job_put(&w, w.k, j, 0, d, 0.0f);
            job_put(&w, w.k, 17, 0, 1, n & 2 ? -64.0f : 64.0f);
            job_run_forward(&w);
            bool below = (n & 1) != (n >> 1);
            for (int64_t i = 0; i < 3; i++) {
                bool nan = i == 1 && !below;
                double lse = log(i == 1 ? 39.0 : 40.0);
                assert_true(nan ? isnan(w.lse[i]) : fabs(w.lse[i] - lse) <= 1e-5);
                for (int d = 0; d < 3; d++)
                    assert_true((isnan(job_at(&w, w.out, i, 0, d)) != 0) == nan);
            }
            job_free(&w);
        }
}

/* Scores up to 1e33, twice that of all others for one key: it has all the weight, and LSE its
 * score. */
static void scores_of_billions(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 0, 1, 300, JOB_FULL } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < 40; n++) {
            const int rows = n & 1 ? 1 : 30, key = n * 7;
            struct job_world w = job_rows_world(on, 16, 3, rows, runs, 1);
            w.shape.scale = ldexpf(1.0f, 2 * n);
            for (int64_t i = 0; i < rows; i++)
                for (int d = 0; d < 16; d++) job_put(&w, w.q, i, 0, d, d ? 0.0f : 1000.0f);
            for (int64_t j = 0; j < 300; j++)
                for (int d = 0; d < 16; d++) job_put(&w, w.k, j, 0, d, j == key ? 1.5f : 0.75f);
            job_run_forward(&w);
            for (int64_t i = 0; i < rows; i++) {
                const double lse = 1500.0 * (double)w.shape.scale;
                assert_true(fabs((double)w.lse[i] - lse) <= 1e-6 * lse);
                for (int d = 0; d < 3; d++) {
                    const double v = job_at(&w, w.v, key, 0, d);
                    assert_true(fabs(job_at(&w, w.out, i, 0, d) - v) <= 0.01 * fabs(v));
                }
            }
            job_free(&w);
        }
}

static void large_scores(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        job_check(&(struct job_plan){ .kernel = on->kernel,
                                      .dtype = on->dtype,
                                      .dim = 64,
                                      .value_dim = 32,
                                      .heads = 1,
                                      .q_count = 40,
                                      .q_pos = 100,
                                      .q_pos_step = 1,
                                      .runs = job_many_runs,
                                      .run_count = JOB_MANY_RUNS,
                                      .magnitude = 200.0f });
}

/* Runs are 200 above or below one another: weights vanish, or replace all that was summed. */
static void gaps_of_200_between_runs(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 0, 1, 70, JOB_FULL },
                                        { 70, 1, 70, 1, 70, JOB_FULL },
                                        { 140, 1, 140, 1, 70, JOB_FULL } };
    const float levels[][3] = {
        { -200, 0, 200 }, { 200, 0, -200 }, { 0, 200, 0 }, { -200, -200, 200 }
    };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < RA__COUNT(levels); n++) {
            struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                              .dtype = on->dtype,
                                                              .dim = 1,
                                                              .value_dim = 9,
                                                              .heads = 1,
                                                              .q_count = 5,
                                                              .q_pos_step = 1,
                                                              .runs = runs,
                                                              .run_count = 3,
                                                              .magnitude = 200.0f });
            for (int64_t i = 0; i < 5; i++) job_put(&w, w.q, i, 0, 0, 1.0f);
            for (int64_t j = 0; j < 210; j++)
                job_put(&w, w.k, j, 0, 0, levels[n][j / 70] + job_noise());
            job_reference(&w);
            job_run_backward(&w);
            job_expect_backward(&w);
            job_run_forward(&w);
            job_expect_forward(&w);
            job_free(&w);
        }
}

/* Scores of -inf weigh nothing: alone they are an empty row, beside others they do not show. */
static void scores_of_minus_infinity(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 0, 1, 80, { 0, 0 } },
                                        { 0, 1, 0, 1, 80, { 70, -60 } } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_rows_world(on, 1, 4, 64, runs, 2);
        for (int64_t i = 0; i < 64; i++) job_put(&w, w.q, i, 0, 0, 1.0f);
        for (int64_t j = 2; j < 80; j++) job_put(&w, w.k, j, 0, 0, -INFINITY);
        job_run_forward(&w);
        for (int64_t i = 0; i < 64; i++) {
            bool alone = i >= 2 && i < 60; /* from query 60 on, the second run adds keys 0 and 1 */
            assert_true(alone ? w.lse[i] == -INFINITY : isfinite(w.lse[i]));
            for (int d = 0; d < 4; d++) {
                double out = job_at(&w, w.out, i, 0, d);
                assert_true(alone ? out == 0.0 : isfinite(out));
            }
        }
        job_free(&w);
    }
}

int main(void)
{
    job_find_kinds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_scale),
        cmocka_unit_test(scores_too_large_for_f32),
        cmocka_unit_test(scores_of_billions),
        cmocka_unit_test(large_scores),
        cmocka_unit_test(gaps_of_200_between_runs),
        cmocka_unit_test(scores_of_minus_infinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
