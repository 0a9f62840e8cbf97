/* SPDX-License-Identifier: Apache-2.0 */
/* test_terms_shapes.c - score terms and masks of an order in every kernel of kernel.list that this
 * CPU can run, forward and backward, against attention in double: every dtype, dim, number of rows
 * and shape of key runs. A failure prints its case. */
#include "support/job_worlds.h"

#include "core/status.h"

static void every_dtype_and_dim(void **state)
{
    (void)state;
    const int dims[][2] = { { 1, 1 }, { 3, 5 }, { 17, 16 }, { 64, 65 }, { 129, 127 }, { 1, 129 } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int k = 0; k < RA__COUNT(job_term_kinds); k++)
            for (int n = 0; n < RA__COUNT(dims); n++)
                job_check(&(struct job_plan){ .kernel = on->kernel,
                                              .dtype = on->dtype,
                                              .terms = job_term_kinds[k],
                                              .dim = dims[n][0],
                                              .value_dim = dims[n][1],
                                              .heads = 2,
                                              .q_count = 11,
                                              .q_pos = 120,
                                              .q_pos_step = 2,
                                              .runs = job_causal_run,
                                              .run_count = 1 });
}

static void every_geometry(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int k = 0; k < RA__COUNT(job_term_kinds); k++)
            job_check_geometries((struct job_plan){ .kernel = on->kernel,
                                                    .dtype = on->dtype,
                                                    .dim = 20,
                                                    .value_dim = 12,
                                                    .runs = job_term_runs,
                                                    .run_count = RA__COUNT(job_term_runs),
                                                    .terms = job_term_kinds[k] });
}

/* Two runs with the same keys at the same positions: every pair counts twice, and dropout takes
 * both or none. */
static void keys_in_two_runs(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 5, 1, 140, JOB_FULL },
                                        { 0, 3, 5, 3, 47, JOB_CAUSAL } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int k = 0; k < RA__COUNT(job_term_kinds); k++)
            job_check(&(struct job_plan){ .kernel = on->kernel,
                                          .dtype = on->dtype,
                                          .terms = job_term_kinds[k],
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
        job_check_most_rows((struct job_plan){ .kernel = on->kernel,
                                               .dtype = on->dtype,
                                               .terms = JOB_ALL,
                                               .dim = 16,
                                               .value_dim = 16,
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

static void bits_do_not_depend_on_how_queries_are_cut(void **state)
{
    (void)state;
    enum { QUERIES = 31 };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int k = 0; k < RA__COUNT(job_term_kinds); k++)
            for (int64_t piece = 1; piece < QUERIES; piece += 5) {
                struct job_world w = job_make(
                    &(struct job_plan){ .kernel = on->kernel,
                                        .dtype = on->dtype,
                                        .terms = job_term_kinds[k],
                                        .dim = 40,
                                        .value_dim = 72,
                                        .heads = 2,
                                        .q_count = QUERIES,
                                        .q_pos = 200,
                                        .q_pos_step = 1,
                                        .runs = job_term_runs,
                                        .run_count = RA__COUNT(job_term_runs) });
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

int main(void)
{
    job_find_kinds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_and_dim),
        cmocka_unit_test(every_geometry),
        cmocka_unit_test(keys_in_two_runs),
        cmocka_unit_test(as_many_rows_as_a_kernel_takes),
        cmocka_unit_test(terms_of_many_rows_against_many_blocks),
        cmocka_unit_test(slopes_far_from_the_origin),
        cmocka_unit_test(bits_do_not_depend_on_how_queries_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
