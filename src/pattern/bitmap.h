/* SPDX-License-Identifier: Apache-2.0 */
/* bitmap.h - which blocks are active, from memory or from a .npy file of booleans. */
#ifndef RA__PATTERN_BITMAP_H
#define RA__PATTERN_BITMAP_H

#include "core/memory.h"
#include "core/shape.h"
#include "pattern/text.h"

struct ra__bitmap {
    uint8_t *active; /* [heads][blocks][blocks], owned; NULL: there is none */
    int heads;
    int64_t blocks;
    char *file; /* owned; NULL: it came from memory */
};

ra_status ra__bitmap_set(struct ra__bitmap *bitmap, int heads, int64_t blocks,
                         const uint8_t *active);
ra_status ra__bitmap_read(struct ra__bitmap *bitmap, struct ra__text file);
ra_status ra__bitmap_copy(struct ra__account *account, const struct ra__bitmap *from,
                          struct ra__bitmap *to);
uint64_t ra__bitmap_hash(const struct ra__bitmap *bitmap, uint64_t hash); /* not of the name */
/* Does it fit the lengths and heads of a problem, in blocks of `block` positions? */
ra_status ra__bitmap_check(const struct ra__bitmap *bitmap, int64_t block,
                           const struct ra__shape *shape);
void ra__bitmap_free(struct ra__bitmap *bitmap);

#endif
