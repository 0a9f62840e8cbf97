/* SPDX-License-Identifier: Apache-2.0 */
/* places.h - the oracle's own view of an order: the original position of every index. Shares no
 * code with the library. */
#ifndef HARNESS_PLACES_H
#define HARNESS_PLACES_H

#include "harness/base/complain.h"

/* True where the text of an order names a file of positions. */
bool places_is_file(const char *order);

/* Reads the positions of a .npy file, int64 or int32 [length]; to be freed. Refuses what is not a
 * permutation. */
int places_read(const char *path, int64_t length, int64_t **out);

/* "hilbert", "hilbert:HxW", "shuffled:SEED" or a file; NULL and "sequential" give NULL. *out is to
 * be freed. */
int places_open(const char *order, int64_t length, int64_t **out);

/* The index of every position; to be freed, NULL if memory ran out. */
int64_t *places_invert(const int64_t *positions, int64_t length);

#endif
