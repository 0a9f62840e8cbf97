/* mask.h - who sees whom, by the formulas of the pattern, one pair at a time. Part of the
 * oracle: it reads the pattern's text itself and shares no code with the library. */
#ifndef CLI_MASK_H
#define CLI_MASK_H

#include "cli.h"

struct mask {
    bool all_keys;       /* full */
    int64_t left, right; /* window: position - left to position + right; causal: right = 0 */
    int64_t prefix;      /* the first so many keys for all */
    bool causal;         /* ;causal */
    int64_t *bounds;     /* documents, or NULL */
    int64_t bound_count;
};

/* The text must be one that the library accepts. EXIT_FAULT, with a sentence, if it is not
 * understood here. */
int mask_open(struct mask *mask, const char *pattern);
void mask_close(struct mask *mask);

/* The document of a position, as [*first, *end); everything where there are no documents. */
void mask_document(const struct mask *mask, int64_t position, int64_t *first, int64_t *end);

/* Does a query at `position` see this key? Documents are left to mask_document(). */
bool mask_sees(const struct mask *mask, int64_t position, int64_t key);

#endif
