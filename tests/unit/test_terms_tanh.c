/* SPDX-License-Identifier: Apache-2.0 */
/* test_terms_tanh.c - the tangent of softcap: its error, that of its slope, and its ends. */
#include "support/job_worlds.h"

#include <math.h>

#include "core/status.h"

/* A softcap so large that LSE, which is exact to a fixed number of decimals, shows all digits of
 * the tangent. */
#define HIGH_CAP 0x1p60f

static void set_cap(struct job_world *w, float cap) { w->terms.softcap = w->shape.scale = cap; }

/* With one key and k = 1, LSE is cap tanh q where scale = cap; with cap = 1, that LSE and dout v =
 * 1, dq is its derivative. Returns the worst relative errors, in units of 2^-24. */
static void worst_tanh(struct job_world *w, const float *u, double *value, double *slope)
{
    int64_t rows = w->plan.q_count;
    for (int64_t i = 0; i < rows; i++) {
        job_put(w, w->q, i, 0, 0, u[i]);
        job_put(w, w->dout, i, 0, 0, 1.0f);
        w->dq[i] = 0.0f;
    }
    set_cap(w, HIGH_CAP);
    job_run_forward(w);
    for (int64_t i = 0; i < rows; i++)
        *value = fmax(*value, fabs(w->lse[i] / (HIGH_CAP * tanh((double)u[i])) - 1.0) * 0x1p24);
    set_cap(w, 1.0f);
    job_run_forward(w);
    job_run_backward(w);
    for (int64_t i = 0; i < rows; i++) {
        double t = tanh((double)u[i]), c = cosh((double)u[i]), p = exp(t - w->lse[i]);
        *slope = fmax(*slope, fabs(w->dq[i] * c * c / p - 1.0) * 0x1p24 / (4.0 + fabs(u[i])));
    }
}

static struct job_world tanh_world(const struct job_kind *on)
{
    static const struct ra__key_run one[] = { { 0, 1, 0, 1, 1, JOB_FULL } };
    struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                      .dtype = on->dtype,
                                                      .terms = JOB_SOFTCAP,
                                                      .dim = 1,
                                                      .value_dim = 1,
                                                      .heads = 1,
                                                      .q_count = on->kernel->rows,
                                                      .q_pos_step = 1,
                                                      .runs = one,
                                                      .run_count = 1 });
    job_put(&w, w.k, 0, 0, 0, 1.0f);
    job_put(&w, w.v, 0, 0, 0, 1.0f);
    return w;
}

/* LSE and p bring three roundings of their own, and those of the slope grow with u. */
static void tanh_keeps_its_bound(void **state)
{
    (void)state;
    const uint32_t lowest = ra__f32_bits(0x1p-50f), highest = ra__f32_bits(40.0f);
    for (const struct job_kind *on = job_exact; on->kernel; on++) {
        struct job_world w = tanh_world(on);
        double value = 0.0, slope = 0.0;
        float u[1024];
        for (uint32_t bits = lowest; bits < highest;) {
            for (int i = 0; i < on->kernel->rows; i++) {
                u[i] = ra__f32_from_bits(bits | (uint32_t)(i & 1) << 31);
                bits += bits < ra__f32_bits(0.01f) ? 1048573u : 251u;
            }
            for (int i = 0; i < on->kernel->rows; i++) u[i] = fmaxf(fminf(u[i], 40.0f), -40.0f);
            worst_tanh(&w, u, &value, &slope);
        }
        if (!(value <= 4.5 && slope <= 3.0))
            fail_msg("%s: tanh is off by %.2f, its slope by %.2f", on->kernel->name, value, slope);
        job_free(&w);
    }
}

static void tanh_of_the_far_ends(void **state)
{
    (void)state;
    const float u[] = {
        0.0f, -0.0f, 1e-40f, 50.0f, -50.0f, 1e30f, -1e30f, INFINITY, -INFINITY, NAN
    };
    const float want[] = { 0.0f, 0.0f, 1e-40f, 1.0f, -1.0f, 1.0f, -1.0f, 1.0f, -1.0f };
    for (const struct job_kind *on = job_exact; on->kernel; on++) {
        struct job_world w = tanh_world(on);
        w.plan.q_count = RA__COUNT(u);
        set_cap(&w, HIGH_CAP);
        for (int i = 0; i < RA__COUNT(u); i++) job_put(&w, w.q, i, 0, 0, u[i]);
        job_run_forward(&w);
        for (int i = 0; i < RA__COUNT(want); i++)
            job_expect_near(&w, "tanh", w.lse[i], HIGH_CAP * (double)want[i],
                            0x1p-23 * HIGH_CAP * fabs(want[i]) + 0x1p-23);
        assert_true(isnan(w.lse[9]));
        job_free(&w);
    }
}

int main(void)
{
    job_find_kinds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tanh_keeps_its_bound),
        cmocka_unit_test(tanh_of_the_far_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
