/* SPDX-License-Identifier: Apache-2.0 */
/* scaling_section.c - more ranks: speed, exposed communication, balance, error. */
#include <math.h>
#include <string.h>

#include "harness/text/text.h"
#include "section.h"

/* The row of one rank that a row is compared with. */
static const struct row *alone(const struct rows *rows, const struct row *row)
{
    for (int i = 0; i < rows->count; i++) {
        const struct row *other = &rows->at[i];
        if (row_in(other, "scaling", row->section) && other->ranks == 1 &&
            !strcmp(other->name, row->name))
            return other;
    }
    return NULL;
}

static double speed_up(const struct rows *rows, const struct row *row)
{
    const struct row *one = alone(rows, row);
    return one ? row->rate / one->rate : NAN;
}

static void plot_speed(struct page *page, const struct rows *rows)
{
    struct plot plot = { .id = "scaling",
                         .title = "Work per second against one rank",
                         .x_label = "ranks",
                         .y_label = "times as much",
                         .x_axis = AXIS_TOKENS };
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        char name[40];
        if (!row_in(row, "scaling", "strong") && !row_in(row, "scaling", "weak")) continue;
        snprintf(name, sizeof name, "%.8s, %.20s", row->section, row->name);
        const char *bound = row_is_cpu(row) ? "cores" : "one GPU";
        double speed = speed_up(rows, row);
        plot_point(&plot, name, (double)row->ranks, speed, speed, speed);
        struct plot_series *ideal = plot_line(&plot, bound);
        if (!ideal) continue;
        ideal->is_bound = true;
        double cores = row_is_cpu(row) ? fmin((double)row->ranks, (double)row->cores) : 1.0;
        bool there = false;
        for (int k = 0; k < ideal->count; k++) there |= ideal->x[k] == (double)row->ranks;
        if (!there) plot_point(&plot, bound, (double)row->ranks, cores, cores, cores);
    }
    page_plot(page, &plot);
}

static void put_scaling(struct page *page, const struct rows *rows, const char *section)
{
    struct table table = { .heads = { "ranks are", "ranks", "tokens", "time", "spread", "GFLOP/s",
                                      "against one rank", "exposed communication", "imbalance",
                                      "sent per rank" },
                           .columns = 10 };
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (!row_in(row, "scaling", section)) continue;
        table_text(&table, "%s%s", row->name, strcmp(row->pass, "backward") ? "" : ", backward");
        table_number(&table, (double)row->ranks, "%lld", (long long)row->ranks);
        cell_count(&table, (double)row->queries);
        cell_seconds(&table, row);
        table_number(&table, row->rate, "%.1f", row->rate);
        table_number(&table, speed_up(rows, row), "%.2fx", speed_up(rows, row));
        table_number(&table, row->exposed, "%.2f%%", 100.0 * row->exposed);
        table_number(&table, row->imbalance, "%.2f", row->imbalance);
        cell_bytes(&table, row->bytes_sent);
    }
    page_table(page, &table);
}

static double y_error(const struct row *row) { return row->error; }

static void put_errors(struct page *page, const struct rows *rows)
{
    struct plot plot = { .id = "error-by-ring",
                         .title = "Largest error against fp64, 1,024 tokens, full attention",
                         .x_label = "ring size",
                         .y_label = "largest difference",
                         .x_axis = AXIS_TOKENS,
                         .y_axis = AXIS_LOG };
    struct plot_rows what = { .suite = "scaling", .table = "error", .x = x_ranks, .y = y_error };
    struct table table = { .heads = { "dtype", "ring", "error", "allowed", "rows compared" },
                           .columns = 5 };
    plot_fill(&plot, &what, rows);
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (!row_in(row, "scaling", "error")) continue;
        table_text(&table, "%s", row->dtype);
        table_number(&table, (double)row->ranks, "%lld", (long long)row->ranks);
        table_number(&table, row->error, "%.2e", row->error);
        table_number(&table, row->error_bound, "%.2e", row->error_bound);
        cell_count(&table, row->rows_checked);
    }
    page_heading(page, "Error by ring size");
    page_plot(page, &plot);
    page_table(page, &table);
}

static void write_scaling(struct page *page, const struct rows *rows)
{
    page_text(page, row_is_cpu(&rows->at[0])
                        ? "One thread per rank. Beyond the cores of the machine, ranks share them: "
                          "no gain is possible there, and the dashed line says so."
                        : "All ranks share one GPU: no gain is possible, and what is below the "
                          "dashed line is what a ring costs.");
    plot_speed(page, rows);
    page_heading(page, "Strong: one causal problem over more ranks");
    put_scaling(page, rows, "strong");
    page_heading(page, "Weak: dilated attention, as many tokens for each rank");
    put_scaling(page, rows, "weak");
    page_heading(page, "Strategies, 4 ranks, causal");
    put_scaling(page, rows, "strategy");
    put_errors(page, rows);
}

const struct section section_scaling = {
    .id = "scaling", .title = "Scaling", .suite = "scaling", .write = write_scaling
};
