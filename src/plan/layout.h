/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h - which positions a rank owns, and where in its shard they are stored.
 *
 * A shard has its positions in ascending order, so it is a list of runs, one after the other, that
 * do not overlap. A partition rule gives the runs; a layout keeps them for all ranks. In the joint
 * layout of a team (team.c), runs still ascend by their first positions but may interleave. */
#ifndef RA__PLAN_LAYOUT_H
#define RA__PLAN_LAYOUT_H

#include "pattern/pattern.h"

enum { RA__RULE_RUNS = 2 }; /* most runs a rule gives one rank */

struct ra__partition {
    const char *name;
    const char *summary;
    /* The runs of `rank` among positions 0 to n - 1, ascending; empty ones are allowed. */
    int (*runs)(int64_t n, int ranks, int rank, ra_run runs[RA__RULE_RUNS]);
};

/* The entries of partition.list; NULL after the last. */
const struct ra__partition *ra__partition_at(int index);

/* Where chunk `part` of `parts` starts among n positions: floor(part n / parts), without
 * overflow. */
static inline int64_t ra__chunk_start(int64_t n, int64_t part, int64_t parts)
{
    return part * (n / parts) + part * (n % parts) / parts;
}

struct ra__shard_run {
    ra_run at;        /* positions */
    int64_t token;    /* of the shard: where the first of them is stored */
    int64_t max_last; /* the last position of this and earlier runs of the rank, for searching */
};

struct ra_layout {
    int64_t length;
    int ranks;
    struct ra__shard_run *runs; /* of all ranks, rank after rank */
    int64_t run_count;
    int64_t *first; /* [ranks + 1]: rank r owns runs first[r] to first[r + 1] - 1 */
    int64_t *count; /* [ranks]: positions of rank r */
};

ra_status ra__layout_create(const char *partition, int64_t length, int ranks,
                            const ra_pattern *pattern, ra_layout **out);
/* The rule inside each of the parts bounds[i] to bounds[i + 1] - 1; there are `count` bounds. */
ra_status ra__layout_create_parts(const char *partition, const int64_t *bounds, int64_t count,
                                  int ranks, ra_layout **out);
ra_status ra__layout_create_custom(int64_t length, int ranks, const ra_run *runs,
                                   const int64_t *counts, ra_layout **out);

ra_status ra__layout_copy(const ra_layout *layout, ra_layout **out);

/* `ranks` ranks that own nothing yet; and appends a run to those of `rank`: ranks come in order,
 * runs of a rank by their first positions. */
ra_status ra__layout_create_empty(int64_t length, int ranks, ra_layout **out);
ra_status ra__layout_append(ra_layout *layout, int rank, ra_run run);

/* Charges a layout that was made without an account to one. */
void ra__layout_charge(struct ra__account *account, ra_layout *layout);

/* The keys of a tile that are in `owner`'s block, run by run: fills *out with the next ones after
 * *cursor and returns true, or false if there are no more. *cursor starts at 0. */
bool ra__layout_next_keys(const ra_layout *layout, int owner, const struct ra__tile *tile,
                          int64_t *cursor, struct ra__key_run *out);

/* The keys of a tile that are in one run of a shard; false if there are none. */
bool ra__layout_keys_of_run(const struct ra__shard_run *run, const struct ra__tile *tile,
                            struct ra__key_run *out);

/* The run of `rank` that contains this token of its shard. */
int64_t ra__layout_run_at(const ra_layout *layout, int rank, int64_t token);

/* A hash that distinguishes layouts. */
uint64_t ra__layout_hash(const ra_layout *layout);

#endif
