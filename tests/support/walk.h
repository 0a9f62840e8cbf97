/* SPDX-License-Identifier: Apache-2.0 */
/* walk.h - walks the lists of what the library has, so that a new row is tested without an edit. */
#ifndef TESTS_SUPPORT_WALK_H
#define TESTS_SUPPORT_WALK_H

#include "support/test.h"

/* The index-th entry of a kind ("kernel", ...); false after the last. */
bool walk_part(const char *kind, int index, ra_part *part);

/* The same, but only rows this machine can use and that stand for themselves. */
bool walk_usable(const char *kind, int index, ra_part *part);

/* One of these, in rotation. */
void walk_turn(const char *kind, int turn, ra_part *part);

/* The index-th pair of a kernel this machine can use and a dtype that it supports, as problems
 * write it; false after the last. */
bool walk_kernel(int index, ra_part *kernel, const char **dtype);

/* One of the dtypes that a kernel supports, in rotation; f32 comes first. */
const char *walk_dtype(const ra_part *kernel, int turn);

/* The index-th sample over all patterns; false after the last. */
bool walk_sample(int index, char *text, size_t capacity);

/* The same over all orders, each good for up to 128 positions. */
bool walk_order(int index, char *text, size_t capacity);

/* The strategy for a problem with these words: a bias stays with its queries, so with strategies
 * that exchange heads it is the ring. */
const char *walk_strategy(const ra_part *strategy, const char *words);

extern const int walk_ranks[7]; /* 1, 2, 3, 4, 5, 7, 8 */

#endif
