/* SPDX-License-Identifier: Apache-2.0 */
/* jobs.h - the fixed workload whose instructions are counted: small runs of every usable kernel,
 * and plans. It does not know how they are counted. */
#ifndef BENCH_PERF_JOBS_H
#define BENCH_PERF_JOBS_H

#include "harness/run/engine.h"

struct job {
    char name[160]; /* what it does, then its problem string */
    struct trial trial;
    struct engine engine;
    int (*run)(struct job *job); /* the work; an exit status */
    bool open;
};

/* Prepares job number `index`, from 0. `*more` is false after the last one. A kernel may not
 * support a dtype: then the job is not open, and there is nothing to run. Returns an exit
 * status. */
int job_open(struct job *job, int index, bool *more);
void job_close(struct job *job);

#endif
