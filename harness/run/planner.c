/* SPDX-License-Identifier: Apache-2.0 */
/* planner.c - plans of a trial, one for each rank. */
#include "planner.h"

#include <stdlib.h>
#include <string.h>

#include "harness/base/machine.h"
#include "harness/problem/order.h"
#include "harness/text/number.h"

int planner_threads(const struct trial *trial, int *threads)
{
    const char *environment = getenv("RINGATTN_THREADS");
    int64_t count = machine_cores() / trial->ranks;
    if (trial->threads) count = trial->threads;
    else if (environment && *environment) {
        int status = number_whole("RINGATTN_THREADS", environment, 1, TRIAL_THREADS_MOST, &count);
        if (status) return status;
    }
    *threads = count > 1 ? (int)count : 1;
    return EXIT_PASS;
}

int planner_open(struct planner *planner, const struct trial *trial, int64_t memory)
{
    *planner = (struct planner){ .trial = trial, .memory = memory };
    int result = planner_threads(trial, &planner->threads);
    if (!result) result = order_open(trial, &planner->order);
    if (result) return result;
    return library_failed(
        ra_pattern_parse(trial->pattern ? trial->pattern : "full", &planner->pattern));
}

void planner_close(struct planner *planner)
{
    ra_pattern_destroy(planner->pattern);
    ra_order_destroy(planner->order);
    *planner = (struct planner){ .trial = NULL };
}

bool planner_may_stream(const struct planner *planner)
{
    const char *strategy = planner->trial->strategy;
    return planner->sources && (!strncmp(strategy, "stream", strlen("stream")) ||
                                (planner->memory > 0 && !strcmp(strategy, "auto")));
}

ra_status planner_make(struct planner *planner, ra_group *group, int rank, ra_plan **out)
{
    const struct trial *trial = planner->trial;
    ra_problem problem = trial_problem(trial);
    ra_machine machine = trial_machine(trial);
    problem.pattern = planner->pattern;
    problem.order = planner->order;
    ra_plan_options options = ra_plan_options_default();
    options.strategy = *planner->strategy ? planner->strategy : trial->strategy;
    options.partition = trial->partition;
    options.kernel = *trial->kernel ? trial->kernel : NULL;
    options.backward = trial->backward;
    options.bias = trial->bias != NULL;
    options.transport = trial->transport;
    options.machine = &machine;
    options.measured = trial->measured;
    options.memory = (size_t)planner->memory;
    options.ranks = (int)trial->ranks;
    options.rank = rank;
    options.threads = planner->threads;
    options.sources = planner->sources;
    options.any_order = trial->any_order;
    options.device = trial_device(trial);
    ra_status status = ra_plan_create(group, &problem, &options, out);
    if (status == RA_OK && !*planner->strategy)
        snprintf(planner->strategy, sizeof planner->strategy, "%s", ra_plan_strategy(*out));
    return status;
}
