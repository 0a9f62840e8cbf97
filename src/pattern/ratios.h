/* SPDX-License-Identifier: Apache-2.0 */
/* ratios.h - lists "a/b,a/b,..." of a pattern's text: branches of dilated, levels of blocks. */
#ifndef RA__PATTERN_RATIOS_H
#define RA__PATTERN_RATIOS_H

#include "core/memory.h"
#include "pattern/text.h"

/* Two numbers that belong together: segment / rate of a branch, stride / reach of a level. */
struct ra__ratio {
    int64_t a, b;
};

struct ra__ratios {
    struct ra__ratio *at; /* owned */
    int count;
};

struct ra__pattern_kind;

/* Reads a list to the end of the text; each a is at least `least.a`, each b at least `least.b`.
 * Sentences name `kind`. What was read before a failure stays in the list. */
ra_status ra__ratios_read(struct ra__ratios *ratios, const struct ra__pattern_kind *kind,
                          struct ra__text list, struct ra__ratio least);
ra_status ra__ratios_add(struct ra__ratios *ratios, struct ra__ratio ratio);
ra_status ra__ratios_copy(struct ra__account *account, const struct ra__ratios *from,
                          struct ra__ratios *to);
uint64_t ra__ratios_hash(const struct ra__ratios *ratios, uint64_t hash);
/* "A/B,A/B" after the word `before`; nothing where the list is empty. */
void ra__ratios_write(const struct ra__ratios *ratios, const char *before, struct ra__writer *w);
void ra__ratios_free(struct ra__ratios *ratios);

#endif
