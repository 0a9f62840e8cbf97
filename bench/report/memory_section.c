/* SPDX-License-Identifier: Apache-2.0 */
/* memory_section.c - bytes per rank against length and ring size; the four plots of the reports. */
#include <math.h>
#include <string.h>

#include "harness/text/text.h"
#include "section.h"

/* The baseline at the same length; NULL where it did not fit. */
static const struct row *standard_of(const struct rows *rows, const struct row *row)
{
    for (int i = 0; i < rows->count; i++) {
        const struct row *other = &rows->at[i];
        if (row_in(other, "memory", "ring") && !strcmp(other->kind, "standard") &&
            other->queries == row->queries)
            return other;
    }
    return NULL;
}

static bool is_ring(const struct row *row) { return strcmp(row->kind, "standard") != 0; }

static void plot_reduction(struct page *page, const struct rows *rows)
{
    struct plot plot = { .id = "memory-reduction",
                         .title = "Memory per rank against standard attention",
                         .x_label = "ring size",
                         .y_label = "saved, %",
                         .x_axis = AXIS_TOKENS };
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (!row_in(row, "memory", "ring") || !is_ring(row)) continue;
        const struct row *base = standard_of(rows, row);
        char name[40];
        snprintf(name, sizeof name, "%.20s tokens", text_count(row->queries).s);
        if (!base) continue;
        double saved = 100.0 * (1.0 - row->bytes_per_rank / base->bytes_per_rank);
        plot_point(&plot, name, (double)row->ranks, saved, saved, saved);
    }
    page_plot(page, &plot);
}

static void plot_rings(struct page *page, const struct rows *rows)
{
    struct plot memory = { .id = "memory-by-length",
                           .title = "Memory per rank, full attention, f16, 8 heads, dim 64",
                           .x_label = "tokens",
                           .y_label = "MiB per rank",
                           .x_axis = AXIS_TOKENS,
                           .y_axis = AXIS_LOG };
    struct plot rate = { .id = "throughput-by-length",
                         .title = "Throughput on one machine, by ring size",
                         .x_label = "tokens",
                         .y_label = "tokens per second",
                         .x_axis = AXIS_TOKENS,
                         .y_axis = AXIS_LOG };
    struct plot time = { .id = "time-by-length",
                         .title = "Time of a run on one machine, by ring size",
                         .x_label = "tokens",
                         .y_label = "seconds",
                         .x_axis = AXIS_TOKENS,
                         .y_axis = AXIS_LOG };
    struct plot_rows what = { .suite = "memory", .table = "ring", .x = x_tokens, .y = y_mebibytes };
    plot_fill(&memory, &what, rows);
    what.y = y_tokens_per_second;
    plot_fill(&rate, &what, rows);
    what.y = y_seconds;
    what.spread = true;
    plot_fill(&time, &what, rows);
    page_plot(page, &memory);
    plot_reduction(page, rows);
    page_plot(page, &rate);
    page_plot(page, &time);
}

static void put_table(struct page *page, const struct rows *rows, const char *section,
                      const char *title)
{
    struct table table = { .title = title,
                           .heads = { "", "tokens", "ranks", "per rank", "KB per token",
                                      "all ranks", "process, by the system", "against standard" },
                           .columns = 8 };
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (!row_in(row, "memory", section)) continue;
        const struct row *base = standard_of(rows, row);
        double kept = base ? row->bytes_per_rank / base->bytes_per_rank : NAN;
        if (base && (base->dim != row->dim || strcmp(base->dtype, row->dtype))) kept = NAN;
        double per_token = row->bytes_per_rank / 1024.0 / (double)row->batch / (double)row->queries;
        table_text(&table, "%s", row->name);
        cell_count(&table, (double)row->queries);
        table_number(&table, (double)row->ranks, "%lld", (long long)row->ranks);
        cell_bytes(&table, row->bytes_per_rank);
        table_number(&table, per_token, "%.2f", per_token);
        cell_bytes(&table, row->bytes_all_ranks);
        cell_bytes(&table, row->rss_bytes - row->rss_start_bytes);
        table_number(&table, 100.0 * kept, "%.2f%%", 100.0 * kept);
    }
    page_table(page, &table);
}

/* Exponents of memory: in the length for each line, and in the ring size for each length. */
static void put_exponents(struct page *page, const struct rows *rows)
{
    static const char *const sections[] = { "ring", "length" };
    struct table table = { .heads = { "", "dtype", "memory per rank grows with the tokens as" },
                           .columns = 3 };
    for (int s = 0; s < COUNT(sections); s++)
        for (int i = 0; i < rows->count; i++) {
            struct fit fit = { .count = 0 };
            bool first = row_in(&rows->at[i], "memory", sections[s]);
            for (int j = 0; j < rows->count && first; j++) {
                const struct row *row = &rows->at[j];
                if (!row_in(row, "memory", sections[s]) || strcmp(row->name, rows->at[i].name))
                    continue;
                first = j >= i;
                fit_add(&fit, (double)row->queries, row->bytes_per_rank);
            }
            if (!first || !isfinite(fit_exponent(&fit))) continue;
            table_text(&table, "%s", rows->at[i].name);
            table_text(&table, "%s", rows->at[i].dtype);
            table_number(&table, fit_exponent(&fit), "n^%.2f", fit_exponent(&fit));
        }
    struct fit rings = { .count = 0 };
    int64_t most = 0;
    for (int i = 0; i < rows->count; i++)
        if (row_in(&rows->at[i], "memory", "ring") && rows->at[i].queries > most)
            most = rows->at[i].queries;
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (row_in(row, "memory", "ring") && is_ring(row) && row->queries == most && row->ranks > 1)
            fit_add(&rings, (double)row->ranks, row->bytes_per_rank);
    }
    page_heading(page, "Growth, fitted");
    if (isfinite(fit_exponent(&rings)))
        page_text(page, "At %s tokens, from ring 2 on, memory per rank goes as (ring size)^%.2f.",
                  text_count(most).s, fit_exponent(&rings));
    page_table(page, &table);
}

static void write_memory(struct page *page, const struct rows *rows)
{
    page_text(page, "By allocation: tensors, travelling blocks, state and workspace of the rank "
                    "that needs most. By the operating system: what the process grew by, all ranks "
                    "together where they are threads.");
    plot_rings(page, rows);
    put_table(page, rows, "ring", "Ring size");
    put_table(page, rows, "length", "Length");
    put_table(page, rows, "processes", "Ranks as processes");
    put_exponents(page, rows);
}

const struct section section_memory = {
    .id = "memory", .title = "Memory", .suite = "memory", .write = write_memory
};
