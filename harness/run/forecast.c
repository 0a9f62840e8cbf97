/* forecast.c - what every rank of a trial would need and do, asked of the library without
 * running. */
#include "forecast.h"

#include <math.h>
#include <stdlib.h>

#include "harness/base/machine.h"
#include "harness/text/number.h"
#include "harness/problem/order.h"

int forecast_threads(const struct trial *trial, int *threads)
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

/* What all ranks share. */
struct shared {
    ra_pattern *pattern;
    ra_order *order;
    int threads;
    const char *strategy;
};

static int shared_open(struct shared *shared, const struct trial *trial)
{
    *shared = (struct shared){ .strategy = trial->strategy };
    int result = forecast_threads(trial, &shared->threads);
    if (!result) result = order_open(trial, &shared->order);
    if (result) return result;
    return library_failed(
        ra_pattern_parse(trial->pattern ? trial->pattern : "full", &shared->pattern));
}

static void shared_close(struct shared *shared)
{
    ra_pattern_destroy(shared->pattern);
    ra_order_destroy(shared->order);
}

static ra_status make_plan(const struct shared *shared, const struct trial *trial, int64_t memory,
                           int rank, ra_plan **out)
{
    ra_problem problem = trial_problem(trial);
    ra_machine machine = trial_machine(trial);
    problem.pattern = shared->pattern;
    problem.order = shared->order;
    ra_plan_options options = ra_plan_options_default();
    options.strategy = shared->strategy;
    options.partition = trial->partition;
    options.kernel = *trial->kernel ? trial->kernel : NULL;
    options.backward = trial->backward;
    options.bias = trial->bias != NULL;
    options.transport = trial->transport;
    options.machine = &machine;
    options.measured = trial->measured;
    options.memory = (size_t)memory;
    options.ranks = (int)trial->ranks;
    options.rank = rank;
    options.threads = shared->threads;
    return ra_plan_create(NULL, &problem, &options, out);
}

int forecast_plan(const struct trial *trial, int64_t memory, int rank, ra_plan **out)
{
    struct shared shared;
    int result = shared_open(&shared, trial);
    if (!result) result = library_failed(make_plan(&shared, trial, memory, rank, out));
    shared_close(&shared);
    return result;
}

int forecast_serves(const struct trial *trial, bool *serves)
{
    struct shared shared;
    ra_plan *plan = NULL;
    int result = shared_open(&shared, trial);
    if (!result) *serves = make_plan(&shared, trial, 0, 0, &plan) != RA_ERR_UNSUPPORTED;
    ra_plan_destroy(plan);
    shared_close(&shared);
    return result;
}

static ra_status ask_rank(struct forecast *forecast, const struct shared *shared,
                          const struct trial *trial, int64_t memory, int rank)
{
    ra_plan *plan;
    struct forecast_rank *r = &forecast->rank[rank];
    r->memory = ra_memory_default();
    r->forward = r->backward = ra_stats_default();
    ra_status status = make_plan(shared, trial, memory, rank, &plan);
    if (status != RA_OK) return status;
    status = ra_plan_memory(plan, &r->memory);
    if (status == RA_OK) status = ra_plan_forecast(plan, 0, &r->forward);
    if (status == RA_OK && trial->backward) status = ra_plan_forecast(plan, 1, &r->backward);
    snprintf(forecast->kernel, sizeof forecast->kernel, "%s", ra_plan_kernel(plan));
    if (rank == 0) {
        snprintf(forecast->strategy, sizeof forecast->strategy, "%s", ra_plan_strategy(plan));
        snprintf(forecast->why, sizeof forecast->why, "%s", ra_plan_why(plan));
        snprintf(forecast->figures, sizeof forecast->figures, "%s", ra_plan_figures(plan));
    }
    ra_plan_destroy(plan);
    return status;
}

static void add_rank(struct forecast *forecast, const struct forecast_rank *r)
{
    int64_t hops = r->forward.hops + r->backward.hops;
    forecast->flops += r->forward.flops + r->backward.flops;
    forecast->pairs += r->forward.pairs;
    forecast->total_bytes += (double)r->memory.total;
    if (hops > forecast->hops) forecast->hops = hops;
}

/* One pass takes as long as its slowest rank. */
static void add_seconds(struct forecast *forecast, bool backward)
{
    double seconds = 0.0, waited = 0.0;
    for (int rank = 0; rank < forecast->ranks; rank++) {
        const struct forecast_rank *r = &forecast->rank[rank];
        const ra_stats *pass = backward ? &r->backward : &r->forward;
        if (pass->seconds <= seconds) continue;
        seconds = pass->seconds;
        waited = pass->wait_seconds;
    }
    forecast->seconds += seconds;
    forecast->wait_seconds += waited;
}

static int ask_all(struct forecast *forecast, const struct trial *trial, int64_t memory)
{
    struct shared shared;
    int result = shared_open(&shared, trial);
    forecast->threads = shared.threads;
    for (int rank = 0; rank < forecast->ranks && !result; rank++) {
        result = machine_go_on();
        if (!result) result = library_failed(ask_rank(forecast, &shared, trial, memory, rank));
        if (!result) add_rank(forecast, &forecast->rank[rank]);
        shared.strategy = forecast->strategy; /* all ranks choose the same: once is enough */
    }
    for (int backward = 0; backward < 2; backward++) add_seconds(forecast, backward);
    shared_close(&shared);
    return result;
}

int forecast_open(struct forecast *forecast, const struct trial *trial, int64_t memory)
{
    *forecast = (struct forecast){ .ranks = (int)trial->ranks };
    forecast->rank = calloc((size_t)forecast->ranks, sizeof *forecast->rank);
    if (!forecast->rank) return fault("out of memory: %d ranks", forecast->ranks);
    int result = ask_all(forecast, trial, memory);
    if (result) {
        forecast_close(forecast);
        return result;
    }
    forecast->density = (double)forecast->pairs / (double)trial->batch / (double)trial->q_heads /
                        (double)trial->q_len / fmax((double)trial->k_len, 1.0);
    return EXIT_PASS;
}

void forecast_close(struct forecast *forecast)
{
    free(forecast->rank);
    *forecast = (struct forecast){ .ranks = 0 };
}
