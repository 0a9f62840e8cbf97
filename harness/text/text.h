/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - human-readable numbers: sizes, times, counts, bars; lines of words; and a string that
 * grows. */
#ifndef HARNESS_TEXT_H
#define HARNESS_TEXT_H

#include "harness/base/complain.h"

/* Short texts, returned by value so that several fit into one printf. */
struct text {
    char s[48];
};

struct text text_bytes(double bytes);     /* "12.4 MiB" */
struct text text_seconds(double seconds); /* "1.27 s", "3 min 20 s" */
struct text text_count(int64_t count);    /* "32,768" */
struct text text_real(double value);      /* three or four significant digits */

/* `width` columns of blocks, filled to `fraction`, in steps of an eighth. */
struct bar {
    char s[160];
};
struct bar text_bar(double fraction, int width);

/* Prints the words of `text` in lines of up to 96 columns, the next lines indented; the first
 * starts at `column`. */
void text_wrap(const char *text, int column, int indent);

/* A string that grows; `s` is NULL until the first append, and after memory ran out (`lost`). */
struct string {
    char *s;
    size_t length, capacity;
    bool lost;
};
void string_add(struct string *string, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void string_free(struct string *string);

/* Letters to insert, remove or replace to get from one word to the other; for near misses. */
int text_distance(const char *a, const char *b);

#endif
