/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - kernel jobs: their tensors, running them, and how near the reference they must come. */
#include "support/job.h"

#include <math.h>
#include <stdlib.h>

#include "core/philox.h"

const ra_dtype job_dtypes[3] = { RA_F32, RA_BF16, RA_F16 };
static const char *const dtype_names[] = { "f32", "bf16", "f16" };

struct job_kind job_kinds[64], job_kernels[32], job_exact[32];

/* The entries of kernel.list, then those that only tests have. */
static const struct ra__kernel *row_at(int index)
{
#if RA__HAVE_AMX
    if (index > 0 && ra__kernel_at(index - 1) && !ra__kernel_at(index)) return &job_amx_emulated;
#endif
    return ra__kernel_at(index);
}

void job_find_kinds(void)
{
    struct job_kind *kind = job_kinds, *kernel = job_kernels, *exact = job_exact;
    for (int i = 0; row_at(i) && i + 1 < TEST_COUNT(job_kernels); i++) {
        const struct ra__kernel *row = row_at(i);
        if (!row->usable()) continue;
        struct job_kind *first = kind;
        for (int t = 0; t < TEST_COUNT(job_dtypes); t++)
            if (ra__kernel_takes(row, job_dtypes[t]))
                *kind++ = (struct job_kind){ row, job_dtypes[t] };
        *kernel++ = *first;
        if (first->dtype == RA_F32 && row->weights == RA_F32) *exact++ = *first;
        assert_true(kind > first && kind - job_kinds + 3 < TEST_COUNT(job_kinds));
    }
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static uint32_t seed = 1;

static uint32_t next(void) { return seed = seed * 1664525u + 1013904223u; }

uint32_t job_draw(uint32_t below) { return (uint32_t)((uint64_t)next() * below >> 32); }

float job_noise(void) { return (float)(int32_t)next() / 2147483648.0f; }

void *job_allocate(int64_t count, size_t bytes)
{
    void *memory = calloc((size_t)count + 1, bytes);
    assert_non_null(memory);
    return memory;
}

static struct ra__matrix matrix_make(const struct job_plan *plan, int64_t rows, int heads, int dim,
                                     float magnitude)
{
    struct ra__matrix x = { .head_stride = dim + plan->gap };
    x.row_stride = x.head_stride * heads + plan->gap;
    int64_t count = rows * x.row_stride;
    x.data = job_allocate(count, ra__dtype_bytes(plan->dtype));
    for (int64_t i = 0; i < count; i++) ra__store(plan->dtype, x.data, i, NAN);
    for (int64_t i = 0; i < rows; i++)
        for (int h = 0; h < heads; h++)
            for (int d = 0; d < dim; d++)
                ra__store(plan->dtype, x.data, i * x.row_stride + h * x.head_stride + d,
                          magnitude * job_noise());
    return x;
}

static void count_places(struct job_world *w)
{
    const struct job_plan *p = &w->plan;
    w->places = p->q_pos + p->q_count * p->q_pos_step;
    for (int n = 0; n < p->run_count; n++) {
        const struct ra__key_run *run = &p->runs[n];
        if (run->count == 0) continue;
        w->key_rows = ra__max(w->key_rows, run->token + (run->count - 1) * run->token_step + 1);
        w->places = ra__max(w->places, run->pos + (run->count - 1) * run->pos_step + 1);
    }
}

static void make_order(struct job_world *w)
{
    w->origin = job_allocate(w->places, sizeof(int32_t));
    w->see_from = job_allocate(w->places, sizeof(int32_t));
    w->see_to = job_allocate(w->places, sizeof(int32_t));
    for (int64_t i = 0; i < w->places; i++) {
        int64_t j = job_draw((uint32_t)i + 1);
        w->origin[i] = w->origin[j];
        w->origin[j] = (int32_t)i;
    }
    for (int64_t i = 0; i < w->places; i++) { /* nothing, all, causal, or a part */
        uint32_t kind = job_draw(8), n = (uint32_t)w->places;
        w->see_from[i] = kind == 3 ? (int32_t)job_draw(n) : 0;
        w->see_to[i] = kind == 0   ? 0
                       : kind == 1 ? (int32_t)n
                       : kind == 3 ? w->see_from[i] + (int32_t)job_draw(n)
                                   : w->origin[i] + 1;
    }
    w->terms.origin = w->origin;
    w->terms.see_from = w->see_from;
    w->terms.see_to = w->see_to;
}

/* A tensor of its own for every head and query; every seventh number hides. */
static void make_bias(struct job_world *w)
{
    int64_t count = w->rows * w->places;
    w->bias.head_stride = w->places;
    w->bias.row_stride = w->plan.heads * w->places;
    w->bias.mask = w->plan.terms & JOB_HIDE;
    w->addends = job_allocate(count, sizeof(float));
    w->shown = job_allocate(count, 1);
    for (int64_t i = 0; i < count; i++) {
        w->shown[i] = job_draw(7) ? (unsigned char)(1 + job_draw(255)) : 0;
        w->addends[i] = w->shown[i] ? 4.0f * job_noise() : -INFINITY;
    }
    w->bias.data = w->bias.mask ? (void *)w->shown : (void *)w->addends;
    w->reach += 4.0;
}

static void make_terms(struct job_world *w)
{
    const int terms = w->plan.terms;
    w->alibi = job_allocate(JOB_MOST_HEADS, sizeof(float));
    w->sinks = job_allocate(JOB_MOST_HEADS, sizeof(float));
    for (int h = 0; h < JOB_MOST_HEADS; h++) {
        w->alibi[h] = 0.05f * (1.0f + job_noise());
        w->sinks[h] = h % 5 == 4 ? -INFINITY : 6.0f * job_noise();
    }
    if (terms & JOB_SOFTCAP) w->terms.softcap = 2.5f;
    if (terms & JOB_ALIBI) w->terms.alibi = w->alibi, w->reach += 0.1 * (double)w->places;
    if (terms & JOB_SINKS) w->terms.sinks = w->sinks;
    if (terms & JOB_DROPOUT) {
        w->terms.dropout = true;
        w->terms.drop_below = ra__philox_limit(0.3);
        w->terms.kept_scale = 1.0f / 0.7f;
        w->terms.seed = 0x123456789abcdef0u;
    }
    if (terms & (JOB_BIAS | JOB_HIDE)) make_bias(w);
    if (terms & JOB_ORDER) make_order(w);
}

enum { GUARD = 4096 }; /* guard bytes after a workspace */

/* No larger than the job needs, full of NaN, in case something is read that was never written. */
static void make_workspace(struct job_world *w)
{
    const struct ra__kernel *kernel = w->plan.kernel;
    struct ra__view view = { .q_count = w->plan.q_count,
                             .heads = w->plan.heads,
                             .runs = w->plan.runs };
    view.run_count = w->plan.run_count;
    struct ra__extent most = ra__view_extent(&view);
    size_t forward = kernel->workspace(&w->shape, most, false);
    size_t backward = kernel->workspace(&w->shape, most, true);
    w->workspace_bytes = ((forward > backward ? forward : backward) + 63) / 64 * 64;
    w->workspace = aligned_alloc(64, w->workspace_bytes + GUARD);
    assert_non_null(w->workspace);
    memset(w->workspace, 0xff, w->workspace_bytes + GUARD);
}

static void check_guard(const struct job_world *w)
{
    const unsigned char *guard = (const unsigned char *)w->workspace + w->workspace_bytes;
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != 0xff) fail_msg("%s: byte %d behind the workspace was written", w->name, i);
}

static void make_name(struct job_world *w)
{
    const struct job_plan *p = &w->plan;
    snprintf(w->name, sizeof w->name,
             "%s %s terms=%d d=%d dv=%d heads=%d queries=%lld at %lld step %lld gap=%lld "
             "runs=%d magnitude=%g",
             p->kernel->name, dtype_names[p->dtype], p->terms, p->dim, p->value_dim, p->heads,
             (long long)p->q_count, (long long)p->q_pos, (long long)p->q_pos_step,
             (long long)p->gap, p->run_count, p->magnitude);
}

static void make_shape(struct job_world *w)
{
    const struct job_plan *p = &w->plan;
    w->shape = (struct ra__shape){ .dtype = p->dtype,
                                   .batch = p->terms ? JOB_BATCH + 1 : 1,
                                   .q_heads = p->terms ? JOB_MOST_HEADS : p->heads,
                                   .kv_heads = 1,
                                   .dim = p->dim,
                                   .value_dim = p->value_dim,
                                   .scale = 1.0f / sqrtf((float)p->dim) };
    w->batch = p->terms ? JOB_BATCH : 0;
    w->head = p->terms ? JOB_FIRST_HEAD : 0;
    w->rows = p->q_count * p->heads;
    assert_true(w->rows <= p->kernel->rows);
    assert_true(w->head + p->heads <= w->shape.q_heads);
}

static void make_tensors(struct job_world *w)
{
    const struct job_plan *p = &w->plan;
    float size = sqrtf(3.0f * p->magnitude); /* uniform noise of size 1 has variance 1/3 */
    w->q = matrix_make(p, p->q_count, p->heads, p->dim, size);
    w->k = matrix_make(p, w->key_rows, 1, p->dim, size);
    w->v = matrix_make(p, w->key_rows, 1, p->value_dim, 1.0f);
    w->dout = matrix_make(p, p->q_count, p->heads, p->value_dim, 1.0f);
    w->out = matrix_make(p, p->q_count, p->heads, p->value_dim, 1.0f);
    w->m = job_allocate(w->rows, sizeof(float));
    w->l = job_allocate(w->rows, sizeof(float));
    w->acc = job_allocate(w->rows * p->value_dim, sizeof(float));
    w->lse = job_allocate(w->rows, sizeof(float));
    w->delta = job_allocate(w->rows, sizeof(float));
    w->dq = job_allocate(w->rows * p->dim, sizeof(float));
    w->dk = job_allocate(w->key_rows * p->dim, sizeof(float));
    w->dv = job_allocate(w->key_rows * p->value_dim, sizeof(float));
}

static void make_wants(struct job_world *w)
{
    const struct job_plan *p = &w->plan;
    w->want_out = job_allocate(w->rows * p->value_dim, sizeof(double));
    w->want_lse = job_allocate(w->rows, sizeof(double));
    w->want_dq = job_allocate(w->rows * p->dim, sizeof(double));
    w->want_dk = job_allocate(w->key_rows * p->dim, sizeof(double));
    w->want_dv = job_allocate(w->key_rows * p->value_dim, sizeof(double));
    w->size_dq = job_allocate(w->rows * p->dim, sizeof(double));
    w->size_dk = job_allocate(w->key_rows * p->dim, sizeof(double));
    w->size_dv = job_allocate(w->key_rows * p->value_dim, sizeof(double));
    w->weighed_out = job_allocate(w->rows * p->value_dim, sizeof(double));
    w->weighed_dq = job_allocate(w->rows * p->dim, sizeof(double));
    w->weighed_dk = job_allocate(w->key_rows * p->dim, sizeof(double));
    w->weighed_dv = job_allocate(w->key_rows * p->value_dim, sizeof(double));
}

/* The numbers of a world are those of its plan: the same for every kernel, and whatever other
 * worlds there were before. */
static uint32_t seed_of(const struct job_plan *p)
{
    const int64_t words[] = {
        p->terms, p->dim,        p->value_dim, p->heads,     p->q_count,
        p->q_pos, p->q_pos_step, p->gap,       p->run_count, (int64_t)p->magnitude
    };
    uint32_t hash = 2166136261u;
    for (int i = 0; i < TEST_COUNT(words); i++) hash = (hash ^ (uint32_t)words[i]) * 16777619u;
    return hash;
}

struct job_world job_make(const struct job_plan *plan)
{
    struct job_world w = { .plan = *plan };
    seed = seed_of(plan);
    if (w.plan.magnitude == 0.0f) w.plan.magnitude = 3.0f;
    w.reach = w.plan.magnitude;
    make_shape(&w);
    count_places(&w);
    if (plan->terms) make_terms(&w);
    make_tensors(&w);
    make_wants(&w);
    make_workspace(&w);
    make_name(&w);
    return w;
}

void job_free(struct job_world *w)
{
    check_guard(w);
    void *all[] = { w->q.data,     w->k.data,     w->v.data,    w->dout.data, w->out.data,
                    w->m,          w->l,          w->acc,       w->lse,       w->delta,
                    w->dq,         w->dk,         w->dv,        w->want_out,  w->want_lse,
                    w->want_dq,    w->want_dk,    w->want_dv,   w->size_dq,   w->size_dk,
                    w->size_dv,    w->workspace,  w->alibi,     w->sinks,     w->addends,
                    w->shown,      w->origin,     w->see_from,  w->see_to,    w->weighed_out,
                    w->weighed_dq, w->weighed_dk, w->weighed_dv };
    for (int i = 0; i < TEST_COUNT(all); i++) free(all[i]);
}

/* ---- Running a kernel ------------------------------------------------------------------------ */

/* Some queries and heads of a world. */
struct piece {
    int64_t from, count;
    int head, heads;
};

static void *moved(struct ra__matrix x, size_t bytes, const struct piece *piece)
{
    return (char *)x.data +
           (piece->from * x.row_stride + piece->head * x.head_stride) * (int64_t)bytes;
}

static struct ra__view view_of(const struct job_world *w, const struct piece *piece)
{
    const struct job_plan *p = &w->plan;
    const int64_t in_bias = piece->from * w->bias.row_stride + piece->head * w->bias.head_stride;
    int others = p->terms & ~(JOB_BIAS | JOB_HIDE); /* a bias comes without terms too */
    struct ra__view view = { .shape = &w->shape,
                             .batch = w->batch,
                             .head = w->head + piece->head,
                             .heads = piece->heads,
                             .kv_heads = 1,
                             .q_count = piece->count,
                             .q_pos = p->q_pos + piece->from * p->q_pos_step,
                             .q_pos_step = p->q_pos_step,
                             .q = w->q,
                             .k = w->k,
                             .v = w->v,
                             .runs = p->runs,
                             .run_count = p->run_count,
                             .terms = others ? &w->terms : NULL,
                             .bias = w->bias };
    view.q.data = moved(w->q, ra__dtype_bytes(p->dtype), piece);
    if (w->bias.data && !w->bias.mask) view.bias.data = w->addends + in_bias;
    if (w->bias.data && w->bias.mask) view.bias.data = w->shown + in_bias;
    return view;
}

static struct piece all_of(const struct job_world *w)
{
    return (struct piece){ 0, w->plan.q_count, 0, w->plan.heads };
}

static struct ra__forward_job forward_of(struct job_world *w, struct piece piece)
{
    const int heads = w->plan.heads, value_dim = w->plan.value_dim;
    const int64_t at = piece.from * heads + piece.head;
    struct ra__forward_job job = { .view = view_of(w, &piece),
                                   .first = true,
                                   .last = true,
                                   .m = { w->m + at, heads },
                                   .l = { w->l + at, heads },
                                   .acc = w->acc + at * value_dim,
                                   .acc_row_stride = (int64_t)heads * value_dim,
                                   .out = w->out,
                                   .lse = { w->lse + at, heads } };
    job.out.data = moved(w->out, ra__dtype_bytes(w->plan.dtype), &piece);
    return job;
}

static struct ra__backward_job backward_of(struct job_world *w, struct piece piece)
{
    const int heads = w->plan.heads, dim = w->plan.dim;
    const int64_t at = piece.from * heads + piece.head;
    struct ra__backward_job job = { .view = view_of(w, &piece),
                                    .dout = w->dout,
                                    .lse = { w->lse + at, heads },
                                    .delta = { w->delta + at, heads },
                                    .dq = w->dq + at * dim,
                                    .dq_row_stride = (int64_t)heads * dim,
                                    .dk = w->dk,
                                    .dv = w->dv,
                                    .dk_row_stride = dim,
                                    .dv_row_stride = w->plan.value_dim };
    job.dout.data = moved(w->dout, ra__dtype_bytes(w->plan.dtype), &piece);
    return job;
}

struct ra__forward_job job_forward_of(struct job_world *w) { return forward_of(w, all_of(w)); }
struct ra__backward_job job_backward_of(struct job_world *w) { return backward_of(w, all_of(w)); }

int64_t job_run_forward(struct job_world *w)
{
    struct ra__forward_job job = job_forward_of(w);
    w->plan.kernel->forward(&job, w->workspace);
    return job.pairs;
}

int64_t job_run_backward(struct job_world *w)
{
    const struct ra__kernel *kernel = w->plan.kernel;
    const int heads = (int)ra__min(w->plan.heads, kernel->backward_rows);
    const int64_t count = kernel->backward_rows / heads;
    int64_t pairs = 0;
    for (int64_t from = 0; from < w->plan.q_count; from += count)
        for (int head = 0; head < w->plan.heads; head += heads) {
            struct piece piece = { from, ra__min(count, w->plan.q_count - from), head,
                                   (int)ra__min(heads, w->plan.heads - head) };
            struct ra__backward_job job = backward_of(w, piece);
            kernel->backward(&job, w->workspace);
            pairs += job.pairs;
        }
    return pairs;
}

void job_run_piece(struct job_world *w, int64_t from, int64_t count, int head, int heads)
{
    struct ra__forward_job job = forward_of(w, (struct piece){ from, count, head, heads });
    w->plan.kernel->forward(&job, w->workspace);
}

/* ---- Bits ------------------------------------------------------------------------------------ */

/* Bytes of the output of a row. */
static size_t row_bytes(const struct job_world *w)
{
    return ra__dtype_bytes(w->plan.dtype) * (size_t)w->plan.value_dim;
}

struct job_bits job_keep_bits(struct job_world *w)
{
    const size_t out = row_bytes(w) * (size_t)w->rows, lse = sizeof(float) * (size_t)w->rows;
    struct job_bits bits = { job_allocate((int64_t)out, 1), job_allocate((int64_t)lse, 1) };
    assert_true(w->plan.gap == 0);
    job_run_forward(w);
    memcpy(bits.out, w->out.data, out);
    memcpy(bits.lse, w->lse, lse);
    memset(w->out.data, 0xff, out);
    memset(w->lse, 0xff, lse);
    return bits;
}

bool job_same_bits(const struct job_world *w, const struct job_bits *bits, int64_t row)
{
    const size_t bytes = row_bytes(w), at = bytes * (size_t)row;
    return memcmp(bits->out + at, (char *)w->out.data + at, bytes) == 0 &&
           memcmp(bits->lse + row, w->lse + row, sizeof(float)) == 0;
}

void job_expect_bits(const struct job_world *w, const struct job_bits *bits, const char *when)
{
    for (int64_t row = 0; row < w->rows; row++)
        if (!job_same_bits(w, bits, row))
            fail_msg("%s: other bits in row %d when %s", w->name, (int)row, when);
}

void job_free_bits(struct job_bits *bits)
{
    free(bits->out);
    free(bits->lse);
}

/* ---- Expectations ---------------------------------------------------------------------------- */

double job_unit_of(ra_dtype dtype)
{
    return dtype == RA_F32 ? 0x1p-24 : dtype == RA_F16 ? 0x1p-11 : 0x1p-8;
}

/* A weight is off, relative, by what its score is off. Among some ten thousand scores the largest
 * are 4 times their usual size, and six roundings of 2^-24 are of that size: two of the factor, one
 * of the score in log2 units, three of the LSE. The sum of a score rounds `dim` times more, at
 * random: sqrt(dim) / 3 of the usual size, six times that at worst. Terms round a few times
 * more. */
double job_slack(const struct job_world *w)
{
    double roundings = w->plan.terms ? 24.0 : 16.0;
    return 0x1p-24 * (roundings + w->reach * (24.0 + 2.0 * sqrt(w->plan.dim)));
}

double job_lost(const struct job_world *w)
{
    ra_dtype weights = w->plan.kernel->weights;
    return weights == RA_F32 ? 0.0 : job_unit_of(weights);
}

float job_weight(const struct job_world *w, float p)
{
    ra_dtype weights = w->plan.kernel->weights;
    float rounded = 0.0f;
    ra__store(weights, &rounded, 0, p);
    return ra__load(weights, &rounded, 0);
}

void job_expect_near(const struct job_world *w, const char *what, double got, double want,
                     double bound)
{
    if (isnan(got) || fabs(got - want) > bound)
        fail_msg("%s: %s is %.9g, not %.9g (+- %.3g)", w->name, what, got, want, bound);
}

/* The LSE knows nothing of rounded weights. The output is off by what its weights lose, relative to
 * the sum of p |v|, and then rounded to its dtype. */
void job_expect_row(const struct job_world *w, int64_t row)
{
    int64_t i = row / w->plan.heads;
    int h = (int)(row % w->plan.heads);
    double want = w->want_lse[row], slack = job_slack(w);
    if (want > -INFINITY)
        job_expect_near(w, "lse", w->lse[row], want, slack + 0x1p-23 * fabs(want));
    else if (w->lse[row] != -INFINITY) fail_msg("%s: lse of row %d", w->name, (int)row);
    if (w->plan.terms) slack *= 1.5;
    for (int d = 0; d < w->plan.value_dim; d++) {
        want = w->want_out[row * w->plan.value_dim + d];
        double lost = slack + job_lost(w) * w->weighed_out[row * w->plan.value_dim + d];
        job_expect_near(w, "out", job_at(w, w->out, i, h, d), want,
                        lost + job_unit_of(w->plan.dtype) * (fabs(want) + lost));
    }
}

void job_expect_forward(const struct job_world *w)
{
    for (int64_t row = 0; row < w->rows; row++) job_expect_row(w, row);
}

static double bound_of(const struct job_world *w, double size, double weighed)
{
    return job_slack(w) * size + job_lost(w) * weighed + 1e-30;
}

void job_expect_dq(const struct job_world *w, int64_t row)
{
    for (int64_t n = row * w->plan.dim; n < (row + 1) * w->plan.dim; n++)
        job_expect_near(w, "dq", w->dq[n], w->want_dq[n],
                        bound_of(w, w->size_dq[n], w->weighed_dq[n]));
}

void job_expect_dk(const struct job_world *w, int64_t key)
{
    for (int64_t n = key * w->plan.dim; n < (key + 1) * w->plan.dim; n++)
        job_expect_near(w, "dk", w->dk[n], w->want_dk[n],
                        bound_of(w, w->size_dk[n], w->weighed_dk[n]));
}

void job_expect_dv(const struct job_world *w, int64_t key)
{
    for (int64_t n = key * w->plan.value_dim; n < (key + 1) * w->plan.value_dim; n++)
        job_expect_near(w, "dv", w->dv[n], w->want_dv[n],
                        bound_of(w, w->size_dv[n], w->weighed_dv[n]));
}

void job_expect_backward(const struct job_world *w)
{
    for (int64_t row = 0; row < w->rows; row++) job_expect_dq(w, row);
    for (int64_t key = 0; key < w->key_rows; key++) {
        job_expect_dk(w, key);
        job_expect_dv(w, key);
    }
}

static void expect_pairs(const struct job_world *w, int64_t got)
{
    if (got != w->want_pairs)
        fail_msg("%s: %lld pairs, not %lld", w->name, (long long)got, (long long)w->want_pairs);
}

void job_check(const struct job_plan *plan)
{
    struct job_world w = job_make(plan);
    job_reference(&w);
    int64_t pairs = job_run_backward(&w);
    job_expect_backward(&w);
    expect_pairs(&w, pairs);
    pairs = job_run_forward(&w);
    job_expect_forward(&w);
    expect_pairs(&w, pairs);
    job_free(&w);
}

void job_check_geometries(struct job_plan plan)
{
    const struct {
        int heads;
        int64_t q_count, q_pos, q_pos_step;
    } shapes[] = {
        { 1, 1, 128, 1 }, { 8, 1, 390, 1 },  { 1, 61, 100, 1 }, { 3, 7, 0, 60 },
        { 1, 64, 64, 1 }, { 4, 16, 250, 5 }, { 7, 9, 33, 1 },
    };
    for (int n = 0; n < TEST_COUNT(shapes); n++) {
        plan.heads = shapes[n].heads;
        plan.q_count = shapes[n].q_count;
        plan.q_pos = shapes[n].q_pos;
        plan.q_pos_step = shapes[n].q_pos_step;
        job_check(&plan);
    }
}

void job_check_most_rows(struct job_plan plan)
{
    plan.heads = 1;
    plan.q_count = plan.kernel->rows;
    job_check(&plan);
    plan.heads = plan.kernel->rows;
    plan.q_count = 1;
    job_check(&plan);
}
