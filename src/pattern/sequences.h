/* SPDX-License-Identifier: Apache-2.0 */
/* sequences.h - packed sequences: their queries and keys follow one another in the tensors, and
 * each sequence is a problem of its own.
 *
 * A kind of pattern counts positions inside a sequence. Everywhere else the positions of a sequence
 * start at the index of its first key: bands and distances stay the same, and the position of a key
 * is its index, whatever sequence it belongs to. */
#ifndef RA__PATTERN_SEQUENCES_H
#define RA__PATTERN_SEQUENCES_H

#include "core/memory.h"
#include "core/shape.h"

struct ra__sequences {
    ra_sequence *at; /* ascending and disjoint, in queries and in keys */
    int64_t count;   /* 0: the problem is one sequence */
};

/* Do they ascend, inside the queries and keys of the problem? */
ra_status ra__sequences_check(const ra_sequence *at, int64_t count, const struct ra__shape *shape);

/* Checks what the caller gave, and copies it. */
ra_status ra__sequences_take(const ra_problem *problem, const struct ra__shape *shape,
                             struct ra__account *account, struct ra__sequences *out);
void ra__sequences_clear(struct ra__sequences *sequences);

/* The sequence of a query, where there are any. Queries between two belong to one that has no
 * keys. */
ra_sequence ra__sequence_of(const struct ra__sequences *sequences, const struct ra__shape *shape,
                            int64_t query);

/* Where each of them starts among the queries, or among the keys, and then the length: count + 1
 * bounds, from 0. What is between two belongs to the first. To be freed. */
ra_status ra__sequences_bounds(const struct ra__sequences *sequences, bool keys, int64_t length,
                               int64_t **out);

/* 0 if there are none. */
uint64_t ra__sequences_hash(const struct ra__sequences *sequences);

#endif
