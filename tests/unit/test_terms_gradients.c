/* SPDX-License-Identifier: Apache-2.0 */
/* test_terms_gradients.c - the gradients that the reference of job.h computes under score terms,
 * against differences of its output. */
#include "support/job_worlds.h"

#include "core/status.h"

/* sum of dout * out, of which the gradients are derivatives */
static double loss_of(struct job_world *w)
{
    double sum = 0.0;
    for (int64_t i = 0; i < w->plan.q_count; i++)
        for (int h = 0; h < w->plan.heads; h++) {
            job_reference_forward(w, i, h);
            for (int d = 0; d < w->plan.value_dim; d++)
                sum += job_at(w, w->dout, i, h, d) *
                       w->want_out[(i * w->plan.heads + h) * w->plan.value_dim + d];
        }
    return sum;
}

/* The gradients of the reference are derivatives of the output: of q, of v, and of the sinks. */
static void the_gradients_are_derivatives(void **state)
{
    (void)state;
    for (int k = 0; k < RA__COUNT(job_term_kinds); k++) {
        struct job_world w = job_make(&(struct job_plan){ .kernel = ra__kernel_at(0),
                                                          .terms = job_term_kinds[k],
                                                          .dim = 3,
                                                          .value_dim = 2,
                                                          .heads = 2,
                                                          .q_count = 3,
                                                          .q_pos = 20,
                                                          .q_pos_step = 3,
                                                          .runs = job_causal_run,
                                                          .run_count = 1 });
        job_reference(&w);
        double dsinks[JOB_MOST_HEADS] = { 0.0 };
        for (int h = 0; h < 2; h++)
            ra__kernel_dsinks(3, w.sinks[JOB_FIRST_HEAD + h], (struct ra__column){ w.lse + h, 2 },
                              (struct ra__column){ w.delta + h, 2 }, &dsinks[JOB_FIRST_HEAD + h]);
        float *varied[] = { w.q.data, (float *)w.q.data + 8, w.v.data, (float *)w.v.data + 7,
                            &w.sinks[JOB_FIRST_HEAD] };
        const double want[] = { w.want_dq[0], w.want_dq[8], w.want_dv[0], w.want_dv[7],
                                dsinks[JOB_FIRST_HEAD] };
        for (int n = 0; n < (job_term_kinds[k] & JOB_SINKS ? 5 : 4); n++) {
            const float middle = *varied[n], low = middle - 0x1p-9f, high = middle + 0x1p-9f;
            *varied[n] = high;
            double above = loss_of(&w);
            *varied[n] = low;
            double below = loss_of(&w);
            *varied[n] = middle;
            job_expect_near(&w, "a derivative", (above - below) / ((double)high - low), want[n],
                            1e-4);
        }
        job_free(&w);
    }
}

int main(void)
{
    job_find_kinds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gradients_are_derivatives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
