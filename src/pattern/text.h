/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - parts of a pattern's text, read without copies, and text that is written in parts. */
#ifndef RA__PATTERN_TEXT_H
#define RA__PATTERN_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Part of a longer text: no copies, so that long document lists cost nothing. */
struct ra__text {
    const char *start;
    size_t length;
};

struct ra__text ra__text_of(const char *text);
int ra__text_shown(struct ra__text text); /* how much of it a sentence should repeat */

/* Everything before `stop`, which is skipped; all of it if there is none. */
struct ra__text ra__text_take(struct ra__text *from, char stop);
bool ra__text_is(struct ra__text text, const char *word);
bool ra__text_starts(struct ra__text *text, const char *word); /* and skips the word */

/* All of a text as digits; false for anything else, or for numbers beyond RA__UNBOUNDED or 64
 * bits. */
bool ra__text_number(struct ra__text text, int64_t *number);
bool ra__text_seed(struct ra__text text, uint64_t *seed);

/* From 0 to 1, like 0.25 or 1e-3; written and read the same under every locale. */
bool ra__text_fraction(struct ra__text text, double *fraction);

/* snprintf that continues after the last call. */
struct ra__writer {
    char *text;
    size_t capacity, used;
};
__attribute__((format(printf, 2, 3))) void ra__write(struct ra__writer *writer, const char *format,
                                                     ...);
void ra__write_fraction(struct ra__writer *writer, double fraction); /* a fraction that was read */

#endif
