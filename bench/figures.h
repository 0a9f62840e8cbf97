/* SPDX-License-Identifier: Apache-2.0 */
/* figures.h - the figures of the reports this project began with, beside ours. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include "row.h"
#include "suite.h"

enum figure_quantity {
    FIGURE_SECONDS,
    FIGURE_TOKENS, /* per second */
    FIGURE_BYTES,  /* of the rank that needs most */
    FIGURE_BYTES_PER_TOKEN,
    FIGURE_REDUCTION,   /* of bytes: 1 - bytes / bytes of `against` */
    FIGURE_SPEEDUP,     /* seconds of `against` / seconds */
    FIGURE_MEMORY_RATIO /* bytes / bytes of `against` */
};

/* The fields are explained in figures.list; values are in seconds, bytes, tokens per second, or
 * plain ratios, and `unit` is how the report printed them. */
struct figure {
    int report;
    const char *system, *what;
    double value;
    const char *unit, *suite, *problem, *options, *against, *against_options;
    enum figure_quantity quantity;
    bool tokens;
};

/* NULL after the last. */
const struct figure *figure_at(int index);

/* The section of a suite that measures what its figures need. */
#define FIGURE_SECTION "reports"
void figures_list(struct configurations *list, const char *suite);

/* What `rows` have in its place; NaN where they have nothing. */
double figure_ours(const struct figure *figure, const struct rows *rows);

/* Is less better? A value of it as text. */
bool figure_less_is_better(const struct figure *figure);
struct text figure_text(const struct figure *figure, double value);

#endif
