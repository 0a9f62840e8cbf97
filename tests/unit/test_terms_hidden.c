/* SPDX-License-Identifier: Apache-2.0 */
/* test_terms_hidden.c - what a mask or a bias hides stays hidden, be it NaN or infinity; and terms
 * that hide nothing change nothing. */
#include "support/job_worlds.h"

#include <math.h>

#include "core/status.h"

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
        cmocka_unit_test(poison_stays_where_it_is_seen),
        cmocka_unit_test(poison_of_a_row_spares_hidden_keys),
        cmocka_unit_test(nan_that_is_seen_shows),
        cmocka_unit_test(empty_terms_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
