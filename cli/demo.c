/* SPDX-License-Identifier: Apache-2.0 */
/* demo.c - the verb `demo`: long attention on a ring, checked, and the memory it takes, in a
 * minute. */
#include "verbs.h"

#include <errno.h> /* program_invocation_name: what to type again */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check/check.h"
#include "harness/run/engine.h"
#include "harness/base/machine.h"
#include "harness/run/measure.h"
#include "harness/report/report.h"
#include "harness/text/text.h"

#define DEMO_TOKENS 32768
#define DEMO_SECONDS 40.0 /* for both runs together; the rest of the minute is for checks */

/* One line of a table. */
struct demo_run {
    int ring;
    struct run_report report;
};

static int demo_trial(struct trial *trial, const struct options *options, const char *text)
{
    int status = trial_parse(trial, text);
    if (status) return status;
    strcpy(trial->kernel, options->trial.kernel);
    trial->threads = options->trial.threads;
    return EXIT_PASS;
}

static int demo_execute(const struct options *options, const char *text, struct demo_run *run)
{
    struct trial trial;
    struct engine engine;
    int status = demo_trial(&trial, options, text);
    struct engine_setup setup = { .trial = &trial, .quiet = options->quiet };
    if (!status) status = engine_open(&engine, &setup);
    if (status) {
        trial_clear(&trial);
        return status;
    }
    status = engine_forward(&engine);
    if (!status) report_fill(&engine, &run->report);
    if (!status) status = check_engine(&engine, &run->report.check);
    run->ring = engine.ranks;
    engine_close(&engine);
    trial_clear(&trial);
    if (!status && !run->report.check.passed) {
        fprintf(stderr, "ringattn: wrong: %s: %s\n", text, run->report.check.what);
        status = EXIT_CHECK;
    }
    return status;
}

/* As many heads as two runs can have within the time, 8 at most. */
static int choose_heads(const struct options *options, int *heads)
{
    struct trial trial;
    struct forecast forecast;
    ra_machine machine;
    double seconds = 0.0;
    char text[80];
    snprintf(text, sizeof text, "causal n=%d h=8 d=64", DEMO_TOKENS);
    int status = demo_trial(&trial, options, text);
    if (!status) status = measure(&trial, (struct wire){ .timeout = 0.0 }, &machine);
    if (!status) status = forecast_open(&forecast, &trial, 0);
    if (!status) {
        seconds = forecast.seconds;
        forecast_close(&forecast);
    }
    for (*heads = 8; !status && *heads > 1; *heads /= 2)
        if (2.0 * seconds * *heads / 8.0 <= DEMO_SECONDS) break;
    trial_clear(&trial);
    return status;
}

/* ---- First table: long attention ------------------------------------------------------------- */

static void print_speed(const struct demo_run *runs, int count)
{
    double slowest = 0.0, largest = 0.0;
    for (int i = 0; i < count; i++) {
        const struct run_report *r = &runs[i].report;
        if (r->seconds > slowest) slowest = r->seconds;
        if ((double)r->memory_most > largest) largest = (double)r->memory_most;
    }
    printf("%5s  %-20s %10s  %-20s %5s %14s\n", "ring", "time", "tokens/s", "memory per rank",
           "hops", "sent per rank");
    for (int i = 0; i < count; i++) {
        const struct run_report *r = &runs[i].report;
        printf("%5d  %s %9s %10s  %s %9s %5s %14s\n", runs[i].ring,
               text_bar(r->seconds / slowest, 10).s, text_seconds(r->seconds).s,
               text_real(r->tokens_per_second).s, text_bar((double)r->memory_most / largest, 10).s,
               text_bytes((double)r->memory_most).s, text_count(r->hops).s,
               text_bytes((double)r->bytes_most).s);
    }
    for (int i = 0; i < count; i++) {
        const struct check *c = &runs[i].report.check;
        printf("ring %d: %s rows checked against an fp64 oracle: error %.1e, allowed %.1e\n",
               runs[i].ring, text_count(c->rows).s, c->lines[0].error, c->lines[0].bound);
    }
}

static int show_speed(const struct options *options)
{
    static const int rings[] = { 1, 4 };
    struct demo_run runs[COUNT(rings)];
    int heads;
    int status = choose_heads(options, &heads);
    if (status) return status;
    printf("Causal attention over %s tokens, %d head%s of 64, f32, on %d core%s\n",
           text_count(DEMO_TOKENS).s, heads, heads == 1 ? "" : "s", machine_cores(),
           machine_cores() == 1 ? "" : "s");
    if (heads < 8) printf("(%d of 8 heads, to stay within a minute on this machine)\n", heads);
    printf("\n");
    fflush(stdout);
    for (int i = 0; i < COUNT(rings) && !status; i++) {
        char text[120];
        snprintf(text, sizeof text, "causal n=%d h=%d d=64 ring=%d%s", DEMO_TOKENS, heads, rings[i],
                 rings[i] > 1 ? " zigzag" : "");
        status = demo_execute(options, text, &runs[i]);
    }
    if (!status) print_speed(runs, COUNT(runs));
    return status;
}

/* ---- Second table: memory -------------------------------------------------------------------- */

/* What published measurements of earlier PyTorch systems say for this shape, in MiB. */
static const struct {
    int ring; /* 0: scores materialised */
    double reported;
} reports[] = { { 0, 512.0 }, { 1, 772.0 }, { 4, 196.0 }, { 8, 100.0 }, { 16, 52.0 } };

static void print_memory(const char *name, double reported, double ours)
{
    const double widest = 772.0;
    printf("%-12s %s %5.0f MiB  ", name, text_bar(reported / widest, 24).s, reported);
    if (ours > 0.0)
        printf("%s %8s\n", text_bar(ours / 1048576.0 / widest, 24).s, text_bytes(ours).s);
    else printf("%-24s %8s\n", "no score matrix exists", "-");
}

static int show_memory(const struct options *options)
{
    printf("\nMemory per rank: %s tokens, 8 heads of 64, 16 bit, full attention\n\n",
           text_count(4096).s);
    printf("%-12s %-34s  %s\n", "", "PyTorch reports", "ringattn, this run");
    for (int i = 0; i < COUNT(reports); i++) {
        char text[80], name[32];
        struct demo_run run = { .ring = 0 };
        int status = EXIT_PASS;
        snprintf(text, sizeof text, "full n=4096 h=8 d=64 f16 ring=%d", reports[i].ring);
        snprintf(name, sizeof name, "ring %d", reports[i].ring);
        if (reports[i].ring) status = demo_execute(options, text, &run);
        if (status) return status;
        print_memory(reports[i].ring ? name : "materialised", reports[i].reported,
                     (double)run.report.memory_most);
        fflush(stdout);
    }
    return EXIT_PASS;
}

static void print_next(void)
{
    static const struct {
        const char *command, *does;
    } next[] = {
        { "run --q q.npy --k k.npy --v v.npy --out o.npy --ring 4", "attention over your files" },
        { "plan --tokens 1000000 --ring 8 --pattern causal", "what a run would need" },
        { "verify", "thousands of cases, checked" },
        { "info", "what there is here, and why" },
        { "help", "everything else" },
    };
    for (int i = 0; i < COUNT(next); i++)
        printf("  %s %-56s %s\n", program_invocation_name, next[i].command, next[i].does);
}

int verb_demo(struct options *options)
{
    double start = machine_seconds();
    int status = show_speed(options);
    if (!status) status = show_memory(options);
    if (status) return status;
    printf("\nDone in %s. Where to go next:\n", text_seconds(machine_seconds() - start).s);
    print_next();
    return EXIT_PASS;
}
