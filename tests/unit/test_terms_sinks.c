/* SPDX-License-Identifier: Apache-2.0 */
/* test_terms_sinks.c - sinks: one more key, folded when a row ends, and their gradients. */
#include "support/job_worlds.h"

#include <math.h>

#include "core/state.h"
#include "core/status.h"

static void a_sink_alone(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                          .dtype = on->dtype,
                                                          .terms = JOB_SINKS,
                                                          .dim = 3,
                                                          .value_dim = 3,
                                                          .heads = 7,
                                                          .q_count = 2,
                                                          .q_pos_step = 1 });
        job_run_forward(&w);
        for (int row = 0; row < 14; row++) {
            assert_true(w.lse[row] == w.sinks[JOB_FIRST_HEAD + row % 7]);
            for (int d = 0; d < 3; d++) assert_true(job_at(&w, w.out, row / 7, row % 7, d) == 0.0);
        }
        job_free(&w);
    }
}

/* A sink is folded when a row ends and not before: the state that travels knows none. */
static void sinks_are_folded_once(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                          .dtype = on->dtype,
                                                          .terms = JOB_ALL & ~JOB_ORDER,
                                                          .dim = 24,
                                                          .value_dim = 40,
                                                          .heads = 3,
                                                          .q_count = 21,
                                                          .q_pos = 100,
                                                          .q_pos_step = 1,
                                                          .runs = job_term_runs,
                                                          .run_count = RA__COUNT(job_term_runs) });
        job_reference(&w);
        for (int n = 0; n < RA__COUNT(job_term_runs); n++) {
            struct ra__forward_job job = job_forward_of(&w);
            job.first = n == 0;
            job.last = n == RA__COUNT(job_term_runs) - 1;
            job.view.runs = job_term_runs + n;
            job.view.run_count = 1;
            on->kernel->forward(&job, w.workspace);
        }
        job_expect_forward(&w);
        job_free(&w);
    }
}

static void rows_end_with_or_without_a_sink(void **state)
{
    (void)state;
    const float sums[] = { -1e30f, -300.0f, 0.0f, 3.0f, 300.0f, 1e30f };
    for (int a = 0; a < RA__COUNT(sums); a++) {
        float m = sums[a], l = 3.0f;
        struct ra__state_end none = ra__state_end(m, l, -INFINITY);
        assert_true(none.divisor == l);
        assert_true(none.lse == (float)((m + log2(3.0)) * RA__LN_2));
        for (int b = 0; b < RA__COUNT(sums); b++) {
            struct ra__state_end end = ra__state_end(m, l, sums[b]);
            double lse = (m + log2(3.0)) * RA__LN_2, want = job_logaddexp(lse, sums[b]);
            assert_true(fabs(end.lse - want) <= 0x1p-23 * fabs(want));
            double share = l / end.divisor; /* of out that remains */
            assert_true(fabs(share - exp(lse - want)) <= 1e-6);
        }
    }
    struct ra__state_end empty = ra__state_end(-INFINITY, 0.0f, 0.3f);
    assert_true(empty.divisor == 1.0f && empty.lse == 0.3f);
    empty = ra__state_end(-INFINITY, 0.0f, -INFINITY);
    assert_true(empty.divisor == 1.0f && empty.lse == -INFINITY);
    assert_true(isnan(ra__state_end(1.0f, NAN, 2.0f).lse));
}

static void rows_without_lse_give_sinks_nothing(void **state)
{
    (void)state;
    float lse[] = { -INFINITY, 1.0f, 2.0f, -INFINITY }, delta[] = { 5.0f, 3.0f, 7.0f, NAN };
    const float sinks[] = { 0.5f, -INFINITY };
    double dsinks[] = { 10.0, 20.0 };
    for (int h = 0; h < 2; h++)
        ra__kernel_dsinks(2, sinks[h], (struct ra__column){ lse + h, 2 },
                          (struct ra__column){ delta + h, 2 }, &dsinks[h]);
    assert_true(fabs(dsinks[0] - (10.0 - exp(0.5 - 2.0) * 7.0)) <= 1e-12);
    assert_true(dsinks[1] == 20.0);
}

int main(void)
{
    job_find_kinds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sink_alone),
        cmocka_unit_test(sinks_are_folded_once),
        cmocka_unit_test(rows_end_with_or_without_a_sink),
        cmocka_unit_test(rows_without_lse_give_sinks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
