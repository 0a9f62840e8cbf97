/* SPDX-License-Identifier: Apache-2.0 */
/* test_thin.c - jobs of few rows go another way through a kernel than jobs of many; every row must
 * come out the same, to the bit. */
#include "support/job.h"

#include <math.h>
#include <stdlib.h>

/* 33 rows are too many for the thin way; they are run again in pieces that are not. */
enum { QUERIES = 11, HEADS = 3, ROWS = QUERIES * HEADS };

/* Over several blocks: whole ones, with ends between vectors and between grains, strides in memory
 * and in position, rows that see more than their neighbours or nothing, keys seen twice. */
static const struct ra__key_run runs[] = {
    { 0, 1, 0, 1, 1100, JOB_FULL },    { 0, 1, 0, 1, 1100, JOB_CAUSAL },
    { 7, 1, 3, 1, 901, { 301, 2 } },   { 5, 3, 11, 2, 333, { 400, 100 } },
    { 2, 2, 601, 1, 33, JOB_CAUSAL },  { 40, 1, 590, 1, 1, JOB_FULL },
    { 1, 1, 599, 1, 17, { 0, 0 } },    { 9, 1, 100, 1, 512, JOB_FULL },
    { 0, 1, 50, 1, 0, JOB_FULL },      { 3, 1, 257, 1, 254, JOB_FULL },
    { 4, 1, 2000, 1, 80, JOB_CAUSAL },
};

/* ---- What came out --------------------------------------------------------------------------- */

/* What a world gives back, whole: the bytes of a matrix and of two columns. */
struct result {
    size_t bytes;
    char *out;
    float lse[ROWS];
};

static struct result take_result(struct job_world *w)
{
    struct result r = { .bytes = (size_t)(QUERIES * w->out.row_stride) *
                                 ra__dtype_bytes(w->plan.dtype) };
    r.out = job_allocate((int64_t)r.bytes, 1);
    memcpy(r.out, w->out.data, r.bytes);
    memcpy(r.lse, w->lse, sizeof r.lse);
    memset(w->lse, 0xff, sizeof r.lse);
    for (int64_t i = 0; i < QUERIES; i++)
        for (int h = 0; h < HEADS; h++)
            for (int d = 0; d < w->plan.value_dim; d++) job_put(w, w->out, i, h, d, NAN);
    return r;
}

/* Bit for bit, but that a NaN need only be one. */
static bool same(double a, double b) { return isnan(a) ? isnan(b) : memcmp(&a, &b, sizeof a) == 0; }

static void expect_row(const struct job_world *w, const struct result *want, int64_t i, int h,
                       const char *when)
{
    struct ra__matrix wanted = w->out;
    wanted.data = want->out;
    for (int d = 0; d < w->plan.value_dim; d++) {
        double got = job_at(w, w->out, i, h, d), number = job_at(w, wanted, i, h, d);
        if (!same(got, number))
            fail_msg("%s: %s, query %d head %d number %d is %a, not %a", w->name, when, (int)i, h,
                     d, got, number);
    }
    if (!same(w->lse[i * HEADS + h], want->lse[i * HEADS + h]))
        fail_msg("%s: %s, lse of query %d head %d", w->name, when, (int)i, h);
}

static void expect_same(struct job_world *w, const struct result *want, const char *when)
{
    for (int64_t i = 0; i < QUERIES; i++)
        for (int h = 0; h < HEADS; h++) expect_row(w, want, i, h, when);
    free(take_result(w).out);
}

/* ---- Thin and wide --------------------------------------------------------------------------- */

/* Like job_run_piece(), with nothing left in the workspace that a row could mistake for its own. */
static void run_piece(struct job_world *w, int64_t from, int queries, int head, int heads)
{
    memset(w->workspace, 0xff, w->workspace_bytes);
    job_run_piece(w, from, ra__min(queries, QUERIES - from), head, heads);
}

/* Rows alone, queries that see different keys, and several heads of each. */
static void run_in_pieces(struct job_world *w, const struct result *want)
{
    for (int queries = 1; queries <= 5; queries++) {
        for (int64_t i = 0; i < QUERIES; i += queries)
            for (int h = 0; h < HEADS; h++) run_piece(w, i, queries, h, 1);
        expect_same(w, want, "one head");
        for (int64_t i = 0; i < QUERIES; i += queries) run_piece(w, i, queries, 0, HEADS);
        expect_same(w, want, "all heads");
    }
}

static struct job_plan make_plan(const struct ra__kernel *kernel, ra_dtype dtype, int dim,
                                 int value_dim)
{
    return (struct job_plan){ .kernel = kernel,
                              .dtype = dtype,
                              .dim = dim,
                              .value_dim = value_dim,
                              .heads = HEADS,
                              .q_count = QUERIES,
                              .q_pos = 590,
                              .q_pos_step = 7,
                              .gap = dim % 3,
                              .runs = runs,
                              .run_count = TEST_COUNT(runs) };
}

static struct job_world make_world(const struct ra__kernel *kernel, ra_dtype dtype, int dim,
                                   int value_dim)
{
    const struct job_plan plan = make_plan(kernel, dtype, dim, value_dim);
    return job_make(&plan);
}

static void check_pieces(struct job_world *w)
{
    job_run_forward(w);
    struct result want = take_result(w);
    run_in_pieces(w, &want);
    free(want.out);
}

static void for_every_kernel_and_dtype(void (*check)(const struct ra__kernel *, ra_dtype))
{
    for (const struct job_kind *on = job_kinds; on->kernel; on++) check(on->kernel, on->dtype);
}

static void check_dims(const struct ra__kernel *kernel, ra_dtype dtype)
{
    const int dims[][2] = { { 64, 64 }, { 128, 128 }, { 1, 1 },   { 3, 19 },   { 16, 8 },
                            { 17, 33 }, { 8, 12 },    { 80, 96 }, { 192, 40 }, { 35, 130 } };
    for (int n = 0; n < TEST_COUNT(dims); n++) {
        struct job_world w = make_world(kernel, dtype, dims[n][0], dims[n][1]);
        check_pieces(&w);
        job_free(&w);
    }
}

static void rows_alone_give_the_bits_of_rows_among_many(void **state)
{
    (void)state;
    for_every_kernel_and_dtype(check_dims);
}

/* Infinite and NaN numbers, where some rows see them and some do not. */
static void check_poison(const struct ra__kernel *kernel, ra_dtype dtype)
{
    const float poisons[] = { NAN, INFINITY, -INFINITY };
    for (int n = 0; n < 2 * TEST_COUNT(poisons); n++) {
        struct job_world w = make_world(kernel, dtype, 24, 40);
        struct ra__matrix tensor = n % 2 ? w.v : w.k;
        for (int64_t key = 595; key < 640; key += 15)
            job_put(&w, tensor, key, 0, (int)(key % 24), poisons[n / 2]);
        check_pieces(&w);
        job_free(&w);
    }
}

static void numbers_that_are_not_finite_show_in_the_same_rows(void **state)
{
    (void)state;
    for_every_kernel_and_dtype(check_poison);
}

/* Every term, those that allow the thin way and those that do not. */
static void check_terms(const struct ra__kernel *kernel, ra_dtype dtype)
{
    const int terms[] = { JOB_SOFTCAP,
                          JOB_DROPOUT,
                          JOB_SINKS,
                          JOB_ALIBI,
                          JOB_BIAS,
                          JOB_HIDE,
                          JOB_SOFTCAP | JOB_DROPOUT | JOB_SINKS,
                          JOB_ORDER };
    for (int n = 0; n < TEST_COUNT(terms); n++) {
        struct job_plan plan = make_plan(kernel, dtype, 40, 24);
        plan.terms = terms[n];
        struct job_world w = job_make(&plan);
        check_pieces(&w);
        job_free(&w);
    }
}

static void terms_give_the_same_bits(void **state)
{
    (void)state;
    for_every_kernel_and_dtype(check_terms);
}

/* ---- State ----------------------------------------------------------------------------------- */

/* One query's heads, with state that goes from job to job between the runs. */
static void run_in_stages(struct job_world *w, int64_t i, int cut)
{
    struct ra__forward_job job = job_forward_of(w);
    const int64_t bytes = (int64_t)ra__dtype_bytes(w->plan.dtype);
    job.view.q.data = (char *)w->q.data + i * w->q.row_stride * bytes;
    job.view.q_pos += i * w->plan.q_pos_step;
    job.view.q_count = 1;
    job.view.run_count = cut;
    job.last = false;
    w->plan.kernel->forward(&job, w->workspace);
    job.view.runs = runs + cut;
    job.view.run_count = TEST_COUNT(runs) - cut;
    job.out.data = (char *)w->out.data + i * w->out.row_stride * bytes;
    job.lse.data = w->lse + i * HEADS;
    job.first = false;
    job.last = true;
    w->plan.kernel->forward(&job, w->workspace);
}

static void check_state(const struct ra__kernel *kernel, ra_dtype dtype)
{
    struct job_world w = make_world(kernel, dtype, 48, 72);
    job_run_forward(&w);
    struct result want = take_result(&w);
    for (int cut = 0; cut <= TEST_COUNT(runs); cut++) {
        for (int64_t i = 0; i < QUERIES; i++) run_in_stages(&w, i, cut);
        expect_same(&w, &want, "state is carried");
    }
    free(want.out);
    job_free(&w);
}

static void state_is_carried_from_job_to_job(void **state)
{
    (void)state;
    for_every_kernel_and_dtype(check_state);
}

/* ---- Several KV heads ------------------------------------------------------------------------ */

/* One query of several KV heads whose keys and values are adjacent. */
enum {
    KV_HEADS = 5,
    MOST_GROUP = 6,
    MOST_HEADS = KV_HEADS * MOST_GROUP,
    KEYS = 1100,
    MOST_DIM = 64
};

struct side {
    struct ra__shape shape;
    void *q, *k, *v, *out;
    float m[MOST_HEADS], l[MOST_HEADS], lse[MOST_HEADS];
    float acc[MOST_HEADS * MOST_DIM];
};

static void *some_numbers(ra_dtype dtype, int64_t count)
{
    void *to = job_allocate(count, ra__dtype_bytes(dtype));
    for (int64_t i = 0; i < count; i++)
        ra__store(dtype, to, i, (float)((i * 2654435761u >> 7) % 4001) / 1000.0f - 2.0f);
    return to;
}

static struct side side_make(ra_dtype dtype, int group, int dim, int value_dim)
{
    struct side s = { .shape = { .dtype = dtype,
                                 .batch = 1,
                                 .q_len = 1,
                                 .k_len = KEYS,
                                 .q_heads = KV_HEADS * group,
                                 .kv_heads = KV_HEADS,
                                 .dim = dim,
                                 .value_dim = value_dim,
                                 .scale = 0.3f } };
    s.q = some_numbers(dtype, KV_HEADS * group * dim);
    s.k = some_numbers(dtype, KEYS * KV_HEADS * dim);
    s.v = some_numbers(dtype, KEYS * KV_HEADS * value_dim);
    s.out = some_numbers(dtype, KV_HEADS * group * value_dim);
    return s;
}

static void side_free(struct side *s)
{
    free(s->q);
    free(s->k);
    free(s->v);
    free(s->out);
}

/* Numbers of a head of `heads`, which have `dim` each. */
static struct ra__matrix side_head(const struct side *s, void *data, int head, int heads, int dim)
{
    char *at = (char *)data + (size_t)(head * dim) * ra__dtype_bytes(s->shape.dtype);
    return (struct ra__matrix){ at, heads * dim, dim };
}

/* Some runs for `kv_heads` KV heads from `head` on, from and to the state or not. */
static void side_run(struct side *s, const struct ra__kernel *kernel, void *workspace, int head,
                     int kv_heads, struct ra__forward_job job)
{
    const int dim = s->shape.dim, value_dim = s->shape.value_dim, heads = s->shape.q_heads;
    const int group = heads / KV_HEADS, first = head * group;
    job.view = (struct ra__view){
        .shape = &s->shape,
        .head = first,
        .heads = kv_heads * group,
        .kv_heads = kv_heads,
        .q_count = 1,
        .q_pos = 700,
        .q_pos_step = 1,
        .q = side_head(s, s->q, first, heads, dim),
        .k = side_head(s, s->k, head, KV_HEADS, dim),
        .v = side_head(s, s->v, head, KV_HEADS, value_dim),
        .runs = job.view.runs,
        .run_count = job.view.run_count,
    };
    job.m = (struct ra__column){ s->m + first, heads };
    job.l = (struct ra__column){ s->l + first, heads };
    job.lse = (struct ra__column){ s->lse + first, heads };
    job.acc = s->acc + first * value_dim;
    job.acc_row_stride = heads * value_dim;
    job.out = side_head(s, s->out, first, heads, value_dim);
    memset(workspace, 0xff, kernel->workspace(&s->shape, ra__view_extent(&job.view), false));
    kernel->forward(&job, workspace);
    assert_int_equal(job.pairs % kv_heads, 0);
}

/* Runs whose keys are adjacent; those before `cut` in a job of their own, with the state
 * between. */
struct stages {
    const struct ra__key_run *runs;
    int count, cut;
};

static const struct ra__key_run own[] = {
    { 0, 1, 0, 1, 1100, JOB_FULL },  { 0, 1, 0, 1, 1100, JOB_CAUSAL },
    { 7, 1, 3, 1, 901, { 301, 2 } }, { 40, 1, 590, 1, 1, JOB_FULL },
    { 3, 1, 257, 1, 254, JOB_FULL }, { 4, 1, 2000, 1, 80, JOB_CAUSAL },
};
static const struct stages all_runs = { own, TEST_COUNT(own), 2 };

/* Keys that begin and end within a pair, where others share its operand. */
enum { FENCE = 3, FENCED = 333 };
static const struct ra__key_run fenced[] = { { FENCE, 1, 257, 1, FENCED - 100, JOB_FULL },
                                             { FENCE, 1, 258, 1, FENCED, JOB_FULL } };
static const struct stages inner_runs = { fenced, TEST_COUNT(fenced), 1 };

static void side_stages(struct side *s, const struct ra__kernel *kernel, void *workspace, int head,
                        int kv_heads, const struct stages *stages)
{
    struct ra__forward_job job = { .view = { .runs = stages->runs, .run_count = stages->cut },
                                   .first = true };
    side_run(s, kernel, workspace, head, kv_heads, job);
    job = (struct ra__forward_job){ .view = { .runs = stages->runs + stages->cut,
                                              .run_count = stages->count - stages->cut },
                                    .last = true };
    side_run(s, kernel, workspace, head, kv_heads, job);
}

static void expect_numbers(ra_dtype dtype, const void *got, const void *want, int count,
                           const char *what)
{
    for (int i = 0; i < count; i++) {
        const float x = ra__load(dtype, got, i), y = ra__load(dtype, want, i);
        if (!same(x, y)) fail_msg("%s %d is %a, not %a", what, i, (double)x, (double)y);
    }
}

static void check_side(const struct ra__kernel *kernel, struct side *s, const struct stages *stages)
{
    const struct ra__extent most = { s->shape.q_heads, KEYS };
    const int numbers = s->shape.q_heads * s->shape.value_dim;
    void *workspace = aligned_alloc(64, (kernel->workspace(&s->shape, most, false) + 63) / 64 * 64);
    assert_non_null(workspace);
    for (int head = 0; head < KV_HEADS; head++) side_stages(s, kernel, workspace, head, 1, stages);
    struct side together = *s;
    together.out = some_numbers(s->shape.dtype, numbers);
    memset(together.m, 0xff, sizeof together.m);
    memset(together.l, 0xff, sizeof together.l);
    memset(together.acc, 0xff, sizeof together.acc);
    memset(together.lse, 0xff, sizeof together.lse);
    side_stages(&together, kernel, workspace, 0, KV_HEADS, stages);
    expect_numbers(s->shape.dtype, together.out, s->out, numbers, "output");
    expect_numbers(RA_F32, together.lse, s->lse, s->shape.q_heads, "lse");
    expect_numbers(RA_F32, together.acc, s->acc, numbers, "sum");
    free(together.out);
    free(workspace);
}

static void kv_heads_together_give_the_bits_of_each_alone(void **state)
{
    (void)state;
    const int dims[][2] = { { 64, 64 }, { 19, 32 }, { 32, 64 }, { 64, 48 },
                            { 32, 48 }, { 19, 64 }, { 32, 24 } };
    const int groups[TEST_COUNT(dims)] = { 1, 1, 2, 1, 3, MOST_GROUP, 2 };
    for (const struct job_kind *on = job_kinds; on->kernel; on++)
        for (int n = 0; n < TEST_COUNT(dims) && on->kernel->wide; n++) {
            const int group = groups[n];
            struct side s = side_make(on->dtype, group, dims[n][0], dims[n][1]);
            const int64_t row = KV_HEADS * s.shape.value_dim;
            const bool is_wide = on->kernel->wide(&s.shape);
            if (s.shape.value_dim % 16 == 0) assert_true(is_wide); /* of 8 lanes or of 16 */
            if (!is_wide) {
                side_free(&s);
                continue;
            }
            check_side(on->kernel, &s, &all_runs);
            for (int64_t i = 0; i < KEYS * row; i++)
                if (i < FENCE * row || i >= (FENCE + FENCED) * row)
                    ra__store(on->dtype, s.v, i, NAN);
            check_side(on->kernel, &s, &inner_runs);
            for (int i = 0; i < row * group; i++)
                assert_true(isfinite(ra__load(on->dtype, s.out, i)));
            ra__store(on->dtype, s.v, 300 * row + 2 * s.shape.value_dim, NAN); /* of one head */
            check_side(on->kernel, &s, &inner_runs);
            check_side(on->kernel, &s, &all_runs);
            side_free(&s);
        }
}

/* Heads that are too many, too many to a KV head, and values that are no whole vectors are not
 * taken. */
static void only_some_shapes_are_wide(void **state)
{
    (void)state;
    const int not_wide[][3] = { { 65, 65, 64 }, { 34, 2, 64 }, { 4, 4, 60 } };
    for (const struct job_kind *on = job_kinds; on->kernel; on++) {
        struct ra__shape shape = {
            .dtype = on->dtype, .q_heads = 64, .kv_heads = 4, .value_dim = 64
        };
        if (!on->kernel->wide) continue;
        assert_true(on->kernel->wide(&shape));
        for (int n = 0; n < TEST_COUNT(not_wide); n++) {
            shape.q_heads = not_wide[n][0];
            shape.kv_heads = not_wide[n][1];
            shape.value_dim = not_wide[n][2];
            assert_false(on->kernel->wide(&shape));
        }
    }
}

int main(void)
{
    job_find_kinds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_alone_give_the_bits_of_rows_among_many),
        cmocka_unit_test(numbers_that_are_not_finite_show_in_the_same_rows),
        cmocka_unit_test(terms_give_the_same_bits),
        cmocka_unit_test(state_is_carried_from_job_to_job),
        cmocka_unit_test(kv_heads_together_give_the_bits_of_each_alone),
        cmocka_unit_test(only_some_shapes_are_wide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
