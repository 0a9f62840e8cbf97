/* SPDX-License-Identifier: Apache-2.0 */
/* choose.c - which one to use: the fastest, the one with least memory, by range of lengths. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/text/text.h"
#include "section.h"

enum { LENGTHS_MOST = 32, NAMES = 200 };

/* Which rows compete. */
struct contest {
    const struct rows *rows;
    bool causal, dense;
};

static bool competes(const struct contest *contest, const struct row *row, int64_t tokens)
{
    return row_in(row, "compare", "length") && row->queries == tokens &&
           row_is_causal(row) == contest->causal && row_is_dense(row) == contest->dense;
}

static const struct row *fastest(const struct contest *contest, int64_t tokens)
{
    const struct row *best = NULL;
    for (int i = 0; i < contest->rows->count; i++) {
        const struct row *row = &contest->rows->at[i];
        if (competes(contest, row, tokens) && (!best || row->seconds < best->seconds)) best = row;
    }
    return best;
}

static const struct row *smallest(const struct contest *contest, int64_t tokens)
{
    const struct row *best = NULL;
    for (int i = 0; i < contest->rows->count; i++) {
        const struct row *row = &contest->rows->at[i];
        if (competes(contest, row, tokens) && (!best || row->bytes_per_rank < best->bytes_per_rank))
            best = row;
    }
    return best;
}

static void add_name(char *names, const struct row *row)
{
    size_t length = strlen(names), own = strcspn(row->name, ",");
    snprintf(names + length, NAMES - length, "%s%.*s", length ? " or " : "", (int)own, row->name);
}

/* The fastest, and all that are not slower beyond the spread; a star where some have too few runs
 * to tell. */
static void name_fastest(const struct contest *contest, int64_t tokens, char *names)
{
    const struct row *best = fastest(contest, tokens);
    bool few = false;
    *names = 0;
    for (int i = 0; i < contest->rows->count && best; i++) {
        const struct row *row = &contest->rows->at[i];
        if (!competes(contest, row, tokens)) continue;
        bool judged = row_has_spread(best) && row_has_spread(row);
        few |= !judged;
        if (row == best || (judged && !row_faster(best, row))) add_name(names, row);
    }
    size_t length = strlen(names);
    if (few) snprintf(names + length, NAMES - length, " *");
}

static void name_smallest(const struct contest *contest, int64_t tokens, char *names)
{
    const struct row *best = smallest(contest, tokens);
    *names = 0;
    for (int i = 0; i < contest->rows->count && best; i++) {
        const struct row *row = &contest->rows->at[i];
        if (competes(contest, row, tokens) && row->bytes_per_rank <= 1.001 * best->bytes_per_rank)
            add_name(names, row);
    }
}

/* Lengths that were compared, ascending. */
static int find_lengths(const struct rows *rows, int64_t *lengths)
{
    int count = 0;
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        int at = 0;
        if (!row_in(row, "compare", "length")) continue;
        while (at < count && lengths[at] < row->queries) at++;
        if ((at < count && lengths[at] == row->queries) || count == LENGTHS_MOST) continue;
        memmove(lengths + at + 1, lengths + at, (size_t)(count - at) * sizeof *lengths);
        lengths[at] = row->queries;
        count++;
    }
    return count;
}

/* What to say of one length. */
struct advice {
    char dense[NAMES], dense_memory[NAMES], sparse[NAMES], sparse_memory[NAMES];
    double gain; /* time of the fastest dense one / time of the fastest sparse one */
};

static void advise(const struct rows *rows, bool causal, int64_t tokens, struct advice *advice)
{
    struct contest dense = { rows, causal, true }, sparse = { rows, causal, false };
    const struct row *a = fastest(&dense, tokens), *b = fastest(&sparse, tokens);
    name_fastest(&dense, tokens, advice->dense);
    name_smallest(&dense, tokens, advice->dense_memory);
    name_fastest(&sparse, tokens, advice->sparse);
    name_smallest(&sparse, tokens, advice->sparse_memory);
    advice->gain = a && b ? a->seconds / b->seconds : NAN;
}

static bool same_advice(const struct advice *a, const struct advice *b)
{
    return !strcmp(a->dense, b->dense) && !strcmp(a->dense_memory, b->dense_memory) &&
           !strcmp(a->sparse, b->sparse) && !strcmp(a->sparse_memory, b->sparse_memory);
}

static void put_range(struct table *table, int64_t first, int64_t last, const struct advice *a,
                      double most_gain)
{
    if (first == last) table_number(table, (double)first, "%s", text_count(first).s);
    else table_number(table, (double)first, "%s to %s", text_count(first).s, text_count(last).s);
    table_text(table, "%s", a->dense);
    table_text(table, "%s", a->dense_memory);
    table_text(table, "%s", a->sparse);
    table_text(table, "%s", a->sparse_memory);
    table_number(table, most_gain, "%.1fx", most_gain);
}

static void put_advice(struct page *page, const struct rows *rows, bool causal)
{
    int64_t lengths[LENGTHS_MOST];
    int count = find_lengths(rows, lengths);
    struct table table = { .heads = { "tokens", "all keys: fastest", "all keys: least memory",
                                      "sparse: fastest", "sparse: least memory", "sparse gains" },
                           .columns = 6 };
    struct advice open, next;
    int64_t first = 0, last = 0;
    double gain = NAN;
    for (int i = 0; i < count; i++) {
        advise(rows, causal, lengths[i], &next);
        if (i && !same_advice(&open, &next)) put_range(&table, first, last, &open, gain);
        if (!i || !same_advice(&open, &next)) {
            open = next;
            first = lengths[i];
            gain = NAN;
        }
        last = lengths[i];
        gain = fmax(gain, next.gain);
    }
    if (count) put_range(&table, first, last, &open, gain);
    page_heading(page, causal ? "Causal" : "Not causal");
    page_table(page, &table);
}

/* ---- Features -------------------------------------------------------------------------------- */

/* How time and memory of one line grow with its tokens, and what it is at the longest. */
static void put_features(struct table *table, const struct rows *rows, const char *name)
{
    struct fit time = { .count = 0 }, memory = { .count = 0 };
    const struct row *last = NULL;
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (!row_in(row, "compare", "length") || strcmp(row->name, name)) continue;
        fit_add(&time, (double)row->queries, row->seconds);
        fit_add(&memory, (double)row->queries, row->bytes_per_rank);
        if (!last || row->queries > last->queries) last = row;
    }
    if (!last) return;
    table_text(table, "%s", name);
    table_text(table, "`%s`%s", last->pattern,
               strcmp(last->order, "sequential") ? ", hilbert order" : "");
    cell_count(table, (double)last->queries);
    table_number(table, last->density, "%.3g%%", 100.0 * last->density);
    table_number(table, fit_exponent(&time), "n^%.2f", fit_exponent(&time));
    table_number(table, fit_exponent(&memory), "n^%.2f", fit_exponent(&memory));
    table_number(table, (double)last->ranks, "%lld", (long long)last->ranks);
    cell_bytes(table, last->bytes_sent);
    table_number(table, last->error, "%.1e", last->error);
}

static void put_feature_table(struct page *page, const struct rows *rows)
{
    struct table table = { .heads = { "", "pattern", "longest here, tokens", "keys seen there",
                                      "time grows", "memory grows", "ranks", "sent per rank",
                                      "error there" },
                           .columns = 9 };
    for (int i = 0; i < rows->count; i++) {
        bool seen = !row_in(&rows->at[i], "compare", "length");
        for (int j = 0; j < i && !seen; j++)
            seen = row_in(&rows->at[j], "compare", "length") &&
                   !strcmp(rows->at[j].name, rows->at[i].name);
        if (!seen) put_features(&table, rows, rows->at[i].name);
    }
    page_heading(page, "What each one is");
    page_table(page, &table);
}

/* The longest that ran within its limit, for each line of the suite extreme. */
static void put_longest(struct page *page, const struct rows *rows)
{
    struct table table = { .heads = { "", "longest, tokens", "within", "time", "memory" },
                           .columns = 5 };
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        bool longest = row_in(row, "extreme", "longest");
        for (int j = 0; j < rows->count && longest; j++)
            longest = !row_in(&rows->at[j], "extreme", "longest") ||
                      strcmp(rows->at[j].name, row->name) || rows->at[j].queries <= row->queries;
        if (!longest) continue;
        table_text(&table, "%s", row->name);
        cell_count(&table, (double)row->queries);
        table_text(&table, "`%s`", row->options);
        table_number(&table, row->seconds, "%s", text_seconds(row->seconds).s);
        cell_bytes(&table, row->bytes_per_rank);
    }
    if (!table.count) return;
    page_heading(page, "The longest within a limit");
    page_table(page, &table);
}

static void write_choose(struct page *page, const struct rows *rows)
{
    page_text(
        page,
        "Rows whose times overlap within their spread are both named; a star: some have too "
        "few runs to tell. `standard` holds the score matrix in memory; the others never make "
        "one. Memory is that of the rank that needs most; a ring of 4 here shares %s, so it saves "
        "memory, not time.",
        row_is_cpu(&rows->at[0]) ? "the cores of one machine" : "one GPU");
    put_advice(page, rows, false);
    put_advice(page, rows, true);
    put_feature_table(page, rows);
    put_longest(page, rows);
}

const struct section section_choose = {
    .id = "choose", .title = "Which one to use", .suite = "compare", .write = write_choose
};
