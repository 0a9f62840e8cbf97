/* SPDX-License-Identifier: Apache-2.0 */
/* philox.h - Philox4x32-10, the counter-based generator of dropout, random blocks and shuffles: the
 * same number for the same counter, on any rank and in any order. */
#ifndef RA__CORE_PHILOX_H
#define RA__CORE_PHILOX_H

#include <stdint.h>

struct ra__philox {
    uint32_t word[4];
};

enum { RA__PHILOX_ROUNDS = 10 };

/* One round, the n-th from 0: for code that runs many counters side by side. */
static inline struct ra__philox ra__philox_round(uint64_t key, int n, struct ra__philox c)
{
    /* golden ratio and sqrt(3) - 1, as the generator is defined */
    uint32_t k0 = (uint32_t)key + (uint32_t)n * 0x9E3779B9u;
    uint32_t k1 = (uint32_t)(key >> 32) + (uint32_t)n * 0xBB67AE85u;
    uint64_t a = (uint64_t)c.word[0] * 0xD2511F53u, b = (uint64_t)c.word[2] * 0xCD9E8D57u;
    uint32_t high_a = (uint32_t)(a >> 32), high_b = (uint32_t)(b >> 32);
    return (struct ra__philox){ { high_b ^ c.word[1] ^ k0, (uint32_t)b, high_a ^ c.word[3] ^ k1,
                                  (uint32_t)a } };
}

/* Ten rounds on one counter. The key is 64 bits, low half first. */
static inline struct ra__philox ra__philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2,
                                           uint32_t c3)
{
    struct ra__philox c = { { c0, c1, c2, c3 } };
    for (int n = 0; n < RA__PHILOX_ROUNDS; n++) c = ra__philox_round(key, n, c);
    return c;
}

/* The same on `count` counters, word by word in four arrays, in place: compilers vectorise it. */
static inline void ra__philox_many(uint64_t key, uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d,
                                   int count)
{
    for (int n = 0; n < RA__PHILOX_ROUNDS; n++)
        for (int i = 0; i < count; i++) {
            struct ra__philox x = { { a[i], b[i], c[i], d[i] } };
            x = ra__philox_round(key, n, x);
            a[i] = x.word[0];
            b[i] = x.word[1];
            c[i] = x.word[2];
            d[i] = x.word[3];
        }
}

/* ceil(share x 2^32), for a fraction from 0 to 1: that fraction of all words is below it. */
static inline uint64_t ra__philox_limit(double fraction)
{
    double limit = fraction * 4294967296.0;
    uint64_t whole = (uint64_t)limit;
    return whole + ((double)whole < limit);
}

#endif
