/* SPDX-License-Identifier: Apache-2.0 */
/* compare_section.c - patterns, strategies and systems beside the baseline. */
#include <string.h>

#include "harness/text/text.h"
#include "section.h"

static bool not_causal(const struct row *row) { return !row_is_causal(row); }

static void put_table(struct page *page, const struct rows *rows, const char *section,
                      const char *title)
{
    struct table table = { .title = title,
                           .heads = { "", "tokens", "batch", "heads", "dim", "dtype", "time",
                                      "spread", "tokens/s", "GFLOP/s", "of the ceiling",
                                      "memory per rank" },
                           .columns = 12 };
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (!row_in(row, "compare", section)) continue;
        table_text(&table, "%s", row->name);
        cell_count(&table, (double)row->queries);
        table_number(&table, (double)row->batch, "%lld", (long long)row->batch);
        if (row->kv_heads == row->heads)
            table_number(&table, (double)row->heads, "%lld", (long long)row->heads);
        else
            table_number(&table, (double)row->heads, "%lld/%lld", (long long)row->heads,
                         (long long)row->kv_heads);
        table_number(&table, (double)row->dim, "%lld", (long long)row->dim);
        table_text(&table, "%s", row->dtype);
        cell_seconds(&table, row);
        cell_count(&table, row->tokens_per_second);
        table_number(&table, row->rate, "%.1f", row->rate);
        table_number(&table, row->share, "%.0f%%", 100.0 * row->share);
        cell_bytes(&table, row->bytes_per_rank);
    }
    page_table(page, &table);
}

/* Of the rows by length: one for all of them. */
static const char *dtype_of(const struct rows *rows)
{
    for (int i = 0; i < rows->count; i++)
        if (row_in(&rows->at[i], "compare", "length")) return rows->at[i].dtype;
    return "f32";
}

static void write_compare(struct page *page, const struct rows *rows)
{
    static const struct {
        const char *section, *title;
    } tables[] = {
        { "length", "Length" },
        { "batch", "Batch" },
        { "heads", "Head shapes" },
        { "systems", "Every system of the reports" },
    };
    char titles[2][96];
    const char *dtype = dtype_of(rows);
    snprintf(titles[0], sizeof titles[0],
             "Time of a run by length, %s, 8 heads, dim 64, not causal", dtype);
    snprintf(titles[1], sizeof titles[1], "Throughput by length, %s, 8 heads, dim 64, not causal",
             dtype);
    struct plot time = { .id = "compare-time",
                         .title = titles[0],
                         .x_label = "tokens",
                         .y_label = "seconds",
                         .x_axis = AXIS_TOKENS,
                         .y_axis = AXIS_LOG };
    struct plot rate = time;
    rate.id = "compare-throughput";
    rate.title = titles[1];
    rate.y_label = "tokens per second";
    struct plot_rows what = { .suite = "compare",
                              .table = "length",
                              .x = x_tokens,
                              .y = y_seconds,
                              .wanted = not_causal,
                              .spread = true };
    plot_fill(&time, &what, rows);
    what.y = y_tokens_per_second;
    what.spread = false;
    plot_fill(&rate, &what, rows);
    page_plot(page, &time);
    page_plot(page, &rate);
    for (int i = 0; i < COUNT(tables); i++)
        put_table(page, rows, tables[i].section, tables[i].title);
}

const struct section section_compare = {
    .id = "compare", .title = "Comparison", .suite = "compare", .write = write_compare
};
