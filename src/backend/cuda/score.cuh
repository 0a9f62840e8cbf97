/* SPDX-License-Identifier: Apache-2.0 */
/* score.cuh - on the device: the score of one query and one key with all terms, as
 * backend/cpu/kernel/score.h defines it, and the end of a row, as core/state.h does. */
#ifndef RA__BACKEND_CUDA_SCORE_CUH
#define RA__BACKEND_CUDA_SCORE_CUH

#include <math.h>

#include "backend/cuda/rows.cuh"

namespace ra
{

constexpr float LOG2_E = 1.4426950408889634074f;

/* One query of a tile, with its head: what a score needs besides the key. */
struct query {
    int64_t token;    /* in the step's tensors */
    int64_t index;    /* its position, or index in the order */
    int64_t original; /* original position */
    int batch, head;  /* head of the shape */
};

__device__ inline int64_t original(const ra__cuda_terms &terms, int64_t index)
{
    return terms.origin ? terms.origin[index] : index;
}

__device__ inline query query_of(const ra__cuda_step &step, const tile &t, int r)
{
    query q;
    const int64_t i = t.query(r);
    q.token = t.token(i);
    q.index = t.position(i);
    q.original = step.terms.origin ? step.terms.origin[q.index] : q.index;
    q.batch = t.batch;
    q.head = t.head_of(r);
    return q;
}

struct score {
    float x;     /* in units of log2; -inf where hidden */
    float slope; /* derivative of x by scale q.k log2(e) */
    float kept;  /* the dropout factor of its weight in acc; dout.v and dv take it too */
    bool hidden; /* k and v must have no effect on the row, nor the row on them */
};

/* Philox4x32-10; see core/philox.h. */
struct philox_words {
    uint32_t word[4];
};
__device__ inline philox_words draw(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2,
                                    uint32_t c3)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int n = 0; n < 10; n++) {
        const uint32_t high_a = __umulhi(c0, 0xD2511F53u), low_a = c0 * 0xD2511F53u;
        const uint32_t high_b = __umulhi(c2, 0xCD9E8D57u), low_b = c2 * 0xCD9E8D57u;
        c0 = high_b ^ c1 ^ k0;
        c1 = low_b;
        c2 = high_a ^ c3 ^ k1;
        c3 = low_a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return philox_words{ { c0, c1, c2, c3 } };
}

/* What is added to scale q.k, in natural units; -inf hides the key. */
__device__ inline float addend(const ra__cuda_step &step, const query &q, int64_t key)
{
    const ra__cuda_terms &terms = step.terms;
    if (terms.see_from && (key < terms.see_from[q.index] || key >= terms.see_to[q.index]))
        return -INFINITY;
    float sum = 0.0f;
    if (terms.bias) {
        const int64_t at = q.batch * terms.bias_batch + q.head * terms.bias_head +
                           q.token * terms.bias_query + key;
        if (terms.bias_mask) sum = ((const uint8_t *)terms.bias)[at] ? 0.0f : -INFINITY;
        else sum = ((const float *)terms.bias)[at];
    }
    if (!terms.alibi) return sum;
    const int64_t away = q.original > key ? q.original - key : key - q.original;
    return sum - terms.alibi[step.first_head + q.head] * (float)away;
}

__device__ inline float kept(const ra__cuda_step &step, const query &q, int64_t key)
{
    const ra__cuda_terms &terms = step.terms;
    if (!terms.dropout) return 1.0f;
    const philox_words words = draw(terms.seed, (uint32_t)(key / 4), (uint32_t)q.original,
                                    (uint32_t)(step.first_head + q.head), (uint32_t)q.batch);
    return words.word[key % 4] >= terms.drop_below ? terms.kept_scale : 0.0f;
}

/* The score of a key at an index (position, or index in the order) that the band lets the query
 * see; qk is their product. */
__device__ inline score score_of(const ra__cuda_step &step, const query &q, int64_t index, float qk)
{
    score s;
    const int64_t key = original(step.terms, index);
    const float added = addend(step, q, key) * LOG2_E;
    s.hidden = added == -INFINITY;
    s.slope = s.kept = 1.0f;
    if (s.hidden) {
        s.x = -INFINITY;
        return s;
    }
    s.kept = kept(step, q, key);
    if (step.terms.softcap == 0.0f) {
        s.x = qk * (step.scale * LOG2_E) + added;
        return s;
    }
    const float u = qk * (step.scale / step.terms.softcap), c = coshf(u);
    s.slope = 1.0f / (c * c);
    s.x = step.terms.softcap * LOG2_E * tanhf(u) + added;
    return s;
}

/* The logit of a head's sink in natural units; -inf where there is none. */
__device__ inline float sink_of(const ra__cuda_step &step, int head)
{
    return step.terms.sinks ? step.terms.sinks[step.first_head + head] : -INFINITY;
}

/* The end of a row: out = acc / divisor, 0 where l is 0. */
struct row_end {
    float divisor, lse;
};
__device__ inline row_end end_of(float m, float l, float sink)
{
    row_end end;
    if (l == 0.0f) {
        end.divisor = 1.0f;
        end.lse = sink;
        return end;
    }
    const double sum = m + log2((double)l);
    end.divisor = l;
    end.lse = (float)(sum * 0.69314718055994530942);
    if (sink == -INFINITY) return end;
    const double logit = sink * 1.4426950408889634074, high = logit > sum ? logit : sum;
    const double low = logit > sum ? sum : logit;
    end.lse = (float)((high + log2(1.0 + exp2(low - high))) * 0.69314718055994530942);
    end.divisor = (float)(l + exp2(logit - m));
    return end;
}

/* An LSE in units of log2, rounded once: an error of it is an error of all weights of its row. */
__device__ inline float in_log2(float lse) { return (float)(lse * 1.4426950408889634074); }

/* Backward, rows without weights: nothing was seen, or the LSE is too coarse to recompute them
 * (backend/cpu/kernel/lse.h). */
constexpr float COARSE_LSE = 0x1p20f;
__device__ inline bool is_weightless(float lse)
{
    return lse == -INFINITY || (fabsf(lse) >= COARSE_LSE && fabsf(lse) <= 3.402823466e+38f);
}

} // namespace ra

#endif
