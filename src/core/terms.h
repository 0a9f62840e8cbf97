/* SPDX-License-Identifier: Apache-2.0 */
/* terms.h - what is done to a score besides scale q.k, and masks given by arrays. Filled once per
 * run and the same for every job of it; NULL for a plan without any of this.
 *
 *     t = scale q.k, or softcap tanh(scale q.k / softcap)
 *     x = t + bias - alibi[head] |p - j|       p, j: original positions of query and key
 *
 * A dropped weight is left out of acc, a kept one is multiplied by 1 / (1 - rate) there; m, l and
 * LSE ignore dropout. A sink is one more key with logit sinks[head] and value 0, folded at the end
 * of a row. */
#ifndef RA__CORE_TERMS_H
#define RA__CORE_TERMS_H

#include <stdbool.h>
#include <stdint.h>

struct ra__terms {
    float softcap;      /* 0 = none */
    const float *alibi; /* [q_heads] slopes, or NULL */
    /* [q_heads] logits, natural units, or NULL. Forward only; the LSE that backward reads includes
     * them */
    const float *sinks;
    bool dropout;
    uint64_t drop_below; /* dropped if the word is below this: ceil(rate 2^32) */
    float kept_scale;    /* 1 / (1 - rate) */
    uint64_t seed;       /* of this run */
    /* under an order: original position by index; NULL: equal to the index */
    const int32_t *origin;
    const int32_t *see_from; /* by query index: it sees the keys with original positions in */
    const int32_t *see_to;   /* [see_from, see_to); NULL: no such mask. Only with origin */
};

/* The part that belongs to a problem, with its arrays: a plan keeps it and ranks compare it. */
struct ra__problem_terms {
    float softcap;
    double dropout; /* rate */
    float *alibi;   /* [q_heads], or NULL */
    int32_t *see_from, *see_to;
    const int32_t *origin; /* of the plan's order */
};

/* The original position of an index in the order, for queries and keys alike. */
static inline int64_t ra__origin(const struct ra__terms *terms, int64_t index)
{
    return terms && terms->origin ? terms->origin[index] : index;
}

/* The part of a bias tensor for one job: query i, head h, key at original position j is at data + i
 * row_stride + h head_stride + j. Strides count elements. */
struct ra__bias {
    const void *data; /* f32 to be added, or, with `mask`, bytes: 0 hides the key. NULL = none */
    bool mask;
    int64_t row_stride, head_stride;
};

#endif
