/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_empty.c - rows that see nothing, jobs without runs, rows without weights. */
#include "support/job.h"
#include "support/job_worlds.h"

#include <math.h>

#include "core/status.h"
#include "backend/cpu/kernel/lse.h"

static void rows_that_see_nothing(void **state)
{
    (void)state;
    /* Queries 0 to 9: the first four are before every key. */
    const struct ra__key_run runs[] = { { 0, 1, 4, 1, 100, JOB_CAUSAL },
                                        { 0, 1, 5, 1, 40, { 0, 0 } } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                          .dtype = on->dtype,
                                                          .dim = 24,
                                                          .value_dim = 24,
                                                          .heads = 2,
                                                          .q_count = 10,
                                                          .q_pos_step = 1,
                                                          .runs = runs,
                                                          .run_count = 2,
                                                          .magnitude = 3.0f });
        job_reference(&w);
        job_run_backward(&w);
        job_expect_backward(&w);
        job_run_forward(&w);
        job_expect_forward(&w);
        for (int64_t row = 0; row < 8; row++) {
            assert_true(w.lse[row] == -INFINITY);
            for (int d = 0; d < 24; d++) assert_true(job_at(&w, w.out, row / 2, row % 2, d) == 0.0);
        }
        job_free(&w);
    }
}

static void no_runs_at_all(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        job_check(&(struct job_plan){ .kernel = on->kernel,
                                      .dtype = on->dtype,
                                      .dim = 8,
                                      .value_dim = 8,
                                      .heads = 3,
                                      .q_count = 5,
                                      .q_pos_step = 1,
                                      .magnitude = 1.0f });
}

/* Rows without weights, or with an LSE that is too coarse: their delta may be anything, and their
 * keys get nothing from them. */
static void backward_of_rows_without_lse(void **state)
{
    (void)state;
    const float values[] = { -INFINITY, RA__LSE_MOST, -RA__LSE_MOST, 4e9f, -1e30f };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < 2; n++) {
            struct job_world w = job_window_world(on);
            for (int64_t i = 0; i < w.rows; i++)
                if (n || i % 3 == 0) w.lse[i] = values[i % RA__COUNT(values)];
            job_run_backward(&w);
            for (int64_t i = 0; i < w.rows; i++) {
                bool none = n || i % 3 == 0;
                if (!none) job_expect_dq(&w, i);
                for (int d = 0; d < 19 && none; d++) assert_true(w.dq[i * 19 + d] == 0.0f);
            }
            for (int64_t j = 0; j < w.key_rows * 35; j++)
                assert_true(n ? w.dv[j] == 0.0f : isfinite(w.dv[j]));
            job_free(&w);
        }
}

int main(void)
{
    job_find_kinds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_see_nothing),
        cmocka_unit_test(no_runs_at_all),
        cmocka_unit_test(backward_of_rows_without_lse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
