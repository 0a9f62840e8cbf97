/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.h - which weights of a row are kept: the generator of core/philox.h, many counters side
 * by side. Integers throughout, so every kernel makes the same decisions. */
#ifndef RA__BACKEND_CPU_KERNEL_VECTOR_DROPOUT_H
#define RA__BACKEND_CPU_KERNEL_VECTOR_DROPOUT_H

#include "core/philox.h"
#include "core/terms.h"
#include "backend/cpu/kernel/vector/pack.h"
#include "backend/cpu/kernel/vector/rows.h"

struct dropout {
    uint64_t seed;
    uint32_t limit; /* words from this value on are kept */
    float scale;    /* the factor of a kept weight */
    uint32_t *word; /* [4][BLOCK]: the words of up to BLOCK counters */

    int groups;      /* of a block whose keys are not consecutive: the keys that share a counter */
    uint32_t *group; /* [BLOCK] its first word */
    int32_t *place;  /* [BLOCK] index in `word` of the word of a column */
    uint32_t *drawn; /* [BLOCK] that word */
};

static struct dropout dropout_carve(struct arena *arena)
{
    struct dropout drop = { .word = reserve(arena, 4 * BLOCK, sizeof(uint32_t)) };
    drop.group = reserve(arena, BLOCK, sizeof(uint32_t));
    drop.place = reserve(arena, BLOCK, sizeof(int32_t));
    drop.drawn = reserve(arena, BLOCK, sizeof(uint32_t));
    return drop;
}

static void dropout_begin(struct dropout *drop, const struct ra__terms *terms)
{
    bool all = terms->drop_below > UINT32_MAX; /* dropped */
    drop->seed = terms->seed;
    drop->limit = all ? UINT32_MAX : (uint32_t)terms->drop_below;
    drop->scale = all ? 0.0f : terms->kept_scale;
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
    ra__philox_many(drop->seed, a, b, c, d, count);
}

/* Four consecutive keys share a counter. Up to three elements before and after the columns are
 * written too. */
static void keep_consecutive(const struct dropout *drop, struct dropout_row row, int64_t first,
                             struct columns own, float *kept)
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

/* Finds the counters of keys at any positions, once for all rows: neighbours on a curve often share
 * one. */
static void group_keys(struct dropout *drop, const int64_t *at, struct columns seen)
{
    enum { SLOTS = 2 * BLOCK };
    int32_t table[SLOTS]; /* the number of a group + 1, by a hash of it; 0 = free */
    memset(table, 0, sizeof table);
    drop->groups = 0;
    for (int column = seen.from; column < seen.to; column++) {
        uint32_t group = (uint32_t)(at[column] >> 2), slot = (group * 0x9E3779B1u >> 16) % SLOTS;
        while (table[slot] && drop->group[table[slot] - 1] != group) slot = (slot + 1) % SLOTS;
        if (!table[slot]) {
            drop->group[drop->groups] = group;
            table[slot] = ++drop->groups;
        }
        drop->place[column] = (int32_t)(at[column] & 3) * BLOCK + table[slot] - 1;
    }
}

/* Keys that group_keys() has processed. */
static void keep_scattered(const struct dropout *drop, struct dropout_row row, struct columns own,
                           float *kept)
{
    memcpy(drop->word, drop->group, sizeof(uint32_t) * (size_t)drop->groups);
    draw(drop, row, drop->groups);
    for (int i = own.from; i < own.to; i++) drop->drawn[i] = drop->word[drop->place[i]];
    const uint32_t *drawn = drop->drawn, limit = drop->limit;
    const float scale = drop->scale;
    for (int i = own.from; i < own.to; i++) kept[i] = drawn[i] >= limit ? scale : 0.0f;
}

#endif
