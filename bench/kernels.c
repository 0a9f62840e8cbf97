/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - the suite `kernels`: the ceilings of this machine, and how near every kernel comes.
 *
 * Each run of a kernel is next to a sample of its ceiling, so that both have the same conditions;
 * the median of these ratios is printed. A backward pass is timed alone, after a forward pass that
 * has written output and LSE. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ceilings/ceiling.h"
#include "harness/run/engine.h"
#include "harness/base/half.h"
#include "harness/base/interrupt.h"
#include "harness/base/machine.h"
#include "harness/text/progress.h"
#include "record.h"
#include "sampler.h"
#include "truth.h"

static const char suite_name[] = "kernels";

/* The ceiling of each kernel, and its tokens. A kernel that is not in this list, or whose ceiling
 * is absent, is compared with the best of f32. */
static const struct rule {
    const char *kernel, *ceiling;
    int64_t tokens, quick_tokens;
} rules[] = {
    { "scalar", NULL, 256, 128 },     { "avx2", "fma-avx2", 0, 0 },
    { "avx512", "fma-avx512", 0, 0 }, { "avx512bf16", "dpbf16-avx512", 0, 0 },
    { "amx", "tdpbf16-amx", 0, 0 },
};

enum { TOKENS = 4096, QUICK_TOKENS = 1024, HEADS = 8, DECODE_KEYS = 16 /* for each token */ };

static const ra_dtype dtypes[] = { RA_F32, RA_BF16, RA_F16 };
enum { DECODE_DTYPES = 2 /* the first of them */ };
static const int64_t dims[] = { 64, 128 };
static const char *const patterns[] = { "full", "causal" };

/* The suite as it runs. */
struct suite {
    const struct options *options;
    int runs;
    int threads[2], thread_counts;
    struct records records;
    int kernels;    /* usable ones */
    int done, todo; /* settings, for the progress line */
};

/* ---- Ceilings -------------------------------------------------------------------------------- */

static const struct ceiling *usable_ceiling(const char *name)
{
    const struct ceiling *ceiling = name ? ceiling_find(name) : NULL;
    return ceiling && !ceiling_absent(ceiling) ? ceiling : NULL;
}

static const struct rule *find_rule(const char *kernel)
{
    static const struct rule other = { NULL, NULL, 0, 0 };
    for (int i = 0; i < COUNT(rules); i++)
        if (!strcmp(rules[i].kernel, kernel)) return &rules[i];
    return &other;
}

/* NULL where this machine has none of them. */
static const struct ceiling *ceiling_of(const char *kernel)
{
    const struct ceiling *own = usable_ceiling(find_rule(kernel)->ceiling);
    if (!own) own = usable_ceiling("fma-avx512");
    return own ? own : usable_ceiling("fma-avx2");
}

static void print_ceiling(const struct record *r, const char *summary)
{
    progress_hide();
    if (*r->absent) printf("  %-14s absent: %s\n", r->name, r->absent);
    else
        printf("  %-14s %3d  %9.1f  %8.1f to %-8.1f %-8s %s\n", r->name, r->threads, r->rate.median,
               r->rate.least, r->rate.most, r->unit, summary);
    fflush(stdout);
}

static int keep_ceiling(struct suite *suite, const struct ceiling *ceiling, struct record *record)
{
    record->kind = "ceiling";
    record->unit = ceiling->unit;
    strcpy(record->name, ceiling->name);
    print_ceiling(record, ceiling->summary);
    return records_add(&suite->records, record);
}

static int measure_ceiling(struct suite *suite, const struct ceiling *ceiling, int threads)
{
    struct sampler sampler;
    double rates[BENCH_RUNS];
    int status = sampler_open(&sampler, ceiling, threads, 0);
    if (status) return status;
    for (int i = 0; i < suite->runs && !status; i++) {
        status = sampler_take(&sampler, &rates[i]);
        if (!status) status = interrupt_check();
    }
    struct record record = { .threads = threads, .runs = suite->runs, .peak = sampler.peak };
    sampler_close(&sampler);
    if (status) return status;
    record.rate = spread_of(rates, suite->runs);
    return keep_ceiling(suite, ceiling, &record);
}

static int measure_ceilings(struct suite *suite)
{
    int status = EXIT_PASS;
    printf("ceilings    threads     median     least to most\n");
    for (int i = 0; ceiling_at(i) && !status; i++) {
        const struct ceiling *ceiling = ceiling_at(i);
        const char *absent = ceiling_absent(ceiling);
        struct record record = { .threads = 0 };
        if (absent) {
            snprintf(record.absent, sizeof record.absent, "%s", absent);
            status = keep_ceiling(suite, ceiling, &record);
        }
        for (int t = 0; t < suite->thread_counts && !absent && !status; t++)
            status = measure_ceiling(suite, ceiling, suite->threads[t]);
    }
    return status;
}

/* Cores that are shared give each sample less than they could. */
static void warn_busy(const struct records *records)
{
    int low = 0, count = 0;
    for (int i = 0; i < records->count; i++) {
        const struct record *r = &records->rows[i];
        count += r->peak > 0.0;
        low += r->rate.median < 0.8 * r->peak;
    }
    if (2 * low <= count) return;
    progress_hide();
    printf("  (other programs use these cores: figures are lower than they could be)\n");
}

/* ---- Settings -------------------------------------------------------------------------------- */

/* One way to run one kernel; decode: a single query against many keys. */
struct setting {
    const char *kernel;
    int threads;
    ra_dtype dtype;
    int64_t dim;
    const char *pattern;
    bool decode;
};

static int64_t tokens_of(const struct suite *suite, const char *kernel)
{
    const struct rule *rule = find_rule(kernel);
    bool quick = suite->options->quick;
    int64_t own = quick ? rule->quick_tokens : rule->tokens;
    if (suite->options->trial.q_len) return suite->options->trial.q_len;
    if (own) return own;
    return quick ? QUICK_TOKENS : TOKENS;
}

static int make_trial(const struct suite *suite, const struct setting *s, struct trial *trial)
{
    int64_t tokens = tokens_of(suite, s->kernel), heads = suite->options->trial.q_heads;
    trial_default(trial);
    trial->q_len = s->decode ? 1 : tokens;
    trial->k_len = s->decode ? tokens * DECODE_KEYS : tokens;
    trial->q_heads = heads ? heads : HEADS;
    trial->dim = s->dim;
    trial->dtype = (int)s->dtype;
    trial->threads = s->threads;
    trial->backward = !s->decode;
    snprintf(trial->kernel, sizeof trial->kernel, "%s", s->kernel);
    trial->pattern = strdup(s->pattern);
    if (!trial->pattern) return fault("out of memory: %zu bytes", strlen(s->pattern));
    return trial_settle(trial);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* One pass of a setting, run after run. */
struct series {
    struct record record;
    double seconds[BENCH_RUNS], rates[BENCH_RUNS], ceilings[BENCH_RUNS], shares[BENCH_RUNS];
};

static double pairs_of(const struct trial *t)
{
    double n = (double)t->q_len, k = (double)t->k_len;
    return (double)t->q_heads * (strcmp(t->pattern, "causal") ? n * k : 0.5 * n * (n + 1.0));
}

static struct record describe(const struct suite *suite, const struct setting *s,
                              const struct trial *t, bool backward)
{
    double dim = (double)t->dim, value_dim = (double)t->value_dim;
    double bytes = (double)t->k_len * (double)t->kv_heads * (dim + value_dim) *
                   (double)half_bytes(s->dtype);
    double flops = 2.0 * pairs_of(t) * (backward ? 3.0 * dim + 2.0 * value_dim : dim + value_dim);
    struct record record = { .kind = s->decode ? "decode" : "attention",
                             .threads = s->threads,
                             .runs = suite->runs,
                             .dtype = half_name(s->dtype),
                             .pass = backward ? "backward" : "forward",
                             .pattern = s->pattern,
                             .dim = t->dim,
                             .heads = t->q_heads,
                             .q_len = t->q_len,
                             .k_len = t->k_len,
                             .work = s->decode ? bytes : flops,
                             .unit = s->decode ? "GB/s" : "GFLOP/s" };
    strcpy(record.name, t->kernel);
    return record;
}

/* One run, and the ceiling's sample before it. */
static int run_once(struct engine *engine, struct sampler *sampler, bool backward,
                    struct series *series, int run)
{
    int status = interrupt_check();
    series->ceilings[run] = NAN;
    if (!status && sampler->ceiling) status = sampler_take(sampler, &series->ceilings[run]);
    if (!status) status = backward ? engine_backward(engine) : engine_forward(engine);
    series->seconds[run] = backward ? engine->backward_seconds : engine->forward_seconds;
    series->rates[run] = series->record.work / series->seconds[run] * 1e-9;
    series->shares[run] = series->rates[run] / series->ceilings[run];
    return status;
}

static void print_row(const struct record *r)
{
    progress_hide();
    printf("  %-11s %-5s %4lld %-9s %-7s %7lld %3d  %9.1f  %8.1f to %-8.1f %-8s", r->name, r->dtype,
           (long long)r->dim, strcmp(r->kind, "decode") ? r->pass : "decode", r->pattern,
           (long long)r->k_len, r->threads, r->rate.median, r->rate.least, r->rate.most, r->unit);
    if (r->ceiling) printf("  %5.1f%% of %s\n", 100.0 * r->share.median, r->ceiling);
    else printf("  no ceiling\n");
    fflush(stdout);
}

static int keep_series(struct suite *suite, const struct sampler *sampler, struct series *series)
{
    struct record *r = &series->record;
    r->seconds = spread_of(series->seconds, suite->runs);
    r->rate = spread_of(series->rates, suite->runs);
    if (sampler->ceiling) {
        r->ceiling = sampler->ceiling->name;
        r->peak = sampler->peak;
        r->ceiling_rate = spread_of(series->ceilings, suite->runs);
        r->share = spread_of(series->shares, suite->runs);
    }
    print_row(r);
    return records_add(&suite->records, r);
}

/* Forward and, with gradients, backward in turn; the first round warms up and does not count. */
static int run_series(struct suite *suite, const struct setting *s, struct engine *engine,
                      struct sampler *sampler)
{
    struct series series[2];
    int passes = engine->trial->backward ? 2 : 1, status = EXIT_PASS;
    for (int pass = 0; pass < passes; pass++)
        series[pass].record = describe(suite, s, engine->trial, pass == 1);
    for (int run = -1; run < suite->runs; run++)
        for (int pass = 0; pass < passes && !status; pass++)
            status = run_once(engine, sampler, pass == 1, &series[pass], run < 0 ? 0 : run);
    for (int pass = 0; pass < passes && !status; pass++)
        status = keep_series(suite, sampler, &series[pass]);
    return status;
}

/* Reading is sampled over as many bytes as the keys and values have, for these may be in a
 * cache. */
static int open_sampler(const struct suite *suite, const struct setting *s,
                        const struct trial *trial, struct sampler *sampler)
{
    const struct ceiling *ceiling = s->decode ? usable_ceiling("read-memory")
                                              : ceiling_of(s->kernel);
    *sampler = (struct sampler){ .threads = s->threads };
    if (!ceiling) return EXIT_PASS;
    return sampler_open(sampler, ceiling, s->threads,
                        (size_t)describe(suite, s, trial, false).work);
}

static int run_trial(struct suite *suite, const struct setting *s, const struct trial *trial)
{
    struct engine engine;
    struct sampler sampler;
    int status = engine_open(&engine, &(struct engine_setup){ .trial = trial, .quiet = true });
    if (status) return status;
    status = open_sampler(suite, s, trial, &sampler);
    if (!status) {
        status = run_series(suite, s, &engine, &sampler);
        sampler_close(&sampler);
    }
    engine_close(&engine);
    return status;
}

static int run_setting(struct suite *suite, const struct setting *s)
{
    struct trial trial;
    bool serves = false;
    int status = make_trial(suite, s, &trial);
    if (!status) status = forecast_serves(&trial, &serves);
    if (!status && !serves && trial.backward) { /* perhaps without gradients */
        trial.backward = false;
        status = forecast_serves(&trial, &serves);
    }
    if (!status && serves) status = run_trial(suite, s, &trial);
    trial_clear(&trial);
    progress_update((double)++suite->done / suite->todo);
    return status;
}

/* ---- All of them ----------------------------------------------------------------------------- */

static int run_kernel(struct suite *suite, const char *kernel, int threads)
{
    int status = EXIT_PASS;
    struct setting s = { .kernel = kernel, .threads = threads };
    for (int i = 0; i < COUNT(dtypes) * COUNT(dims) * COUNT(patterns) && !status; i++) {
        s.dtype = dtypes[i / (COUNT(dims) * COUNT(patterns))];
        s.dim = dims[i / COUNT(patterns) % COUNT(dims)];
        s.pattern = patterns[i % COUNT(patterns)];
        status = run_setting(suite, &s);
    }
    s.decode = true;
    s.pattern = "full";
    for (int i = 0; i < DECODE_DTYPES * COUNT(dims) && !status; i++) {
        s.dtype = dtypes[i / COUNT(dims)];
        s.dim = dims[i % COUNT(dims)];
        status = run_setting(suite, &s);
    }
    return status;
}

static bool is_wanted(const struct suite *suite, const ra_part *part)
{
    const char *only = suite->options->trial.kernel;
    return part->usable && (!*only || !strcmp(only, part->name));
}

static int run_kernels(struct suite *suite)
{
    ra_part part = ra_part_default();
    int status = EXIT_PASS;
    printf("\nkernels     dtype  dim pass      pattern    keys thr     median     least to most\n");
    for (int i = 0; ra_part_at("kernel", i, &part) == RA_OK && !status; i++)
        for (int t = 0; t < suite->thread_counts && is_wanted(suite, &part) && !status; t++)
            status = run_kernel(suite, part.name, suite->threads[t]);
    return status;
}

static int prepare(struct suite *suite)
{
    const struct trial *wish = &suite->options->trial;
    ra_part part = ra_part_default();
    suite->threads[suite->thread_counts++] = wish->threads ? (int)wish->threads : 1;
    if (!wish->threads && machine_cores() > 1)
        suite->threads[suite->thread_counts++] = machine_cores();
    for (int i = 0; ra_part_at("kernel", i, &part) == RA_OK; i++)
        suite->kernels += is_wanted(suite, &part);
    if (!suite->kernels) return refuse("--kernel: %s is not usable here", wish->kernel);
    suite->todo = suite->thread_counts * suite->kernels * COUNT(dims) *
                  (COUNT(dtypes) * COUNT(patterns) + DECODE_DTYPES);
    const char *folder = suite->options->out;
    return folder ? records_check(folder, suite_name) : EXIT_PASS;
}

int bench_kernels(const struct options *options)
{
    struct suite suite = { .options = options,
                           .runs = options->quick ? BENCH_QUICK_RUNS : BENCH_RUNS };
    int status = prepare(&suite);
    if (status) return status;
    printf("ringattn %s, %s, %d cores; median of %d runs%s\n\n", ra_version(), machine_cpu(),
           machine_cores(), suite.runs, options->quick ? " (--quick: a glance, not a figure)" : "");
    progress_begin(suite_name, options->quiet);
    status = measure_ceilings(&suite);
    if (!status) warn_busy(&suite.records);
    if (!status) status = run_kernels(&suite);
    progress_end();
    if (!status) status = truth_check(&suite.records);
    if (!status && options->out) status = records_write(&suite.records, options->out, suite_name);
    records_free(&suite.records);
    return status;
}
