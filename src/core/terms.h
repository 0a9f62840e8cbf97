/* terms.h - what happens to a score besides scale q.k, and what is masked by arrays. Filled once
 * per run and the same for every job of it; a plan without any of this has none.
 *
 *     t = scale q.k, or softcap tanh(scale q.k / softcap)
 *     x = t + bias - alibi[head] |p - j|       p, j: original positions of query and key
 *
 * A dropped weight is left out of acc, a kept one counts 1 / (1 - rate) there; m, l and LSE see
 * neither. A sink is one more key with logit sinks[head] and value 0, folded when a row ends. */
#ifndef RA__CORE_TERMS_H
#define RA__CORE_TERMS_H

#include <stdbool.h>
#include <stdint.h>

struct ra__terms {
    float softcap;      /* 0 = none */
    const float *alibi; /* [q_heads] slopes, or NULL */
    const float *sinks; /* [q_heads] logits, natural units, or NULL. Forward, rows that end; the LSE
                           a backward job reads holds them already */
    bool dropout;
    uint64_t drop_below;   /* dropped where the word is below: ceil(rate 2^32) */
    float kept_scale;      /* 1 / (1 - rate) */
    uint64_t seed;         /* of this run */
    const int32_t *origin; /* under an order: original position by index; NULL: they are the same */
    const int32_t *see_from; /* by query index: it sees keys with original positions in */
    const int32_t *see_to;   /* [see_from, see_to); NULL: no such mask. Only with origin */
};

/* The part of it that belongs to a problem, with its arrays: what a plan keeps and ranks
 * compare. */
struct ra__problem_terms {
    float softcap;
    double dropout; /* rate */
    float *alibi;   /* [q_heads], or NULL */
    int32_t *see_from, *see_to;
    const int32_t *origin; /* of the plan's order */
};

/* Position of an index in the order, of queries and keys alike. */
static inline int64_t ra__origin(const struct ra__terms *terms, int64_t index)
{
    return terms && terms->origin ? terms->origin[index] : index;
}

/* One job's part of a bias tensor: row i, head h, key at original position j lies at
 * data + i row_stride + h head_stride + j. Strides count elements. */
struct ra__bias {
    const void *data; /* f32 to be added, or, with `mask`, bytes: 0 hides the key. NULL = none */
    bool mask;
    int64_t row_stride, head_stride;
};

#endif
