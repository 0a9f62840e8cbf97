/* SPDX-License-Identifier: Apache-2.0 */
/* summary.c - the first section: the figures that say most, each from a row. */
#include <math.h>
#include <string.h>

#include "harness/text/text.h"
#include "section.h"

/* The row of memory/ring with most ranks at the most tokens for which the baseline has one too. */
static void card_memory(struct page *page, const struct rows *rows)
{
    const struct row *best = NULL, *base = NULL;
    for (int i = 0; i < rows->count; i++)
        for (int j = 0; j < rows->count && row_in(&rows->at[i], "memory", "ring"); j++) {
            const struct row *a = &rows->at[i], *b = &rows->at[j];
            if (!strcmp(a->kind, "standard") || !row_in(b, "memory", "ring") ||
                strcmp(b->kind, "standard") || a->queries != b->queries)
                continue;
            if (best && (a->queries < best->queries ||
                         (a->queries == best->queries && a->ranks <= best->ranks)))
                continue;
            best = a;
            base = b;
        }
    if (!best) return;
    page_card(page, text_bytes(best->bytes_per_rank).s,
              "per rank for %s tokens on a ring of %lld, %s. Standard attention: %s, %.0f times as "
              "much.",
              text_count(best->queries).s, (long long)best->ranks, best->dtype,
              text_bytes(base->bytes_per_rank).s, base->bytes_per_rank / best->bytes_per_rank);
}

static void card_longest(struct page *page, const struct rows *rows)
{
    const struct row *best = NULL;
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (strcmp(row->suite, "extreme") || *row->absent) continue;
        if (!best || row->queries > best->queries ||
            (row->queries == best->queries && row->bytes_per_rank < best->bytes_per_rank))
            best = row;
    }
    if (!best) return;
    page_card(page, text_count(best->queries).s,
              "tokens in one run: `%s`, %s, in %s, checked against fp64.", best->pattern,
              text_seconds(best->seconds).s, text_bytes(best->bytes_per_rank).s);
}

static void card_speed(struct page *page, const struct rows *rows)
{
    const struct row *best = NULL;
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (row_in(row, "kernels", "kernels") && !strcmp(row->kind, "attention") &&
            (!best || row->rate > best->rate))
            best = row;
    }
    if (!best) return;
    struct text text;
    const bool large = best->rate >= 1e4 && !strcmp(best->unit, "GFLOP/s");
    if (large) snprintf(text.s, sizeof text.s, "%.0f TFLOP/s", best->rate / 1e3);
    else snprintf(text.s, sizeof text.s, "%.0f %s", best->rate, best->unit);
    struct text share = { "" }; /* of a ceiling, if one was measured */
    if (isfinite(best->share))
        snprintf(share.s, sizeof share.s,
                 "%.0f%% of what the machine can do: ", 100.0 * best->share);
    page_card(page, text.s, "%s`%s`, %s, %s, dim %lld, %lld thread%s.", share.s, best->kernel,
              best->dtype, best->pass, (long long)best->dim, (long long)best->threads,
              best->threads == 1 ? "" : "s");
}

static void card_checks(struct page *page, const struct rows *rows)
{
    int checked = 0;
    double worst = 0.0;
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (*row->absent || !isfinite(row->error) || !strcmp(row->kind, "standard")) continue;
        checked++;
        worst = fmax(worst, row->error / row->error_bound);
    }
    if (!checked) return;
    struct text text;
    snprintf(text.s, sizeof text.s, "%d rows", checked);
    page_card(page, text.s,
              "compared with an oracle in double precision. The largest error is %.2f of what its "
              "dtype allows.",
              worst);
}

static void write_summary(struct page *page, const struct rows *rows)
{
    const struct row *first = &rows->at[0];
    int few = 0, quick = 0, absent = 0;
    for (int i = 0; i < rows->count; i++) {
        absent += *rows->at[i].absent != 0;
        few += !*rows->at[i].absent && rows->at[i].runs < 10;
        quick += rows->at[i].quick != 0;
    }
    card_memory(page, rows);
    card_longest(page, rows);
    card_speed(page, rows);
    card_checks(page, rows);
    page_text(page,
              "Measured on %s, with %s of host memory, by ringattn %s%s%s, on %.10s. Figures are "
              "medians; a difference is called one only beyond the spread of both sides.",
              row_device_text(first).s, text_bytes(first->memory_bytes).s, first->version,
              *first->commit ? ", commit " : "", first->commit, first->started);
    if (quick)
        page_note(page, "%d of %d rows are of a `--quick` run: a glance, not a figure.", quick,
                  rows->count);
    if (few)
        page_note(page,
                  "%d of %d rows have fewer than ten runs, because one run is long%s; the "
                  "tables say how many.",
                  few, rows->count, quick ? " or the suite was quick" : "");
    if (absent)
        page_note(page,
                  "%d configurations gave no figures: what they need is not there, or beyond "
                  "their limit. The last section lists them with the reason.",
                  absent);
}

const struct section section_summary = { .id = "summary",
                                         .title = "Summary",
                                         .write = write_summary };
