/* SPDX-License-Identifier: Apache-2.0 */
/* figures.c - the figures of the reports this project began with, beside ours. */
#include "figures.h"

#include <math.h>
#include <string.h>

#include "harness/text/text.h"

#define FIGURE(...) { __VA_ARGS__ },
static const struct figure figures[] = {
#include "figures.list"
};
#undef FIGURE

const struct figure *figure_at(int index)
{
    return index >= 0 && index < COUNT(figures) ? &figures[index] : NULL;
}

void figures_list(struct configurations *list, const char *suite)
{
    for (const struct figure *f = figures; f < figures + COUNT(figures); f++) {
        if (strcmp(f->suite, suite)) continue;
        suite_add(list, FIGURE_SECTION, f->system, f->options ? f->options : "", "%s", f->problem);
        if (f->against)
            suite_add(list, FIGURE_SECTION, f->system, f->against_options ? f->against_options : "",
                      "%s", f->against);
    }
}

/* The problem of a row, on whatever device it ran. */
static bool is_problem(const struct row *row, const char *problem)
{
    const size_t length = strlen(problem);
    return !strncmp(row->problem, problem, length) &&
           (!row->problem[length] || !strncmp(row->problem + length, " device=", 8));
}

static const struct row *find(const struct rows *rows, const char *problem, const char *options)
{
    if (!options) options = "";
    for (int i = 0; i < rows->count && problem; i++) {
        const struct row *row = &rows->at[i];
        if (!*row->absent && !strcmp(row->section, FIGURE_SECTION) && is_problem(row, problem) &&
            !strcmp(row->options, options))
            return row;
    }
    return NULL;
}

double figure_ours(const struct figure *figure, const struct rows *rows)
{
    const struct row *row = find(rows, figure->problem, figure->options);
    const struct row *other = find(rows, figure->against, figure->against_options);
    if (!row || (figure->against && !other)) return NAN;
    switch (figure->quantity) {
    case FIGURE_SECONDS: return row->seconds;
    case FIGURE_TOKENS: return row->tokens_per_second;
    case FIGURE_BYTES: return row->bytes_per_rank;
    case FIGURE_BYTES_PER_TOKEN:
        return row->bytes_per_rank / (double)row->batch / (double)row->queries;
    case FIGURE_REDUCTION: return 1.0 - row->bytes_per_rank / other->bytes_per_rank;
    case FIGURE_SPEEDUP: return other->seconds / row->seconds;
    case FIGURE_MEMORY_RATIO: return row->bytes_per_rank / other->bytes_per_rank;
    }
    return NAN;
}

bool figure_less_is_better(const struct figure *figure)
{
    return figure->quantity != FIGURE_TOKENS && figure->quantity != FIGURE_REDUCTION &&
           figure->quantity != FIGURE_SPEEDUP;
}

struct text figure_text(const struct figure *figure, double value)
{
    struct text text = { "" };
    if (!isfinite(value)) return text;
    switch (figure->quantity) {
    case FIGURE_SECONDS: return text_seconds(value);
    case FIGURE_BYTES:
    case FIGURE_BYTES_PER_TOKEN: return text_bytes(value);
    case FIGURE_TOKENS: return text_count((int64_t)value);
    case FIGURE_REDUCTION: snprintf(text.s, sizeof text.s, "%.1f%%", 100.0 * value); return text;
    case FIGURE_SPEEDUP:
    case FIGURE_MEMORY_RATIO: snprintf(text.s, sizeof text.s, "%.2fx", value); return text;
    }
    return text;
}
