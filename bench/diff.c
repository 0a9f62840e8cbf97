/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c - compares two sets of results: times beyond the spread, and memory. */
#include "diff.h"

#include <math.h>
#include <string.h>

#include "harness/text/text.h"
#include "results.h"

struct tally {
    int same, faster, slower, memory, few, only_a, only_b, absent;
};

/* Bytes are counted, not measured: what changes by less than this is a matter of rounding. */
#define BYTES_SLACK 0.001

static void print_side(const char *name, const char *path, const struct rows *rows)
{
    const struct row *row = &rows->at[0];
    printf("%s  %s: %d rows, version %s, commit %s, %s, %lld cores%s\n", name, path, rows->count,
           row->version, *row->commit ? row->commit : "unknown", row->device_name,
           (long long)row->cores, row->quick ? ", --quick" : "");
}

static void print_change(const struct row *row, const char *word, struct text a, struct text b,
                         double ratio)
{
    printf("  %-8s %-9s %-24s %-44s %s -> %s (x %.3f)\n", word, row->suite, row->name, row->problem,
           a.s, b.s, ratio);
}

/* A ceiling has rates, everything else seconds: less is better. */
static void compare_times(const struct row *a, const struct row *b, struct tally *tally)
{
    bool ceiling = !strcmp(a->kind, "ceiling");
    double a_least = ceiling ? 1.0 / a->rate_most : a->seconds_least;
    double a_most = ceiling ? 1.0 / a->rate_least : a->seconds_most;
    double b_least = ceiling ? 1.0 / b->rate_most : b->seconds_least;
    double b_most = ceiling ? 1.0 / b->rate_least : b->seconds_most;
    bool few = !row_has_spread(a) || !row_has_spread(b);
    bool faster = !few && b_most < a_least;
    bool slower = !few && b_least > a_most;
    tally->few += few;
    tally->faster += faster;
    tally->slower += slower;
    tally->same += !few && !faster && !slower;
    if (!faster && !slower) return;
    if (ceiling)
        print_change(b, faster ? "faster" : "slower", text_real(a->rate), text_real(b->rate),
                     b->rate / a->rate);
    else
        print_change(b, faster ? "faster" : "slower", text_seconds(a->seconds),
                     text_seconds(b->seconds), b->seconds / a->seconds);
}

static void compare_bytes(const struct row *a, const struct row *b, struct tally *tally)
{
    double ratio = b->bytes_per_rank / a->bytes_per_rank;
    if (!(fabs(ratio - 1.0) > BYTES_SLACK)) return;
    tally->memory++;
    print_change(b, "memory", text_bytes(a->bytes_per_rank), text_bytes(b->bytes_per_rank), ratio);
}

static void compare(const struct row *a, const struct row *b, struct tally *tally)
{
    if (*a->absent && *b->absent) {
        tally->same++;
    } else if (*a->absent || *b->absent) {
        tally->absent++;
        printf("  %-8s %-9s %-24s %-44s %s\n", *a->absent ? "appears" : "absent", b->suite, b->name,
               b->problem, *a->absent ? a->absent : b->absent);
    } else {
        compare_times(a, b, tally);
        compare_bytes(a, b, tally);
    }
}

static void compare_all(const struct rows *a, const struct rows *b, struct tally *tally)
{
    for (int i = 0; i < b->count; i++) {
        const struct row *old = rows_find(a, &b->at[i]);
        if (old) compare(old, &b->at[i], tally);
        else tally->only_b++;
    }
    for (int i = 0; i < a->count; i++) tally->only_a += !rows_find(b, &a->at[i]);
}

static void print_sum(const struct tally *t)
{
    int changes = t->faster + t->slower + t->memory + t->absent;
    if (!changes) printf("no change");
    else
        printf("%d faster, %d slower, %d with other memory, %d that one side lacks figures of",
               t->faster, t->slower, t->memory, t->absent);
    printf("; %d rows within their spread", t->same);
    if (t->few) printf("; %d with too few runs to tell", t->few);
    if (t->only_a) printf("; %d only in A", t->only_a);
    if (t->only_b) printf("; %d only in B", t->only_b);
    printf("\n");
}

int diff_run(const struct options *options)
{
    struct rows a = { .count = 0 }, b = { .count = 0 };
    struct tally tally = { .same = 0 };
    if (options->word_count != 3) return refuse("bench diff: two folders of results, A and B");
    int status = results_read("bench diff", options->words[1], &a);
    if (!status) status = results_read("bench diff", options->words[2], &b);
    if (!status && (!a.count || !b.count)) status = refuse("bench diff: a side has no rows");
    if (!status) {
        print_side("A", options->words[1], &a);
        print_side("B", options->words[2], &b);
        compare_all(&a, &b, &tally);
        print_sum(&tally);
    }
    rows_free(&a);
    rows_free(&b);
    return status;
}
