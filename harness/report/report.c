/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - the figures of a run, from what its ranks counted. */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/half.h"
#include "harness/base/machine.h"
#include "harness/problem/system.h"
#include "harness/text/text.h"

static void add_rank(const struct engine_rank *r, struct run_report *report)
{
    int64_t hops = r->forward.hops + r->backward.hops;
    int64_t bytes = r->forward.bytes_sent + r->backward.bytes_sent;
    report->pairs += r->forward.pairs;
    report->flops += r->forward.flops + r->backward.flops;
    if (hops > report->hops) report->hops = hops;
    if (bytes > report->bytes_most) report->bytes_most = bytes;
    if (r->memory.total > report->memory_most) report->memory_most = r->memory.total;
    if (r->memory.device > report->device_most) report->device_most = r->memory.device;
}

void report_fill(const struct engine *engine, struct run_report *report)
{
    const struct trial *t = engine->trial;
    *report = (struct run_report){ .peak_rss = machine_peak_rss() };
    for (int rank = 0; rank < engine->ranks; rank++) add_rank(&engine->rank[rank], report);
    report->seconds = engine->forward_seconds + engine->backward_seconds;
    report->tokens_per_second = (double)t->batch * (double)t->q_len / report->seconds;
    report->gflops = report->flops / report->seconds * 1e-9;
    report->density = (double)report->pairs / (double)t->batch / (double)t->q_heads /
                      (double)t->q_len / fmax((double)t->k_len, 1.0);
}

void report_problem_json(struct json *json, const struct trial *trial, const char *strategy,
                         const char *why)
{
    char *problem = trial_format(trial);
    json_text(json, "version", ra_version());
    json_text(json, "problem", problem);
    json_text(json, "pattern", trial->pattern ? trial->pattern : "full");
    json_text(json, "order", trial->order ? trial->order : "sequential");
    system_json(json, trial);
    json_whole(json, "ranks", trial->ranks);
    json_text(json, "strategy", strategy);
    json_text(json, "strategy_why", why);
    json_text(json, "partition", trial->partition);
    json_text(json, "transport", trial->transport);
    json_text(json, "device", *trial->device ? trial->device : "cpu");
    json_text(json, "dtype", half_name((ra_dtype)trial->dtype));
    free(problem);
}

/* A long line after its word, wrapped, and the end of it. */
static void print_line(const char *word, struct string *line)
{
    int indent = (int)strlen(word);
    printf("%s", word);
    text_wrap(line->s ? line->s : "?", indent, indent);
    string_free(line);
}

void report_strategy(const char *word, const char *strategy, const char *why)
{
    struct string line = { .lost = false };
    string_add(&line, "%s: %s", strategy, why);
    print_line(word, &line);
}

void report_prediction(const char *word, const struct forecast *forecast)
{
    struct string line = { .lost = false };
    string_add(&line, "%s, of which %s for messages, at %s", text_seconds(forecast->seconds).s,
               text_seconds(forecast->wait_seconds).s, forecast->figures);
    print_line(word, &line);
}

void report_prediction_json(struct json *json, const struct forecast *forecast)
{
    json_real(json, "predicted_seconds", forecast->seconds);
    json_real(json, "predicted_wait_seconds", forecast->wait_seconds);
    json_text(json, "predicted_with", forecast->figures);
    json_real(json, "typical_time_error", FORECAST_TIME_ERROR);
    json_real(json, "typical_memory_error", FORECAST_MEMORY_ERROR);
}

void report_streamed(const char *word, const struct forecast *forecast, const ra_stats *forward,
                     const ra_stats *backward)
{
    if (forecast->block == 0) return;
    printf("%s%s loaded, %s stored; blocks of %s positions, %s units\n", word,
           text_bytes((double)(forward->bytes_loaded + backward->bytes_loaded)).s,
           text_bytes((double)(forward->bytes_stored + backward->bytes_stored)).s,
           text_count(forecast->block).s, text_count(forecast->units[0] + forecast->units[1]).s);
}

void report_streamed_json(struct json *json, const struct forecast *forecast,
                          const ra_stats *forward, const ra_stats *backward)
{
    if (forecast->block == 0) return;
    json_whole(json, "block", forecast->block);
    json_whole(json, "units", forecast->units[0] + forecast->units[1]);
    json_whole(json, "bytes_loaded", forward->bytes_loaded + backward->bytes_loaded);
    json_whole(json, "bytes_stored", forward->bytes_stored + backward->bytes_stored);
}
