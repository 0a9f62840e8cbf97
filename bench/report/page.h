/* SPDX-License-Identifier: Apache-2.0 */
/* page.h - a report as it is written: one page of HTML that needs nothing else, and the same as
 * Markdown with its plots as pictures. Sections call these functions and see neither format. */
#ifndef BENCH_REPORT_PAGE_H
#define BENCH_REPORT_PAGE_H

#include "harness/base/complain.h"
#include "plot.h"

struct page {
    FILE *html, *markdown;
    char pictures[4096]; /* the folder of PNG files, made when the first one comes */
    const char *linked;  /* the same as Markdown names it; points into `pictures` */
    bool plots;          /* gnuplot is there */
    bool cards;          /* a row of cards is open */
    int status;          /* the first thing that went wrong */
};

/* Letters that a page shows as they are: <, > and & are escaped. */
void page_begin(struct page *page, const char *title, const char *about);
void page_end(struct page *page);

void page_section(struct page *page, const char *id, const char *title);
void page_heading(struct page *page, const char *title);
void page_text(struct page *page, const char *format, ...) __attribute__((format(printf, 2, 3)));
void page_note(struct page *page, const char *format, ...) __attribute__((format(printf, 2, 3)));
void page_code(struct page *page, const char *text);

/* A figure that stands for itself; several in a row stand side by side. */
void page_card(struct page *page, const char *value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Draws it, unless it has no lines or gnuplot is not there. */
void page_plot(struct page *page, const struct plot *plot);

/* ---- Tables ---------------------------------------------------------------------------------- */

enum { TABLE_COLUMNS = 12 };

struct cell {
    char *text;
    double sort; /* NaN: by its text */
    bool is_phrase;
};

struct table {
    const char *title; /* a heading, unless there are no rows; NULL: none */
    const char *heads[TABLE_COLUMNS];
    int columns;
    struct cell *cells;
    int count, capacity;
    bool lost; /* memory ran out */
};

/* Cells from left to right, row after row. */
void table_text(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_phrase(struct table *table, const char *format, ...) /* stays on one line */
    __attribute__((format(printf, 2, 3)));
void table_number(struct table *table, double sort, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes the table, if it has rows, and frees its cells. */
void page_table(struct page *page, struct table *table);

#endif
