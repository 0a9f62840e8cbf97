/* SPDX-License-Identifier: Apache-2.0 */
/* count.c - the program of `make perf`; run.sh calls it and compares.
 *
 *   count compiler          what it was compiled with: counts of two compilers are not compared
 *   count run               runs every job inside perf_measured(), for callgrind, and prints its
 *   name count step [KERNEL...]  steps through the jobs of all kernels but these, and prints
 *                           "step COUNT NAME" for each; exits with 77 where that cannot be done
 */
#include <inttypes.h>
#include <string.h>

#include "jobs.h"
#include "step.h"

/* What is counted. Callgrind knows it by name, so it is a function of its own. */
__attribute__((noinline)) void perf_measured(void *context);
void perf_measured(void *context)
{
    struct job *job = context;
    job->run(job);
}

static bool is_left_out(const struct job *job, char **kernels)
{
    for (; *kernels; kernels++)
        if (!strcmp(job->trial.kernel, *kernels)) return true;
    return false;
}

static void run_job(struct job *job)
{
    perf_measured(job);
    printf("%s\n", job->name);
}

static void step_job(struct job *job)
{
    int64_t count = step_count(perf_measured, job);
    printf("step %" PRId64 " %s\n", count, job->name);
    fflush(stdout);
}

static int each_job(void (*what)(struct job *job), char **left_out)
{
    bool more = true;
    int status = EXIT_PASS;
    for (int i = 0; !status; i++) {
        struct job job;
        status = job_open(&job, i, &more);
        if (!status && more && job.open && !is_left_out(&job, left_out)) what(&job);
        job_close(&job);
        if (!more) break;
    }
    return status;
}

int main(int argc, char **argv)
{
    enum { SKIPPED = 77 };
    if (argc == 2 && !strcmp(argv[1], "compiler")) return puts(PERF_COMPILER) < 0;
    if (argc == 2 && !strcmp(argv[1], "run")) return each_job(run_job, argv + 2);
    if (argc >= 2 && !strcmp(argv[1], "step"))
        return step_possible() ? each_job(step_job, argv + 2) : SKIPPED;
    return refuse("usage: count compiler | run | step [KERNEL...]");
}
