/* SPDX-License-Identifier: Apache-2.0 */
/* test_terms.c - score terms and masks of an order in every kernel of kernel.list that this CPU can
 * run, forward and backward, against attention in double. A failure prints its case. */
#include "support/job.h"

#include <math.h>

#include "core/philox.h"
#include "core/status.h"
#include "core/state.h"

static void philox_gives_its_known_answers(void **state)
{
    (void)state;
    const struct {
        uint32_t counter[4], key[2], want[4];
    } known[] = {
        { { 0 }, { 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { ~0u, ~0u, ~0u, ~0u },
          { ~0u, ~0u },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (int n = 0; n < RA__COUNT(known); n++) {
        const uint32_t *c = known[n].counter;
        uint32_t words[4];
        job_philox(known[n].key, c, words);
        struct ra__philox ours = ra__philox((uint64_t)known[n].key[1] << 32 | known[n].key[0], c[0],
                                            c[1], c[2], c[3]);
        assert_memory_equal(words, known[n].want, 16);
        assert_memory_equal(ours.word, known[n].want, 16);
    }
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static const int kinds[] = { JOB_SOFTCAP, JOB_ALIBI,
                             JOB_BIAS,    JOB_HIDE,
                             JOB_SINKS,   JOB_DROPOUT,
                             JOB_ORDER,   JOB_ORDER | JOB_ALIBI,
                             JOB_ALL,     (JOB_ALL & ~JOB_BIAS) | JOB_HIDE };

static const struct ra__key_run causal_run[] = { { 0, 1, 0, 1, 151, JOB_CAUSAL } };

static void every_dtype_and_dim(void **state)
{
    (void)state;
    const int dims[][2] = { { 1, 1 }, { 3, 5 }, { 17, 16 }, { 64, 65 }, { 129, 127 }, { 1, 129 } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int k = 0; k < RA__COUNT(kinds); k++)
            for (int n = 0; n < RA__COUNT(dims); n++)
                job_check(&(struct job_plan){ .kernel = on->kernel,
                                              .dtype = on->dtype,
                                              .terms = kinds[k],
                                              .dim = dims[n][0],
                                              .value_dim = dims[n][1],
                                              .heads = 2,
                                              .q_count = 11,
                                              .q_pos = 120,
                                              .q_pos_step = 2,
                                              .runs = causal_run,
                                              .run_count = 1 });
}

/* Windows, strides in memory and in position, starts off every block, keys seen twice, runs that no
 * query sees, and an empty one. */
static const struct ra__key_run many_runs[] = {
    { 0, 1, 37, 1, 200, { 64, 64 } },   { 5, 3, 11, 4, 70, JOB_FULL },
    { 200, 1, 0, 1, 1, JOB_FULL },      { 1, 2, 300, 1, 90, JOB_CAUSAL },
    { 0, 1, 130, 1, 130, { 0, 0 } },    { 7, 1, 900, 7, 80, JOB_CAUSAL },
    { 3, 1, 63, 3, 129, { 200, -10 } }, { 0, 1, 50, 1, 0, JOB_FULL },
    { 2, 1, 1023, 2, 3, JOB_FULL },
};

static void every_geometry(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int k = 0; k < RA__COUNT(kinds); k++)
            job_check_geometries((struct job_plan){ .kernel = on->kernel,
                                                    .dtype = on->dtype,
                                                    .dim = 20,
                                                    .value_dim = 12,
                                                    .runs = many_runs,
                                                    .run_count = RA__COUNT(many_runs),
                                                    .terms = kinds[k] });
}

/* Two runs with the same keys at the same positions: every pair counts twice, and dropout takes
 * both or none. */
static void keys_in_two_runs(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 5, 1, 140, JOB_FULL },
                                        { 0, 3, 5, 3, 47, JOB_CAUSAL } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int k = 0; k < RA__COUNT(kinds); k++)
            job_check(&(struct job_plan){ .kernel = on->kernel,
                                          .dtype = on->dtype,
                                          .terms = kinds[k],
                                          .dim = 9,
                                          .value_dim = 9,
                                          .heads = 1,
                                          .q_count = 60,
                                          .q_pos = 70,
                                          .q_pos_step = 1,
                                          .runs = runs,
                                          .run_count = 2 });
}

static void as_many_rows_as_a_kernel_takes(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 0, 1, 300, { 70, 70 } } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int turn = 0; turn < 2; turn++)
            job_check(&(struct job_plan){ .kernel = on->kernel,
                                          .dtype = on->dtype,
                                          .terms = JOB_ALL,
                                          .dim = 16,
                                          .value_dim = 16,
                                          .heads = turn ? on->kernel->rows : 1,
                                          .q_count = turn ? 1 : on->kernel->rows,
                                          .q_pos_step = 1,
                                          .runs = runs,
                                          .run_count = 1 });
}

/* Heads of a query may be in different parts of a job's rows. */
static void terms_of_many_rows_against_many_blocks(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 10, 1, 1300, JOB_CAUSAL } };
    const int terms[] = { JOB_ORDER, JOB_ALL };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < RA__COUNT(terms); n++)
            job_check(&(struct job_plan){ .kernel = on->kernel,
                                          .dtype = on->dtype,
                                          .terms = terms[n],
                                          .dim = 3,
                                          .value_dim = 3,
                                          .heads = 3,
                                          .q_count = on->kernel->rows / 3,
                                          .q_pos_step = 3,
                                          .runs = runs,
                                          .run_count = 1 });
}

/* Differences of positions are taken before they are rounded, also where they need 33 bits. */
static void slopes_far_from_the_origin(void **state)
{
    (void)state;
    const int64_t bases[] = { INT64_C(1) << 26, INT64_C(1) << 33 };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < 3; n++) {
            const struct ra__key_run runs[] = { { 0, 1, bases[n % 2], 1, 90, JOB_FULL } };
            struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                              .dtype = on->dtype,
                                                              .terms = JOB_ALIBI,
                                                              .dim = 4,
                                                              .value_dim = 4,
                                                              .heads = 1,
                                                              .q_count = 3,
                                                              .q_pos = n == 2 ? 5 : bases[n] + 40,
                                                              .q_pos_step = 1,
                                                              .runs = runs,
                                                              .run_count = 1 });
            w.alibi[JOB_FIRST_HEAD] = n == 2 ? 0x1p-24f : 0.1f;
            w.reach = 3.0 + (n == 2 ? 4.0 : 5.0); /* not 0.1 x places */
            job_reference(&w);
            job_run_backward(&w);
            job_expect_backward(&w);
            job_run_forward(&w);
            job_expect_forward(&w);
            job_free(&w);
        }
}

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
    for (int k = 0; k < RA__COUNT(kinds); k++) {
        struct job_world w = job_make(&(struct job_plan){ .kernel = ra__kernel_at(0),
                                                          .terms = kinds[k],
                                                          .dim = 3,
                                                          .value_dim = 2,
                                                          .heads = 2,
                                                          .q_count = 3,
                                                          .q_pos = 20,
                                                          .q_pos_step = 3,
                                                          .runs = causal_run,
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
        for (int n = 0; n < (kinds[k] & JOB_SINKS ? 5 : 4); n++) {
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

/* ---- The tangent ----------------------------------------------------------------------------- */

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

/* ---- Dropout --------------------------------------------------------------------------------- */

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
        job_put(&w, w.v, run->row + j * run->row_step, 0, (int)j, 1);
    job_run_forward(&w);
    for (int64_t row = 0; row < w.rows; row++) {
        int64_t p = job_origin_of(&w, 3 + row / 3 * 11);
        int h = (int)(row % 3);
        for (int64_t i = 0; i < w.rows; i++) w.lse[i] = i == row ? 0.0f : -INFINITY;
        memset(w.dv, 0, sizeof(float) * (size_t)(w.key_rows * DRAWS));
        job_put(&w, w.dout, row / 3, h, 0, 1.0f);
        job_run_backward(&w);
        for (int64_t j = 0; j < run->count; j++) {
            int64_t key = run->row + j * run->row_step;
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
                                                          .runs = causal_run,
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

/* ---- Sinks ----------------------------------------------------------------------------------- */

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
                                                          .runs = many_runs,
                                                          .run_count = RA__COUNT(many_runs) });
        job_reference(&w);
        for (int n = 0; n < RA__COUNT(many_runs); n++) {
            struct ra__forward_job job = job_forward_of(&w);
            job.first = n == 0;
            job.last = n == RA__COUNT(many_runs) - 1;
            job.view.runs = many_runs + n;
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

/* ---- What is hidden stays hidden ------------------------------------------------------------- */

static const struct ra__key_run wide_run[] = { { 0, 1, 7, 1, 190, { 150, 40 } } };

static struct job_world hidden_world(const struct job_kind *on, int terms)
{
    return job_make(&(struct job_plan){ .kernel = on->kernel,
                                        .dtype = on->dtype,
                                        .terms = terms,
                                        .dim = 19,
                                        .value_dim = 35,
                                        .heads = 2,
                                        .q_count = 31,
                                        .q_pos = 30,
                                        .q_pos_step = 4,
                                        .runs = wide_run,
                                        .run_count = 1 });
}

/* Is the key in a row's sum? */
static bool counts(const struct job_world *w, int64_t row, int64_t key)
{
    int64_t i = row / w->plan.heads;
    int h = (int)(row % w->plan.heads);
    return job_sees(w, i, wide_run, key) && job_pair_of(w, i, h, wide_run, key).x != -INFINITY;
}

static const int hiding[] = { JOB_ORDER, JOB_BIAS, JOB_HIDE, JOB_ALL, JOB_ORDER | JOB_HIDE };

/* Puts NaN or infinity into a key or its value: rows it is hidden from keep every bit, and their
 * dq. `lse` is what a backward reads; `clean` what a forward wrote without poison. */
static void expect_poison_unseen(struct job_world *w, int64_t key, int poison, const float *lse,
                                 const struct job_bits *clean)
{
    struct ra__matrix where = poison & 2 ? w->k : w->v;
    const float before = (float)job_at(w, where, key, 0, 18);
    bool counted[62];
    for (int64_t row = 0; row < 62; row++) counted[row] = counts(w, row, key);
    job_put(w, where, key, 0, 18, poison & 1 ? NAN : INFINITY);
    memcpy(w->lse, lse, sizeof(float) * 62);
    memset(w->dq, 0, sizeof(float) * 62 * 19);
    job_run_backward(w);
    job_run_forward(w);
    for (int64_t row = 0; row < 62; row++) {
        if (counted[row]) continue;
        if (!job_same_bits(w, clean, row))
            fail_msg("%s: key %d poisons row %d", w->name, (int)key, (int)row);
        job_expect_dq(w, row);
    }
    job_put(w, where, key, 0, 18, before);
}

static void poison_stays_where_it_is_seen(void **state)
{
    (void)state;
    const int64_t keys[] = { 0, 60, 120, 121, 189 };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int h = 0; h < RA__COUNT(hiding); h++) {
            struct job_world w = hidden_world(on, hiding[h]);
            float lse[62];
            job_reference(&w);
            memcpy(lse, w.lse, sizeof lse);
            struct job_bits clean = job_keep_bits(&w);
            for (int n = 0; n < RA__COUNT(keys) * 4; n++)
                expect_poison_unseen(&w, keys[n / 4], n % 4, lse, &clean);
            job_free_bits(&clean);
            job_free(&w);
        }
}

/* Nor do keys hidden from a row take harm from a NaN in its query or gradient. */
static void poison_of_a_row_spares_hidden_keys(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < 3 * RA__COUNT(hiding); n++) {
            struct job_world w = hidden_world(on, hiding[n / 3]);
            const int64_t row = 33;
            job_reference(&w);
            bool counted[190];
            for (int64_t key = 0; key < 190; key++) counted[key] = counts(&w, row, key);
            if (n % 3 == 0) job_put(&w, w.q, row / 2, row % 2, 18, NAN);
            if (n % 3 == 1) job_put(&w, w.dout, row / 2, row % 2, 18, INFINITY);
            if (n % 3 == 2) w.lse[row] = NAN;
            job_run_backward(&w);
            for (int64_t key = 0; key < 190; key++) {
                if (counted[key]) continue;
                job_expect_dk(&w, key);
                job_expect_dv(&w, key);
            }
            job_free(&w);
        }
}

/* A NaN that is seen shows, and so does one in the bias. */
static void nan_that_is_seen_shows(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < 2; n++) {
            struct job_world w = hidden_world(on, n ? JOB_BIAS : JOB_ALL);
            if (n) w.addends[40 * w.places + 100] = NAN;
            else job_put(&w, w.k, 93, 0, 3, NAN);
            job_run_forward(&w);
            for (int64_t row = 0; row < 62; row++) {
                bool want = n ? row == 40 : counts(&w, row, 93);
                assert_true((isnan(job_at(&w, w.out, row / 2, row % 2, 0)) != 0) == want);
            }
            job_free(&w);
        }
}

/* ---- Bits ------------------------------------------------------------------------------------ */

static void bits_do_not_depend_on_how_queries_are_cut(void **state)
{
    (void)state;
    enum { QUERIES = 31 };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int k = 0; k < RA__COUNT(kinds); k++)
            for (int64_t piece = 1; piece < QUERIES; piece += 5) {
                struct job_world w = job_make(
                    &(struct job_plan){ .kernel = on->kernel,
                                        .dtype = on->dtype,
                                        .terms = kinds[k],
                                        .dim = 40,
                                        .value_dim = 72,
                                        .heads = 2,
                                        .q_count = QUERIES,
                                        .q_pos = 200,
                                        .q_pos_step = 1,
                                        .runs = many_runs,
                                        .run_count = RA__COUNT(many_runs) });
                struct job_bits kept = job_keep_bits(&w);
                for (int turn = 0; turn < 2; turn++) {
                    for (int64_t from = 0; from < QUERIES; from += piece)
                        for (int head = 0; head < 2; head += turn ? 1 : 2)
                            job_run_piece(&w, from, ra__min(piece, QUERIES - from), head,
                                          turn ? 1 : 2);
                    job_expect_bits(&w, &kept, turn ? "heads are cut" : "queries are cut");
                }
                job_free_bits(&kept);
                job_free(&w);
            }
}

/* A mask that hides nothing, a bias of 0 and slopes of 0 change no bit, nor does dropout that keeps
 * all. Without terms scores may round otherwise. */
static void empty_terms_change_no_bit(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = hidden_world(on, JOB_ALIBI | JOB_ORDER | JOB_BIAS);
        for (int64_t i = 0; i < w.places; i++) {
            w.see_from[i] = 0;
            w.see_to[i] = (int32_t)w.places;
        }
        for (int64_t i = 0; i < w.rows * w.places; i++) w.addends[i] = 0.0f;
        for (int h = 0; h < JOB_MOST_HEADS; h++) w.alibi[h] = 0.0f;
        struct job_bits kept = job_keep_bits(&w);
        w.terms = (struct ra__terms){ .dropout = true, .kept_scale = 1.0f };
        w.bias.data = NULL;
        job_run_forward(&w);
        job_expect_bits(&w, &kept, "nothing is dropped");
        w.terms.dropout = false;
        w.plan.terms = 0;
        job_reference(&w);
        job_run_forward(&w);
        job_expect_forward(&w);
        job_free_bits(&kept);
        job_free(&w);
    }
}

int main(void)
{
    job_find_kinds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_its_known_answers),
        cmocka_unit_test(the_gradients_are_derivatives),
        cmocka_unit_test(every_dtype_and_dim),
        cmocka_unit_test(every_geometry),
        cmocka_unit_test(keys_in_two_runs),
        cmocka_unit_test(as_many_rows_as_a_kernel_takes),
        cmocka_unit_test(terms_of_many_rows_against_many_blocks),
        cmocka_unit_test(slopes_far_from_the_origin),
        cmocka_unit_test(tanh_keeps_its_bound),
        cmocka_unit_test(tanh_of_the_far_ends),
        cmocka_unit_test(every_kernel_drops_the_same),
        cmocka_unit_test(dropout_leaves_lse_alone),
        cmocka_unit_test(a_sink_alone),
        cmocka_unit_test(sinks_are_folded_once),
        cmocka_unit_test(rows_end_with_or_without_a_sink),
        cmocka_unit_test(rows_without_lse_give_sinks_nothing),
        cmocka_unit_test(poison_stays_where_it_is_seen),
        cmocka_unit_test(poison_of_a_row_spares_hidden_keys),
        cmocka_unit_test(nan_that_is_seen_shows),
        cmocka_unit_test(bits_do_not_depend_on_how_queries_are_cut),
        cmocka_unit_test(empty_terms_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
