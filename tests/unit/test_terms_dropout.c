/* SPDX-License-Identifier: Apache-2.0 */
/* test_terms_dropout.c - dropout: every kernel drops the same pairs, and LSE knows nothing of it.
 */
#include "support/job_worlds.h"

#include <math.h>

#include "core/status.h"

enum { DRAWS = 160 };

/* Values are unit vectors and scores 0, so outputs and dv show each decision by itself. */
static void expect_decisions(const struct job_kind *on, const struct ra__key_run *run, int terms)
{
    struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                      .dtype = on->dtype,
                                                      .terms = terms,
                                                      .dim = 1,
                                                      .value_dim = DRAWS,
                                                      .heads = 3,
                                                      .q_count = 5,
                                                      .q_pos = 3,
                                                      .q_pos_step = 11,
                                                      .runs = run,
                                                      .run_count = 1 });
    w.terms.see_from = w.terms.see_to = NULL;
    memset(w.q.data, 0, ra__dtype_bytes(on->dtype) * (size_t)w.rows);
    memset(w.v.data, 0, ra__dtype_bytes(on->dtype) * (size_t)(w.key_rows * DRAWS));
    const float kept = job_weight(&w, w.terms.kept_scale);
    for (int64_t j = 0; j < run->count; j++)
        job_put(&w, w.v, run->token + j * run->token_step, 0, (int)j, 1);
    job_run_forward(&w);
    for (int64_t row = 0; row < w.rows; row++) {
        int64_t p = job_origin_of(&w, 3 + row / 3 * 11);
        int h = (int)(row % 3);
        for (int64_t i = 0; i < w.rows; i++) w.lse[i] = i == row ? 0.0f : -INFINITY;
        memset(w.dv, 0, sizeof(float) * (size_t)(w.key_rows * DRAWS));
        job_put(&w, w.dout, row / 3, h, 0, 1.0f);
        job_run_backward(&w);
        for (int64_t j = 0; j < run->count; j++) {
            int64_t key = run->token + j * run->token_step;
            bool want = job_kept(&w, p, job_origin_of(&w, run->pos + j * run->pos_step), h);
            if ((job_at(&w, w.out, row / 3, h, (int)j) != 0.0) != want ||
                w.dv[key * DRAWS] != (want ? kept : 0.0f))
                fail_msg("%s: row %d decides otherwise on key %d", w.name, (int)row, (int)j);
        }
    }
    job_free(&w);
}

static void every_kernel_drops_the_same(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 0, 1, DRAWS, JOB_FULL },
                                        { 2, 1, 127, 1, 131, JOB_FULL },
                                        { 0, 2, 29, 1, 7, JOB_FULL },
                                        { 1, 3, 6, 5, 90, JOB_FULL } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < RA__COUNT(runs); n++) {
            expect_decisions(on, &runs[n], JOB_DROPOUT);
            expect_decisions(on, &runs[n], JOB_DROPOUT | JOB_ORDER);
        }
}

/* m, l and LSE know nothing of what is dropped, to the bit; without terms scores may round
 * otherwise. */
static void dropout_leaves_lse_alone(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                          .dtype = on->dtype,
                                                          .terms = JOB_DROPOUT,
                                                          .dim = 8,
                                                          .value_dim = 8,
                                                          .heads = 1,
                                                          .q_count = 33,
                                                          .q_pos = 100,
                                                          .q_pos_step = 1,
                                                          .runs = job_causal_run,
                                                          .run_count = 1 });
        job_run_forward(&w);
        float lse[33];
        memcpy(lse, w.lse, sizeof lse);
        w.terms.drop_below = UINT64_C(1) << 32; /* all of them */
        job_run_forward(&w);
        assert_memory_equal(lse, w.lse, sizeof lse);
        for (int64_t i = 0; i < 33; i++)
            for (int d = 0; d < 8; d++) assert_true(job_at(&w, w.out, i, 0, d) == 0.0);
        w.terms.dropout = false;
        job_run_forward(&w);
        for (int64_t i = 0; i < 33; i++)
            job_expect_near(&w, "lse", w.lse[i], lse[i], job_slack(&w));
        job_free(&w);
    }
}

int main(void)
{
    job_find_kinds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_drops_the_same),
        cmocka_unit_test(dropout_leaves_lse_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
