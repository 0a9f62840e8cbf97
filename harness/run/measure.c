/* SPDX-License-Identifier: Apache-2.0 */
/* measure.c - how fast this machine and the links of a trial are, for predictions: the library
 * measures, in a group like the one that would run the trial. */
#include "measure.h"

#include <stdlib.h>
#include <string.h>

#include "planner.h"
#include "harness/base/machine.h"
#include "harness/world/world.h"

struct measuring {
    const struct trial *trial;
    ra_machine *machine;
};

static ra_status body(ra_group *group, void *context)
{
    const struct measuring *measuring = context;
    ra_machine machine = ra_machine_default();
    ra_problem problem = trial_problem(measuring->trial);
    ra_plan_options options = ra_plan_options_default();
    options.kernel = *measuring->trial->kernel ? measuring->trial->kernel : NULL;
    options.backward = measuring->trial->backward;
    ra_status status = ra_group_measure(group, &problem, &options, &machine);
    if (ra_group_rank(group) == world_rank()) *measuring->machine = machine;
    return status;
}

/* Ranks of this process: as many as run at once, but two at least where there are two, for the link
 * between them. */
static int measure_here(const struct measuring *measuring, int ranks, ra_group_options *options)
{
    int at_once = machine_cores() / options->threads, count = at_once < 2 ? 2 : at_once;
    if (count > ranks) count = ranks;
    ra_group **groups = calloc((size_t)count, sizeof *groups);
    if (!groups) return fault("out of memory: %d ranks", count);
    ra_status status = ra_group_create("local", count, options, groups);
    if (status == RA_OK) status = ra_group_run(groups, count, body, (void *)measuring);
    for (int i = 0; i < count; i++) ra_group_destroy(groups[i]);
    free(groups);
    /* Ranks that do not run at the same time are measured in turn. */
    measuring->machine->flops *= (double)count / ranks;
    measuring->machine->backward_flops *= (double)count / ranks;
    return library_failed(status);
}

static int measure_together(const struct measuring *measuring, const ra_group_options *options)
{
    ra_group *group;
    ra_status status = ra_group_join(measuring->trial->transport, NULL, options, &group);
    if (status != RA_OK) return library_failed(status);
    status = ra_group_run(&group, 1, body, (void *)measuring);
    ra_group_destroy(group);
    return library_failed(status);
}

int measure(struct trial *trial, struct wire wire, ra_machine *machine)
{
    struct measuring measuring = { trial, machine };
    ra_group_options options = wire_options(wire);
    options.device = trial_device(trial);
    *machine = ra_machine_default();
    if (trial->latency > 0.0 && trial->bandwidth > 0.0 && trial->flops > 0.0) return EXIT_PASS;
    trial->measured = machine;
    if (world_runs(trial)) {
        options.threads = (int)trial->threads;
        return world_agree(measure_together(&measuring, &options));
    }
    int status = planner_threads(trial, &options.threads);
    if (status) return status;
    /* Processes that are not there may be on machines of their own: one rank says what a rank can
     * do. */
    return measure_here(&measuring, strcmp(trial->transport, "local") ? 1 : (int)trial->ranks,
                        &options);
}
