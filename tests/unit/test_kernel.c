/* test_kernel.c - every kernel of kernel.list that this CPU can run, against attention in double
 * and against the promises of kernel.h. A failure prints its case. */
#include "support/job.h"

#include <math.h>
#include <stdlib.h>

#include "core/status.h"
#include "kernel/lse.h"
#include "kernel/state.h"

/* A multiple of every kernel's block, where runs may be split without changing a bit. */
enum { ANY_BLOCK = 256 };

/* ---- Numbers --------------------------------------------------------------------------------- */

static const struct ra__key_run causal_run[] = { { 0, 1, 0, 1, 151, JOB_CAUSAL } };

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
                                          .runs = causal_run,
                                          .run_count = 1,
                                          .magnitude = 3.0f });
}

/* Windows, strides in memory and in position, starts off every block, keys seen twice, runs that no
 * query sees, and an empty one. */
static const struct ra__key_run many_runs[] = {
    { 0, 1, 37, 1, 200, { 64, 64 } },   { 5, 3, 11, 4, 70, JOB_FULL },
    { 200, 1, 0, 1, 1, JOB_FULL },      { 1, 2, 300, 1, 90, JOB_CAUSAL },
    { 0, 1, 130, 1, 130, { 0, 0 } },    { 7, 1, 9000, 7, 80, JOB_CAUSAL },
    { 3, 1, 63, 3, 129, { 200, -10 } }, { 0, 1, 50, 1, 0, JOB_FULL },
    { 2, 1, 1023, 2, 3, JOB_FULL },
};

static void every_geometry(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int64_t gap = 0; gap < 4; gap += 3)
            job_check_geometries((struct job_plan){ .kernel = on->kernel,
                                                    .dtype = on->dtype,
                                                    .dim = 20,
                                                    .value_dim = 12,
                                                    .runs = many_runs,
                                                    .run_count = RA__COUNT(many_runs),
                                                    .gap = gap,
                                                    .magnitude = 3.0f });
}

static void as_many_rows_as_a_kernel_takes(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 0, 1, 300, { 70, 70 } } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_plan plan = { .kernel = on->kernel,
                                 .dtype = on->dtype,
                                 .dim = 32,
                                 .value_dim = 32,
                                 .heads = 1,
                                 .q_count = on->kernel->rows,
                                 .q_pos_step = 1,
                                 .runs = runs,
                                 .run_count = 1,
                                 .magnitude = 3.0f };
        job_check(&plan);
        plan.heads = on->kernel->rows;
        plan.q_count = 1;
        job_check(&plan);
    }
}

/* Some kernels keep several blocks packed while one row block after the other works on them. Under
 * causal the first row blocks see fewer key blocks than the last. */
static const struct ra__key_run block_runs[] = { { 0, 1, 90, 1, 1500, JOB_CAUSAL },
                                                 { 7, 2, 40, 1, 600, { 300, 5 } } };

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
                                          .runs = block_runs,
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

/* A scale that reverses the order of scores, makes all the same, or scores that differ in their
 * last digits only. */
static void any_scale(void **state)
{
    (void)state;
    const float scales[] = { -0.2f, -1.0f, 0.0f, -0.0f, 1e-20f, -1e-20f, 1e-40f };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < 4 * RA__COUNT(scales); n++) {
            struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                              .dtype = on->dtype,
                                                              .terms = n & 1 ? JOB_ALL : 0,
                                                              .dim = 64,
                                                              .value_dim = 10,
                                                              .heads = 2,
                                                              .q_count = 13,
                                                              .q_pos = 50,
                                                              .q_pos_step = 7,
                                                              .runs = causal_run,
                                                              .run_count = 1,
                                                              .magnitude = n & 2 ? 200 : 3 });
            w.shape.scale = scales[n / 4];
            w.reach *= fmax(1.0, fabs((double)w.shape.scale) * 8.0);
            job_reference(&w);
            job_run_backward(&w);
            job_expect_backward(&w);
            job_run_forward(&w);
            job_expect_forward(&w);
            job_free(&w);
        }
}

/* q.k is a number, but times the scale it is none: the row is NaN, and not 0 or the mean of others.
 * Far below 0 such a score is -inf, and weighs nothing. */
static void scores_too_large_for_f32(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 0, 1, 40, JOB_FULL } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < 4; n++) {
            struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                              .dtype = on->dtype,
                                                              .dim = 2,
                                                              .value_dim = 3,
                                                              .heads = 1,
                                                              .q_count = 3,
                                                              .q_pos_step = 1,
                                                              .runs = runs,
                                                              .run_count = 1 });
            w.shape.scale = n & 1 ? -0x1p118f : 0x1p118f;
            for (int64_t i = 0; i < 3; i++)
                for (int d = 0; d < 2; d++) job_put(&w, w.q, i, 0, d, i == 1 ? 64.0f : 0.0f);
            for (int64_t j = 0; j < 40; j++)
                for (int d = 0; d < 2; d++) job_put(&w, w.k, j, 0, d, 0.0f);
            job_put(&w, w.k, 17, 0, 1, n & 2 ? -64.0f : 64.0f);
            job_run_forward(&w);
            bool below = (n & 1) != (n >> 1);
            for (int64_t i = 0; i < 3; i++) {
                bool nan = i == 1 && !below;
                double lse = log(i == 1 ? 39.0 : 40.0);
                assert_true(nan ? isnan(w.lse[i]) : fabs(w.lse[i] - lse) <= 1e-5);
                for (int d = 0; d < 3; d++)
                    assert_true((isnan(job_at(&w, w.out, i, 0, d)) != 0) == nan);
            }
            job_free(&w);
        }
}

/* Scores up to 1e33, twice that of all others for one key: it has all the weight, and LSE its
 * score. */
static void scores_of_billions(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 0, 1, 300, JOB_FULL } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < 40; n++) {
            const int rows = n & 1 ? 1 : 30, key = n * 7;
            struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                              .dtype = on->dtype,
                                                              .dim = 16,
                                                              .value_dim = 3,
                                                              .heads = 1,
                                                              .q_count = rows,
                                                              .q_pos_step = 1,
                                                              .runs = runs,
                                                              .run_count = 1 });
            w.shape.scale = ldexpf(1.0f, 2 * n);
            for (int64_t i = 0; i < rows; i++)
                for (int d = 0; d < 16; d++) job_put(&w, w.q, i, 0, d, d ? 0.0f : 1000.0f);
            for (int64_t j = 0; j < 300; j++)
                for (int d = 0; d < 16; d++) job_put(&w, w.k, j, 0, d, j == key ? 1.5f : 0.75f);
            job_run_forward(&w);
            for (int64_t i = 0; i < rows; i++) {
                const double lse = 1500.0 * (double)w.shape.scale;
                assert_true(fabs((double)w.lse[i] - lse) <= 1e-6 * lse);
                for (int d = 0; d < 3; d++) {
                    const double v = job_at(&w, w.v, key, 0, d);
                    assert_true(fabs(job_at(&w, w.out, i, 0, d) - v) <= 0.01 * fabs(v));
                }
            }
            job_free(&w);
        }
}

static void large_scores(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        job_check(&(struct job_plan){ .kernel = on->kernel,
                                      .dtype = on->dtype,
                                      .dim = 64,
                                      .value_dim = 32,
                                      .heads = 1,
                                      .q_count = 40,
                                      .q_pos = 100,
                                      .q_pos_step = 1,
                                      .runs = many_runs,
                                      .run_count = RA__COUNT(many_runs),
                                      .magnitude = 200.0f });
}

/* Runs are 200 above or below one another: weights vanish, or replace all that was summed. */
static void gaps_of_200_between_runs(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 0, 1, 70, JOB_FULL },
                                        { 70, 1, 70, 1, 70, JOB_FULL },
                                        { 140, 1, 140, 1, 70, JOB_FULL } };
    const float levels[][3] = {
        { -200, 0, 200 }, { 200, 0, -200 }, { 0, 200, 0 }, { -200, -200, 200 }
    };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < RA__COUNT(levels); n++) {
            struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                              .dtype = on->dtype,
                                                              .dim = 1,
                                                              .value_dim = 9,
                                                              .heads = 1,
                                                              .q_count = 5,
                                                              .q_pos_step = 1,
                                                              .runs = runs,
                                                              .run_count = 3,
                                                              .magnitude = 200.0f });
            for (int64_t i = 0; i < 5; i++) job_put(&w, w.q, i, 0, 0, 1.0f);
            for (int64_t j = 0; j < 210; j++)
                job_put(&w, w.k, j, 0, 0, levels[n][j / 70] + job_noise());
            job_reference(&w);
            job_run_backward(&w);
            job_expect_backward(&w);
            job_run_forward(&w);
            job_expect_forward(&w);
            job_free(&w);
        }
}

/* What exp2.h promises, relative: of itself, and of the sum of x and a half before it. */
static double exp2_bound(double x) { return (2.4 + 0.7 * (fabs(x) + 0.5)) * 0x1p-24; }

/* With lse = 0, dout = 1 and scale log2(e) = 1, dv of a key is exp2 of its number. Returns the
 * worst error as a part of its bound. */
static double worst_exp2(const struct job_kind *on, const float *x, int64_t count)
{
    const struct ra__key_run runs[] = { { 0, 1, 0, 1, count, JOB_FULL } };
    struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                      .dtype = on->dtype,
                                                      .dim = 1,
                                                      .value_dim = 1,
                                                      .heads = 1,
                                                      .q_count = 1,
                                                      .q_pos_step = 1,
                                                      .runs = runs,
                                                      .run_count = 1,
                                                      .magnitude = 1.0f });
    w.shape.scale = (float)RA__LN_2;
    assert_true(w.shape.scale * (float)RA__LOG2_E == 1.0f);
    job_put(&w, w.q, 0, 0, 0, 1.0f);
    job_put(&w, w.dout, 0, 0, 0, 1.0f);
    for (int64_t j = 0; j < count; j++) job_put(&w, w.k, j, 0, 0, x[j]);
    job_run_backward(&w);
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
    struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                      .dtype = on->dtype,
                                                      .dim = 3,
                                                      .value_dim = 1,
                                                      .heads = 1,
                                                      .q_count = 64,
                                                      .q_pos_step = 1,
                                                      .runs = diagonal,
                                                      .run_count = 1 });
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
            const struct ra__key_run runs[] = { { 0, 1, 0, 1, count, JOB_FULL } };
            struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                              .dtype = on->dtype,
                                                              .dim = 1,
                                                              .value_dim = 1,
                                                              .heads = 1,
                                                              .q_count = 1,
                                                              .q_pos_step = 1,
                                                              .runs = runs,
                                                              .run_count = 1 });
            w.shape.scale = (float)RA__LN_2;
            job_put(&w, w.q, 0, 0, 0, 1.0f);
            job_put(&w, w.dout, 0, 0, 0, 1.0f);
            for (int j = 0; j < count; j++) job_put(&w, w.k, j, 0, 0, x[j]);
            job_run_backward(&w);
            assert_true(w.dv[0] == 1.0f && w.dv[1] == 1.0f);
            assert_true(fabsf(w.dv[2] - 1.0f) <= 0x1p-23f);
            assert_true(w.dv[3] == 0x1p-126f);
            assert_true(w.dv[4] >= 0.0f && w.dv[4] <= 0x1p-127f);
            for (int j = 5; j < count && j < 8; j++) assert_true(w.dv[j] == 0.0f);
            if (count > 8) assert_true(isnan(w.dv[8]));
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

/* ---- Rows that see nothing, NaN -------------------------------------------------------------- */

static void rows_that_see_nothing(void **state)
{
    (void)state;
    /* Queries 0 to 9: the first four are before every key. */
    const struct ra__key_run runs[] = { { 0, 1, 4, 1, 100, JOB_CAUSAL },
                                        { 0, 1, 5, 1, 40, { 0, 0 } } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                          .dtype = on->dtype,
                                                          .dim = 24,
                                                          .value_dim = 24,
                                                          .heads = 2,
                                                          .q_count = 10,
                                                          .q_pos_step = 1,
                                                          .runs = runs,
                                                          .run_count = 2,
                                                          .magnitude = 3.0f });
        job_reference(&w);
        job_run_backward(&w);
        job_expect_backward(&w);
        job_run_forward(&w);
        job_expect_forward(&w);
        for (int64_t row = 0; row < 8; row++) {
            assert_true(w.lse[row] == -INFINITY);
            for (int d = 0; d < 24; d++) assert_true(job_at(&w, w.out, row / 2, row % 2, d) == 0.0);
        }
        job_free(&w);
    }
}

static void no_runs_at_all(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        job_check(&(struct job_plan){ .kernel = on->kernel,
                                      .dtype = on->dtype,
                                      .dim = 8,
                                      .value_dim = 8,
                                      .heads = 3,
                                      .q_count = 5,
                                      .q_pos_step = 1,
                                      .magnitude = 1.0f });
}

static void count_breath(void *context) { ++*(int *)context; }

/* A job polls along its keys, however few queries it has: a long one must not look lost. */
static void jobs_breathe(void **state)
{
    (void)state;
    static const struct ra__key_run long_run[] = { { 0, 1, 0, 1, 4096, { RA__FAR, RA__FAR } } };
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
        forward.view.breathe = count_breath;
        forward.view.context = &breaths[0];
        w.plan.kernel->forward(&forward, w.workspace);
        struct ra__backward_job backward = job_backward_of(&w);
        backward.view.breathe = count_breath;
        backward.view.context = &breaths[1];
        w.plan.kernel->backward(&backward, w.workspace);
        assert_true(breaths[0] >= 8);
        assert_true(breaths[1] >= 8);
        job_free(&w);
    }
}

/* Scores of -inf weigh nothing: alone they are an empty row, beside others they do not show. */
static void scores_of_minus_infinity(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 0, 1, 80, { 0, 0 } },
                                        { 0, 1, 0, 1, 80, { 70, -60 } } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                          .dtype = on->dtype,
                                                          .dim = 1,
                                                          .value_dim = 4,
                                                          .heads = 1,
                                                          .q_count = 64,
                                                          .q_pos_step = 1,
                                                          .runs = runs,
                                                          .run_count = 2,
                                                          .magnitude = 3.0f });
        for (int64_t i = 0; i < 64; i++) job_put(&w, w.q, i, 0, 0, 1.0f);
        for (int64_t j = 2; j < 80; j++) job_put(&w, w.k, j, 0, 0, -INFINITY);
        job_run_forward(&w);
        for (int64_t i = 0; i < 64; i++) {
            bool alone = i >= 2 && i < 60; /* from query 60 on, the second run adds keys 0 and 1 */
            assert_true(alone ? w.lse[i] == -INFINITY : isfinite(w.lse[i]));
            for (int d = 0; d < 4; d++) {
                double out = job_at(&w, w.out, i, 0, d);
                assert_true(alone ? out == 0.0 : isfinite(out));
            }
        }
        job_free(&w);
    }
}

static bool row_sees_key(const struct job_world *w, int64_t i, int64_t key)
{
    for (int n = 0; n < w->plan.run_count; n++)
        for (int64_t j = 0; j < w->plan.runs[n].count; j++)
            if (w->plan.runs[n].row + j * w->plan.runs[n].row_step == key &&
                job_sees(w, i, &w->plan.runs[n], j))
                return true;
    return false;
}

static const struct ra__key_run window_run[] = { { 0, 1, 0, 1, 90, { 20, 3 } } };

static struct job_world window_world(const struct job_kind *on)
{
    struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                      .dtype = on->dtype,
                                                      .dim = 19,
                                                      .value_dim = 35,
                                                      .heads = 1,
                                                      .q_count = 50,
                                                      .q_pos = 10,
                                                      .q_pos_step = 1,
                                                      .runs = window_run,
                                                      .run_count = 1,
                                                      .magnitude = 3.0f });
    job_reference(&w);
    return w;
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
            struct job_world w = window_world(on);
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
                                                          .runs = block_runs,
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
        struct job_world w = window_world(on);
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
            struct job_world w = window_world(on);
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

/* ---- Bits ------------------------------------------------------------------------------------ */

/* Scores are small, so that many weights count and the order of their sum shows. */
static struct job_world bits_world(const struct job_kind *on, const struct ra__key_run *runs,
                                   int count)
{
    return job_make(&(struct job_plan){ .kernel = on->kernel,
                                        .dtype = on->dtype,
                                        .dim = 40,
                                        .value_dim = 72,
                                        .heads = 2,
                                        .q_count = 31,
                                        .q_pos = 200,
                                        .q_pos_step = 1,
                                        .runs = runs,
                                        .run_count = count,
                                        .magnitude = 1.0f });
}

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
            struct job_world w = bits_world(on, long_runs, RA__COUNT(long_runs));
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
                                                          .runs = causal_run,
                                                          .run_count = 1 });
        struct job_bits bits = job_keep_bits(&w);
        struct ra__forward_job job = job_forward_of(&w);
        job.view.crowded = true;
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
            cut[count].row += from * whole[n].row_step;
            cut[count].pos += from * whole[n].pos_step;
            cut[count++].count = to - from;
        }
    assert_int_equal(count, 4 + 3);
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = bits_world(on, whole, 2);
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
        struct job_world w = bits_world(on, wide, 1);
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
        for (int cut = 0; cut <= RA__COUNT(many_runs); cut++) {
            struct job_world w = bits_world(on, many_runs, RA__COUNT(many_runs));
            struct job_bits kept = job_keep_bits(&w);
            struct ra__forward_job job = job_forward_of(&w);
            job.last = false;
            job.view.run_count = cut;
            on->kernel->forward(&job, w.workspace);
            job.first = false;
            job.last = true;
            job.view.runs = many_runs + cut;
            job.view.run_count = RA__COUNT(many_runs) - cut;
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
        struct job_world w = bits_world(on, many_runs, RA__COUNT(many_runs));
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

/* ---- What is written, and what is not -------------------------------------------------------- */

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
                                                          .runs = causal_run,
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
        struct job_world w = window_world(on);
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

/* Rows without weights, or with an LSE that is too coarse: their delta may be anything, and their
 * keys get nothing from them. */
static void backward_of_rows_without_lse(void **state)
{
    (void)state;
    const float values[] = { -INFINITY, RA__LSE_MOST, -RA__LSE_MOST, 4e9f, -1e30f };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < 2; n++) {
            struct job_world w = window_world(on);
            for (int64_t i = 0; i < w.rows; i++)
                if (n || i % 3 == 0) w.lse[i] = values[i % RA__COUNT(values)];
            job_run_backward(&w);
            for (int64_t i = 0; i < w.rows; i++) {
                bool none = n || i % 3 == 0;
                if (!none) job_expect_dq(&w, i);
                for (int d = 0; d < 19 && none; d++) assert_true(w.dq[i * 19 + d] == 0.0f);
            }
            for (int64_t j = 0; j < w.key_rows * 35; j++)
                assert_true(n ? w.dv[j] == 0.0f : isfinite(w.dv[j]));
            job_free(&w);
        }
}

/* ---- Delta, states, the choice --------------------------------------------------------------- */

static void delta_is_a_row_sum(void **state)
{
    (void)state;
    for (int t = 0; t < RA__COUNT(job_dtypes); t++) {
        struct job_world w = job_make(&(struct job_plan){ .kernel = ra__kernel_at(0),
                                                          .dtype = job_dtypes[t],
                                                          .dim = 3,
                                                          .value_dim = 21,
                                                          .heads = 3,
                                                          .q_count = 4,
                                                          .q_pos_step = 1,
                                                          .gap = 2 });
        float dlse[12];
        for (int row = 0; row < 12; row++) dlse[row] = job_noise();
        ra__kernel_delta(&w.shape, 4, 3, w.out, w.dout, (struct ra__column){ dlse, 3 },
                         (struct ra__column){ w.delta, 3 });
        ra__kernel_delta(&w.shape, 4, 3, w.out, w.dout, (struct ra__column){ NULL, 0 },
                         (struct ra__column){ w.m, 3 });
        for (int row = 0; row < 12; row++) {
            double want = 0.0;
            for (int d = 0; d < 21; d++)
                want += job_at(&w, w.out, row / 3, row % 3, d) *
                        job_at(&w, w.dout, row / 3, row % 3, d);
            job_expect_near(&w, "delta", w.delta[row], want - dlse[row], 1e-6);
            job_expect_near(&w, "delta without dlse", w.m[row], want, 1e-6);
        }
        job_free(&w);
    }
}

/* Folding runs apart and merging the states gives what folding them together does. */
static void states_merge(void **state)
{
    (void)state;
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct job_world w = bits_world(on, many_runs, RA__COUNT(many_runs));
        job_reference(&w);
        float *m = job_allocate(w.rows, sizeof(float)), *l = job_allocate(w.rows, sizeof(float));
        float *acc = job_allocate(w.rows * 72, sizeof(float));
        for (int64_t row = 0; row < w.rows; row++) m[row] = -INFINITY;
        for (int n = 0; n < RA__COUNT(many_runs); n++) {
            struct ra__forward_job job = job_forward_of(&w);
            job.last = false;
            job.view.runs = many_runs + n;
            job.view.run_count = 1;
            on->kernel->forward(&job, w.workspace);
            for (int64_t row = 0; row < w.rows; row++)
                ra__state_merge_row(
                    (struct ra__state_row){ m + row, l + row, acc + row * 72 },
                    (struct ra__state_row){ w.m + row, w.l + row, w.acc + row * 72 }, 72);
        }
        for (int64_t row = 0; row < w.rows; row++)
            ra__state_finish_row(
                (struct ra__state_row){ m + row, l + row, acc + row * 72 }, 72, -INFINITY,
                on->dtype, (char *)w.out.data + row * 72 * (int64_t)ra__dtype_bytes(on->dtype),
                w.lse + row);
        job_expect_forward(&w);
        free(m);
        free(l);
        free(acc);
        job_free(&w);
    }
}

static void empty_states_merge_and_finish(void **state)
{
    (void)state;
    float m1 = -INFINITY, l1 = 0.0f, acc1 = 0.0f, m2 = -INFINITY, l2 = 0.0f, acc2 = 0.0f;
    struct ra__state_row into = { &m1, &l1, &acc1 }, from = { &m2, &l2, &acc2 };
    ra__state_merge_row(into, from, 1);
    assert_true(m1 == -INFINITY && l1 == 0.0f && acc1 == 0.0f);
    float out = 7.0f, lse = 7.0f;
    ra__state_finish_row(into, 1, -INFINITY, RA_F32, &out, &lse);
    assert_true(out == 0.0f && lse == -INFINITY);
    m2 = 10.0f, l2 = 2.0f, acc2 = 5.0f;
    ra__state_merge_row(into, from, 1);
    assert_true(m1 == 10.0f && l1 == 2.0f && acc1 == 5.0f);
    m2 = -300.0f;
    ra__state_merge_row(into, from, 1);
    assert_true(m1 == 10.0f && l1 == 2.0f && acc1 == 5.0f);
    l2 = NAN;
    ra__state_merge_row(into, from, 1);
    assert_true(isnan(l1));
}

static void partials_merge(void **state)
{
    (void)state;
    const float lses[] = { -INFINITY, -200.0f, -1.0f, 0.0f, 0.5f, 200.0f };
    for (int a = 0; a < RA__COUNT(lses); a++)
        for (int b = 0; b < RA__COUNT(lses); b++) {
            float out[2] = { 1.0f, -2.0f }, other[2] = { 3.0f, 0.5f }, lse = lses[a];
            if (lses[a] == -INFINITY) out[0] = out[1] = 0.0f;
            if (lses[b] == -INFINITY) other[0] = other[1] = 0.0f;
            double wa = exp(lses[a]), wb = exp(lses[b]), sum = wa + wb > 0.0 ? wa + wb : 1.0;
            double want[2] = { (wa * out[0] + wb * other[0]) / sum,
                               (wa * out[1] + wb * other[1]) / sum };
            ra__partial_merge_row(out, &lse, other, lses[b], 2);
            assert_true(wa + wb > 0.0 ? fabs(lse - log(wa + wb)) <= 2e-5 : lse == -INFINITY);
            for (int d = 0; d < 2; d++) assert_true(fabs(out[d] - want[d]) <= 1e-6);
        }
}

static const char *const dtype_names[] = { [RA_F32] = "f32", [RA_BF16] = "bf16", [RA_F16] = "f16" };

/* By its name a kernel is given for the dtypes that it takes, and refused for the others in a
 * sentence that names both; nothing is written then. */
static void kernels_are_chosen_by_name(void **state)
{
    (void)state;
    unsetenv("RINGATTN_KERNEL");
    for (int i = 0; ra__kernel_at(i); i++)
        for (int t = 0; t < RA__COUNT(job_dtypes); t++) {
            const struct ra__kernel *kernel = ra__kernel_at(i), *got = NULL;
            ra_status status = ra__kernel_choose(kernel->name, job_dtypes[t], RA__MANY_ROWS, &got);
            bool takes = ra__kernel_takes(kernel, job_dtypes[t]), good = kernel->usable() && takes;
            char not_it[32];
            snprintf(not_it, sizeof not_it, ", not %s", dtype_names[job_dtypes[t]]);
            assert_int_equal(status, good ? RA_OK : RA_ERR_UNSUPPORTED);
            assert_ptr_equal(got, good ? kernel : NULL);
            if (!good) assert_non_null(strstr(ra_last_error(), kernel->name));
            if (!kernel->usable()) assert_non_null(strstr(ra_last_error(), kernel->needs));
            else if (!takes) assert_non_null(strstr(ra_last_error(), not_it));
        }
    assert_null(ra__kernel_at(-1));
}

/* The last usable one that is not slow here and takes the dtype; for few rows, that can take all
 * heads at once, and for one row also rounds no weights, or else the first. */
static const struct ra__kernel *expected_kernel(ra_dtype dtype, enum ra__breadth rows)
{
    const struct ra__kernel *last = NULL;
    for (int i = 0; ra__kernel_at(i); i++) {
        const struct ra__kernel *kernel = ra__kernel_at(i);
        bool slow = kernel->slow && kernel->slow(), fits = i == 0;
        if (rows == RA__MANY_ROWS) fits = true;
        else if (kernel->wide && (rows == RA__FEW_ROWS || kernel->weights == RA_F32)) fits = true;
        if (kernel->usable() && !slow && fits && ra__kernel_takes(kernel, dtype)) last = kernel;
    }
    return last;
}

/* That is what `why` and `chosen` say. */
static void kernels_are_chosen_by_dtype(void **state)
{
    (void)state;
    unsetenv("RINGATTN_KERNEL");
    for (int t = 0; t < RA__COUNT(job_dtypes); t++) {
        const struct ra__kernel *got = NULL;
        for (enum ra__breadth rows = RA__MANY_ROWS; rows <= RA__ONE_ROW; rows++) {
            assert_ok(ra__kernel_choose(NULL, job_dtypes[t], rows, &got));
            assert_ptr_equal(got, expected_kernel(job_dtypes[t], rows));
            assert_true(ra__kernel_chosen(got));
        }
        assert_ok(ra__kernel_choose(NULL, job_dtypes[t], RA__MANY_ROWS, &got));
        const char *why = ra__kernel_why(got), *names = strstr(why, " for ");
        assert_non_null(strstr(why, "the fastest one this CPU can run"));
        if (names) assert_non_null(strstr(names, dtype_names[job_dtypes[t]]));
    }
    for (int i = 0; ra__kernel_at(i); i++) {
        const struct ra__kernel *kernel = ra__kernel_at(i);
        const char *why = ra__kernel_why(kernel);
        bool fastest = strncmp(why, "the fastest one", 15) == 0;
        assert_true(fastest == ra__kernel_chosen(kernel));
        if (!kernel->usable()) assert_non_null(strstr(why, kernel->needs));
        else if (!fastest) assert_non_null(strstr(why, " is faster"));
    }
}

static void kernels_are_chosen_by_the_environment(void **state)
{
    (void)state;
    const struct ra__kernel *got = NULL;
    setenv("RINGATTN_KERNEL", "scalar", 1);
    for (int t = 0; t < RA__COUNT(job_dtypes); t++) {
        assert_ok(ra__kernel_choose(NULL, job_dtypes[t], RA__MANY_ROWS, &got));
        assert_string_equal(got->name, "scalar");
    }
    assert_string_equal(ra__kernel_why(got), "RINGATTN_KERNEL names it");
    assert_true(ra__kernel_chosen(got));
    for (int i = 0; ra__kernel_at(i); i++) {
        const struct ra__kernel *kernel = ra__kernel_at(i);
        for (int t = 0; t < RA__COUNT(job_dtypes); t++) {
            bool good = kernel->usable() && ra__kernel_takes(kernel, job_dtypes[t]);
            setenv("RINGATTN_KERNEL", "scalar", 1);
            if (good)
                assert_ok(ra__kernel_choose(kernel->name, job_dtypes[t], RA__MANY_ROWS, &got));
            if (good) assert_ptr_equal(got, kernel); /* a name comes first */
            setenv("RINGATTN_KERNEL", kernel->name, 1);
            assert_int_equal(ra__kernel_choose(NULL, job_dtypes[t], RA__MANY_ROWS, &got),
                             good ? RA_OK : RA_ERR_UNSUPPORTED);
        }
    }
    setenv("RINGATTN_KERNEL", "abacus", 1);
    got = NULL;
    assert_fails(RA_ERR_ARGUMENT, "abacus", ra__kernel_choose(NULL, RA_F32, RA__MANY_ROWS, &got));
    assert_non_null(strstr(ra_last_error(), "scalar"));
    assert_null(got);
    for (int i = 0; ra__kernel_at(i); i++) assert_false(ra__kernel_chosen(ra__kernel_at(i)));
    unsetenv("RINGATTN_KERNEL");
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
        cmocka_unit_test(any_scale),
        cmocka_unit_test(scores_too_large_for_f32),
        cmocka_unit_test(scores_of_billions),
        cmocka_unit_test(large_scores),
        cmocka_unit_test(gaps_of_200_between_runs),
        cmocka_unit_test(exp2_keeps_its_bound),
        cmocka_unit_test(sums_of_weights_are_not_rounded),
        cmocka_unit_test(weights_are_not_subnormal),
        cmocka_unit_test(exp2_of_the_far_ends),
        cmocka_unit_test(outputs_are_narrowed_as_dtype_h_does),
        cmocka_unit_test(rows_that_see_nothing),
        cmocka_unit_test(no_runs_at_all),
        cmocka_unit_test(jobs_breathe),
        cmocka_unit_test(scores_of_minus_infinity),
        cmocka_unit_test(nan_goes_to_the_rows_that_see_it_and_no_further),
        cmocka_unit_test(nan_spoils_no_block_for_other_rows),
        cmocka_unit_test(nan_in_a_query_stays_in_its_row),
        cmocka_unit_test(nan_spreads_no_further_backward),
        cmocka_unit_test(bits_do_not_depend_on_how_queries_are_cut),
        cmocka_unit_test(bits_do_not_depend_on_a_crowd),
        cmocka_unit_test(bits_do_not_depend_on_cuts_at_block_multiples),
        cmocka_unit_test(bits_do_not_depend_on_keys_not_seen),
        cmocka_unit_test(state_carried_across_jobs),
        cmocka_unit_test(the_same_backward_twice_gives_the_same_bits),
        cmocka_unit_test(forward_writes_only_what_it_should),
        cmocka_unit_test(backward_adds),
        cmocka_unit_test(backward_of_rows_without_lse),
        cmocka_unit_test(delta_is_a_row_sum),
        cmocka_unit_test(states_merge),
        cmocka_unit_test(empty_states_merge_and_finish),
        cmocka_unit_test(partials_merge),
        cmocka_unit_test(kernels_are_chosen_by_name),
        cmocka_unit_test(kernels_are_chosen_by_dtype),
        cmocka_unit_test(kernels_are_chosen_by_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
