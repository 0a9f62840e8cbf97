/* SPDX-License-Identifier: Apache-2.0 */
/* job_worlds.h - key runs and worlds that several tests of kernels share. */
#ifndef TESTS_SUPPORT_JOB_WORLDS_H
#define TESTS_SUPPORT_JOB_WORLDS_H

#include "support/job.h"

enum { JOB_MANY_RUNS = 9, JOB_TERM_RUNS = 9, JOB_BLOCK_RUNS = 2, JOB_TERM_KINDS = 10 };

extern const struct ra__key_run job_causal_run[1];

/* Windows, strides in memory and in position, starts off every block, keys seen twice, runs that no
 * query sees, and an empty one. */
extern const struct ra__key_run job_many_runs[JOB_MANY_RUNS];

/* The same, all of it near the start: score terms have numbers for every position. */
extern const struct ra__key_run job_term_runs[JOB_TERM_RUNS];

/* Score terms to try: each alone, and some together. */
extern const int job_term_kinds[JOB_TERM_KINDS];

/* Some kernels keep several blocks packed while one row block after the other works on them. Under
 * causal the first row blocks see fewer key blocks than the last. */
extern const struct ra__key_run job_block_runs[JOB_BLOCK_RUNS];

/* Some rows of one head, at positions from 0 on. */
struct job_world job_rows_world(const struct job_kind *on, int dim, int value_dim, int rows,
                                const struct ra__key_run *runs, int count);

/* 50 rows under a window, with its reference. */
struct job_world job_window_world(const struct job_kind *on);

/* 31 rows of two heads, for comparing bits. */
struct job_world job_bits_world(const struct job_kind *on, const struct ra__key_run *runs,
                                int count);

#endif
