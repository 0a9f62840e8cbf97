/* SPDX-License-Identifier: Apache-2.0 */
/* score.h - the effect of core/terms.h on one query and one key: the definitions, for kernels that
 * go key by key, and for comparison with the loops of the others. */
#ifndef RA__BACKEND_CPU_KERNEL_SCORE_H
#define RA__BACKEND_CPU_KERNEL_SCORE_H

#include "core/philox.h"
#include "backend/cpu/kernel/kernel.h"
#include "core/state.h"

/* The score of a key for a query row, with all terms. */
struct ra__score {
    float x;     /* in units of log2 */
    float slope; /* derivative of x by scale q.k log2(e) */
    float kept;  /* the dropout factor of its weight in acc; dout.v and dv take it too */
    bool hidden; /* from this row: then x is -inf, and k and v must have no effect */
};

/* Query i of a job, its head h, and a key. */
struct ra__pair {
    int64_t i, h;
    int64_t query, key; /* original positions */
};

/* Does an order's mask hide the key? Then there is no such pair. */
static inline bool ra__pair_masked(const struct ra__view *view, struct ra__pair pair)
{
    const struct ra__terms *terms = view->terms;
    if (!terms || !terms->see_from) return false;
    int64_t index = view->q_pos + pair.i * view->q_pos_step;
    return pair.key < terms->see_from[index] || pair.key >= terms->see_to[index];
}

/* What is added to t, in natural units. */
static inline float ra__pair_addend(const struct ra__view *view, struct ra__pair pair)
{
    const struct ra__bias *bias = &view->bias;
    const struct ra__terms *terms = view->terms;
    int64_t index = pair.i * bias->row_stride + pair.h * bias->head_stride + pair.key;
    float sum = 0.0f;
    if (bias->data && bias->mask) sum = ((const uint8_t *)bias->data)[index] ? 0.0f : -INFINITY;
    else if (bias->data) sum = ((const float *)bias->data)[index];
    if (!terms || !terms->alibi) return sum;
    int64_t away = pair.query > pair.key ? pair.query - pair.key : pair.key - pair.query;
    return sum - terms->alibi[view->head + pair.h] * (float)away;
}

/* t in units of log2, and its slope. */
static inline float ra__capped(const struct ra__view *view, float qk, float *slope)
{
    float cap = view->terms ? view->terms->softcap : 0.0f;
    *slope = 1.0f;
    if (cap == 0.0f) return qk * (view->shape->scale * (float)RA__LOG2_E);
    float u = qk * (view->shape->scale / cap), c = coshf(u);
    *slope = 1.0f / (c * c);
    return cap * (float)RA__LOG2_E * tanhf(u);
}

static inline float ra__pair_kept(const struct ra__view *view, struct ra__pair pair)
{
    const struct ra__terms *terms = view->terms;
    if (!terms || !terms->dropout) return 1.0f;
    struct ra__philox words = ra__philox(terms->seed, (uint32_t)(pair.key / 4),
                                         (uint32_t)pair.query, (uint32_t)(view->head + pair.h),
                                         (uint32_t)view->batch);
    return words.word[pair.key % 4] >= terms->drop_below ? terms->kept_scale : 0.0f;
}

/* The score of the j-th key of a run for query i and its head h; qk is their product. */
static inline struct ra__score ra__score(const struct ra__view *view, int64_t i, int h,
                                         const struct ra__key_run *run, int64_t j, float qk)
{
    if (!view->terms && !view->bias.data)
        return (struct ra__score){ qk * (view->shape->scale * (float)RA__LOG2_E), 1, 1, false };
    struct ra__pair pair = { i, h, ra__origin(view->terms, view->q_pos + i * view->q_pos_step),
                             ra__origin(view->terms, run->pos + j * run->pos_step) };
    float addend = ra__pair_masked(view, pair) ? -INFINITY : ra__pair_addend(view, pair);
    addend *= (float)RA__LOG2_E;
    if (addend == -INFINITY) return (struct ra__score){ .x = -INFINITY, .hidden = true };
    struct ra__score score = { .kept = ra__pair_kept(view, pair) };
    score.x = ra__capped(view, qk, &score.slope) + addend;
    return score;
}

/* How many of the keys [lo, hi) of a run form pairs with query i. */
static inline int64_t ra__score_pairs(const struct ra__view *view, int64_t i,
                                      const struct ra__key_run *run, int64_t lo, int64_t hi)
{
    int64_t count = hi - lo;
    if (!view->terms || !view->terms->see_from) return count;
    for (int64_t j = lo; j < hi; j++) {
        int64_t key = ra__origin(view->terms, run->pos + j * run->pos_step);
        count -= ra__pair_masked(view, (struct ra__pair){ .i = i, .key = key });
    }
    return count;
}

#endif
