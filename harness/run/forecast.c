/* SPDX-License-Identifier: Apache-2.0 */
/* forecast.c - what every rank of a trial would need and do, asked of the library without
 * running. */
#include "forecast.h"

#include <math.h>
#include <stdlib.h>

#include "harness/base/interrupt.h"
#include "planner.h"
#include "ringattn_stream.h"

int forecast_plan(const struct trial *trial, int64_t memory, int rank, ra_plan **out)
{
    struct planner planner;
    int result = planner_open(&planner, trial, memory);
    planner.sources = trial->ranks == 1;
    if (!result) result = library_failed(planner_make(&planner, NULL, rank, out));
    planner_close(&planner);
    return result;
}

int forecast_serves(const struct trial *trial, bool *serves)
{
    struct planner planner;
    ra_plan *plan = NULL;
    int result = planner_open(&planner, trial, 0);
    if (!result) *serves = planner_make(&planner, NULL, 0, &plan) != RA_ERR_UNSUPPORTED;
    ra_plan_destroy(plan);
    planner_close(&planner);
    return result;
}

int forecast_begin(struct forecast *forecast, int ranks)
{
    *forecast = (struct forecast){ .ranks = ranks };
    forecast->rank = calloc((size_t)ranks, sizeof *forecast->rank);
    return forecast->rank ? EXIT_PASS : fault("out of memory: %d ranks", ranks);
}

ra_status forecast_take(struct forecast *forecast, const ra_plan *plan, int rank, bool backward)
{
    struct forecast_rank *r = &forecast->rank[rank];
    r->memory = ra_memory_default();
    r->forward = r->backward = ra_stats_default();
    ra_status status = ra_plan_memory(plan, &r->memory);
    if (status == RA_OK) status = ra_plan_forecast(plan, 0, &r->forward);
    if (status == RA_OK && backward) status = ra_plan_forecast(plan, 1, &r->backward);
    if (*forecast->kernel) return status;
    snprintf(forecast->kernel, sizeof forecast->kernel, "%s", ra_plan_kernel(plan));
    snprintf(forecast->strategy, sizeof forecast->strategy, "%s", ra_plan_strategy(plan));
    snprintf(forecast->why, sizeof forecast->why, "%s", ra_plan_why(plan));
    snprintf(forecast->figures, sizeof forecast->figures, "%s", ra_plan_figures(plan));
    forecast->block = ra_plan_block(plan);
    for (int i = 0; i < 1 + backward; i++) forecast->units[i] = ra_plan_units(plan, i);
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

void forecast_total(struct forecast *forecast, const struct trial *trial)
{
    for (int rank = 0; rank < forecast->ranks; rank++) add_rank(forecast, &forecast->rank[rank]);
    for (int backward = 0; backward < 2; backward++) add_seconds(forecast, backward);
    forecast->density = (double)forecast->pairs / (double)trial->batch / (double)trial->q_heads /
                        (double)trial->q_len / fmax((double)trial->k_len, 1.0);
}

static ra_status ask_rank(struct forecast *forecast, struct planner *planner, int rank)
{
    ra_plan *plan;
    ra_status status = planner_make(planner, NULL, rank, &plan);
    if (status != RA_OK) return status;
    status = forecast_take(forecast, plan, rank, planner->trial->backward);
    ra_plan_destroy(plan);
    return status;
}

/* ---- Some of thousands ----------------------------------------------------------------------- */

/* Is a rank among those to ask? A quarter of them are the first and the last ones. */
static bool is_asked(int rank, int ranks, int most)
{
    int edge = most / 8 > 0 ? most / 8 : 1, inner = most - 2 * edge;
    if (ranks <= most || rank < edge || rank >= ranks - edge) return true;
    int step = (ranks - 2 * edge + inner - 1) / inner;
    return (rank - edge) % step == step / 2;
}

static double between(double a, double b, double part) { return a + part * (b - a); }

static size_t between_bytes(size_t a, size_t b, double part)
{
    return (size_t)(between((double)a, (double)b, part) + 0.5);
}

static int64_t between_counts(int64_t a, int64_t b, double part)
{
    return (int64_t)(between((double)a, (double)b, part) + 0.5);
}

static ra_stats between_stats(const ra_stats *a, const ra_stats *b, double part)
{
    ra_stats stats = *a;
    stats.hops = between_counts(a->hops, b->hops, part);
    stats.bytes_sent = between_counts(a->bytes_sent, b->bytes_sent, part);
    stats.bytes_received = between_counts(a->bytes_received, b->bytes_received, part);
    stats.pairs = between_counts(a->pairs, b->pairs, part);
    stats.flops = between(a->flops, b->flops, part);
    stats.seconds = between(a->seconds, b->seconds, part);
    stats.wait_seconds = between(a->wait_seconds, b->wait_seconds, part);
    return stats;
}

/* Ranks between two that were asked. */
static void fill_between(struct forecast *forecast, int first, int last)
{
    const struct forecast_rank *a = &forecast->rank[first], *b = &forecast->rank[last];
    for (int rank = first + 1; rank < last; rank++) {
        struct forecast_rank *r = &forecast->rank[rank];
        double part = (double)(rank - first) / (last - first);
        r->memory = a->memory;
        r->memory.shard = between_bytes(a->memory.shard, b->memory.shard, part);
        r->memory.travel = between_bytes(a->memory.travel, b->memory.travel, part);
        r->memory.state = between_bytes(a->memory.state, b->memory.state, part);
        r->memory.gradient = between_bytes(a->memory.gradient, b->memory.gradient, part);
        r->memory.workspace = between_bytes(a->memory.workspace, b->memory.workspace, part);
        r->memory.bookkeeping = between_bytes(a->memory.bookkeeping, b->memory.bookkeeping, part);
        r->memory.total = between_bytes(a->memory.total, b->memory.total, part);
        r->memory.device = between_bytes(a->memory.device, b->memory.device, part);
        r->forward = between_stats(&a->forward, &b->forward, part);
        r->backward = between_stats(&a->backward, &b->backward, part);
    }
}

static int ask_ranks(struct forecast *forecast, struct planner *planner, int most)
{
    int before = 0, result = EXIT_PASS;
    for (int rank = 0; rank < forecast->ranks && !result; rank++) {
        if (!is_asked(rank, forecast->ranks, most)) continue;
        result = library_failed(ask_rank(forecast, planner, rank));
        if (!result) result = interrupt_check();
        if (!result) fill_between(forecast, before, rank);
        before = rank;
        forecast->asked++;
    }
    return result;
}

int forecast_open_some(struct forecast *forecast, const struct trial *trial, int64_t memory,
                       int most)
{
    struct planner planner;
    int result = forecast_begin(forecast, (int)trial->ranks);
    if (result) return result;
    result = planner_open(&planner, trial, memory);
    planner.sources = trial->ranks == 1;
    forecast->threads = planner.threads;
    if (!result) result = ask_ranks(forecast, &planner, most);
    planner_close(&planner);
    if (result) forecast_close(forecast);
    else forecast_total(forecast, trial);
    return result;
}

int forecast_open(struct forecast *forecast, const struct trial *trial, int64_t memory)
{
    return forecast_open_some(forecast, trial, memory, FORECAST_MANY);
}

void forecast_close(struct forecast *forecast)
{
    free(forecast->rank);
    *forecast = (struct forecast){ .ranks = 0 };
}
