/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_shapes.c - every dtype, dim, number of rows and shape of key
 * runs, against attention in double. */
#include "support/job.h"
#include "support/job_worlds.h"

#include "core/status.h"

static void every_dtype_and_dim(void **state)
{
    (void)state;
    const int dims[][2] = { { 1, 1 },     { 3, 3 },     { 16, 16 }, { 17, 5 },
                            { 64, 64 },   { 65, 65 },   { 80, 96 }, { 128, 128 },
                            { 192, 128 }, { 576, 512 }, { 1, 130 } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < RA__COUNT(dims); n++)
            job_check(&(struct job_plan){ .kernel = on->kernel,
                                          .dtype = on->dtype,
                                          .dim = dims[n][0],
                                          .value_dim = dims[n][1],
                                          .heads = 2,
                                          .q_count = 11,
                                          .q_pos = 120,
                                          .q_pos_step = 2,
                                          .gap = n % 3,
                                          .runs = job_causal_run,
                                          .run_count = 1,
                                          .magnitude = 3.0f });
}

static void every_geometry(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int64_t gap = 0; gap < 4; gap += 3)
            job_check_geometries((struct job_plan){ .kernel = on->kernel,
                                                    .dtype = on->dtype,
                                                    .dim = 20,
                                                    .value_dim = 12,
                                                    .runs = job_many_runs,
                                                    .run_count = JOB_MANY_RUNS,
                                                    .gap = gap,
                                                    .magnitude = 3.0f });
}

static void as_many_rows_as_a_kernel_takes(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 0, 1, 300, { 70, 70 } } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        job_check_most_rows((struct job_plan){ .kernel = on->kernel,
                                               .dtype = on->dtype,
                                               .dim = 32,
                                               .value_dim = 32,
                                               .q_pos_step = 1,
                                               .runs = runs,
                                               .run_count = 1 });
}

static void many_rows_against_many_blocks(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int heads = 1; heads < 4; heads += 2)
            job_check(&(struct job_plan){ .kernel = on->kernel,
                                          .dtype = on->dtype,
                                          .dim = 5,
                                          .value_dim = 18,
                                          .heads = heads,
                                          .q_count = on->kernel->rows / heads,
                                          .q_pos_step = 3,
                                          .runs = job_block_runs,
                                          .run_count = 2 });
}

/* Kernels take rows up in groups of 6, 24, 32, 96, or two by two; heads of a query are
 * neighbours. */
static void rows_around_the_ends_of_groups(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 3, 1, 77, { 40, 9 } } };
    const int shapes[][2] = { { 1, 5 },  { 1, 6 },  { 7, 1 },  { 1, 23 }, { 3, 8 },  { 5, 5 },
                              { 1, 31 }, { 8, 4 },  { 3, 11 }, { 1, 47 }, { 6, 8 },  { 7, 7 },
                              { 1, 63 }, { 5, 19 }, { 4, 24 }, { 1, 97 }, { 43, 3 }, { 5, 51 } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < RA__COUNT(shapes); n++)
            job_check(&(struct job_plan){
                .kernel = on->kernel,
                .dtype = on->dtype,
                .dim = 7,
                .value_dim = 18,
                .heads = shapes[n][0],
                .q_count = ra__min(shapes[n][1], on->kernel->rows / shapes[n][0]),
                .q_pos = 11,
                .q_pos_step = 1,
                .runs = runs,
                .run_count = 1 });
}

/* Where numbers go two by two, a run may begin and end in the middle of two. */
static void odd_lanes_and_odd_counts(void **state)
{
    (void)state;
    const int64_t starts[] = { 0, 1, 15, 16, 31, 33, 62, 255 };
    const int64_t counts[] = { 1, 2, 3, 15, 17, 31, 32, 33, 65, 257 };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < RA__COUNT(starts) * RA__COUNT(counts); n++) {
            const int64_t start = starts[n % RA__COUNT(starts)];
            const int64_t count = counts[n / RA__COUNT(starts)];
            const struct ra__key_run runs[] = { { 0, 1, start, 1, count, { 11, 2 } },
                                                { 0, 1, start, 1, count, JOB_FULL } };
            job_check(&(struct job_plan){ .kernel = on->kernel,
                                          .dtype = on->dtype,
                                          .dim = 3,
                                          .value_dim = 5,
                                          .heads = 1,
                                          .q_count = 7,
                                          .q_pos = start,
                                          .q_pos_step = 1,
                                          .runs = runs + n % 2,
                                          .run_count = 2 - n % 2 });
        }
}

int main(void)
{
    job_find_kinds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_and_dim),
        cmocka_unit_test(every_geometry),
        cmocka_unit_test(as_many_rows_as_a_kernel_takes),
        cmocka_unit_test(many_rows_against_many_blocks),
        cmocka_unit_test(rows_around_the_ends_of_groups),
        cmocka_unit_test(odd_lanes_and_odd_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
