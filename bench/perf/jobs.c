/* SPDX-License-Identifier: Apache-2.0 */
/* jobs.c - the fixed workload whose instructions are counted.
 *
 * Small enough to be single-stepped (12 to 25 us per instruction on a virtual machine), large
 * enough that the loops of a kernel dominate. */
#include "jobs.h"

#include <stdlib.h>
#include <string.h>

static int run_forward(struct job *job) { return engine_forward(&job->engine); }
static int run_backward(struct job *job) { return engine_backward(&job->engine); }

static int run_plan(struct job *job)
{
    ra_plan *plan = NULL;
    int status = forecast_plan(&job->trial, 0, 0, &plan);
    ra_plan_destroy(plan);
    return status;
}

struct work {
    const char *name;
    const char *problem;
    int (*run)(struct job *job);
};

/* For every kernel. */
static const struct work kernel_work[] = {
    { "forward", "full n=24 nk=128 h=1 d=64", run_forward },
    { "forward", "full n=24 nk=128 h=1 d=64 bf16", run_forward },
    { "forward", "full n=24 nk=128 h=1 d=128", run_forward },
    { "forward", "full n=24 nk=128 h=1 d=128 bf16", run_forward },
    { "forward", "causal n=48 h=1 d=64", run_forward },
    { "forward", "causal n=48 h=1 d=64 bf16", run_forward },
    { "backward", "full n=18 nk=64 h=1 d=64 backward", run_backward },
    { "backward", "full n=18 nk=64 h=1 d=64 bf16 backward", run_backward },
    { "backward", "full n=18 nk=64 h=1 d=128 backward", run_backward },
    { "backward", "full n=18 nk=64 h=1 d=128 bf16 backward", run_backward },
    { "backward", "causal n=48 h=1 d=64 backward", run_backward },
    { "decode", "full n=1 nk=256 h=1 d=64", run_forward },
    { "decode", "full n=1 nk=256 h=1 d=64 bf16", run_forward },
};

/* Once: they ask no kernel to work. */
static const struct work other_work[] = {
    { "plan", "causal n=4096 h=8 d=64 ring=4 zigzag backward", run_plan },
    { "plan", "dilated:256/1,512/2,1024/4 n=4096 h=8 d=64 ring=4 backward", run_plan },
    { "plan", "blocks:64;local=1;global=1;random=0.1 n=4096 h=8 d=64 ring=4 backward", run_plan },
    { "plan", "causal;docs=0,100,1000,4096 n=4096 h=8 d=64 ring=4 zigzag;perdoc", run_plan },
};

/* The name of the n-th kernel that works here; NULL after the last. */
static const char *usable_kernel(int n)
{
    ra_part part = ra_part_default();
    for (int i = 0; ra_part_at("kernel", i, &part) == RA_OK; i++)
        if (part.usable && n-- == 0) return part.name;
    return NULL;
}

/* Which work on which kernel; NULL after the last. Plans name the scalar kernel, which is the same
 * everywhere. */
static const struct work *find_work(int index, const char **kernel)
{
    *kernel = "scalar";
    if (index < COUNT(other_work)) return &other_work[index];
    index -= COUNT(other_work);
    *kernel = usable_kernel(index / COUNT(kernel_work));
    return *kernel ? &kernel_work[index % COUNT(kernel_work)] : NULL;
}

/* A first run is not counted: it binds symbols and touches pages, and a backward pass needs its
 * forward. */
static int open_engine(struct job *job)
{
    int status = engine_open(&job->engine,
                             &(struct engine_setup){ .trial = &job->trial, .quiet = true });
    if (status) return status;
    job->open = true;
    status = engine_forward(&job->engine);
    if (!status && job->trial.backward) status = engine_backward(&job->engine);
    return status;
}

int job_open(struct job *job, int index, bool *more)
{
    const char *kernel;
    char problem[128];
    const struct work *work = find_work(index, &kernel);
    *job = (struct job){ .run = work ? work->run : NULL };
    *more = work != NULL;
    if (!work) return EXIT_PASS;
    snprintf(problem, sizeof problem, "%s threads=1 kernel=%s", work->problem, kernel);
    snprintf(job->name, sizeof job->name, "%s %s", work->name, problem);
    int status = trial_parse(&job->trial, problem);
    if (status) return status;
    if (work->run == run_plan) {
        job->open = true;
        return work->run(job);
    }
    bool serves = false;
    status = forecast_serves(&job->trial, &serves);
    return serves ? open_engine(job) : status;
}

void job_close(struct job *job)
{
    if (job->run && job->run != run_plan && job->open) engine_close(&job->engine);
    trial_clear(&job->trial);
}
