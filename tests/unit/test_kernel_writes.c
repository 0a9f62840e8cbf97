/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_writes.c - what a job writes, adds to and calls, and what it leaves alone. */
#include "support/job.h"
#include "support/job_worlds.h"

#include <math.h>
#include <string.h>

static void forward_writes_only_what_it_should(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                          .dtype = on->dtype,
                                                          .dim = 5,
                                                          .value_dim = 21,
                                                          .heads = 2,
                                                          .q_count = 6,
                                                          .q_pos = 100,
                                                          .q_pos_step = 1,
                                                          .gap = 5,
                                                          .runs = job_causal_run,
                                                          .run_count = 1,
                                                          .magnitude = 1.0f });
        w.lse[0] = 42.0f;
        struct ra__forward_job job = job_forward_of(&w);
        job.lse.data = NULL;                      /* not wanted */
        job.m.data = job.l.data = job.acc = NULL; /* not needed by a job that is first and last */
        on->kernel->forward(&job, w.workspace);
        assert_true(w.lse[0] == 42.0f);
        for (int64_t n = 0; n < 6 * w.out.row_stride; n++) {
            int64_t in_row = n % w.out.row_stride;
            bool gap = in_row >= 2 * w.out.head_stride || in_row % w.out.head_stride >= 21;
            assert_true((isnan(ra__load(on->dtype, w.out.data, n)) != 0) == gap);
        }
        job_free(&w);
    }
}

static void backward_adds(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_window_world(on);
        int64_t q = w.rows * 19, k = w.key_rows * 19, v = w.key_rows * 35;
        for (int64_t n = 0; n < q; n++)
            job_add_term(&w.want_dq[n], &w.size_dq[n], w.dq[n] = job_noise());
        for (int64_t n = 0; n < k; n++)
            job_add_term(&w.want_dk[n], &w.size_dk[n], w.dk[n] = job_noise());
        for (int64_t n = 0; n < v; n++)
            job_add_term(&w.want_dv[n], &w.size_dv[n], w.dv[n] = job_noise());
        job_run_backward(&w);
        job_expect_backward(&w);
        job_free(&w);
    }
}

/* With l = 1 the output is acc, narrowed: it must be what ra__store makes of it, to the bit, but
 * that dividing by l has made a NaN quiet. */
static void outputs_are_narrowed_as_dtype_h_does(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                          .dtype = on->dtype,
                                                          .dim = 1,
                                                          .value_dim = 523,
                                                          .heads = 1,
                                                          .q_count = on->kernel->rows,
                                                          .q_pos_step = 1 });
        int64_t bytes = (int64_t)ra__dtype_bytes(on->dtype);
        for (uint32_t n = 0; n < w.rows * 523; n++) w.acc[n] = ra__f32_from_bits(n * 42799u);
        for (int64_t row = 0; row < w.rows; row++) w.l[row] = 1.0f;
        struct ra__forward_job job = job_forward_of(&w);
        job.first = false;
        on->kernel->forward(&job, w.workspace);
        for (int64_t n = 0; n < w.rows * 523; n++) {
            float want = 0.0f;
            ra__store(on->dtype, &want, 0, w.acc[n]);
            bool same = memcmp((char *)w.out.data + n * bytes, &want, (size_t)bytes) == 0;
            if (isnan(w.acc[n])) same = isnan(ra__load(on->dtype, w.out.data, n));
            if (!same) fail_msg("%s: narrowing %a", w.name, w.acc[n]);
        }
        job_free(&w);
    }
}

static void count_breath(void *context) { ++*(int *)context; }

/* A job polls along its keys, however few queries it has: a long one must not look lost. */
static void jobs_poll(void **state)
{
    (void)state;
    static const struct ra__key_run long_run[] = {
        { 0, 1, 0, 1, 4096, { RA__UNBOUNDED, RA__UNBOUNDED } }
    };
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        int breaths[2] = { 0, 0 };
        struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                          .dtype = on->dtype,
                                                          .dim = 8,
                                                          .value_dim = 8,
                                                          .heads = 1,
                                                          .q_count = 1,
                                                          .q_pos_step = 1,
                                                          .runs = long_run,
                                                          .run_count = 1,
                                                          .magnitude = 1.0f });
        struct ra__forward_job forward = job_forward_of(&w);
        forward.view.kernel_poll = count_breath;
        forward.view.context = &breaths[0];
        w.plan.kernel->forward(&forward, w.workspace);
        struct ra__backward_job backward = job_backward_of(&w);
        backward.view.kernel_poll = count_breath;
        backward.view.context = &breaths[1];
        w.plan.kernel->backward(&backward, w.workspace);
        assert_true(breaths[0] >= 8);
        assert_true(breaths[1] >= 8);
        job_free(&w);
    }
}

int main(void)
{
    job_find_kinds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_writes_only_what_it_should),
        cmocka_unit_test(backward_adds),
        cmocka_unit_test(outputs_are_narrowed_as_dtype_h_does),
        cmocka_unit_test(jobs_poll),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
