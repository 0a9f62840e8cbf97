/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - the verb `plan`: what a run would need, without running it. */
#include "verbs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/run/fit.h"
#include "harness/run/forecast.h"
#include "harness/run/machines.h"
#include "harness/base/half.h"
#include "harness/base/machine.h"
#include "harness/text/json.h"
#include "harness/report/maskfile.h"
#include "harness/run/measure.h"
#include "harness/report/report.h"
#include "harness/report/rings.h"
#include "harness/problem/system.h"
#include "harness/text/text.h"

/* ---- Memory by purpose ----------------------------------------------------------------------- */

static const struct {
    const char *name, *help;
    size_t offset;
} purposes[] = {
    { "shard", "your tensors on this rank", offsetof(ra_memory, shard) },
    { "travel", "K and V in transit or gathered; all-to-all", offsetof(ra_memory, travel) },
    { "state", "running softmax of rows that span hops", offsetof(ra_memory, state) },
    { "gradient", "f32 sums of dQ, dK, dV", offsetof(ra_memory, gradient) },
    { "workspace", "of the kernel", offsetof(ra_memory, workspace) },
    { "bookkeeping", "the plan itself", offsetof(ra_memory, bookkeeping) },
    { "total", "what a budget limits", offsetof(ra_memory, total) },
    { "device", "of the total, memory of the GPU", offsetof(ra_memory, device) },
};
enum { TOTAL = COUNT(purposes) - 2 };

static size_t memory_of(const struct forecast *forecast, int rank, int purpose)
{
    const char *memory = (const char *)&forecast->rank[rank].memory;
    size_t bytes;
    memcpy(&bytes, memory + purposes[purpose].offset, sizeof bytes);
    return bytes;
}

/* The least and the most of any rank. */
static void memory_range(const struct forecast *forecast, int purpose, size_t *least, size_t *most)
{
    *least = SIZE_MAX;
    *most = 0;
    for (int rank = 0; rank < forecast->ranks; rank++) {
        size_t bytes = memory_of(forecast, rank, purpose);
        if (bytes < *least) *least = bytes;
        if (bytes > *most) *most = bytes;
    }
}

static void print_memory(const struct forecast *forecast)
{
    size_t least, most, top;
    memory_range(forecast, TOTAL, &least, &top);
    printf("\n%-12s %12s %12s\n", "memory", "least rank", "most");
    for (int i = 0; i < COUNT(purposes); i++) {
        memory_range(forecast, i, &least, &most);
        if (i > TOTAL && most == 0) continue; /* there is no GPU */
        printf("%-12s %12s %12s  %s %s\n", purposes[i].name, text_bytes((double)least).s,
               text_bytes((double)most).s, text_bar((double)most / (double)top, 16).s,
               purposes[i].help);
    }
}

static int64_t bytes_sent(const struct forecast *forecast, int rank)
{
    return forecast->rank[rank].forward.bytes_sent + forecast->rank[rank].backward.bytes_sent;
}

/* ---- Beside full attention ------------------------------------------------------------------- */

/* Is this run the one that others are compared with? */
static bool is_full(const struct trial *t)
{
    return (!t->pattern || !strcmp(t->pattern, "full")) && !t->order;
}

/* The same run with every query seeing every key, in sequential order. */
static int forecast_full(const struct trial *trial, struct forecast *full)
{
    struct trial t = *trial; /* borrows its texts */
    t.pattern = t.order = NULL;
    t.partition[strcspn(t.partition, ";")] = 0;                        /* there are no documents */
    if (t.ranks == 1) snprintf(t.strategy, sizeof t.strategy, "ring"); /* a stream has many steps */
    return forecast_open(full, &t, 0);
}

static void print_ratio(const char *name, double this, double full, struct text shown[2])
{
    printf("%-12s %18s %18s", name, shown[0].s, shown[1].s);
    if (full > 0.0) printf(" %10.4g\n", this / full);
    else printf(" %10s\n", "-");
}

static struct text giga(double flops)
{
    struct text text;
    snprintf(text.s, sizeof text.s, "%.4g GFLOP", flops * 1e-9);
    return text;
}

static struct text share(double density)
{
    struct text text;
    snprintf(text.s, sizeof text.s, "%.4g", density);
    return text;
}

static void print_alone(const struct forecast *f)
{
    printf("\nthis run     %s pairs, density %.4g, %s; full attention would have more pairs than "
           "63 bits count\n\n",
           text_count(f->pairs).s, f->density, giga(f->flops).s);
}

static void print_against_full(const struct trial *t, const struct forecast *f,
                               const struct forecast *full)
{
    double most[2] = { 0.0, 0.0 }, all[2] = { 0.0, 0.0 };
    const struct forecast *const both[2] = { f, full };
    for (int i = 0; i < 2; i++)
        for (int rank = 0; rank < f->ranks; rank++) {
            double sent = (double)bytes_sent(both[i], rank);
            all[i] += sent;
            if (sent > most[i]) most[i] = sent;
        }
    printf("\n%-12s %18s %18s %10s\n", "", "this run", "full", "ratio");
    print_ratio("pairs", (double)f->pairs, (double)full->pairs,
                (struct text[]){ text_count(f->pairs), text_count(full->pairs) });
    print_ratio("density", f->density, full->density,
                (struct text[]){ share(f->density), share(full->density) });
    print_ratio("work", f->flops, full->flops,
                (struct text[]){ giga(f->flops), giga(full->flops) });
    print_ratio("hops", (double)f->hops, (double)full->hops,
                (struct text[]){ text_count(f->hops), text_count(full->hops) });
    print_ratio("sent, most", most[0], most[1],
                (struct text[]){ text_bytes(most[0]), text_bytes(most[1]) });
    print_ratio("sent, all", all[0], all[1],
                (struct text[]){ text_bytes(all[0]), text_bytes(all[1]) });
    const char *random = t->pattern ? strstr(t->pattern, "random=") : NULL;
    if (random)
        printf("%-12s %.*s of the blocks asked for, the diagonal beside them; %.4g of the pairs "
               "achieved\n",
               "random", (int)strcspn(random + 7, ";"), random + 7, f->density);
    printf("\n");
}

/* Everything that is known of a run. */
struct answers {
    const struct trial *trial;
    const struct forecast *run, *full;   /* and the same with every key seen; NULL: too many */
    const struct known_machine *machine; /* NULL: this one */
    const struct fit_answer *fit;        /* NULL: not asked */
};

/* ---- What fits ------------------------------------------------------------------------------- */

static void print_fit(const struct trial *t, const struct fit_answer *a)
{
    printf("\nwithin %s per rank\n", text_bytes((double)a->memory).s);
    if (a->ring)
        printf("%-12s %" PRId64 " for %s tokens, %s per rank\n", "ring", a->ring,
               text_count(t->q_len).s, text_bytes(a->ring_bytes).s);
    else
        printf("%-12s none of up to %d ranks fits %s tokens\n", "ring", TRIAL_RANKS_MOST,
               text_count(t->q_len).s);
    if (a->tokens >= 0)
        printf("%-12s %s tokens on %" PRId64 " rank%s, %s per rank\n", "longest",
               text_count(a->tokens).s, t->ranks, t->ranks == 1 ? "" : "s",
               text_bytes(a->tokens_bytes).s);
    else printf("%-12s this problem has one length\n", "longest");
}

static void print_fit_json(struct json *json, const struct fit_answer *a)
{
    json_open(json, "fit", '{');
    json_whole(json, "memory", a->memory);
    json_whole(json, "ring", a->ring);
    json_real(json, "ring_bytes_per_rank", a->ring_bytes);
    json_whole(json, "tokens", a->tokens);
    json_real(json, "tokens_bytes_per_rank", a->tokens_bytes);
    json_close(json, '}');
}

/* ---- Output ---------------------------------------------------------------------------------- */

/* Thousands of ranks are not asked one by one; a data sheet has peaks, not figures. */
static void print_sources(const struct answers *answers)
{
    const struct known_machine *m = answers->machine;
    const struct forecast *f = answers->run;
    if (f->asked < f->ranks)
        printf("%-12s %d of %d ranks were asked; the figures of others are interpolated\n", "",
               f->asked, f->ranks);
    if (!trial_on_cpu(answers->trial))
        printf("%-12s predictions for GPUs were not compared with runs\n", "usually off");
    else if (!m || machines_attends(m))
        printf("%-12s time by %.0f%%, memory by %.0f%%: medians over grids that were run\n",
               "usually off", 100.0 * FORECAST_TIME_ERROR, 100.0 * FORECAST_MEMORY_ERROR);
    if (!m) return;
    printf("%-12s %s: %s\n", "machine", m->name, m->summary);
    printf("%-12s FLOP/s %s, bytes/s %s%s\n", "sources", machines_flops(m, answers->trial)->source,
           m->bandwidth.source, machines_attends(m) ? "" : "; the time is a lower bound");
}

static void print_people(const struct answers *answers)
{
    const struct trial *t = answers->trial;
    const struct forecast *f = answers->run;
    char *problem = trial_format(t);
    system_print(t);
    printf("problem      %s\n", problem ? problem : "?");
    printf("ranks        %d (%s, %s, %s), %d thread%s each, kernel %s, %s\n", f->ranks, f->strategy,
           t->partition, t->transport, f->threads, f->threads == 1 ? "" : "s", f->kernel,
           half_name((ra_dtype)t->dtype));
    if (!strcmp(t->strategy, "auto")) report_strategy("strategy     ", f->strategy, f->why);
    if (answers->full) print_against_full(t, f, answers->full);
    else print_alone(f);
    report_prediction("predicted    ", f);
    report_streamed("streamed     ", f, &f->rank[0].forward, &f->rank[0].backward);
    print_sources(answers);
    print_memory(f);
    if (answers->fit) print_fit(t, answers->fit);
    free(problem);
}

static void print_full_json(struct json *json, const struct forecast *full)
{
    json_open(json, "full", '{');
    json_whole(json, "pairs", full->pairs);
    json_count(json, "flops", full->flops);
    json_whole(json, "hops", full->hops);
    json_open(json, "bytes_sent_per_rank", '[');
    for (int rank = 0; rank < full->ranks; rank++) json_whole(json, NULL, bytes_sent(full, rank));
    json_close(json, ']');
    json_close(json, '}');
}

static void print_json(const struct answers *answers)
{
    const struct forecast *f = answers->run;
    struct json json = { .stream = stdout };
    json_open(&json, NULL, '{');
    report_problem_json(&json, answers->trial, f->strategy, f->why);
    json_text(&json, "kernel", f->kernel);
    json_whole(&json, "threads", f->threads);
    json_whole(&json, "pairs", f->pairs);
    json_count(&json, "flops", f->flops);
    json_real(&json, "density", f->density);
    json_whole(&json, "hops", f->hops);
    json_open(&json, "flops_per_rank", '[');
    for (int rank = 0; rank < f->ranks; rank++)
        json_count(&json, NULL, f->rank[rank].forward.flops + f->rank[rank].backward.flops);
    json_close(&json, ']');
    json_open(&json, "bytes_sent_per_rank", '[');
    for (int rank = 0; rank < f->ranks; rank++) json_whole(&json, NULL, bytes_sent(f, rank));
    json_close(&json, ']');
    json_open(&json, "peak_bytes_per_rank", '[');
    for (int rank = 0; rank < f->ranks; rank++)
        json_whole(&json, NULL, (int64_t)f->rank[rank].memory.total);
    json_close(&json, ']');
    json_open(&json, "memory_most_bytes", '{');
    for (int i = 0; i < COUNT(purposes); i++) {
        size_t least, most;
        memory_range(f, i, &least, &most);
        json_whole(&json, purposes[i].name, (int64_t)most);
    }
    json_close(&json, '}');
    if (answers->full) print_full_json(&json, answers->full);
    json_whole(&json, "ranks_asked", f->asked);
    json_text(&json, "machine", answers->machine ? answers->machine->name : NULL);
    json_text(&json, "machine_source",
              answers->machine ? machines_flops(answers->machine, answers->trial)->source
                               : "measured");
    report_prediction_json(&json, f);
    report_streamed_json(&json, f, &f->rank[0].forward, &f->rank[0].backward);
    if (answers->fit) print_fit_json(&json, answers->fit);
    json_close(&json, '}');
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void print_line(void *context, const char *line)
{
    (void)context;
    puts(line);
}

static int explain(const struct options *o)
{
    ra_plan *plan;
    int result = forecast_plan(&o->trial, o->memory, (int)o->rank, &plan);
    if (result) return result;
    printf("\nsteps of rank %" PRId64 ", forward\n", o->rank);
    ra_status status = ra_plan_explain(plan, 0, print_line, NULL);
    if (status == RA_OK && o->trial.backward) {
        printf("\nsteps of rank %" PRId64 ", backward\n", o->rank);
        status = ra_plan_explain(plan, 1, print_line, NULL);
    }
    ra_plan_destroy(plan);
    return library_failed(status);
}

/* ---- The verb -------------------------------------------------------------------------------- */

static int check_options(const struct options *o)
{
    bool one_ring = flags_given(o, "--ring") || flags_given(o, "--ring-size");
    if (o->rings && (o->explain || o->json || o->mask || one_ring))
        return refuse("--rings prints a table; leave out --ring, --explain, --mask and --json");
    if (o->explain && o->json) return refuse("--explain prints lines; leave out --json");
    if (!o->explain && flags_given(o, "--rank")) return refuse("--rank is for --explain");
    if (o->machines && !o->machine) return refuse("--machines is the table of --machine");
    if (o->rings && o->fit) return refuse("--rings prints a table; leave out --fit");
    if (o->rank >= o->trial.ranks)
        return refuse("--rank: there are ranks 0 to %" PRId64, o->trial.ranks - 1);
    return maskfile_check(o);
}

/* What is measured for a prediction is too short for a GPU. */
static int check_device(const struct trial *t)
{
    if (trial_on_cpu(t) || t->flops > 0.0) return EXIT_PASS;
    return refuse("--device %s: a GPU is not measured; --machine NAME or --flops says how fast it "
                  "is",
                  t->device);
}

/* Everything that is shown of one run. */
static int show(const struct options *o, struct answers *answers)
{
    struct forecast other;
    const bool compared = !is_full(&o->trial) && trial_pairs_fit(&o->trial);
    answers->full = compared ? &other : is_full(&o->trial) ? answers->run : NULL;
    int status = compared ? forecast_full(&o->trial, &other) : EXIT_PASS;
    if (status) return status;
    if (o->mask) status = maskfile_write(o);
    if (!status && o->json) print_json(answers);
    if (!status && !o->json) print_people(answers);
    if (!status && o->explain) status = explain(o);
    if (compared) forecast_close(&other);
    return status;
}

static int answer(const struct options *o, const struct known_machine *machine)
{
    struct forecast forecast;
    struct fit_answer fit;
    struct answers answers = {
        .trial = &o->trial, .run = &forecast, .machine = machine, .fit = o->fit ? &fit : NULL
    };
    int status = o->fit ? fit_find(&o->trial, o->fit, &fit) : EXIT_PASS;
    if (!status) status = forecast_open(&forecast, &o->trial, o->memory);
    if (status) return status;
    status = show(o, &answers);
    forecast_close(&forecast);
    return status;
}

int verb_plan(struct options *o)
{
    struct known_machine known;
    ra_machine machine;
    int status = trial_resolve(&o->trial);
    if (!status) status = check_options(o);
    if (!status && o->machine) status = machines_find(o->machines, o->machine, &known);
    if (!status && o->machine) machines_apply(&known, &o->trial);
    if (!status) status = check_device(&o->trial);
    machine_keep_memory();
    if (!status && o->rings) return rings_print(o);
    if (!status && !options_fixed_choice(o)) status = measure(&o->trial, o->wire, &machine);
    return status ? status : answer(o, o->machine ? &known : NULL);
}
