/* SPDX-License-Identifier: Apache-2.0 */
/* case.c - one configuration: opened, warmed up, run and checked, with a sample of its ceiling
 * before each run, so that both have the same conditions. */
#include "case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/half.h"
#include "harness/base/interrupt.h"
#include "harness/base/machine.h"
#include "harness/check/check.h"
#include "harness/run/engine.h"
#include "harness/run/measure.h"
#include "harness/text/text.h"
#include "harness/world/same.h"
#include "harness/world/world.h"
#include "rivals/rivals.h"
#include "roof.h"
#include "row.h"
#include "sampler.h"
#include "standard.h"

#define LINK_LATENCY 5e-6 /* of --link, seconds: a round over a fast network */

enum { PASSES = 2, DECODE_KEYS = 1024 /* with one query and this many, reading is what counts */ };

/* One pass of the configuration, run after run. */
struct series {
    double seconds[CASE_RUNS_MOST], rates[CASE_RUNS_MOST], samples[CASE_RUNS_MOST],
        shares[CASE_RUNS_MOST];
    struct row row;
};

struct bench_case {
    const struct options *options;
    struct trial *trial;
    struct engine engine;
    struct standard standard;
    struct sampler sampler; /* its name is NULL where there is none, and on other ranks */
    struct shared shared;
    struct rivals *rivals; /* NULL: none take turns with us */
    struct series *series[PASSES];
    int passes, runs;
    int done; /* runs that count */
    int warmup;
    double spent; /* seconds, warm-up included */
    double rss_start, rss;
};

/* ---- What a row says of the configuration ---------------------------------------------------- */

static bool is_decode(const struct trial *t) { return t->q_len == 1 && t->k_len >= DECODE_KEYS; }

static void copy(char *to, size_t bytes, const char *from)
{
    snprintf(to, bytes, "%s", from ? from : "");
}

static void describe_problem(struct row *row, const struct bench_case *c)
{
    const struct trial *t = c->trial;
    char *problem = trial_format(t);
    copy(row->problem, sizeof row->problem, problem);
    free(problem);
    copy(row->kind, sizeof row->kind,
         c->options->standard ? "standard"
         : is_decode(t)       ? "decode"
                              : "attention");
    copy(row->dtype, sizeof row->dtype, half_name((ra_dtype)t->dtype));
    copy(row->pattern, sizeof row->pattern, t->pattern ? t->pattern : "full");
    copy(row->order, sizeof row->order, t->order ? t->order : "sequential");
    copy(row->partition, sizeof row->partition, t->partition);
    copy(row->transport, sizeof row->transport, t->transport);
    row->batch = t->batch;
    row->queries = t->q_len;
    row->keys = t->k_len;
    row->heads = t->q_heads;
    row->kv_heads = t->kv_heads;
    row->dim = t->dim;
    row->value_dim = t->value_dim;
    row->ranks = t->ranks;
}

static void describe_plan(struct row *row, const struct bench_case *c)
{
    const ra_plan *plan = c->engine.rank[c->engine.first].plan;
    row->threads = c->engine.threads;
    copy(row->strategy, sizeof row->strategy, c->options->standard ? "" : ra_plan_strategy(plan));
    copy(row->kernel, sizeof row->kernel, c->options->standard ? "standard" : ra_plan_kernel(plan));
}

/* What the ranks counted in the last run of a pass. */
static void count_ranks(struct row *row, const struct bench_case *c, bool backward)
{
    const struct engine *e = &c->engine;
    double flops = 0.0, most = 0.0, waited = 0.0;
    row->pairs = row->hops = row->bytes_sent = row->bytes_per_rank = row->bytes_all_ranks = 0.0;
    for (int rank = 0; rank < e->ranks; rank++) {
        const struct engine_rank *r = &e->rank[rank];
        const ra_stats *s = backward ? &r->backward : &r->forward;
        flops += s->flops;
        most = fmax(most, s->flops);
        waited = fmax(waited, s->wait_seconds);
        row->pairs += (double)s->pairs;
        row->hops = fmax(row->hops, (double)s->hops);
        row->bytes_sent = fmax(row->bytes_sent, (double)s->bytes_sent);
        row->bytes_per_rank = fmax(row->bytes_per_rank, (double)r->memory.total);
        row->bytes_all_ranks += (double)r->memory.total;
    }
    row->work = flops;
    row->imbalance = flops > 0.0 ? most * e->ranks / flops : NAN;
    row->exposed = waited / (backward ? e->backward_seconds : e->forward_seconds);
}

/* The baseline is not the library's plan: it computes all pairs, masked or not, and holds them. */
static void count_standard(struct row *row, const struct bench_case *c)
{
    const struct trial *t = c->trial;
    double n = (double)t->q_len, k = (double)t->k_len, causal = 0.5 * n * (2.0 * k - n + 1.0);
    double pairs = !strcmp(row->pattern, "causal") ? causal : n * k;
    row->pairs = pairs * (double)(t->batch * t->q_heads);
    row->work = 2.0 * row->pairs * (double)(t->dim + t->value_dim);
    row->bytes_per_rank = row->bytes_all_ranks = (double)c->standard.bytes;
    row->hops = row->bytes_sent = row->exposed = 0.0;
    row->imbalance = 1.0;
}

static void count_work(struct row *row, const struct bench_case *c, bool backward)
{
    const struct trial *t = c->trial;
    if (c->options->standard) count_standard(row, c);
    else count_ranks(row, c, backward);
    row->density = row->pairs / (double)t->batch / (double)t->q_heads / (double)t->q_len /
                   fmax((double)t->k_len, 1.0);
    copy(row->unit, sizeof row->unit, is_decode(t) ? "GB/s" : "GFLOP/s");
    if (is_decode(t))
        row->work = (double)(t->batch * t->k_len * t->kv_heads * (t->dim + t->value_dim)) *
                    (double)half_bytes((ra_dtype)t->dtype);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* Reading is sampled over as many bytes as the keys and values have, for these may be in a
 * cache. */
static int open_sampler(struct bench_case *c)
{
    const struct row *row = &c->series[0]->row;
    const bool decode = is_decode(c->trial);
    size_t bytes = (size_t)(c->trial->batch * c->trial->k_len * c->trial->kv_heads *
                            (c->trial->dim + c->trial->value_dim)) *
                   half_bytes((ra_dtype)c->trial->dtype);
    if (!world_first()) return EXIT_PASS;
    if (!row_is_cpu(row)) {
        const char *ceiling = decode ? "read-memory" : roof_of_device(row->kernel);
        return ceiling ? sampler_open_device(&c->sampler, row->device, ceiling, bytes) : EXIT_PASS;
    }
    const struct ceiling *ceiling = decode ? roof_usable("read-memory") : roof_of(row->kernel);
    int64_t threads = row->threads * row->ranks, cores = machine_cores();
    if (!ceiling) return EXIT_PASS;
    return sampler_open(&c->sampler, ceiling, (int)(threads < cores ? threads : cores), bytes);
}

static bool has_rivals(const struct options *options)
{
    return options->rivals && strcmp(options->rivals, "no");
}

/* One pass; the seconds also of plans that are made anew for it. */
static int run_pass(struct bench_case *c, bool backward, double *seconds)
{
    double start = machine_seconds(), planned = 0.0;
    int status = EXIT_PASS;
    if (c->options->standard) return standard_run(&c->standard, seconds);
    if (c->options->replan && !backward) {
        status = engine_replan(&c->engine);
        planned = machine_seconds() - start;
    }
    if (!status) status = backward ? engine_backward(&c->engine) : engine_forward(&c->engine);
    *seconds = planned + (backward ? c->engine.backward_seconds : c->engine.forward_seconds);
    return status;
}

static int run_once(struct bench_case *c, int pass)
{
    struct series *s = c->series[pass];
    int status = interrupt_check();
    s->samples[c->done] = NAN;
    if (!status && c->sampler.name) status = sampler_take(&c->sampler, &s->samples[c->done]);
    double start = machine_seconds();
    if (!status && c->rivals) {
        status = rivals_round(c->rivals, pass, c->done, &s->seconds[c->done]);
        c->spent += machine_seconds() - start;
    } else if (!status) {
        status = run_pass(c, pass == 1, &s->seconds[c->done]);
        c->spent += s->seconds[c->done];
    }
    return status;
}

/* The first round warms up and does not count, unless it is so long that it is the only one, or
 * rivals are warm. All processes of a world see the same seconds, so they end together. */
static int run_rounds(struct bench_case *c)
{
    double limit = c->options->seconds > 0.0 ? c->options->seconds : INFINITY;
    const int least = c->rivals ? RIVALS_ROUNDS_LEAST : 1;
    int status = EXIT_PASS;
    for (bool first = !c->rivals; !status && c->done < c->runs; first = false) {
        if (c->done >= least && c->spent >= limit) break;
        for (int pass = 0; pass < c->passes && !status; pass++) status = run_once(c, pass);
        bool counts = !first || c->spent > 0.5 * limit;
        c->warmup += !counts;
        c->done += counts;
    }
    c->rss = (double)machine_peak_rss();
    for (int rank = 0; c->engine.joined && rank < c->engine.ranks; rank++)
        c->rss = fmax(c->rss, (double)c->engine.rank[rank].peak_rss);
    return status;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void fill_error(struct row *row, const struct check *check, bool backward)
{
    const char *const names[PASSES] = { "out", "dq" };
    for (int i = 0; i < check->count; i++)
        if (!strcmp(check->lines[i].name, names[backward])) {
            row->error = check->lines[i].error;
            row->error_bound = check->lines[i].bound;
        }
    row->rows_checked = (double)check->rows;
}

static void fill_row(struct bench_case *c, int pass, const struct check *check)
{
    struct series *s = c->series[pass];
    struct row *row = &s->row;
    count_work(row, c, pass == 1);
    row->runs = c->done;
    row->warmup = c->warmup;
    row->rss_bytes = c->rss;
    row->rss_start_bytes = c->rss_start;
    for (int i = 0; i < c->done; i++) {
        s->rates[i] = row->work / s->seconds[i] * 1e-9;
        s->shares[i] = s->rates[i] / s->samples[i];
    }
    row_seconds(row, spread_of(s->seconds, c->done));
    row_rate(row, spread_of(s->rates, c->done));
    row->tokens_per_second = (double)row->batch * (double)row->queries / row->seconds;
    fill_error(row, check, pass == 1);
    if (!c->sampler.name) return;
    copy(row->ceiling, sizeof row->ceiling, c->sampler.name);
    row->ceiling_peak = c->sampler.peak;
    row->ceiling_rate = spread_of(s->samples, c->done).median;
    row_share(row, spread_of(s->shares, c->done));
}

/* Wrong results are no figures. The baseline rounds its scores to 16 bits, so its error is told,
 * not judged. */
static int finish(struct bench_case *c)
{
    struct check check = { .count = 0 };
    int status = check_engine(&c->engine, &check);
    if (!status && !check.passed && !c->options->standard) {
        fprintf(stderr, "ringattn: bench: the result is wrong: %s\n", check.what);
        return EXIT_CHECK;
    }
    for (int pass = 0; pass < c->passes && !status; pass++) {
        fill_row(c, pass, &check);
        if (c->rivals) rivals_write(c->rivals, pass, c->done, &c->series[pass]->row);
        else row_write(stdout, &c->series[pass]->row);
    }
    return status;
}

/* ---- The case -------------------------------------------------------------------------------- */

static int open_series(struct bench_case *c)
{
    for (int pass = 0; pass < c->passes; pass++) {
        c->series[pass] = calloc(1, sizeof *c->series[pass]);
        if (!c->series[pass]) return fault("out of memory: %d runs", CASE_RUNS_MOST);
        row_default(&c->series[pass]->row);
        row_machine(&c->series[pass]->row, c->trial->device);
        describe_problem(&c->series[pass]->row, c);
        copy(c->series[pass]->row.pass, sizeof c->series[pass]->row.pass,
             pass ? "backward" : "forward");
    }
    return EXIT_PASS;
}

/* Our results are there before others are compared with them. */
static int open_rivals(struct bench_case *c)
{
    struct rivals_setup setup = { .names = c->options->rivals,
                                  .engine = &c->engine,
                                  .shared = &c->shared,
                                  .passes = c->passes,
                                  .seconds = c->options->seconds,
                                  .timeout = c->options->wire.timeout };
    double seconds;
    int status = EXIT_PASS;
    for (int pass = 0; pass < c->passes && !status; pass++) {
        setup.rows[pass] = &c->series[pass]->row;
        status = run_pass(c, pass == 1, &seconds);
    }
    c->warmup = 1;
    return status ? status : rivals_open(&c->rivals, &setup);
}

static int measure_case(struct bench_case *c)
{
    int status = c->options->standard ? standard_open(&c->standard, &c->engine, c->options->memory)
                                      : EXIT_PASS;
    if (!status && has_rivals(c->options)) status = open_rivals(c);
    for (int pass = 0; pass < c->passes && !status; pass++) describe_plan(&c->series[pass]->row, c);
    if (!status) status = open_sampler(c);
    if (!status) status = run_rounds(c);
    return status ? status : finish(c);
}

/* Runs that would take longer than their limit are refused before they start. */
static int check_limit(struct bench_case *c, ra_machine *machine)
{
    struct forecast forecast;
    double limit = c->options->limit;
    if (!(limit > 0.0)) return EXIT_PASS;
    int status = measure(c->trial, c->options->wire, machine);
    if (!status) status = forecast_open(&forecast, c->trial, c->options->memory);
    if (status) return status;
    double seconds = forecast.seconds;
    forecast_close(&forecast);
    if (seconds <= limit) return EXIT_PASS;
    return refuse("a run would take %s; the limit is %s", text_seconds(seconds).s,
                  text_seconds(limit).s);
}

/* Tensors stay on a device, if it has memory of its own: a run is attention, not copies. */
static bool is_resident(const struct trial *t)
{
    return !trial_on_cpu(t) && strncmp(t->strategy, "stream", 6);
}

static int run_trial(const struct options *options, struct trial *trial)
{
    struct bench_case c = { .options = options,
                            .trial = trial,
                            .passes = trial->backward ? 2 : 1,
                            .runs = options->runs ? (int)options->runs : CASE_RUNS,
                            .rss_start = (double)machine_peak_rss() };
    struct engine_setup setup = { .trial = trial,
                                  .memory = options->standard ? 0 : options->memory,
                                  .wire = options->wire,
                                  .pool = options->pool,
                                  .link = { options->link, LINK_LATENCY, options->blocking },
                                  .quiet = true,
                                  .resident = is_resident(trial) };
    ra_machine machine;
    int status = check_limit(&c, &machine);
    if (!status && has_rivals(options)) {
        status = shared_open(&c.shared, trial);
        setup.inputs = &c.shared.inputs;
    }
    if (!status) status = open_series(&c);
    if (!status) status = engine_open(&c.engine, &setup);
    if (!status) {
        status = measure_case(&c);
        rivals_close(c.rivals);
        sampler_close(&c.sampler);
        standard_close(&c.standard);
        engine_close(&c.engine);
    }
    shared_close(&c.shared);
    for (int pass = 0; pass < c.passes; pass++) free(c.series[pass]);
    return status;
}

static int check_rivals(const struct options *options, const struct trial *trial)
{
    if (!has_rivals(options)) return EXIT_PASS;
    if (options->standard || options->replan)
        return refuse("--rivals is not for --standard and --replan");
    if (options->runs && options->runs < RIVALS_ROUNDS_LEAST)
        return refuse("--rivals: at least %d rounds (--runs)", RIVALS_ROUNDS_LEAST);
    int status = rivals_check(options->rivals);
    return status ? status : rivals_check_trial(trial);
}

static int run_problem(const struct options *options, const char *text)
{
    struct trial trial;
    const char *device = options->trial.device;
    int status = trial_parse(&trial, text);
    if (!status && !*trial.device && *device)
        status = trial_set(&trial, "device", "--device", device);
    if (!status) status = check_rivals(options, &trial);
    if (!status) status = world_open(&trial, options->wire);
    if (!status && world_runs(&trial)) status = world_agree(same_command(options, "bench"));
    if (!status) status = run_trial(options, &trial);
    trial_clear(&trial);
    return status;
}

/* ---- Ceilings -------------------------------------------------------------------------------- */

/* Samples, and what they say; closes the sampler. */
static int sample_ceiling(const struct options *options, struct sampler *sampler, struct row *row)
{
    double rates[CASE_RUNS_MOST];
    int runs = options->runs ? (int)options->runs : CASE_RUNS, status = EXIT_PASS;
    for (int i = 0; i < runs && !status; i++) {
        status = sampler_take(sampler, &rates[i]);
        if (!status) status = interrupt_check();
    }
    copy(row->kind, sizeof row->kind, "ceiling");
    copy(row->unit, sizeof row->unit, sampler->unit);
    copy(row->ceiling, sizeof row->ceiling, sampler->name);
    row->threads = sampler->threads;
    row->runs = runs;
    row->ceiling_peak = sampler->peak;
    sampler_close(sampler);
    if (!status) row_rate(row, spread_of(rates, runs));
    row->ceiling_rate = row->rate;
    return status;
}

static int open_ceiling(const struct options *options, const char *name, struct sampler *sampler)
{
    const struct ceiling *ceiling = ceiling_find(name);
    int threads = options->trial.threads ? (int)options->trial.threads : machine_cores();
    if (!ceiling) return refuse("bench: there is no ceiling \"%.40s\"", name);
    if (ceiling_absent(ceiling)) return refuse("%s", ceiling_absent(ceiling));
    return sampler_open(sampler, ceiling, threads, 0);
}

static int open_device_ceiling(const char *name, const char *device, struct sampler *sampler)
{
    int status = sampler_open_device(sampler, device, name, 0);
    return status || sampler->name ? status
                                   : refuse("bench: %s has no ceiling \"%.40s\"", device, name);
}

/* NAME, or NAME device=DEVICE. */
static int run_ceiling(const struct options *options, const char *text)
{
    static const char key[] = " device=";
    const char *device = strstr(text, key);
    char name[64] = "";
    struct sampler sampler;
    struct row row;
    copy(name, sizeof name, text);
    if (device && (size_t)(device - text) < sizeof name) name[device - text] = '\0';
    device = device ? device + sizeof key - 1 : "";
    int status = *device ? open_device_ceiling(name, device, &sampler)
                         : open_ceiling(options, name, &sampler);
    if (status) return status;
    row_default(&row);
    row_machine(&row, device);
    snprintf(row.problem, sizeof row.problem, CASE_CEILING "%s", text);
    status = sample_ceiling(options, &sampler, &row);
    if (!status) row_write(stdout, &row);
    return status;
}

int case_run(const struct options *options)
{
    struct string text = { .lost = false };
    if (options->word_count < 2) return refuse("bench case: its problem is missing");
    if (options->blocking && !(options->link > 0.0)) return refuse("--blocking is for --link");
    if (flags_given(options, "--runs") && options->runs < 1)
        return refuse("--runs: at least one run must count");
    if (options->runs > CASE_RUNS_MOST) return refuse("--runs: at most %d", CASE_RUNS_MOST);
    const char *first = options->words[1];
    if (!strncmp(first, CASE_CEILING, strlen(CASE_CEILING)))
        return run_ceiling(options, first + strlen(CASE_CEILING));
    for (int i = 1; i < options->word_count; i++)
        string_add(&text, "%s%s", i > 1 ? " " : "", options->words[i]);
    int status = text.s ? run_problem(options, text.s) : fault("out of memory");
    string_free(&text);
    return status;
}
