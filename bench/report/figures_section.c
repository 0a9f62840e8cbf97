/* SPDX-License-Identifier: Apache-2.0 */
/* figures_section.c - every figure of the five reports, beside ours. */
#include <math.h>

#include "figures.h"
#include "harness/text/text.h"
#include "section.h"

static void put_figure(struct table *table, const struct figure *f, double ours)
{
    double ratio = figure_less_is_better(f) ? f->value / ours : ours / f->value;
    bool timed = f->quantity == FIGURE_SECONDS || f->quantity == FIGURE_TOKENS;
    if (f->against || (timed && !f->tokens)) ratio = NAN; /* nothing to compare with */
    table_number(table, f->report, "%d", f->report);
    table_text(table, "%s", f->system);
    table_text(table, "%s", f->what);
    table_number(table, f->value, "%s", figure_text(f, f->value).s);
    table_number(table, ours, "%s", figure_text(f, ours).s);
    table_number(table, ratio, "%.3gx", ratio);
    table_text(table, "%s", f->tokens ? "yes" : "no");
}

static void write_figures(struct page *page, const struct rows *rows)
{
    struct table table = { .heads = { "report", "system", "figure", "theirs", "ours", "better by",
                                      "attention over tokens?" },
                           .columns = 7 };
    int found = 0, count = 0, memory = 0, memory_better = 0;
    for (; figure_at(count); count++) {
        const struct figure *f = figure_at(count);
        double ours = figure_ours(f, rows);
        put_figure(&table, f, ours);
        found += isfinite(ours);
        if (f->quantity != FIGURE_BYTES || !isfinite(ours) || !f->tokens || f->options)
            continue; /* the baseline is what it is */
        memory++;
        memory_better += ours < f->value;
    }
    page_text(page, "Theirs: GTX 1080 cards, 8 heads, dim 64. Ours: the machine of this page. "
                    "Memory can be compared; times of different machines show what is possible, no "
                    "more. Where theirs did not attend over tokens, it attended over the heads of "
                    "each token, which is no attention over a sequence at all: what stands beside "
                    "it is the real thing.");
    if (memory)
        page_text(page,
                  "Memory, where theirs attended over tokens: ours is less in %d of %d cells.",
                  memory_better, memory);
    page_table(page, &table);
    if (found < count)
        page_note(page,
                  "%d of %d have no row of ours in these results: their suites were not run "
                  "in full.",
                  count - found, count);
}

const struct section section_figures = { .id = "reports",
                                         .title = "The reports, figure by figure",
                                         .write = write_figures };
