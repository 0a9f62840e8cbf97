/* SPDX-License-Identifier: Apache-2.0 */
/* sequences.h - packed sequences of a trial, and the positions of its queries. No code is shared
 * with the library. */
#ifndef HARNESS_SEQUENCES_H
#define HARNESS_SEQUENCES_H

#include "trial.h"

/* "5/9,0/3,7": queries and keys of each sequence; one number stands for both. */
int sequences_check(const char *what, const char *text);
/* Reads trial->seqs into trial->sequences, and sets the numbers of queries and keys, or compares
 * them with what was given. */
int sequences_resolve(struct trial *trial);

/* The sequence of a query: the whole problem, if it has no others. */
ra_sequence sequences_of(const struct trial *trial, int64_t query);
/* The position of a query, where the first key of its sequence is at 0. */
int64_t sequences_position(const struct trial *trial, const ra_sequence *at, int64_t query);

/* The layout that a plan of the trial gives the queries, or the keys. */
ra_status sequences_layout(const struct trial *trial, const ra_pattern *pattern, int ranks,
                           bool keys, ra_layout **out);

#endif
