/* SPDX-License-Identifier: Apache-2.0 */
/* bias.c - the gradient of the bias, by a second walk over the rows of a GRADIENT step:
 *
 *     dbias = p (kept dout.v - delta), summed over the heads and batch items that share it
 *
 * It is as large as the score matrix that kernels never hold, so it is not theirs to write. Items
 * are queries: the numbers of one are written by one thread, batch items and heads in ascending
 * order, so that every number of threads gives the same bits. */
#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/kernel/lse.h"
#include "backend/cpu/kernel/score.h"

enum { TOKENS = 16, KEYS = 16 };

/* What a thread works with, in f32. */
struct scratch {
    float q[RA__MOST_DIM], dout[RA__MOST_DIM];
    float k[KEYS][RA__MOST_DIM], v[KEYS][RA__MOST_DIM];
};

/* In eight sums, which a compiler keeps in registers. */
static float dot(const float *a, const float *b, int n)
{
    float sums[8] = { 0.0f };
    int d = 0;
    for (; d + 8 <= n; d += 8)
        for (int i = 0; i < 8; i++) sums[i] += a[d + i] * b[d + i];
    for (; d < n; d++) sums[0] += a[d] * b[d];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/* Some keys of a run, loaded: [from, from + count). */
struct loaded {
    const struct ra__key_run *run;
    int64_t from, count;
};

static void load_keys(const struct ra__view *view, const struct loaded *keys, struct scratch *s)
{
    for (int64_t j = 0; j < keys->count; j++) {
        const int64_t token = keys->run->token + (keys->from + j) * keys->run->token_step;
        ra__matrix_load(view->shape, &view->k, token * view->k.row_stride, view->shape->dim,
                        s->k[j]);
        ra__matrix_load(view->shape, &view->v, token * view->v.row_stride, view->shape->value_dim,
                        s->v[j]);
    }
}

/* Query i of a job of one head. */
static void add_query(const struct ra__job_inputs *in, int64_t i, const struct loaded *keys,
                      struct scratch *s, float *to)
{
    const struct ra__view *view = &in->view;
    const struct ra__shape *shape = view->shape;
    const float lse = in->lse.data[i * in->lse.row_stride];
    const float delta = in->delta.data[i * in->delta.row_stride];
    int64_t lo, hi;
    ra__band_clip(keys->run, view->q_pos + i * view->q_pos_step, &lo, &hi);
    lo = ra__max(lo, keys->from);
    hi = ra__min(hi, keys->from + keys->count);
    if (lo >= hi || ra__lse_weightless(lse)) return;
    ra__matrix_load(shape, &view->q, i * view->q.row_stride, shape->dim, s->q);
    ra__matrix_load(shape, &in->dout, i * in->dout.row_stride, shape->value_dim, s->dout);
    for (int64_t j = lo; j < hi; j++) {
        const struct ra__score score = ra__score(view, i, 0, keys->run, j,
                                                 dot(s->q, s->k[j - keys->from], shape->dim));
        if (score.hidden) continue;
        const float p = exp2f(score.x - (float)(lse * RA__LOG2_E));
        const float dp = score.kept * dot(s->dout, s->v[j - keys->from], shape->value_dim);
        to[ra__origin(view->terms, keys->run->pos + j * keys->run->pos_step)] += p * (dp - delta);
    }
}

/* Some queries of a row, for one head of one batch item. */
static void add_job(const struct ra__running *run, struct ra__job *job, struct scratch *s)
{
    const struct ra__program *program = ra__program_of(run);
    const struct ra__call *call = run->launch->call;
    const struct ra__job_inputs in = ra__job_inputs(run, job);
    for (int n = 0; n < job->row->key_count; n++) {
        const int at = job->row->first_key + n;
        const struct ra__key_run keys = ra__key_run_at(&program->keys[at], &program->advances[at],
                                                       job->repeat);
        int64_t first;
        const int64_t count = ra__job_keys(job, &keys, &first);
        for (int64_t from = first; from < first + count; from += KEYS) {
            if (!ra__workers_continue(run->cpu->workers, job->thread)) return;
            const struct loaded some = { &keys, from, ra__min(KEYS, first + count - from) };
            load_keys(&in.view, &some, s);
            for (int64_t i = 0; i < job->count; i++)
                add_query(&in, i, &some, s, call->dbias + ra__job_bias_row(run, job, i));
        }
    }
}

/* The queries of a row of a family that are among tokens [lo, hi). */
static void add_row(const struct ra__running *run, struct ra__job *job, int64_t lo, int64_t hi,
                    struct scratch *s)
{
    const struct ra__shape *shape = &ra__work_of(run)->shape;
    const struct ra__plan_row *row = job->row;
    const ra_run tokens = { row->q_token + job->repeat * row->q_token_advance, row->q_token_step,
                            row->q_count };
    job->count = ra__run_clip(tokens, lo, hi, &job->offset).count;
    if (job->count == 0) return;
    for (int64_t batch = 0; batch < shape->batch; batch++)
        for (int64_t h = 0; h < row->heads.count; h++) {
            const int head = (int)(row->heads.start + h * row->heads.step);
            const int kv_head = head / (shape->q_heads / shape->kv_heads);
            job->heads = (struct ra__job_heads){ batch, kv_head, 1, head, 1 };
            add_job(run, job, s);
        }
}

/* The rows of a family that may have queries among tokens [lo, hi): [*first, *end). */
static void find_repeats(const struct ra__plan_row *row, int64_t lo, int64_t hi, int64_t *first,
                         int64_t *end)
{
    const int64_t advance = row->q_token_advance;
    const int64_t last = row->q_token + (row->q_count - 1) * row->q_token_step;
    *first = 0;
    *end = row->repeat;
    if (row->repeat == 1 || advance <= 0) return;
    *first = ra__max(ra__ceil_div(lo - last, advance), 0);
    *end = ra__min(ra__floor_div(hi - 1 - row->q_token, advance) + 1, row->repeat);
}

static void bias_item(void *context, int64_t item, int thread)
{
    const struct ra__running *run = context;
    const struct ra__program *program = ra__program_of(run);
    const struct ra__step *step = run->launch->step;
    const int64_t lo = item * TOKENS, hi = lo + TOKENS;
    struct scratch scratch;
    for (int r = step->first_row; r < step->first_row + step->row_count; r++) {
        int64_t first, end;
        find_repeats(&program->rows[r], lo, hi, &first, &end);
        for (int64_t repeat = first; repeat < end; repeat++) {
            struct ra__job job = { .row = &program->rows[r], .repeat = repeat, .thread = thread };
            add_row(run, &job, lo, hi, &scratch);
        }
    }
}

ra_status ra__cpu_bias(const struct ra__running *run)
{
    const struct ra__step *step = run->launch->step;
    const int64_t queries = step->window.side == RA__NO_WINDOW ? ra__work_of(run)->queries
                                                               : step->window.count;
    if (!run->launch->call->dbias || step->row_count == 0) return RA_OK;
    return ra__cpu_run(run, &(struct ra__work){ .body = bias_item,
                                                .context = (void *)run,
                                                .items = ra__ceil_div(queries, TOKENS) });
}
