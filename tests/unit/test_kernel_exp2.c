/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_exp2.c - the exponential: its error, its ends, and what becomes of
 * weights and their sums. */
#include "support/job_worlds.h"

#include <math.h>
#include <string.h>

#include "core/status.h"
#include "core/state.h"

/* What exp2.h promises, relative: of itself, and of the sum of x and a half before it. */
static double exp2_bound(double x) { return (2.4 + 0.7 * (fabs(x) + 0.5)) * 0x1p-24; }

/* A backward pass over one run of keys. With lse = 0, dout = 1 and scale log2(e) = 1, dv of a key
 * is exp2 of its number. */
static struct job_world exp2_world(const struct job_kind *on, const float *x,
                                   const struct ra__key_run *run)
{
    struct job_world w = job_rows_world(on, 1, 1, 1, run, 1);
    w.shape.scale = (float)RA__LN_2;
    assert_true(w.shape.scale * (float)RA__LOG2_E == 1.0f);
    job_put(&w, w.q, 0, 0, 0, 1.0f);
    job_put(&w, w.dout, 0, 0, 0, 1.0f);
    for (int64_t j = 0; j < run->count; j++) job_put(&w, w.k, j, 0, 0, x[j]);
    job_run_backward(&w);
    return w;
}

/* The worst error as a part of its bound. */
static double worst_exp2(const struct job_kind *on, const float *x, int64_t count)
{
    const struct ra__key_run run = { 0, 1, 0, 1, count, JOB_FULL };
    struct job_world w = exp2_world(on, x, &run);
    double worst = 0.0;
    for (int64_t j = 0; j < count; j++)
        worst = fmax(worst, fabs(w.dv[j] / exp2(x[j]) - 1.0) / exp2_bound(x[j]));
    job_free(&w);
    return worst;
}

/* Every fraction a number of [-2, -1) can have, and numbers from -126 to the smallest below 0. */
static void exp2_keeps_its_bound(void **state)
{
    (void)state;
    enum { COUNT = 1 << 17 };
    static float x[COUNT];
    const uint32_t two = ra__f32_bits(-2.0f), one = ra__f32_bits(-1.0f),
                   lowest = ra__f32_bits(-126.0f);
    for (const struct job_kind *on = job_exact; on->kernel; on++) {
        double worst = 0.0;
        for (uint32_t bits = one; bits < two; bits += COUNT) {
            for (uint32_t n = 0; n < COUNT; n++) x[n] = ra__f32_from_bits(bits + n);
            worst = fmax(worst, worst_exp2(on, x, COUNT));
        }
        for (uint32_t n = 0; n < COUNT; n++) x[n] = ra__f32_from_bits(lowest - n * 8191u);
        worst = fmax(worst, worst_exp2(on, x, COUNT));
        if (!(worst <= 1.0))
            fail_msg("%s: exp2 is off by %.3f of its bound", on->kernel->name, worst);
    }
}

/* x as a sum of three numbers of a dtype, each the nearest to what is left: enough for 24 bits. In
 * whatever order they are added, the sum is exact. */
static void put_in_parts(const struct job_world *w, struct ra__matrix to, int64_t i, float x)
{
    for (int d = 0; d < 3; d++) {
        job_put(w, to, i, 0, d, x);
        x -= (float)job_at(w, to, i, 0, d);
    }
    assert_true(x == 0.0f);
}

static struct job_world sums_world(const struct job_kind *on)
{
    static const struct ra__key_run diagonal[] = { { 0, 1, 0, 1, 64, { 0, 0 } } };
    struct job_world w = job_rows_world(on, 3, 1, 64, diagonal, 1);
    w.shape.scale = (float)RA__LN_2;
    for (int64_t i = 0; i < 64; i++)
        for (int d = 0; d < 3; d++) job_put(&w, w.q, i, 0, d, 1.0f);
    return w;
}

/* From a state of m = 0 and l = 0, a row that sees one key has l = exp2 of its number: LSE is made
 * of this, and has all digits of f32 whatever dtype the kernel takes and rounds weights to. */
static void sums_of_weights_are_not_rounded(void **state)
{
    (void)state;
    const uint32_t one = ra__f32_bits(-1.0f), lowest = ra__f32_bits(-126.0f);
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = sums_world(on);
        struct ra__forward_job job = job_forward_of(&w);
        job.first = job.last = false;
        float x[64];
        for (uint32_t bits = one; bits + 64 * 509 < lowest; bits += 64 * 509) {
            memset(w.m, 0, sizeof x);
            memset(w.l, 0, sizeof x);
            for (uint32_t i = 0; i < 64; i++)
                put_in_parts(&w, w.k, i, x[i] = ra__f32_from_bits(bits + i * 509));
            on->kernel->forward(&job, w.workspace);
            for (int i = 0; i < 64; i++)
                if (!(w.m[i] == 0.0f && fabs(w.l[i] / exp2(x[i]) - 1.0) <= exp2_bound(x[i])))
                    fail_msg("%s: the sum is %a at %a", w.name, w.l[i], x[i]);
        }
        job_free(&w);
    }
}

/* A weight between 2^-127 and the smallest number of f32 is 0 in kernels of vectors, whether they
 * compare or have such numbers flushed: on some CPUs they would take a hundred times as long as
 * others. */
static void weights_are_not_subnormal(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        if (!on->kernel->backward_few) continue; /* in plain C */
        struct job_world w = sums_world(on);
        struct ra__forward_job job = job_forward_of(&w);
        job.first = job.last = false;
        memset(w.m, 0, 64 * sizeof(float));
        memset(w.l, 0, 64 * sizeof(float));
        for (int i = 0; i < 64; i++) put_in_parts(&w, w.k, i, -127.0f - (float)i / 2);
        on->kernel->forward(&job, w.workspace);
        for (int i = 0; i < 64; i++)
            if (!(w.l[i] == 0.0f || w.l[i] >= 0x1p-126f))
                fail_msg("%s: the weight is %a", w.name, w.l[i]);
        job_free(&w);
    }
}

/* The first seven are finite: with the others a block may go another way. */
static void exp2_of_the_far_ends(void **state)
{
    (void)state;
    const float x[] = { 0.0f, -0.0f, -1e-30f, -126.0f, -127.0f, -1000.0f, -1e30f, -INFINITY, NAN };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int count = 7; count <= RA__COUNT(x); count += 2) {
            const struct ra__key_run run = { 0, 1, 0, 1, count, JOB_FULL };
            struct job_world w = exp2_world(on, x, &run);
            assert_true(w.dv[0] == 1.0f && w.dv[1] == 1.0f);
            assert_true(fabsf(w.dv[2] - 1.0f) <= 0x1p-23f);
            assert_true(w.dv[3] == 0x1p-126f);
            assert_true(w.dv[4] >= 0.0f && w.dv[4] <= 0x1p-127f);
            for (int j = 5; j < count && j < 8; j++) assert_true(w.dv[j] == 0.0f);
            if (count > 8) assert_true(isnan(w.dv[8]));
            job_free(&w);
        }
}

int main(void)
{
    job_find_kinds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp2_keeps_its_bound),
        cmocka_unit_test(sums_of_weights_are_not_rounded),
        cmocka_unit_test(weights_are_not_subnormal),
        cmocka_unit_test(exp2_of_the_far_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
