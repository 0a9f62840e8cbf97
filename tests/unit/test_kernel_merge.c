/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_merge.c - delta, states and partial results, which one plain loop
 * computes for every kernel. */
#include "support/job.h"
#include "support/job_worlds.h"

#include <math.h>
#include <stdlib.h>

#include "core/status.h"
#include "core/state.h"

static void delta_is_a_row_sum(void **state)
{
    (void)state;
    for (int t = 0; t < RA__COUNT(job_dtypes); t++) {
        struct job_world w = job_make(&(struct job_plan){ .kernel = ra__kernel_at(0),
                                                          .dtype = job_dtypes[t],
                                                          .dim = 3,
                                                          .value_dim = 21,
                                                          .heads = 3,
                                                          .q_count = 4,
                                                          .q_pos_step = 1,
                                                          .gap = 2 });
        float dlse[12];
        for (int row = 0; row < 12; row++) dlse[row] = job_noise();
        ra__kernel_delta(&w.shape, 4, 3, w.out, w.dout, (struct ra__column){ dlse, 3 },
                         (struct ra__column){ w.delta, 3 });
        ra__kernel_delta(&w.shape, 4, 3, w.out, w.dout, (struct ra__column){ NULL, 0 },
                         (struct ra__column){ w.m, 3 });
        for (int row = 0; row < 12; row++) {
            double want = 0.0;
            for (int d = 0; d < 21; d++)
                want += job_at(&w, w.out, row / 3, row % 3, d) *
                        job_at(&w, w.dout, row / 3, row % 3, d);
            job_expect_near(&w, "delta", w.delta[row], want - dlse[row], 1e-6);
            job_expect_near(&w, "delta without dlse", w.m[row], want, 1e-6);
        }
        job_free(&w);
    }
}

/* Folding runs apart and merging the states gives what folding them together does. */
static void states_merge(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_bits_world(on, job_many_runs, JOB_MANY_RUNS);
        job_reference(&w);
        float *m = job_allocate(w.rows, sizeof(float)), *l = job_allocate(w.rows, sizeof(float));
        float *acc = job_allocate(w.rows * 72, sizeof(float));
        for (int64_t row = 0; row < w.rows; row++) m[row] = -INFINITY;
        for (int n = 0; n < JOB_MANY_RUNS; n++) {
            struct ra__forward_job job = job_forward_of(&w);
            job.last = false;
            job.view.runs = job_many_runs + n;
            job.view.run_count = 1;
            on->kernel->forward(&job, w.workspace);
            for (int64_t row = 0; row < w.rows; row++)
                ra__state_merge_row(
                    (struct ra__state_row){ m + row, l + row, acc + row * 72 },
                    (struct ra__state_row){ w.m + row, w.l + row, w.acc + row * 72 }, 72);
        }
        for (int64_t row = 0; row < w.rows; row++)
            ra__state_finish_row(
                (struct ra__state_row){ m + row, l + row, acc + row * 72 }, 72, -INFINITY,
                on->dtype, (char *)w.out.data + row * 72 * (int64_t)ra__dtype_bytes(on->dtype),
                w.lse + row);
        job_expect_forward(&w);
        free(m);
        free(l);
        free(acc);
        job_free(&w);
    }
}

static void empty_states_merge_and_finish(void **state)
{
    (void)state;
    float m1 = -INFINITY, l1 = 0.0f, acc1 = 0.0f, m2 = -INFINITY, l2 = 0.0f, acc2 = 0.0f;
    struct ra__state_row into = { &m1, &l1, &acc1 }, from = { &m2, &l2, &acc2 };
    ra__state_merge_row(into, from, 1);
    assert_true(m1 == -INFINITY && l1 == 0.0f && acc1 == 0.0f);
    float out = 7.0f, lse = 7.0f;
    ra__state_finish_row(into, 1, -INFINITY, RA_F32, &out, &lse);
    assert_true(out == 0.0f && lse == -INFINITY);
    m2 = 10.0f, l2 = 2.0f, acc2 = 5.0f;
    ra__state_merge_row(into, from, 1);
    assert_true(m1 == 10.0f && l1 == 2.0f && acc1 == 5.0f);
    m2 = -300.0f;
    ra__state_merge_row(into, from, 1);
    assert_true(m1 == 10.0f && l1 == 2.0f && acc1 == 5.0f);
    l2 = NAN;
    ra__state_merge_row(into, from, 1);
    assert_true(isnan(l1));
}

static void partials_merge(void **state)
{
    (void)state;
    const float lses[] = { -INFINITY, -200.0f, -1.0f, 0.0f, 0.5f, 200.0f };
    for (int a = 0; a < RA__COUNT(lses); a++)
        for (int b = 0; b < RA__COUNT(lses); b++) {
            float out[2] = { 1.0f, -2.0f }, other[2] = { 3.0f, 0.5f }, lse = lses[a];
            if (lses[a] == -INFINITY) out[0] = out[1] = 0.0f;
            if (lses[b] == -INFINITY) other[0] = other[1] = 0.0f;
            double wa = exp(lses[a]), wb = exp(lses[b]), sum = wa + wb > 0.0 ? wa + wb : 1.0;
            double want[2] = { (wa * out[0] + wb * other[0]) / sum,
                               (wa * out[1] + wb * other[1]) / sum };
            ra__partial_merge_row(out, &lse, other, lses[b], 2);
            assert_true(wa + wb > 0.0 ? fabs(lse - log(wa + wb)) <= 2e-5 : lse == -INFINITY);
            for (int d = 0; d < 2; d++) assert_true(fabs(out[d] - want[d]) <= 1e-6);
        }
}

int main(void)
{
    job_find_kinds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delta_is_a_row_sum),
        cmocka_unit_test(states_merge),
        cmocka_unit_test(empty_states_merge_and_finish),
        cmocka_unit_test(partials_merge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
