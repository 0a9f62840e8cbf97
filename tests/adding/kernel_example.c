/* SPDX-License-Identifier: Apache-2.0 */
/* tiny.c - the smallest kernel that keeps the contract of kernel.h: one key at a time. */
#include <math.h>

#include "core/dtype.h"
#include "backend/cpu/kernel/kernel.h"
#include "backend/cpu/kernel/score.h"
#include "core/state.h"

/* Everything is read in place, so no scratch memory; a job is one query of up to 64 heads. */
static size_t workspace(const struct ra__shape *shape, struct ra__extent most, bool backward)
{
    (void)shape, (void)most, (void)backward;
    return 0;
}

/* Where row i, head h of a matrix starts; keys have no heads of their own. */
static int64_t at(struct ra__matrix x, int64_t i, int h)
{
    return i * x.row_stride + h * x.head_stride;
}

static float dot(ra_dtype dtype, const void *a, int64_t a_at, const void *b, int64_t b_at, int n)
{
    float sum = 0.0f;
    for (int d = 0; d < n; d++) sum += ra__load(dtype, a, a_at + d) * ra__load(dtype, b, b_at + d);
    return sum;
}

/* Folds one score and its value: the whole of the running softmax. */
static void fold(struct ra__state_row s, struct ra__score score, const struct ra__shape *shape,
                 const void *v, int64_t v_at)
{
    float m = score.x > *s.m ? score.x : *s.m, shift = m == -INFINITY ? 0.0f : m;
    float keep = exp2f(*s.m - shift), p = exp2f(score.x - shift);
    *s.m = m;
    *s.l = *s.l * keep + p;
    for (int d = 0; d < shape->value_dim; d++)
        s.acc[d] = s.acc[d] * keep + p * score.kept * ra__load(shape->dtype, v, v_at + d);
}

static void forward_row(struct ra__forward_job *job, int64_t i, int h)
{
    const struct ra__view *w = &job->view;
    const struct ra__shape *shape = w->shape;
    float m = -INFINITY, l = 0.0f, acc[576] = { 0 }; /* no value_dim is larger */
    int64_t state = i * job->m.row_stride + h,
            sums = i * job->acc_row_stride + (int64_t)h * shape->value_dim;
    if (!job->first) {
        m = job->m.data[state], l = job->l.data[state];
        for (int d = 0; d < shape->value_dim; d++) acc[d] = job->acc[sums + d];
    }
    struct ra__state_row row = { &m, &l, acc };
    for (int r = 0; r < w->run_count; r++) {
        const struct ra__key_run *run = &w->runs[r];
        int64_t lo, hi;
        ra__band_clip(run, w->q_pos + i * w->q_pos_step, &lo, &hi);
        job->pairs += ra__score_pairs(w, i, run, lo, hi);
        for (int64_t j = lo; j < hi; j++) {
            int64_t key = run->token + j * run->token_step;
            float qk = dot(shape->dtype, w->q.data, at(w->q, i, h), w->k.data, at(w->k, key, 0),
                           shape->dim);
            struct ra__score score = ra__score(w, i, h, run, j, qk);
            if (!score.hidden) fold(row, score, shape, w->v.data, at(w->v, key, 0));
            ra__kernel_poll(w);
        }
    }
    if (job->last) {
        char *out = (char *)job->out.data +
                    at(job->out, i, h) * (int64_t)ra__dtype_bytes(shape->dtype);
        float *lse = job->lse.data ? &job->lse.data[i * job->lse.row_stride + h] : NULL;
        ra__state_finish_row(row, shape->value_dim, ra__sink(w, h), shape->dtype, out, lse);
        return;
    }
    job->m.data[state] = m, job->l.data[state] = l;
    for (int d = 0; d < shape->value_dim; d++) job->acc[sums + d] = acc[d];
}

static void forward(struct ra__forward_job *job, void *memory)
{
    (void)memory;
    for (int64_t i = 0; i < job->view.q_count; i++)
        for (int h = 0; h < job->view.heads; h++) forward_row(job, i, h);
}

/* p = exp(x - lse), ds = slope p (kept dout.v - delta); dv += kept p dout, dk += scale ds q,
 * dq += scale ds k */
static void backward_pair(struct ra__backward_job *job, int64_t i, int h,
                          const struct ra__key_run *run, int64_t j)
{
    const struct ra__view *w = &job->view;
    const struct ra__shape *s = w->shape;
    int64_t key = run->token + j * run->token_step;
    int64_t q = at(w->q, i, h), k = at(w->k, key, 0), v = at(w->v, key, 0), o = at(job->dout, i, h);
    struct ra__score score = ra__score(w, i, h, run, j,
                                       dot(s->dtype, w->q.data, q, w->k.data, k, s->dim));
    if (score.hidden) return;
    float p = exp2f(score.x - job->lse.data[i * job->lse.row_stride + h] * (float)RA__LOG2_E);
    float dp = score.kept * dot(s->dtype, job->dout.data, o, w->v.data, v, s->value_dim);
    float ds = p * (dp - job->delta.data[i * job->delta.row_stride + h]) * score.slope * s->scale;
    float *dq = job->dq + i * job->dq_row_stride + (int64_t)h * s->dim;
    float *dk = job->dk + key * job->dk_row_stride, *dv = job->dv + key * job->dv_row_stride;
    ra__kernel_poll(w);
    for (int d = 0; d < s->value_dim; d++)
        dv[d] += score.kept * p * ra__load(s->dtype, job->dout.data, o + d);
    for (int d = 0; d < s->dim; d++) dk[d] += ds * ra__load(s->dtype, w->q.data, q + d);
    for (int d = 0; d < s->dim; d++) dq[d] += ds * ra__load(s->dtype, w->k.data, k + d);
}

static void backward(struct ra__backward_job *job, void *memory)
{
    (void)memory;
    const struct ra__view *w = &job->view;
    for (int64_t i = 0; i < w->q_count; i++)
        for (int r = 0; r < w->run_count; r++) {
            int64_t lo, hi;
            ra__band_clip(&w->runs[r], w->q_pos + i * w->q_pos_step, &lo, &hi);
            job->pairs += ra__score_pairs(w, i, &w->runs[r], lo, hi) * w->heads;
            for (int h = 0; h < w->heads; h++) {
                if (job->lse.data[i * job->lse.row_stride + h] == -INFINITY)
                    continue; /* no weights */
                for (int64_t j = lo; j < hi; j++) backward_pair(job, i, h, &w->runs[r], j);
            }
        }
}

static bool usable(void) { return true; }

const struct ra__kernel ra__kernel_tiny = {
    .name = "tiny",
    .summary = "one key at a time; to be read",
    .needs = "",
    .usable = usable,
    .dtypes = RA__ALL_DTYPES,
    .rows = 64,
    .backward_rows = 64,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
