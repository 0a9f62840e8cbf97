/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - the verb `run`: attention over files or synthetic data. */
#include "verbs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check/check.h"
#include "harness/check/digest.h"
#include "harness/run/engine.h"
#include "harness/base/half.h"
#include "harness/text/json.h"
#include "harness/run/load.h"
#include "harness/base/machine.h"
#include "harness/run/measure.h"
#include "harness/report/report.h"
#include "harness/world/same.h"
#include "harness/run/store.h"
#include "harness/problem/system.h"
#include "harness/text/text.h"
#include "harness/world/world.h"

void run_help(void)
{
    printf("\nExamples:\n"
           "  ringattn run --tokens 4096 --pattern causal --ring 4 --backward\n"
           "  ringattn run --q q.npy --k k.npy --v v.npy --out o.npy --pattern window:512\n"
           "  mpirun -np 2 ringattn run --transport mpi --tokens 32768\n");
}

/* ---- Output ---------------------------------------------------------------------------------- */

static void print_check_json(struct json *json, const struct run_report *report)
{
    json_bool(json, "verified", report->checked && report->check.passed);
    if (!report->checked) return;
    json_open(json, "verification", '{');
    json_bool(json, "sampled", report->check.sampled);
    json_whole(json, "rows", report->check.rows);
    json_whole(json, "nan_rows", report->check.nan_rows);
    json_whole(json, "keys", report->check.keys);
    json_open(json, "tensors", '[');
    for (int i = 0; i < report->check.count; i++) {
        json_open(json, NULL, '{');
        json_text(json, "name", report->check.lines[i].name);
        json_real(json, "error", report->check.lines[i].error);
        json_real(json, "bound", report->check.lines[i].bound);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_close(json, '}');
}

static void print_ranks_json(struct json *json, const struct engine *engine)
{
    json_open(json, "flops_per_rank", '[');
    for (int r = 0; r < engine->ranks; r++)
        json_count(json, NULL, engine->rank[r].forward.flops + engine->rank[r].backward.flops);
    json_close(json, ']');
    json_open(json, "bytes_sent_per_rank", '[');
    for (int r = 0; r < engine->ranks; r++)
        json_whole(json, NULL,
                   engine->rank[r].forward.bytes_sent + engine->rank[r].backward.bytes_sent);
    json_close(json, ']');
    json_open(json, "peak_bytes_per_rank", '[');
    for (int r = 0; r < engine->ranks; r++)
        json_whole(json, NULL, (int64_t)engine->rank[r].memory.total);
    json_close(json, ']');
    json_open(json, "device_bytes_per_rank", '[');
    for (int r = 0; r < engine->ranks; r++)
        json_whole(json, NULL, (int64_t)engine->rank[r].memory.device);
    json_close(json, ']');
    json_open(json, "wait_seconds_per_rank", '[');
    for (int r = 0; r < engine->ranks; r++)
        json_real(json, NULL,
                  engine->rank[r].forward.wait_seconds + engine->rank[r].backward.wait_seconds);
    json_close(json, ']');
    if (!engine->joined) return;
    json_open(json, "peak_rss_bytes_per_rank", '[');
    for (int r = 0; r < engine->ranks; r++)
        json_whole(json, NULL, (int64_t)engine->rank[r].peak_rss);
    json_close(json, ']');
}

static void print_json(const struct options *options, const struct engine *engine,
                       const struct run_report *report)
{
    struct json json = { .stream = stdout };
    json_open(&json, NULL, '{');
    const ra_plan *plan = engine->rank[engine->first].plan;
    report_problem_json(&json, engine->trial, ra_plan_strategy(plan), ra_plan_why(plan));
    json_text(&json, "kernel", ra_plan_kernel(plan));
    json_whole(&json, "threads", engine->threads);
    json_whole(&json, "pairs", report->pairs);
    json_count(&json, "flops", report->flops);
    json_real(&json, "density", report->density);
    json_whole(&json, "hops", report->hops);
    print_ranks_json(&json, engine);
    const struct engine_rank *first = &engine->rank[engine->first];
    report_streamed_json(&json, &engine->forecast, &first->forward, &first->backward);
    if (engine->streaming) json_whole(&json, "units_resumed", streaming_resumed(engine->streaming));
    json_whole(&json, "warmup", report->warmup);
    json_real(&json, "seconds", report->seconds);
    json_real(&json, "forward_seconds", engine->forward_seconds);
    json_real(&json, "backward_seconds", engine->backward_seconds);
    if (options->predict) report_prediction_json(&json, &engine->forecast);
    json_real(&json, "tokens_per_second", report->tokens_per_second);
    json_real(&json, "gflops", report->gflops);
    json_whole(&json, "peak_rss_bytes", (int64_t)report->peak_rss);
    if (options->digest) {
        json_text(&json, "digest_out", digest_text(report->digests.of[TENSOR_OUT]).s);
        json_text(&json, "digest_lse", digest_text(report->digests.of[TENSOR_LSE]).s);
    }
    print_check_json(&json, report);
    json_close(&json, '}');
}

static void print_check(const struct engine *engine, const struct run_report *report)
{
    const struct check *check = &report->check;
    if (!report->checked) {
        printf(
            "verified   no: these are your files; --verify checks them against the fp64 oracle\n");
        return;
    }
    printf("%-10s %s%s rows", check->passed ? "verified" : "WRONG", check->sampled ? "" : "all ",
           text_count(check->rows).s);
    if (check->nan_rows && check->passed)
        printf(" (%s NaN, like their input)", text_count(check->nan_rows).s);
    if (check->keys)
        printf(" and %s%s keys", check->sampled ? "" : "all ", text_count(check->keys).s);
    printf(" against the fp64 oracle%s\n", check->sampled ? ", spread over the sequence" : "");
    for (int i = 0; i < check->count; i++)
        printf("           %-6s error %.2g, allowed %.2g\n", check->lines[i].name,
               check->lines[i].error, check->lines[i].bound);
    if (check->sampled && check->keys)
        printf("           (dk and dv start from this run's own LSE and output, checked above)\n");
    if (engine->dsinks)
        printf("           (dsinks of all rows, from this run's own LSE and output)\n");
    if (engine->joined && check->sampled && engine->trial->backward)
        printf("           (dk and dv need all queries and are not compared across processes)\n");
    if (!check->passed) printf("           %s\n", check->what);
}

static void print_people(const struct options *options, const struct engine *engine,
                         const struct run_report *report, char *problem)
{
    const struct trial *t = engine->trial;
    const ra_plan *plan = engine->rank[engine->first].plan;
    system_print(t);
    printf("problem    %s\n", problem);
    printf("ranks      %d (%s, %s, %s), %d thread%s each, kernel %s, %s\n", engine->ranks,
           ra_plan_strategy(plan), t->partition, t->transport, engine->threads,
           engine->threads == 1 ? "" : "s", ra_plan_kernel(plan), half_name((ra_dtype)t->dtype));
    if (!strcmp(t->strategy, "auto"))
        report_strategy("strategy   ", ra_plan_strategy(plan), ra_plan_why(plan));
    printf("time       %s: %s tokens/s, %s GFLOP/s\n", text_seconds(report->seconds).s,
           text_real(report->tokens_per_second).s, text_real(report->gflops).s);
    if (options->predict) report_prediction("predicted  ", &engine->forecast);
    printf("work       %s pairs, density %.4g, %.4g GFLOP\n", text_count(report->pairs).s,
           report->density, report->flops * 1e-9);
    printf("sent       %s per rank at most, in %s hop%s\n",
           text_bytes((double)report->bytes_most).s, text_count(report->hops).s,
           report->hops == 1 ? "" : "s");
    printf("memory     %s per rank at most", text_bytes((double)report->memory_most).s);
    if (report->device_most)
        printf(", %s on the device beside your tensors", text_bytes((double)report->device_most).s);
    printf(", process %s\n", text_bytes((double)report->peak_rss).s);
    const struct engine_rank *first = &engine->rank[engine->first];
    report_streamed("streamed   ", &engine->forecast, &first->forward, &first->backward);
    if (engine->streaming && streaming_resumed(engine->streaming) > 0)
        printf("resumed    %s blocks were done before\n",
               text_count(streaming_resumed(engine->streaming)).s);
    if (engine->streaming && streaming_on_device(engine->streaming))
        printf("data       made on the device, where the results stay: the rows that are verified "
               "came back\n");
    if (options->digest)
        printf("digest     out %s, lse %s\n", digest_text(report->digests.of[TENSOR_OUT]).s,
               digest_text(report->digests.of[TENSOR_LSE]).s);
    print_check(engine, report);
}

/* ---- The run --------------------------------------------------------------------------------- */

static int run_passes(struct engine *engine, int64_t passes)
{
    int status = EXIT_PASS;
    for (int64_t i = 0; i < passes && !status; i++) {
        status = engine_forward(engine);
        if (!status && engine->trial->backward) status = engine_backward(engine);
    }
    return status;
}

static int run_and_check(const struct options *options, struct engine *engine,
                         struct run_report *report)
{
    int status = run_passes(engine, options->warmup + 1);
    if (status) return status;
    report_fill(engine, report);
    if (options->digest) status = digest_forward(engine, &report->digests);
    if (status) return status;
    report->warmup = options->warmup;
    report->checked = options->verify || !engine->setup.inputs;
    if (report->checked) status = check_engine(engine, &report->check);
    if (!status && report->checked && !report->check.passed) status = EXIT_CHECK;
    return status;
}

/* A run may turn out to stream: one process, and no other kind of rank. */
static bool may_stream(const struct options *options)
{
    const char *strategy = options->trial.strategy;
    return options->trial.ranks <= 1 && (!strncmp(strategy, "stream", strlen("stream")) ||
                                         (options->memory > 0 && !strcmp(strategy, "auto")));
}

/* --data, which the caller has checked. */
static enum data_place data_place_of(const struct options *o)
{
    if (!o->data) return DATA_ANYWHERE;
    return strcmp(o->data, "host") ? DATA_ON_DEVICE : DATA_ON_HOST;
}

static int check_data(const struct options *o)
{
    if (o->data && strcmp(o->data, "host") && strcmp(o->data, "device"))
        return refuse("--data %s: host or device", o->data);
    if (o->data && !may_stream(o))
        return refuse("--data is for runs that stream: --strategy stream does");
    if (o->digest && o->resume)
        return refuse("--digest: a resumed run writes only a part of the output; hash the files");
    return EXIT_PASS;
}

static struct stream_files list_stream_files(const struct options *o)
{
    return (struct stream_files){ .paths = { [TENSOR_OUT] = o->out,
                                             [TENSOR_LSE] = o->lse,
                                             [TENSOR_DQ] = o->dq,
                                             [TENSOR_DK] = o->dk,
                                             [TENSOR_DV] = o->dv },
                                  .resume = o->resume,
                                  .digests = o->digest,
                                  .data = data_place_of(o) };
}

static int run_engine(const struct options *options, struct inputs *inputs)
{
    const struct stream_files files = list_stream_files(options);
    struct trace trace = TRACE_EMPTY;
    struct engine engine;
    struct run_report report = { .checked = false };
    struct engine_setup setup = { .trial = &options->trial,
                                  .inputs = inputs,
                                  .memory = options->memory,
                                  .wire = options->wire,
                                  .trace = options->trace ? &trace : NULL,
                                  .quiet = options->quiet || !world_first(),
                                  .stream = may_stream(options) ? &files : NULL };
    int status = engine_open(&engine, &setup);
    if (status) return status;
    if (options->resume && !engine.streaming) {
        engine_close(&engine);
        return refuse(
            "--resume is for runs that stream; this one would not: --strategy stream does");
    }
    if (data_place_of(options) == DATA_ON_DEVICE && !engine.streaming) {
        engine_close(&engine);
        return refuse("--data device is for runs that stream; this one would not: --strategy "
                      "stream does");
    }
    if (inputs && !engine.streaming && (engine.ranks > 1 || engine.origin) && !options->verify)
        load_free(inputs); /* the shards hold it now */
    status = run_and_check(options, &engine, &report);
    if (!status) status = store_results(options, &engine);
    if (status == EXIT_CHECK)
        fprintf(stderr, "ringattn: the result is wrong (%s); no file was written\n",
                report.check.what);
    char *problem = trial_format(&options->trial);
    if (status <= EXIT_CHECK && options->json) print_json(options, &engine, &report);
    if (status <= EXIT_CHECK && !options->json) print_people(options, &engine, &report, problem);
    free(problem);
    engine_close(&engine);
    trace_free(&trace);
    return status;
}

/* Joins the others where ranks are processes, and opens or reads the files. */
static int prepare(struct options *options, bool files, struct inputs *inputs)
{
    int status = world_open(&options->trial, options->wire);
    if (status) return status;
    world_hint();
    bool together = world_runs(&options->trial);
    if (together) status = world_agree(same_command(options, "run"));
    if (status) return status;
    const bool in_parts = (together && !options->verify) || (!together && may_stream(options));
    if (files) status = load_inputs(options, in_parts, inputs);
    return together ? world_agree(status) : status;
}

int verb_run(struct options *options)
{
    struct inputs inputs = { .data = { NULL } };
    ra_machine machine;
    bool files = load_wanted(options);
    int status = store_check(options);
    if (!status) status = check_data(options);
    if (!status) status = prepare(options, files, &inputs);
    if (!status) {
        status = trial_resolve(&options->trial);
        bool wanted = options->predict || !strcmp(options->trial.strategy, "auto");
        if (!status && wanted && !options_fixed_choice(options))
            status = measure(&options->trial, options->wire, &machine);
        if (!status) status = run_engine(options, files ? &inputs : NULL);
    }
    load_free(&inputs);
    return status;
}
