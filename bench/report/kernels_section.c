/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_section.c - kernels against the ceilings of the machine: the roofline. */
#include <math.h>
#include <string.h>

#include "harness/base/complain.h"
#include "harness/text/text.h"
#include "section.h"

/* FLOPs for each byte of the tensors that a pass must read or write once. */
static double intensity(const struct row *row)
{
    double bytes = strcmp(row->dtype, "f32") ? 2.0 : 4.0;
    double queries = (double)row->queries * (double)row->heads;
    double keys = (double)row->keys * (double)row->kv_heads;
    double width = (double)(row->dim + row->value_dim);
    double passes = strcmp(row->pass, "backward") ? 1.0 : 2.0;
    double flops = row->work;
    if (!strcmp(row->kind, "decode")) flops = 2.0 * row->pairs * width;
    return flops / ((queries + keys) * width * bytes * passes * (double)row->batch);
}

static double gflops(const struct row *row)
{
    if (strcmp(row->kind, "decode")) return row->rate;
    return 2.0 * row->pairs * (double)(row->dim + row->value_dim) / row->seconds * 1e-9;
}

/* Threads are those of a CPU. */
static double ceiling_of(const struct rows *rows, const char *name, int64_t threads)
{
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (row_in(row, "kernels", "ceilings") && !strcmp(row->name, name) &&
            (row->threads == threads || !row_is_cpu(row)))
            return row->rate;
    }
    return NAN;
}

/* The highest of some that there are. */
static double highest(const struct rows *rows, const char *const *names, int count, int64_t threads)
{
    double best = NAN;
    for (int i = 0; i < count; i++) best = fmax(best, ceiling_of(rows, names[i], threads));
    return best;
}

/* A roof: memory's slope until the ceiling of an instruction set. */
static void add_roof(struct plot *plot, const char *name, double bandwidth, double peak,
                     double least, double most)
{
    double knee = peak / bandwidth;
    if (!isfinite(peak) || !isfinite(bandwidth)) return;
    struct plot_series *s = plot_line(plot, name);
    if (s) s->is_bound = true;
    if (least < knee) plot_point(plot, name, least, least * bandwidth, NAN, NAN);
    plot_point(plot, name, fmax(knee, least), peak, NAN, NAN);
    plot_point(plot, name, most, peak, NAN, NAN);
}

static void plot_roof(struct page *page, const struct rows *rows)
{
    static const char *const of_bf16[] = { "dpbf16-avx512", "tdpbf16-amx", "mma-bf16",
                                           "wgmma-bf16" };
    static const char *const of_f32[] = { "fma-avx2", "fma-avx512", "fma-f32", "mma-tf32x3" };
    struct plot plot = { .id = "roofline",
                         .title = "Roofline: every kernel, all threads",
                         .x_label = "FLOPs for each byte of the tensors",
                         .y_label = "GFLOP/s",
                         .x_axis = AXIS_LOG,
                         .y_axis = AXIS_LOG };
    int64_t threads = 0;
    double least = INFINITY, most = 0.0;
    for (int i = 0; i < rows->count; i++)
        if (row_in(&rows->at[i], "kernels", "kernels") && rows->at[i].threads > threads)
            threads = rows->at[i].threads;
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (!row_in(row, "kernels", "kernels") || row->threads != threads) continue;
        struct plot_series *s = plot_line(&plot, row->name);
        if (s) s->is_cloud = true;
        plot_point(&plot, row->name, intensity(row), gflops(row), NAN, NAN);
        least = fmin(least, intensity(row));
        most = fmax(most, intensity(row));
    }
    double bandwidth = ceiling_of(rows, "read-memory", threads);
    add_roof(&plot, "bf16 ceiling", bandwidth, highest(rows, of_bf16, COUNT(of_bf16), threads),
             0.8 * least, 1.5 * most);
    add_roof(&plot, "f32 ceiling", bandwidth, highest(rows, of_f32, COUNT(of_f32), threads),
             0.8 * least, 1.5 * most);
    page_plot(page, &plot);
}

static void put_ceilings(struct page *page, const struct rows *rows)
{
    struct table table = { .heads = { "ceiling", "threads", "median", "least", "most", "unit" },
                           .columns = 6 };
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (!row_in(row, "kernels", "ceilings")) continue;
        table_text(&table, "%s", row->name);
        table_number(&table, (double)row->threads, "%lld", (long long)row->threads);
        table_number(&table, row->rate, "%.1f", row->rate);
        table_number(&table, row->rate_least, "%.1f", row->rate_least);
        table_number(&table, row->rate_most, "%.1f", row->rate_most);
        table_text(&table, "%s", row->unit);
    }
    page_heading(page, "Ceilings");
    page_table(page, &table);
}

/* A number that may not be known. */
static void cell_measured(struct table *table, double value)
{
    if (value > 0.0) table_number(table, value, "%.0f", value);
    else table_text(table, " ");
}

static void put_kernels(struct page *page, const struct rows *rows)
{
    struct table table = { .heads = { "kernel", "dtype", "dim", "pass", "pattern", "threads",
                                      "rate", "unit", "spread", "of the ceiling", "ceiling" },
                           .columns = 11 };
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (!row_in(row, "kernels", "kernels")) continue;
        table_text(&table, "%s", row->kernel);
        table_text(&table, "%s", row->dtype);
        table_number(&table, (double)row->dim, "%lld", (long long)row->dim);
        table_text(&table, "%s", strcmp(row->kind, "decode") ? row->pass : "decode");
        table_text(&table, "%s", row->pattern);
        table_number(&table, (double)row->threads, "%lld", (long long)row->threads);
        table_number(&table, row->rate, "%.1f", row->rate);
        table_text(&table, "%s", row->unit);
        table_phrase(&table, "%.1f to %.1f, %lld runs", row->rate_least, row->rate_most,
                     (long long)row->runs);
        table_number(&table, row->share, "%.0f%%", 100.0 * row->share);
        table_text(&table, "%s", *row->ceiling ? row->ceiling : "none");
    }
    page_heading(page, "Kernels");
    page_table(page, &table);
}

/* Who was how fast in turns with whom, problem by problem: ours, then those beside it. */
static void put_rivals(struct page *page, const struct rows *rows)
{
    struct table table = { .heads = { "pattern", "tokens", "dim", "dtype", "pass", "who", "GFLOP/s",
                                      "theirs / ours", "spread", "single shot", "MHz", "W" },
                           .columns = 12 };
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (!row_in(row, "kernels", "rivals")) continue;
        table_text(&table, "%s", row->pattern);
        cell_count(&table, (double)row->queries);
        table_number(&table, (double)row->dim, "%lld", (long long)row->dim);
        table_text(&table, "%s", row->dtype);
        table_text(&table, "%s", row->pass);
        table_text(&table, "%s%s%s", row->name, *row->kernel ? ", " : "", row->kernel);
        table_number(&table, row->rate, "%.1f", row->rate);
        if (row->ratio > 0.0) {
            table_number(&table, row->ratio, "%.3f", row->ratio);
            table_phrase(&table, "%.3f to %.3f, %lld rounds", row->ratio_least, row->ratio_most,
                         (long long)row->runs);
        } else {
            table_text(&table, " ");
            table_text(&table, " ");
        }
        table_number(&table, row->single_seconds, "%s", text_seconds(row->single_seconds).s);
        cell_measured(&table, row->clock_mhz);
        cell_measured(&table, row->power_watts);
    }
    if (!table.count) return;
    page_heading(page, "Beside rivals, in turns");
    page_text(page, "Ratios are of the seconds of a call, round by round: above 1 ours is faster. "
                    "Calls come one after the other and fill a time, at the clock and the power "
                    "beside them; a single shot is one call after a pause.");
    page_table(page, &table);
}

static void write_kernels(struct page *page, const struct rows *rows)
{
    plot_roof(page, rows);
    put_ceilings(page, rows);
    put_kernels(page, rows);
    put_rivals(page, rows);
}

const struct section section_kernels = {
    .id = "kernels", .title = "Kernels and ceilings", .suite = "kernels", .write = write_kernels
};
