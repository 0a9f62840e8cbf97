/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_nan.c - a NaN goes to the rows that see it and no further. */
#include "support/job.h"
#include "support/job_worlds.h"

#include <math.h>

#include "core/status.h"

static bool row_sees_key(const struct job_world *w, int64_t i, int64_t key)
{
    for (int n = 0; n < w->plan.run_count; n++)
        for (int64_t j = 0; j < w->plan.runs[n].count; j++)
            if (w->plan.runs[n].token + j * w->plan.runs[n].token_step == key &&
                job_sees(w, i, &w->plan.runs[n], j))
                return true;
    return false;
}

/* A NaN or an infinity in a key or its value may show in the rows that see it, and changes no bit
 * elsewhere; a NaN must show. */
static void expect_poison_stays(struct job_world *w, const struct job_bits *clean, int64_t key,
                                bool must)
{
    job_run_forward(w);
    for (int64_t i = 0; i < w->rows; i++) {
        bool poisoned = row_sees_key(w, i, key), nan = false;
        for (int d = 0; d < w->plan.value_dim; d++) nan |= isnan(job_at(w, w->out, i, 0, d));
        if (must && poisoned && !nan) fail_msg("%s: row %d hides a NaN", w->name, (int)i);
        if (!poisoned && !job_same_bits(w, clean, i))
            fail_msg("%s: key %d changes row %d", w->name, (int)key, (int)i);
    }
}

static void nan_goes_to_the_rows_that_see_it_and_no_further(void **state)
{
    (void)state;
    const int64_t keys[] = { 0, 30, 31, 63, 64, 80 }; /* windows begin and end beside some */
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < RA__COUNT(keys) * 4; n++) {
            struct job_world w = job_window_world(on);
            struct job_bits clean = job_keep_bits(&w);
            float poison = n & 1 ? NAN : INFINITY;
            job_put(&w, n & 2 ? w.k : w.v, keys[n / 4], 0, 18, poison);
            expect_poison_stays(&w, &clean, keys[n / 4], n & 1);
            job_free_bits(&clean);
            job_free(&w);
        }
}

/* The same if many rows share packed blocks: in a poisoned block each row has values of its own. */
static void nan_spoils_no_block_for_other_rows(void **state)
{
    (void)state;
    const int64_t keys[] = { 100, 700 };
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                          .dtype = on->dtype,
                                                          .dim = 3,
                                                          .value_dim = 4,
                                                          .heads = 1,
                                                          .q_count = on->kernel->rows,
                                                          .q_pos_step = 1,
                                                          .runs = job_block_runs,
                                                          .run_count = 1 });
        struct job_bits clean = job_keep_bits(&w);
        for (int n = 0; n < RA__COUNT(keys); n++) {
            const float before = (float)job_at(&w, w.v, keys[n], 0, 2);
            job_put(&w, w.v, keys[n], 0, 2, NAN);
            expect_poison_stays(&w, &clean, keys[n], true);
            job_put(&w, w.v, keys[n], 0, 2, before);
        }
        job_free_bits(&clean);
        job_free(&w);
    }
}

static void nan_in_a_query_stays_in_its_row(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_window_world(on);
        struct job_bits clean = job_keep_bits(&w);
        job_put(&w, w.q, 13, 0, 4, NAN);
        job_run_forward(&w);
        for (int64_t i = 0; i < w.rows; i++)
            assert_true(i == 13 ? isnan(job_at(&w, w.out, i, 0, 0)) : job_same_bits(&w, &clean, i));
        job_free_bits(&clean);
        job_free(&w);
    }
}

/* The same backward: dq of rows, and dk and dv of keys, that have no part in a NaN stay right. */
static void nan_spreads_no_further_backward(void **state)
{
    (void)state;
    const int64_t key = 40, query = 25;
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < 4; n++) {
            struct job_world w = job_window_world(on);
            struct ra__matrix bad[] = { w.k, w.v, w.q, w.dout };
            job_put(&w, bad[n], n < 2 ? key : query, 0, 2, NAN);
            job_run_backward(&w);
            for (int64_t i = 0; i < w.rows; i++)
                if (n < 2 ? !row_sees_key(&w, i, key) : i != query) job_expect_dq(&w, i);
            for (int64_t j = 0; j < w.key_rows; j++) {
                if (n < 2 ? j == key : row_sees_key(&w, query, j)) continue;
                job_expect_dk(&w, j);
                job_expect_dv(&w, j);
            }
            job_free(&w);
        }
}

int main(void)
{
    job_find_kinds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nan_goes_to_the_rows_that_see_it_and_no_further),
        cmocka_unit_test(nan_spoils_no_block_for_other_rows),
        cmocka_unit_test(nan_in_a_query_stays_in_its_row),
        cmocka_unit_test(nan_spreads_no_further_backward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
