/* SPDX-License-Identifier: Apache-2.0 */
/* mask.h - which keys a query sees, by the formulas of the pattern, one pair at a time. Part of the
 * oracle: it reads the pattern's text itself and shares no code with the library.
 *
 * Positions are original ones throughout. Under an order, windows, segments and blocks use the
 * index of a position; causal, prefix and documents use the position itself. */
#ifndef HARNESS_MASK_H
#define HARNESS_MASK_H

#include "blocks.h"
#include "harness/base/complain.h"
#include "dilation.h"

struct mask {
    const struct mask_rule *rule; /* an entry of the table in mask.c */
    int64_t args[2];              /* the numbers after the colon; 0 if not given */
    struct dilation dilation;
    struct blocks blocks;
    bool causal;     /* ;causal */
    int64_t *bounds; /* documents, or NULL */
    int64_t bound_count;
    int64_t heads;    /* query heads, which groups are made of */
    int64_t *indices; /* of every position, or NULL: they are the same */
};

struct mask_setup {
    const char *pattern, *order; /* the order NULL = sequential */
    int64_t heads, length;       /* query heads; positions */
};

/* The text must be one that the library accepts. EXIT_FAULT, with a sentence, if it is not
 * understood here. */
int mask_open(struct mask *mask, const struct mask_setup *setup);
void mask_close(struct mask *mask);

/* How often the query of `head` at `position` sees this key. */
int mask_count(const struct mask *mask, int64_t head, int64_t position, int64_t key);

/* All keys that a query may see are in [*first, *end), which may reach beyond the sequence; no such
 * range has more than mask_most() keys of a sequence. */
void mask_range(const struct mask *mask, int64_t position, int64_t *first, int64_t *end);
int64_t mask_most(const struct mask *mask, int64_t length);

#endif
