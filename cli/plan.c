/* plan.c - the verb `plan`: what a run would need, without running it. */
#include "verbs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "forecast.h"
#include "half.h"
#include "json.h"
#include "npy.h"
#include "predict.h"
#include "report.h"
#include "rings.h"
#include "text.h"

#define MASK_MOST 4096 /* queries and keys of a mask file */

/* ---- Memory by purpose ----------------------------------------------------------------------- */

static const struct {
    const char *name, *help;
    size_t offset;
} purposes[] = {
    { "shard", "your tensors of this rank", offsetof(ra_memory, shard) },
    { "travel", "K and V on their way, or gathered", offsetof(ra_memory, travel) },
    { "state", "running softmax of rows that span hops", offsetof(ra_memory, state) },
    { "gradient", "f32 sums of dQ, dK, dV", offsetof(ra_memory, gradient) },
    { "workspace", "of the kernel", offsetof(ra_memory, workspace) },
    { "bookkeeping", "the plan itself", offsetof(ra_memory, bookkeeping) },
    { "total", "what a budget is held against", offsetof(ra_memory, total) },
};

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
    memory_range(forecast, COUNT(purposes) - 1, &least, &top);
    printf("\n%-12s %12s %12s\n", "memory", "least rank", "most");
    for (int i = 0; i < COUNT(purposes); i++) {
        memory_range(forecast, i, &least, &most);
        printf("%-12s %12s %12s  %s %s\n", purposes[i].name, text_bytes((double)least).s,
               text_bytes((double)most).s, text_bar((double)most / (double)top, 16).s,
               purposes[i].help);
    }
}

/* ---- Output ---------------------------------------------------------------------------------- */

static int64_t bytes_sent(const struct forecast *forecast, int rank)
{
    return forecast->rank[rank].forward.bytes_sent + forecast->rank[rank].backward.bytes_sent;
}

static void print_people(const struct trial *t, const struct forecast *f,
                         const struct prediction *p)
{
    char *problem = trial_format(t);
    int64_t most = 0, all = 0;
    for (int rank = 0; rank < f->ranks; rank++) {
        all += bytes_sent(f, rank);
        if (bytes_sent(f, rank) > most) most = bytes_sent(f, rank);
    }
    printf("problem      %s\n", problem ? problem : "?");
    printf("ranks        %d (%s, %s, %s), %d thread%s each, kernel %s, %s\n", f->ranks, t->strategy,
           t->partition, t->transport, f->threads, f->threads == 1 ? "" : "s", f->kernel,
           half_name((ra_dtype)t->dtype));
    printf("work         %s pairs, density %.4g, %.4g GFLOP\n", text_count(f->pairs).s, f->density,
           f->flops * 1e-9);
    printf("sent         %s per rank at most, %s in all, in %s hop%s\n", text_bytes((double)most).s,
           text_bytes((double)all).s, text_count(f->hops).s, f->hops == 1 ? "" : "s");
    printf("predicted    %s here, at %s GFLOP/s measured just now", text_seconds(p->seconds).s,
           text_real(p->forward_gflops).s);
    if (t->backward) printf(" (backward %s)", text_real(p->backward_gflops).s);
    printf("\n");
    print_memory(f);
    free(problem);
}

static void print_json(const struct trial *t, const struct forecast *f, const struct prediction *p)
{
    struct json json = { .stream = stdout };
    json_open(&json, NULL, '{');
    report_problem_json(&json, t);
    json_text(&json, "kernel", f->kernel);
    json_whole(&json, "threads", f->threads);
    json_whole(&json, "pairs", f->pairs);
    json_whole(&json, "flops", (int64_t)f->flops);
    json_real(&json, "density", f->density);
    json_whole(&json, "hops", f->hops);
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
    json_real(&json, "predicted_seconds", p->seconds);
    json_real(&json, "measured_gflops", p->forward_gflops);
    json_close(&json, '}');
}

/* ---- Steps and mask -------------------------------------------------------------------------- */

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

static int check_mask(const struct options *o)
{
    size_t length = strlen(o->mask);
    const struct trial *t = &o->trial;
    if (length > 4 && !strcasecmp(o->mask + length - 4, ".png"))
        return refuse("--mask: .png is not in this version; .npy is written");
    if (t->q_len > MASK_MOST || t->k_len > MASK_MOST)
        return refuse("--mask: %" PRId64 " x %" PRId64 " is too large to look at; at most %d x %d",
                      t->q_len, t->k_len, MASK_MOST, MASK_MOST);
    return outfile_check("--mask", o->mask);
}

static ra_status fill_mask(const struct trial *t, uint8_t *seen)
{
    ra_pattern *pattern;
    ra_status status = ra_pattern_parse(t->pattern ? t->pattern : "full", &pattern);
    if (status != RA_OK) return status;
    for (int64_t query = 0; query < t->q_len && status == RA_OK; query++)
        status = ra_pattern_row(pattern, t->q_len, t->k_len, 0, query, seen + query * t->k_len);
    ra_pattern_destroy(pattern);
    return status;
}

static int write_mask(const struct options *o)
{
    const struct trial *t = &o->trial;
    struct outfile file = { .path = NULL };
    uint8_t *seen = calloc((size_t)t->q_len, (size_t)t->k_len);
    if (!seen) return fault("out of memory: %" PRId64 " bytes", t->q_len * t->k_len);
    int status = library_failed(fill_mask(t, seen));
    struct npy_output output = {
        .bytes = true, .axes = 2, .shape = { t->q_len, t->k_len }, .data = seen
    };
    if (!status) status = npy_write(&file, o->mask, &output);
    if (!status) status = outfile_commit(&file);
    outfile_discard(&file);
    free(seen);
    return status;
}

/* ---- The verb -------------------------------------------------------------------------------- */

static int check_options(const struct options *o)
{
    bool one_ring = flags_given(o, "--ring") || flags_given(o, "--ring-size");
    if (o->rings && (o->explain || o->json || o->mask || one_ring))
        return refuse("--rings prints a table; leave out --ring, --explain, --mask and --json");
    if (o->explain && o->json) return refuse("--explain prints lines; leave out --json");
    if (!o->explain && flags_given(o, "--rank")) return refuse("--rank is for --explain");
    if (o->rank >= o->trial.ranks)
        return refuse("--rank: there are ranks 0 to %" PRId64, o->trial.ranks - 1);
    return o->mask ? check_mask(o) : EXIT_PASS;
}

int verb_plan(struct options *o)
{
    struct forecast forecast;
    struct prediction prediction;
    int status = trial_settle(&o->trial);
    if (!status) status = check_options(o);
    if (!status && o->rings) return rings_print(o);
    if (!status) status = forecast_open(&forecast, &o->trial, o->memory);
    if (status) return status;
    status = predict(&o->trial, &forecast, &prediction);
    if (!status && o->mask) status = write_mask(o);
    if (!status && o->json) print_json(&o->trial, &forecast, &prediction);
    if (!status && !o->json) print_people(&o->trial, &forecast, &prediction);
    if (!status && o->explain) status = explain(o);
    forecast_close(&forecast);
    return status;
}
