/* SPDX-License-Identifier: Apache-2.0 */
/* section.h - a section of a report is a file here and a line of section.list. Everything it says
 * comes from the rows. */
#ifndef BENCH_REPORT_SECTION_H
#define BENCH_REPORT_SECTION_H

#include "page.h"
#include "row.h"

struct section {
    const char *id, *title;
    const char *suite; /* whose rows it needs; NULL: any */
    void (*write)(struct page *page, const struct rows *rows);
};

/* The entries of section.list; NULL after the last. */
const struct section *section_at(int index);

/* ---- What sections share --------------------------------------------------------------------- */

/* Does a row with figures belong to this table of that suite? */
bool row_in(const struct row *row, const char *suite, const char *table);
bool row_is_causal(const struct row *row);
bool row_is_dense(const struct row *row); /* every key that causality allows */

/* Do two rows differ by more than their spread? */
bool row_faster(const struct row *a, const struct row *b);

/* The power of x that y grows with, by least squares over the logarithms. */
struct fit {
    double x, y, xx, xy;
    int count;
};
void fit_add(struct fit *fit, double x, double y);
double fit_exponent(const struct fit *fit); /* NaN with fewer than two places */

/* Cells: a time with its spread; bytes; "4,096". */
struct table;
void cell_seconds(struct table *table, const struct row *row);
void cell_bytes(struct table *table, double bytes);
void cell_count(struct table *table, double count);

/* A plot by length, of one table of a suite: one line for each name, one point for each row. */
struct plot_rows {
    const char *suite, *table;
    double (*x)(const struct row *row);
    double (*y)(const struct row *row);
    bool (*wanted)(const struct row *row); /* NULL: all */
    bool spread;                           /* y is the row's seconds */
};
void plot_fill(struct plot *plot, const struct plot_rows *what, const struct rows *rows);

double x_tokens(const struct row *row);
double x_ranks(const struct row *row);
double y_seconds(const struct row *row);
double y_tokens_per_second(const struct row *row);
double y_mebibytes(const struct row *row); /* per rank */

#endif
