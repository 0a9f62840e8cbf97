/* SPDX-License-Identifier: Apache-2.0 */
/* scalar.c - attention in plain C, one query row at a time: the kernel to read, to port, and to
 * check the others against. It runs everywhere. The contract is in kernel.h. */
#include <math.h>

#include "core/dtype.h"
#include "backend/cpu/kernel/block.h"
#include "backend/cpu/kernel/kernel.h"
#include "backend/cpu/kernel/lse.h"
#include "backend/cpu/kernel/score.h"
#include "core/state.h"

/* Keys folded between two updates of the running maximum. */
enum { BLOCK = 64 };

/* The numbers of one query row, in f32. */
struct row {
    int64_t i; /* the query and its head, counted within the job */
    int h;
    float *q;     /* [dim] */
    float *k, *v; /* [dim] and [value_dim], one key at a time */
    float *acc;   /* [value_dim], with m and l the state; forward only */
    float m, l;
    struct ra__score *scores; /* [BLOCK]; forward only */
    float *dout;              /* [value_dim]; backward only, as are the next three */
    float lse, delta;
    float *dq; /* where the row's gradient goes, in the job */
};

static size_t workspace(const struct ra__shape *shape, struct ra__extent most, bool backward)
{
    (void)most, (void)backward;
    return sizeof(float) * (2 * (size_t)shape->dim + 3 * (size_t)shape->value_dim) +
           sizeof(struct ra__score) * BLOCK;
}

static struct row row_make(const struct ra__shape *shape, void *memory)
{
    struct row row = { .q = memory };
    row.k = row.q + shape->dim;
    row.v = row.k + shape->dim;
    row.acc = row.v + shape->value_dim;
    row.dout = row.acc + shape->value_dim;
    row.scores = (struct ra__score *)(row.dout + shape->value_dim);
    return row;
}

static float dot(const float *a, const float *b, int n)
{
    float sum = 0.0f;
    for (int d = 0; d < n; d++) sum += a[d] * b[d];
    return sum;
}

/* to += factor x from */
static void add_scaled(float *to, float factor, const float *from, int n)
{
    for (int d = 0; d < n; d++) to[d] += factor * from[d];
}

static void load_query(const struct ra__view *view, int64_t i, int h, float *to)
{
    const struct ra__matrix *q = &view->q;
    ra__matrix_load(view->shape, q, i * q->row_stride + h * q->head_stride, view->shape->dim, to);
}

/* The j-th key of a run, or its value. */
static void load_key(const struct ra__view *view, const struct ra__key_run *run, int64_t j,
                     float *to)
{
    int64_t index = (run->token + j * run->token_step) * view->k.row_stride;
    ra__matrix_load(view->shape, &view->k, index, view->shape->dim, to);
}

static void load_value(const struct ra__view *view, const struct ra__key_run *run, int64_t j,
                       float *to)
{
    int64_t index = (run->token + j * run->token_step) * view->v.row_stride;
    ra__matrix_load(view->shape, &view->v, index, view->shape->value_dim, to);
}

/* The score of the j-th key of a run, which is loaded for it. */
static inline struct ra__score score_key(const struct row *row, const struct ra__view *view,
                                         const struct ra__key_run *run, int64_t j)
{
    load_key(view, run, j, row->k);
    return ra__score(view, row->i, row->h, run, j, dot(row->q, row->k, view->shape->dim));
}

/* ---- Forward --------------------------------------------------------------------------------- */

/* Raises the running maximum to m and rescales the sums so far. */
static void raise_maximum(struct row *row, float m, int value_dim)
{
    float c = exp2f(row->m - m); /* 0 where row->m is -inf: nothing was folded; m is not */
    row->m = m;
    row->l *= c;
    for (int d = 0; d < value_dim; d++) row->acc[d] *= c;
}

/* Folds keys [from, to) of a run, at most BLOCK of them. */
static void fold(struct row *row, const struct ra__view *view, const struct ra__key_run *run,
                 int64_t from, int64_t to)
{
    const struct ra__shape *shape = view->shape;
    float largest = -INFINITY;
    for (int64_t j = from; j < to; j++) {
        struct ra__score score = score_key(row, view, run, j);
        row->scores[j - from] = score;
        if (score.x > largest) largest = score.x;
    }
    if (largest > row->m) raise_maximum(row, largest, shape->value_dim);

    /* m is still -inf where the row has seen no scores but -inf, whose weights are 0. */
    float shift = row->m == -INFINITY ? 0.0f : row->m;
    for (int64_t j = from; j < to; j++) {
        struct ra__score score = row->scores[j - from];
        if (score.hidden) continue; /* its value may be NaN */
        float p = exp2f(score.x - shift);
        load_value(view, run, j, row->v);
        row->l += p;
        add_scaled(row->acc, p * score.kept, row->v, shape->value_dim);
    }
}

/* Folds the keys [lo, hi) of a run, block by block. */
static void fold_run(struct row *row, const struct ra__view *view, const struct ra__key_run *run,
                     int64_t lo, int64_t hi)
{
    for (int64_t from = lo, to; from < hi; from = to) {
        to = ra__min(ra__block_first(run, from, BLOCK) + BLOCK, hi);
        fold(row, view, run, from, to);
        ra__kernel_poll(view);
    }
}

static void begin(struct row *row, const struct ra__forward_job *job, int64_t i, int h)
{
    int value_dim = job->view.shape->value_dim;
    if (job->first) {
        row->m = -INFINITY;
        row->l = 0.0f;
        for (int d = 0; d < value_dim; d++) row->acc[d] = 0.0f;
        return;
    }
    const float *acc = job->acc + i * job->acc_row_stride + h * value_dim;
    row->m = job->m.data[i * job->m.row_stride + h];
    row->l = job->l.data[i * job->l.row_stride + h];
    for (int d = 0; d < value_dim; d++) row->acc[d] = acc[d];
}

static void end(struct row *row, const struct ra__forward_job *job, int64_t i, int h)
{
    const struct ra__shape *shape = job->view.shape;
    if (job->last) {
        int64_t index = i * job->out.row_stride + h * job->out.head_stride;
        void *out = (char *)job->out.data + index * (int64_t)ra__dtype_bytes(shape->dtype);
        float *lse = job->lse.data ? job->lse.data + i * job->lse.row_stride + h : NULL;
        struct ra__state_row state = { .m = &row->m, .l = &row->l, .acc = row->acc };
        ra__state_finish_row(state, shape->value_dim, ra__sink(&job->view, h), shape->dtype, out,
                             lse);
        return;
    }
    float *acc = job->acc + i * job->acc_row_stride + h * shape->value_dim;
    job->m.data[i * job->m.row_stride + h] = row->m;
    job->l.data[i * job->l.row_stride + h] = row->l;
    for (int d = 0; d < shape->value_dim; d++) acc[d] = row->acc[d];
}

static void forward_row(struct ra__forward_job *job, struct row *row, int64_t i, int h)
{
    const struct ra__view *view = &job->view;
    row->i = i;
    row->h = h;
    if (view->run_count > 0) load_query(view, i, h, row->q);
    begin(row, job, i, h);
    for (int n = 0; n < view->run_count; n++) {
        int64_t lo, hi;
        ra__band_clip(&view->runs[n], view->q_pos + i * view->q_pos_step, &lo, &hi);
        fold_run(row, view, &view->runs[n], lo, hi);
        job->pairs += ra__score_pairs(view, i, &view->runs[n], lo, hi);
    }
    end(row, job, i, h);
}

static void forward(struct ra__forward_job *job, void *memory)
{
    struct row row = row_make(job->view.shape, memory);
    for (int64_t i = 0; i < job->view.q_count; i++)
        for (int h = 0; h < job->view.heads; h++) forward_row(job, &row, i, h);
}

/* ---- Backward -------------------------------------------------------------------------------- */

/* One query row and the j-th key of a run, with x, its slope and the kept factor from the terms:
 *     p = exp(x - lse)    ds = slope p (kept dout.v - delta)
 *     dv += kept p dout    dk += scale ds q    dq += scale ds k */
static void differentiate(struct ra__backward_job *job, const struct row *row,
                          const struct ra__key_run *run, int64_t j)
{
    const struct ra__shape *shape = job->view.shape;
    int64_t key = run->token + j * run->token_step;
    struct ra__score score = score_key(row, &job->view, run, j);
    if (score.hidden) return;
    load_value(&job->view, run, j, row->v);
    float p = exp2f(score.x - row->lse * (float)RA__LOG2_E);
    float dp = score.kept * dot(row->dout, row->v, shape->value_dim);
    float ds = score.slope * (p * (dp - row->delta));
    add_scaled(job->dv + key * job->dv_row_stride, score.kept * p, row->dout, shape->value_dim);
    add_scaled(job->dk + key * job->dk_row_stride, shape->scale * ds, row->q, shape->dim);
    add_scaled(row->dq, shape->scale * ds, row->k, shape->dim);
}

static void backward_row(struct ra__backward_job *job, struct row *row, int64_t i, int h)
{
    const struct ra__view *view = &job->view;
    const struct ra__shape *shape = view->shape;
    row->i = i;
    row->h = h;
    row->lse = job->lse.data[i * job->lse.row_stride + h];
    row->delta = job->delta.data[i * job->delta.row_stride + h];
    row->dq = job->dq + i * job->dq_row_stride + h * shape->dim;
    load_query(view, i, h, row->q);
    ra__matrix_load(shape, &job->dout, i * job->dout.row_stride + h * job->dout.head_stride,
                    shape->value_dim, row->dout);
    for (int n = 0; n < view->run_count; n++) {
        int64_t lo, hi;
        ra__band_clip(&view->runs[n], view->q_pos + i * view->q_pos_step, &lo, &hi);
        job->pairs += ra__score_pairs(view, i, &view->runs[n], lo, hi);
        if (ra__lse_weightless(row->lse)) continue;
        for (int64_t j = lo; j < hi; j++) {
            differentiate(job, row, &view->runs[n], j);
            if (j % BLOCK == 0) ra__kernel_poll(view);
        }
    }
}

static void backward(struct ra__backward_job *job, void *memory)
{
    struct row row = row_make(job->view.shape, memory);
    for (int64_t i = 0; i < job->view.q_count; i++)
        for (int h = 0; h < job->view.heads; h++) backward_row(job, &row, i, h);
}

static bool usable(void) { return true; }

const struct ra__kernel ra__kernel_scalar = {
    .name = "scalar",
    .summary = "plain C, one row at a time",
    .needs = "",
    .usable = usable,
    .dtypes = RA__ALL_DTYPES,
    .rows = 64,
    .backward_rows = 64,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
