/* SPDX-License-Identifier: Apache-2.0 */
/* ask.c - see ask.h. */
#include "support/ask.h"

#include <math.h>

static ra_plan *open_plan(struct trial *trial, const char *problem, int rank)
{
    ra_plan *plan;
    assert_int_equal(trial_parse(trial, problem), 0);
    assert_int_equal(forecast_plan(trial, 0, rank, &plan), 0);
    return plan;
}

ra_stats ask_stats(const char *problem, int rank, int backward)
{
    struct trial trial;
    ra_plan *plan = open_plan(&trial, problem, rank);
    ra_stats stats = ra_stats_default();
    assert_ok(ra_plan_forecast(plan, backward, &stats));
    ra_plan_destroy(plan);
    trial_clear(&trial);
    return stats;
}

ra_memory ask_memory(const char *problem, int rank)
{
    struct trial trial;
    ra_plan *plan = open_plan(&trial, problem, rank);
    ra_memory memory = ra_memory_default();
    assert_ok(ra_plan_memory(plan, &memory));
    ra_plan_destroy(plan);
    trial_clear(&trial);
    return memory;
}

void ask_expect(const char *problem, int rank, const char *what, int64_t got, int64_t want)
{
    if (got == want) return;
    print_error("%s of rank %d: %lld, but %lld is right\n  ringattn verify \"%s\"\n", what, rank,
                (long long)got, (long long)want, problem);
    fail();
}

void answer_open(struct answer *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(a->problem, sizeof a->problem, format, args);
    va_end(args);
    assert_int_equal(trial_parse(&a->trial, a->problem), 0);
    assert_int_equal(forecast_open(&a->forecast, &a->trial, 0), 0);
}

void answer_close(struct answer *a)
{
    forecast_close(&a->forecast);
    trial_clear(&a->trial);
}

const ra_stats *answer_stats(const struct answer *a, int rank, bool backward)
{
    const struct forecast_rank *r = &a->forecast.rank[rank];
    return backward ? &r->backward : &r->forward;
}

void answer_expect_pairs(const struct answer *a, int64_t want)
{
    const struct trial *t = &a->trial;
    double density = (double)want / (double)(t->batch * t->q_heads * t->q_len * t->k_len);
    int64_t got = 0;
    for (int rank = 0; rank < t->ranks; rank++) got += answer_stats(a, rank, false)->pairs;
    ask_expect(a->problem, -1, "pairs", got, want);
    ask_expect(a->problem, -1, "pairs of the forecast", a->forecast.pairs, want);
    if (fabs(a->forecast.density - density) > 1e-12 * density)
        fail_msg("%s: density %.17g, but %.17g is right", a->problem, a->forecast.density, density);
}

void answer_expect_traffic(const struct answer *a, int rank, bool backward, int64_t hops,
                           int64_t bytes)
{
    const ra_stats *got = answer_stats(a, rank, backward);
    ask_expect(a->problem, rank, backward ? "backward hops" : "hops", got->hops, hops);
    ask_expect(a->problem, rank, backward ? "backward bytes" : "bytes", got->bytes_sent, bytes);
}
