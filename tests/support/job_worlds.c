/* SPDX-License-Identifier: Apache-2.0 */
/* job_worlds.c - see job_worlds.h. */
#include "support/job_worlds.h"

const struct ra__key_run job_causal_run[1] = { { 0, 1, 0, 1, 151, JOB_CAUSAL } };

const struct ra__key_run job_many_runs[JOB_MANY_RUNS] = {
    { 0, 1, 37, 1, 200, { 64, 64 } },   { 5, 3, 11, 4, 70, JOB_FULL },
    { 200, 1, 0, 1, 1, JOB_FULL },      { 1, 2, 300, 1, 90, JOB_CAUSAL },
    { 0, 1, 130, 1, 130, { 0, 0 } },    { 7, 1, 9000, 7, 80, JOB_CAUSAL },
    { 3, 1, 63, 3, 129, { 200, -10 } }, { 0, 1, 50, 1, 0, JOB_FULL },
    { 2, 1, 1023, 2, 3, JOB_FULL },
};

const struct ra__key_run job_term_runs[JOB_TERM_RUNS] = {
    { 0, 1, 37, 1, 200, { 64, 64 } },   { 5, 3, 11, 4, 70, JOB_FULL },
    { 200, 1, 0, 1, 1, JOB_FULL },      { 1, 2, 300, 1, 90, JOB_CAUSAL },
    { 0, 1, 130, 1, 130, { 0, 0 } },    { 7, 1, 900, 7, 80, JOB_CAUSAL },
    { 3, 1, 63, 3, 129, { 200, -10 } }, { 0, 1, 50, 1, 0, JOB_FULL },
    { 2, 1, 1023, 2, 3, JOB_FULL },
};

const int job_term_kinds[JOB_TERM_KINDS] = { JOB_SOFTCAP, JOB_ALIBI,
                                             JOB_BIAS,    JOB_HIDE,
                                             JOB_SINKS,   JOB_DROPOUT,
                                             JOB_ORDER,   JOB_ORDER | JOB_ALIBI,
                                             JOB_ALL,     (JOB_ALL & ~JOB_BIAS) | JOB_HIDE };

const struct ra__key_run job_block_runs[JOB_BLOCK_RUNS] = { { 0, 1, 90, 1, 1500, JOB_CAUSAL },
                                                            { 7, 2, 40, 1, 600, { 300, 5 } } };

struct job_world job_rows_world(const struct job_kind *on, int dim, int value_dim, int rows,
                                const struct ra__key_run *runs, int count)
{
    return job_make(&(struct job_plan){ .kernel = on->kernel,
                                        .dtype = on->dtype,
                                        .dim = dim,
                                        .value_dim = value_dim,
                                        .heads = 1,
                                        .q_count = rows,
                                        .q_pos_step = 1,
                                        .runs = runs,
                                        .run_count = count });
}

static const struct ra__key_run window_run[] = { { 0, 1, 0, 1, 90, { 20, 3 } } };

struct job_world job_window_world(const struct job_kind *on)
{
    struct job_world w = job_make(&(struct job_plan){ .kernel = on->kernel,
                                                      .dtype = on->dtype,
                                                      .dim = 19,
                                                      .value_dim = 35,
                                                      .heads = 1,
                                                      .q_count = 50,
                                                      .q_pos = 10,
                                                      .q_pos_step = 1,
                                                      .runs = window_run,
                                                      .run_count = 1,
                                                      .magnitude = 3.0f });
    job_reference(&w);
    return w;
}

struct job_world job_bits_world(const struct job_kind *on, const struct ra__key_run *runs,
                                int count)
{
    return job_make(&(struct job_plan){ .kernel = on->kernel,
                                        .dtype = on->dtype,
                                        .dim = 40,
                                        .value_dim = 72,
                                        .heads = 2,
                                        .q_count = 31,
                                        .q_pos = 200,
                                        .q_pos_step = 1,
                                        .runs = runs,
                                        .run_count = count,
                                        .magnitude = 1.0f });
}
