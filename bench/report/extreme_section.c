/* SPDX-License-Identifier: Apache-2.0 */
/* extreme_section.c - long sequences. */
#include <string.h>

#include "harness/text/text.h"
#include "section.h"

static void put_table(struct page *page, const struct rows *rows, const char *section,
                      const char *title)
{
    struct table table = { .title = title,
                           .heads = { "", "tokens", "dtype", "within", "time", "spread", "tokens/s",
                                      "memory", "process, by the system", "keys seen" },
                           .columns = 10 };
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (!row_in(row, "extreme", section)) continue;
        table_text(&table, "%s", row->name);
        cell_count(&table, (double)row->queries);
        table_text(&table, "%s", row->dtype);
        table_text(&table, "`%s`", *row->options ? row->options : "-");
        cell_seconds(&table, row);
        cell_count(&table, row->tokens_per_second);
        cell_bytes(&table, row->bytes_per_rank);
        cell_bytes(&table, row->rss_bytes - row->rss_start_bytes);
        table_number(&table, row->density, "%.3g%%", 100.0 * row->density);
    }
    page_table(page, &table);
}

static void write_extreme(struct page *page, const struct rows *rows)
{
    struct plot plot = { .id = "extreme-time",
                         .title = "Long sequences, bf16, 8 heads, dim 64",
                         .x_label = "tokens",
                         .y_label = "seconds",
                         .x_axis = AXIS_TOKENS,
                         .y_axis = AXIS_LOG };
    struct plot_rows what = {
        .suite = "extreme", .table = "longest", .x = x_tokens, .y = y_seconds, .spread = true
    };
    plot_fill(&plot, &what, rows);
    page_plot(page, &plot);
    put_table(page, rows, "long", "Long");
    put_table(page, rows, "longest", "Doubled until a limit");
    put_table(page, rows, "reports", "Lengths of the reports");
}

const struct section section_extreme = {
    .id = "extreme", .title = "Long sequences", .suite = "extreme", .write = write_extreme
};
