/* dropout.h - which weights of a row are kept: the words of core/philox.h, many counters side by
 * side. Integers throughout, so every kernel decides alike. */
#ifndef RA__KERNEL_CPU_VECTOR_DROPOUT_H
#define RA__KERNEL_CPU_VECTOR_DROPOUT_H

#include "core/philox.h"
#include "core/terms.h"
#include "kernel/cpu/vector/rows.h"

struct dropout {
    uint64_t seed;
    uint32_t limit; /* kept from this word on */
    float scale;    /* what a kept weight counts */
    uint32_t *word; /* [4][BLOCK]: the words of up to BLOCK counters */
};

static struct dropout dropout_make(const struct ra__terms *terms, uint32_t *word)
{
    bool all = terms->drop_below > UINT32_MAX; /* dropped */
    return (struct dropout){ terms->seed, all ? UINT32_MAX : (uint32_t)terms->drop_below,
                             all ? 0.0f : terms->kept_scale, word };
}

/* The row whose weights are drawn: words 1 to 3 of its counters. */
struct dropout_row {
    uint32_t query, head, batch;
};

/* Draws `count` counters whose first words are in place. */
static void draw(const struct dropout *drop, struct dropout_row row, int count)
{
    uint32_t *a = drop->word, *b = a + BLOCK, *c = b + BLOCK, *d = c + BLOCK;
    for (int n = 0; n < count; n++) {
        b[n] = row.query;
        c[n] = row.head;
        d[n] = row.batch;
    }
    for (int round = 0; round < RA__PHILOX_ROUNDS; round++)
        for (int n = 0; n < count; n++) {
            struct ra__philox x = { { a[n], b[n], c[n], d[n] } };
            x = ra__philox_round(drop->seed, round, x);
            a[n] = x.word[0];
            b[n] = x.word[1];
            c[n] = x.word[2];
            d[n] = x.word[3];
        }
}

/* Keys that follow one another share counters by four. Up to three numbers before and behind the
 * lanes are written too. */
static void keep_consecutive(const struct dropout *drop, struct dropout_row row, int64_t first,
                             struct lanes own, float *kept)
{
    const int skew = (int)(first & 3), count = (own.to - own.from + skew + 3) / 4;
    for (int n = 0; n < count; n++) drop->word[n] = (uint32_t)(first >> 2) + (uint32_t)n;
    draw(drop, row, count);
    const uint32_t *a = drop->word, *b = a + BLOCK, *c = b + BLOCK, *d = c + BLOCK;
    const uint32_t limit = drop->limit;
    const float scale = drop->scale;
    kept += own.from - skew;
    for (int n = 0; n < count; n++) {
        kept[4 * n] = a[n] >= limit ? scale : 0.0f;
        kept[4 * n + 1] = b[n] >= limit ? scale : 0.0f;
        kept[4 * n + 2] = c[n] >= limit ? scale : 0.0f;
        kept[4 * n + 3] = d[n] >= limit ? scale : 0.0f;
    }
}

/* Keys anywhere: one counter each. */
static void keep_scattered(const struct dropout *drop, struct dropout_row row, const int64_t *at,
                           struct lanes own, float *kept)
{
    const int count = own.to - own.from;
    at += own.from;
    kept += own.from;
    for (int n = 0; n < count; n++) drop->word[n] = (uint32_t)(at[n] >> 2);
    draw(drop, row, count);
    for (int n = 0; n < count; n++)
        kept[n] = drop->word[(at[n] & 3) * BLOCK + n] >= drop->limit ? drop->scale : 0.0f;
}

#endif
