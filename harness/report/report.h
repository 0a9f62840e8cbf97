/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - the figures of a run, from what its ranks counted, and the JSON members that run
 * and plan share. */
#ifndef HARNESS_REPORT_H
#define HARNESS_REPORT_H

#include "harness/check/check.h"
#include "harness/check/digest.h"
#include "harness/base/complain.h"
#include "harness/run/engine.h"
#include "harness/text/json.h"

struct run_report {
    double seconds, tokens_per_second, gflops; /* both passes together */
    double flops, density;
    int64_t pairs, hops, bytes_most, warmup;
    size_t memory_most, device_most, peak_rss;
    struct digests digests; /* where they were asked for */
    bool checked;
    struct check check;
};

void report_fill(const struct engine *engine, struct run_report *report);

/* problem, pattern, order, system, ranks, strategy (the one chosen, and why), partition, transport,
 * device, dtype. */
void report_problem_json(struct json *json, const struct trial *trial, const char *strategy,
                         const char *why);

/* The strategy that auto has chosen, and why: a line after a word. */
void report_strategy(const char *word, const char *strategy, const char *why);

/* The predicted time, and the figures it was predicted with: a line after a word, and members. */
void report_prediction(const char *word, const struct forecast *forecast);
void report_prediction_json(struct json *json, const struct forecast *forecast);

/* What a stream loads and stores, of a run or of a forecast; nothing for other strategies. */
void report_streamed(const char *word, const struct forecast *forecast, const ra_stats *forward,
                     const ra_stats *backward);
void report_streamed_json(struct json *json, const struct forecast *forecast,
                          const ra_stats *forward, const ra_stats *backward);

#endif
