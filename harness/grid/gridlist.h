/* SPDX-License-Identifier: Apache-2.0 */
/* gridlist.h - what the groups of the conformance grid share. */
#ifndef HARNESS_GRIDLIST_H
#define HARNESS_GRIDLIST_H

#include "grid.h"

enum { GRID_NAMES_MOST = 32, GRID_DTYPES = 3, GRID_RANKS = 7, GRID_SCORE_TERMS = 13 };

/* The usable parts of a kind. */
struct grid_names {
    const char *name[GRID_NAMES_MOST];
    int count;
};

/* What the groups walk over. A group may pair any kernel with any dtype: a case whose kernel does
 * not support the dtype gets a dtype that it supports, and a case with a bias whose strategy does
 * not support one becomes a ring. */
struct grid_lists {
    struct grid *grid;
    struct grid_names kernels, partitions, strategies;
    int turn; /* goes round the lists that a group does not walk itself */
};

extern const int grid_ranks[GRID_RANKS];
extern const char *const grid_dtypes[GRID_DTYPES];
extern const char *const grid_score_terms[GRID_SCORE_TERMS]; /* each alone, and some together */

/* The next kernel in turn. */
const char *grid_next_kernel(struct grid_lists *lists);

void grid_add(struct grid_lists *lists, const char *group, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The groups of gridsparse.c: dilated, blocks, orders and score terms. */
void grid_add_sparse(struct grid_lists *lists);
/* Those of gridtensor.c: problems that kernels for tensor cores take. */
void grid_add_tensor(struct grid_lists *lists);
/* Those of gridpacked.c: packed sequences and query offsets. */
void grid_add_packed(struct grid_lists *lists);

#endif
