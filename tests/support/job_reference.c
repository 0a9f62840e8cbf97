/* SPDX-License-Identifier: Apache-2.0 */
/* job_reference.c - attention in double, directly from its definition, over the pairs of a job. It
 * shares no arithmetic with the library, its random numbers included. */
#include "support/job.h"

#include <math.h>
#include <stdlib.h>

#include "harness/base/philox.h"

bool job_kept(const struct job_world *w, int64_t query, int64_t key, int h)
{
    const uint32_t counter[4] = { (uint32_t)(key / 4), (uint32_t)query, (uint32_t)(w->head + h),
                                  (uint32_t)w->batch };
    return philox_word(w->terms.seed, counter, (int)(key % 4)) >= w->terms.drop_below;
}

/* ---- The reference: attention in double, straight from its definition ------------------------ */

int64_t job_origin_of(const struct job_world *w, int64_t index)
{
    return w->origin ? w->origin[index] : index;
}

bool job_sees(const struct job_world *w, int64_t i, const struct ra__key_run *run, int64_t j)
{
    int64_t query = w->plan.q_pos + i * w->plan.q_pos_step, key = run->pos + j * run->pos_step;
    if (key - query < -run->band.left || key - query > run->band.right) return false;
    if (!w->see_from) return true;
    return w->see_from[query] <= w->origin[key] && w->origin[key] < w->see_to[query];
}

static double addend_of(const struct job_world *w, int64_t row, int64_t key)
{
    if (!w->bias.data) return 0.0;
    if (w->bias.mask) return w->shown[row * w->places + key] ? 0.0 : -INFINITY;
    return w->addends[row * w->places + key];
}

struct job_pair job_pair_of(const struct job_world *w, int64_t i, int h,
                            const struct ra__key_run *run, int64_t j)
{
    struct job_pair pair = {
        .i = i, .h = h, .key = run->token + j * run->token_step, .slope = 1, .kept = 1
    };
    int64_t p = job_origin_of(w, w->plan.q_pos + i * w->plan.q_pos_step);
    int64_t key = job_origin_of(w, run->pos + j * run->pos_step);
    double x = 0.0, cap = w->terms.softcap;
    pair.row = i * w->plan.heads + h;
    for (int d = 0; d < w->plan.dim; d++)
        x += job_at(w, w->q, i, h, d) * job_at(w, w->k, pair.key, 0, d);
    x *= w->shape.scale;
    if (cap > 0.0) {
        double c = cosh(x / cap); /* 1 - tanh^2 would lose its digits */
        x = cap * tanh(x / cap);
        pair.slope = 1.0 / (c * c);
    }
    if (w->terms.alibi) x -= (double)w->alibi[w->head + h] * (double)llabs(p - key);
    double addend = addend_of(w, pair.row, key);
    pair.x = addend == -INFINITY ? -INFINITY : x + addend;
    if (w->terms.dropout) pair.kept = job_kept(w, p, key, h) ? w->terms.kept_scale : 0.0;
    return pair;
}

/* Calls act(w, pair) for every pair that is seen, as often as it is. */
static void each_pair(struct job_world *w, int64_t i, int h,
                      void (*act)(struct job_world *, const struct job_pair *))
{
    for (int n = 0; n < w->plan.run_count; n++) {
        const struct ra__key_run *run = &w->plan.runs[n];
        for (int64_t j = 0; j < run->count; j++) {
            if (!job_sees(w, i, run, j)) continue;
            struct job_pair pair = job_pair_of(w, i, h, run, j);
            act(w, &pair);
        }
    }
}

double job_logaddexp(double a, double b)
{
    double high = fmax(a, b);
    return high == -INFINITY ? high : high + log(exp(a - high) + exp(b - high));
}

static void count_pair(struct job_world *w, const struct job_pair *pair)
{
    w->want_lse[pair->row] = job_logaddexp(w->want_lse[pair->row], pair->x);
    w->want_pairs++;
}

static void add_output(struct job_world *w, const struct job_pair *pair)
{
    if (pair->x == -INFINITY) return;
    double p = pair->kept * exp(pair->x - w->want_lse[pair->row]);
    for (int d = 0; d < w->plan.value_dim; d++) {
        int64_t n = pair->row * w->plan.value_dim + d;
        job_add_term(&w->want_out[n], &w->weighed_out[n], p * job_at(w, w->v, pair->key, 0, d));
    }
}

void job_add_term(double *sum, double *size, double term)
{
    *sum += term;
    *size += fabs(term);
}

/* From the rounded LSE and delta that the kernel gets, so that only its own error is measured. */
static void add_gradient(struct job_world *w, const struct job_pair *pair)
{
    if (pair->x == -INFINITY) return;
    int dim = w->plan.dim, value_dim = w->plan.value_dim;
    int64_t row = pair->row, key = pair->key;
    double p = exp(pair->x - w->lse[row]), dp = 0.0, dp_size = fabs(w->delta[row]);
    for (int d = 0; d < value_dim; d++) {
        double dout = pair->kept * job_at(w, w->dout, pair->i, pair->h, d);
        int64_t n = key * value_dim + d;
        job_add_term(&dp, &dp_size, dout * job_at(w, w->v, key, 0, d));
        job_add_term(&w->want_dv[n], &w->size_dv[n], p * dout);
        w->weighed_dv[n] += fabs(p * dout);
    }
    double factor = w->shape.scale * pair->slope * p, ds = factor * (dp - w->delta[row]);
    for (int d = 0; d < dim; d++) {
        double q = job_at(w, w->q, pair->i, pair->h, d), k = job_at(w, w->k, key, 0, d);
        job_add_term(&w->want_dq[row * dim + d], &w->weighed_dq[row * dim + d], ds * k);
        w->size_dq[row * dim + d] += fabs(factor) * dp_size * fabs(k);
        job_add_term(&w->want_dk[key * dim + d], &w->weighed_dk[key * dim + d], ds * q);
        w->size_dk[key * dim + d] += fabs(factor) * dp_size * fabs(q);
    }
}

void job_reference_forward(struct job_world *w, int64_t i, int h)
{
    int64_t row = i * w->plan.heads + h;
    w->want_lse[row] = w->terms.sinks ? w->sinks[w->head + h] : -INFINITY;
    for (int64_t n = row * w->plan.value_dim; n < (row + 1) * w->plan.value_dim; n++)
        w->want_out[n] = w->weighed_out[n] = 0.0;
    each_pair(w, i, h, count_pair);
    each_pair(w, i, h, add_output);
}

static void reference_row(struct job_world *w, int64_t i, int h)
{
    int64_t row = i * w->plan.heads + h;
    job_reference_forward(w, i, h);
    double delta = 0.0;
    for (int d = 0; d < w->plan.value_dim; d++)
        delta += w->want_out[row * w->plan.value_dim + d] * job_at(w, w->dout, i, h, d);
    w->lse[row] = (float)w->want_lse[row];
    w->delta[row] = (float)delta;
    if (w->want_lse[row] > -INFINITY) each_pair(w, i, h, add_gradient);
}

void job_reference(struct job_world *w)
{
    w->want_pairs = 0;
    for (int64_t i = 0; i < w->plan.q_count; i++)
        for (int h = 0; h < w->plan.heads; h++) reference_row(w, i, h);
}
