/* SPDX-License-Identifier: Apache-2.0 */
/* planner.h - plans of a trial, one for each rank. */
#ifndef HARNESS_PLANNER_H
#define HARNESS_PLANNER_H

#include "harness/base/complain.h"
#include "harness/problem/trial.h"

struct planner {
    const struct trial *trial; /* borrowed */
    int64_t memory;            /* budget per rank; 0 = none */
    ra_pattern *pattern;
    ra_order *order;   /* NULL: sequential */
    int threads;       /* of each rank */
    bool sources;      /* tensors may be read and written in blocks, without being in memory */
    char strategy[32]; /* chosen by the first plan: all ranks choose the same, so once is enough */
};

/* Threads a rank gets: what the trial says, RINGATTN_THREADS, or its share of the cores. */
int planner_threads(const struct trial *trial, int *threads);

/* The planner needs planner_close() also after a failure. */
int planner_open(struct planner *planner, const struct trial *trial, int64_t memory);
void planner_close(struct planner *planner);

/* Might the plan stream? */
bool planner_may_stream(const struct planner *planner);

/* The plan of one rank. Without a group it can be asked, not run. */
ra_status planner_make(struct planner *planner, ra_group *group, int rank, ra_plan **out);

#endif
