/* forecast.c - what every rank of a trial would need and do, asked of the library without
 * running. */
#include "forecast.h"

#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "number.h"

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

int forecast_plan(const struct trial *trial, int64_t memory, int rank, ra_plan **out)
{
    ra_pattern *pattern;
    int threads, result = forecast_threads(trial, &threads);
    if (result) return result;
    ra_status status = ra_pattern_parse(trial->pattern ? trial->pattern : "full", &pattern);
    if (status != RA_OK) return library_failed(status);
    ra_problem problem = trial_problem(trial);
    problem.pattern = pattern;
    ra_plan_options options = ra_plan_options_default();
    options.strategy = trial->strategy;
    options.partition = trial->partition;
    options.kernel = *trial->kernel ? trial->kernel : NULL;
    options.backward = trial->backward;
    options.memory = (size_t)memory;
    options.ranks = (int)trial->ranks;
    options.rank = rank;
    options.threads = threads;
    status = ra_plan_create(NULL, &problem, &options, out);
    ra_pattern_destroy(pattern);
    return library_failed(status);
}

static int ask_rank(struct forecast *forecast, const struct trial *trial, int64_t memory, int rank)
{
    ra_plan *plan;
    struct forecast_rank *r = &forecast->rank[rank];
    r->memory = ra_memory_default();
    r->forward = r->backward = ra_stats_default();
    int result = forecast_plan(trial, memory, rank, &plan);
    if (result) return result;
    ra_status status = ra_plan_memory(plan, &r->memory);
    if (status == RA_OK) status = ra_plan_forecast(plan, 0, &r->forward);
    if (status == RA_OK && trial->backward) status = ra_plan_forecast(plan, 1, &r->backward);
    snprintf(forecast->kernel, sizeof forecast->kernel, "%s", ra_plan_kernel(plan));
    ra_plan_destroy(plan);
    return library_failed(status);
}

static void add_rank(struct forecast *forecast, const struct forecast_rank *r)
{
    int64_t hops = r->forward.hops + r->backward.hops;
    forecast->flops += r->forward.flops + r->backward.flops;
    forecast->pairs += r->forward.pairs;
    forecast->total_bytes += (double)r->memory.total;
    if (hops > forecast->hops) forecast->hops = hops;
}

int forecast_open(struct forecast *forecast, const struct trial *trial, int64_t memory)
{
    *forecast = (struct forecast){ .ranks = (int)trial->ranks };
    int result = forecast_threads(trial, &forecast->threads);
    if (result) return result;
    forecast->rank = calloc((size_t)forecast->ranks, sizeof *forecast->rank);
    if (!forecast->rank) return fault("out of memory: %d ranks", forecast->ranks);
    for (int rank = 0; rank < forecast->ranks; rank++) {
        int status = ask_rank(forecast, trial, memory, rank);
        if (status) {
            forecast_close(forecast);
            return status;
        }
        add_rank(forecast, &forecast->rank[rank]);
    }
    forecast->density = (double)forecast->pairs / (double)trial->batch / (double)trial->q_heads /
                        (double)trial->q_len / (double)trial->k_len;
    return EXIT_PASS;
}

void forecast_close(struct forecast *forecast)
{
    free(forecast->rank);
    *forecast = (struct forecast){ .ranks = 0 };
}
