/* SPDX-License-Identifier: Apache-2.0 */
/* terms.cuh - score terms (core/terms.h) for one query and one key, as both kernels need them.
 *
 * A kernel is built for a set of terms; of those, the ones that a launch does not have are neutral
 * or skipped by a branch that all lanes take together. Kernels built for none have none of this. */
#ifndef RA__SM90_TERMS_CUH
#define RA__SM90_TERMS_CUH

#include "backend/cuda/sm90/forward_shape.cuh"

/* The generator of dropout is plain C. GPU kernels draw the same numbers with the same code. */
#define inline inline __host__ __device__
#include "core/philox.h"
#undef inline

namespace sm90
{

constexpr float LOG2_E = 1.4426950408889634f;

/* A score in units of log2 out of q.k, before anything is added; and its derivative by that without
 * a softcap: 1 - tanh^2 = 4 r (1 - r). */
template <int TERMS> DEVICE float capped(const struct factors &by, float qk, float *derivative)
{
    *derivative = 1;
    if (!(TERMS & RA__SM90_SOFTCAP) || by.cap == 0) return qk * by.to_log2;
    const float r = reciprocal_fast(1 + exp2_fast(qk * by.to_tanh));
    *derivative = 4 * r * (1 - r);
    return fmaf(-2 * by.cap, r, by.cap);
}

/* Where the scores of one query row, from some key on, get their terms from. */
struct term_row {
    float slope;      /* of its head, in units of log2 */
    const void *bias; /* the element of that key */
};

template <int TERMS>
DEVICE struct term_row term_row_of(const ra__sm90_terms &terms, int batch, int head, int q_row,
                                   int64_t key_pos)
{
    struct term_row row = { 0, NULL };
    if ((TERMS & RA__SM90_SLOPES) && terms.slopes) row.slope = __ldg(terms.slopes + head) * LOG2_E;
    if ((TERMS & RA__SM90_BIAS) && terms.bias)
        row.bias = (const char *)terms.bias +
                   (batch * terms.bias_batch_stride + head * terms.bias_head_stride +
                    q_row * terms.bias_row_stride + key_pos) *
                       terms.bias_bytes;
    return row;
}

/* What is added to a score, in units of log2; -inf hides the key. `away`: how far apart query and
 * key are; `at`: their element of the bias. Only where the key is `visible` is memory read. */
template <int TERMS>
DEVICE float addend(const ra__sm90_terms &terms, const struct term_row &row, float away, int64_t at,
                    bool visible)
{
    float sum = 0;
    if (TERMS & RA__SM90_BIAS)
        if (terms.bias && visible) {
            if (terms.bias_bytes == 4) sum = __ldg((const float *)row.bias + at) * LOG2_E;
            else if (!__ldg((const uint8_t *)row.bias + at)) sum = -INFINITY;
        }
    if (TERMS & RA__SM90_SLOPES) sum = fmaf(-row.slope, fabsf(away), sum);
    return sum;
}

DEVICE int64_t query_position(const ra__sm90_terms &terms, int row)
{
    return terms.q_pos + (int64_t)row * terms.q_step;
}
DEVICE int64_t key_position(const ra__sm90_terms &terms, int row)
{
    return terms.k_pos + (int64_t)row * terms.k_step;
}

/* A bit for each score that a thread has of a block. */
template <bool MANY> struct bits_of {
    typedef uint32_t type;
};
template <> struct bits_of<true> {
    typedef uint64_t type;
};

/* Dropout keeps bit i of the four keys from `key`, a multiple of 4, on. */
DEVICE unsigned kept_four(const ra__sm90_terms &terms, int batch, int head, int64_t query,
                          int64_t key)
{
    const struct ra__philox words = ra__philox(terms.seed, (uint32_t)(key / 4), (uint32_t)query,
                                               (uint32_t)head, (uint32_t)batch);
    return (words.word[0] >= terms.drop_below) | (words.word[1] >= terms.drop_below) << 1 |
           (words.word[2] >= terms.drop_below) << 2 | (words.word[3] >= terms.drop_below) << 3;
}

DEVICE unsigned kept_one(const ra__sm90_terms &terms, int batch, int head, int64_t query,
                         int64_t key)
{
    return kept_four(terms, batch, head, query, key) >> (key & 3) & 1;
}

} // namespace sm90
#endif
