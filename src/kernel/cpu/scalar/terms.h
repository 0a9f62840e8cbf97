/* terms.h - what core/terms.h does to one query and one key, for the scalar kernel: the definitions,
 * to be read beside the loops of the others. */
#ifndef RA__KERNEL_CPU_SCALAR_TERMS_H
#define RA__KERNEL_CPU_SCALAR_TERMS_H

#include <math.h>

#include "core/philox.h"
#include "kernel/kernel.h"
#include "kernel/state.h"

/* Query i of a job, head h of it, and a key: where the tables of the terms are read. */
struct pair {
    int64_t i, h;
    int64_t query, key; /* original positions */
};

static struct pair pair_make(const struct ra__view *view, int64_t i, int h,
                             const struct ra__key_run *run, int64_t j)
{
    return (struct pair){ i, h, ra__origin(view->terms, view->q_pos + i * view->q_pos_step),
                          ra__origin(view->terms, run->pos + j * run->pos_step) };
}

static bool has_terms(const struct ra__view *view) { return view->terms || view->bias.data; }

/* Does an order's mask hide the key? Then the pair does not exist. */
static bool pair_masked(const struct ra__view *view, struct pair pair)
{
    const struct ra__terms *terms = view->terms;
    if (!terms || !terms->see_from) return false;
    int64_t index = view->q_pos + pair.i * view->q_pos_step;
    return pair.key < terms->see_from[index] || pair.key >= terms->see_to[index];
}

/* What comes on top of t, in natural units; -inf hides the key. */
static float pair_addend(const struct ra__view *view, struct pair pair)
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

/* t in units of log2 for q.k, and in *slope its derivative by scale q.k. */
static float capped(const struct ra__view *view, float qk, float *slope)
{
    float cap = view->terms ? view->terms->softcap : 0.0f;
    *slope = 1.0f;
    if (cap == 0.0f) return qk * (view->shape->scale * (float)RA__LOG2_E);
    float u = qk * (view->shape->scale / cap), c = coshf(u);
    *slope = 1.0f / (c * c);
    return cap * (float)RA__LOG2_E * tanhf(u);
}

/* What the weight of a pair counts in acc. */
static float pair_kept(const struct ra__view *view, struct pair pair)
{
    const struct ra__terms *terms = view->terms;
    if (!terms || !terms->dropout) return 1.0f;
    struct ra__philox words = ra__philox(terms->seed, (uint32_t)(pair.key / 4),
                                         (uint32_t)pair.query, (uint32_t)(view->head + pair.h),
                                         (uint32_t)view->batch);
    return words.word[pair.key % 4] >= terms->drop_below ? terms->kept_scale : 0.0f;
}

#endif
