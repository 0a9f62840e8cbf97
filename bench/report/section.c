/* SPDX-License-Identifier: Apache-2.0 */
/* section.c - the table of sections, and what they share. */
#include "section.h"

#include <math.h>
#include <string.h>

#include "harness/text/text.h"

#define SECTION(name) extern const struct section section_##name;
#include "section.list"
#undef SECTION

#define SECTION(name) &section_##name,
static const struct section *const sections[] = {
#include "section.list"
};
#undef SECTION

const struct section *section_at(int index)
{
    return index >= 0 && index < COUNT(sections) ? sections[index] : NULL;
}

bool row_in(const struct row *row, const char *suite, const char *table)
{
    return !*row->absent && !strcmp(row->suite, suite) && !strcmp(row->section, table);
}

bool row_is_causal(const struct row *row)
{
    return strstr(row->pattern, "causal") || strstr(row->name, "causal");
}

bool row_is_dense(const struct row *row)
{
    return !strcmp(row->pattern, "full") || !strcmp(row->pattern, "causal");
}

bool row_faster(const struct row *a, const struct row *b)
{
    return row_has_spread(a) && row_has_spread(b) && a->seconds_most < b->seconds_least;
}

void fit_add(struct fit *fit, double x, double y)
{
    if (!(x > 0.0) || !(y > 0.0)) return;
    fit->x += log(x);
    fit->y += log(y);
    fit->xx += log(x) * log(x);
    fit->xy += log(x) * log(y);
    fit->count++;
}

double fit_exponent(const struct fit *fit)
{
    double n = fit->count, spread = n * fit->xx - fit->x * fit->x;
    return fit->count > 1 && spread > 1e-9 ? (n * fit->xy - fit->x * fit->y) / spread : NAN;
}

void cell_seconds(struct table *table, const struct row *row)
{
    table_number(table, row->seconds, "%s", text_seconds(row->seconds).s);
    if (row->runs == 1) table_phrase(table, "one run");
    else
        table_phrase(table, "%s to %s, %lld runs", text_seconds(row->seconds_least).s,
                     text_seconds(row->seconds_most).s, (long long)row->runs);
}

void cell_bytes(struct table *table, double bytes)
{
    table_number(table, bytes, "%s", text_bytes(bytes).s);
}

void cell_count(struct table *table, double count)
{
    table_number(table, count, "%s", isfinite(count) ? text_count((int64_t)count).s : "");
}

double x_tokens(const struct row *row) { return (double)row->queries; }
double x_ranks(const struct row *row) { return (double)row->ranks; }
double y_seconds(const struct row *row) { return row->seconds; }
double y_tokens_per_second(const struct row *row) { return row->tokens_per_second; }
double y_mebibytes(const struct row *row) { return row->bytes_per_rank / 1048576.0; }

void plot_fill(struct plot *plot, const struct plot_rows *what, const struct rows *rows)
{
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (!row_in(row, what->suite, what->table) || (what->wanted && !what->wanted(row)))
            continue;
        double y = what->y(row);
        plot_point(plot, row->name, what->x(row), y, what->spread ? row->seconds_least : y,
                   what->spread ? row->seconds_most : y);
    }
}
