/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_bits.c - a row's bits depend on its own queries and keys alone. */
#include "support/job.h"
#include "support/job_worlds.h"

#include <stdlib.h>
#include <string.h>

#include "core/status.h"

/* A multiple of every kernel's block, where runs may be split without changing a bit. */
enum { ANY_BLOCK = 256 };

/* Windows over several blocks, so that where blocks start shows. */
static const struct ra__key_run long_runs[] = {
    { 0, 1, 0, 1, 700, { 190, 300 } },
    { 3, 1, 5, 2, 300, JOB_CAUSAL },
    { 1, 1, 150, 1, 200, { 70, -1 } },
};

static void bits_do_not_depend_on_how_queries_are_cut(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int64_t piece = 1; piece < 31; piece += 4) {
            struct job_world w = job_bits_world(on, long_runs, RA__COUNT(long_runs));
            struct job_bits kept = job_keep_bits(&w);
            for (int64_t from = 0; from < 31; from += piece)
                job_run_piece(&w, from, ra__min(piece, 31 - from), 0, 2);
            job_expect_bits(&w, &kept, "queries are cut");
            for (int head = 0; head < 2; head++) job_run_piece(&w, 0, 31, head, 1);
            job_expect_bits(&w, &kept, "heads are cut");
            job_free_bits(&kept);
            job_free(&w);
        }
}

/* Kernels may take up fewer rows at once where a core has two threads. */
static void bits_do_not_depend_on_a_crowd(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                          .dtype = on->dtype,
                                                          .dim = 40,
                                                          .value_dim = 72,
                                                          .heads = 1,
                                                          .q_count = 59,
                                                          .q_pos = 300,
                                                          .q_pos_step = 1,
                                                          .runs = job_causal_run,
                                                          .run_count = 1 });
        struct job_bits bits = job_keep_bits(&w);
        struct ra__forward_job job = job_forward_of(&w);
        job.view.smt = true;
        on->kernel->forward(&job, w.workspace);
        job_expect_bits(&w, &bits, "in a crowd");
        job_free_bits(&bits);
        job_free(&w);
    }
}

static void bits_do_not_depend_on_cuts_at_block_multiples(void **state)
{
    (void)state;
    const struct ra__key_run whole[] = { { 0, 1, 7, 1, 900, { 500, 400 } },
                                         { 3, 1, 2, 3, 600, JOB_CAUSAL } };
    struct ra__key_run cut[8];
    int count = 0;
    for (int n = 0; n < 2; n++)
        for (int64_t from = 0, to; from < whole[n].count; from = to) {
            int64_t index = whole[n].pos / whole[n].pos_step + from;
            to = ra__min(from + ANY_BLOCK - index % ANY_BLOCK, whole[n].count);
            cut[count] = whole[n];
            cut[count].token += from * whole[n].token_step;
            cut[count].pos += from * whole[n].pos_step;
            cut[count++].count = to - from;
        }
    assert_int_equal(count, 4 + 3);
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_bits_world(on, whole, 2);
        struct job_bits kept = job_keep_bits(&w);
        w.plan.runs = cut;
        w.plan.run_count = count;
        job_run_forward(&w);
        job_expect_bits(&w, &kept, "runs are cut at block multiples");
        job_free_bits(&kept);
        job_free(&w);
    }
}

/* Keys that a row does not see may be there or not. */
static void bits_do_not_depend_on_keys_not_seen(void **state)
{
    (void)state;
    const struct ra__key_run wide[] = { { 0, 1, 0, 1, 400, { 90, 0 } } };
    const struct ra__key_run tight[] = { { 110, 1, 110, 1, 121, { 90, 0 } } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_bits_world(on, wide, 1);
        struct job_bits kept = job_keep_bits(&w);
        w.plan.runs = tight;
        job_run_forward(&w);
        job_expect_bits(&w, &kept, "keys nobody sees are left out");
        job_free_bits(&kept);
        job_free(&w);
    }
}

/* State that leaves one job and enters the next is kept exactly: not a bit differs from one job. */
static void state_carried_across_jobs(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int cut = 0; cut <= JOB_MANY_RUNS; cut++) {
            struct job_world w = job_bits_world(on, job_many_runs, JOB_MANY_RUNS);
            struct job_bits kept = job_keep_bits(&w);
            struct ra__forward_job job = job_forward_of(&w);
            job.last = false;
            job.view.run_count = cut;
            on->kernel->forward(&job, w.workspace);
            job.first = false;
            job.last = true;
            job.view.runs = job_many_runs + cut;
            job.view.run_count = JOB_MANY_RUNS - cut;
            on->kernel->forward(&job, w.workspace);
            job_expect_bits(&w, &kept, "state is carried");
            job_free_bits(&kept);
            job_free(&w);
        }
}

static float *copy_of(const float *data, int64_t count)
{
    float *copy = job_allocate(count, sizeof(float));
    memcpy(copy, data, sizeof(float) * (size_t)count);
    return copy;
}

static void the_same_backward_twice_gives_the_same_bits(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_bits_world(on, job_many_runs, JOB_MANY_RUNS);
        job_reference(&w);
        int64_t q = w.rows * 40, k = w.key_rows * 40, v = w.key_rows * 72;
        job_run_backward(&w);
        float *dq = copy_of(w.dq, q), *dk = copy_of(w.dk, k), *dv = copy_of(w.dv, v);
        memset(w.dq, 0, sizeof(float) * (size_t)q);
        memset(w.dk, 0, sizeof(float) * (size_t)k);
        memset(w.dv, 0, sizeof(float) * (size_t)v);
        job_run_backward(&w);
        assert_memory_equal(dq, w.dq, sizeof(float) * (size_t)q);
        assert_memory_equal(dk, w.dk, sizeof(float) * (size_t)k);
        assert_memory_equal(dv, w.dv, sizeof(float) * (size_t)v);
        free(dq);
        free(dk);
        free(dv);
        job_free(&w);
    }
}

int main(void)
{
    job_find_kinds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_how_queries_are_cut),
        cmocka_unit_test(bits_do_not_depend_on_a_crowd),
        cmocka_unit_test(bits_do_not_depend_on_cuts_at_block_multiples),
        cmocka_unit_test(bits_do_not_depend_on_keys_not_seen),
        cmocka_unit_test(state_carried_across_jobs),
        cmocka_unit_test(the_same_backward_twice_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
