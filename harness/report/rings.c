/* SPDX-License-Identifier: Apache-2.0 */
/* rings.c - a table of memory per rank over several rank counts, beside the closed formula of a
 * forward ring, which is worked out here on its own. */
#include "rings.h"

#include <stdlib.h>
#include <string.h>

#include "harness/run/forecast.h"
#include "harness/base/half.h"
#include "harness/text/number.h"
#include "harness/text/text.h"

#define RINGS_MOST 32

struct ring_line {
    int ring;
    ra_memory memory; /* of the rank that needs most */
    double sent;      /* by the rank that sends most */
};

static int read_rings(const char *list, int *rings, int *count)
{
    char *copy = strdup(list), *rest = copy;
    int status = copy ? EXIT_PASS : fault("out of memory");
    for (*count = 0; !status && rest; (*count)++) {
        char *word = strsep(&rest, ",");
        int64_t ring = 0;
        if (*count == RINGS_MOST) status = refuse("--rings: at most %d rank counts", RINGS_MOST);
        if (!status) status = number_whole("--rings", word, 1, TRIAL_RANKS_MOST, &ring);
        if (!status) rings[*count] = (int)ring;
    }
    free(copy);
    return status;
}

static int ask(const struct options *options, int ring, struct ring_line *line)
{
    struct forecast forecast;
    struct trial trial = options->trial; /* borrows the pattern */
    trial.ranks = ring;
    int status = forecast_open(&forecast, &trial, options->memory);
    if (status) return status;
    *line = (struct ring_line){ .ring = ring, .memory = forecast.rank[0].memory };
    for (int rank = 0; rank < ring; rank++) {
        const struct forecast_rank *r = &forecast.rank[rank];
        double sent = (double)(r->forward.bytes_sent + r->backward.bytes_sent);
        if (r->memory.total > line->memory.total) line->memory = r->memory;
        if (sent > line->sent) line->sent = sent;
    }
    forecast_close(&forecast);
    return EXIT_PASS;
}

/* Shard, two travelling blocks and state of the largest rank; no workspace. */
static double formula(const struct trial *t, int ring)
{
    double element = t->dtype == RA_F32 ? 4.0 : 2.0, width = (double)(t->dim + t->value_dim);
    double q = (double)((t->q_len + ring - 1) / ring), k = (double)((t->k_len + ring - 1) / ring);
    double block = k * (double)t->kv_heads * width * element;
    double shard = q * (double)t->q_heads * width * element + block;
    double state = q * (double)t->q_heads * (double)(t->value_dim + 2) * 4.0;
    return (double)t->batch * (ring > 1 ? shard + 2.0 * block + state : shard);
}

/* Sparse patterns keep less than two whole blocks: how much depends on the mask. */
static bool has_formula(const struct trial *t)
{
    static const char *const dense[] = { "full", "causal", "prefix" };
    if (t->backward || strcmp(t->strategy, "ring")) return false;
    for (int i = 0; i < COUNT(dense); i++)
        if (!t->pattern || !strncmp(t->pattern, dense[i], strlen(dense[i]))) return true;
    return false;
}

static void print_line(const struct trial *t, const struct ring_line *line, double largest)
{
    const ra_memory *m = &line->memory;
    double total = (double)m->total, closed = formula(t, line->ring);
    printf("%5d %9s %9s %9s %9s %9s  %s ", line->ring, text_bytes((double)m->shard).s,
           text_bytes((double)m->travel).s, text_bytes((double)(m->state + m->gradient)).s,
           text_bytes((double)(m->workspace + m->bookkeeping)).s, text_bytes(total).s,
           text_bar(total / largest, 12).s);
    if (!has_formula(t)) printf("%9s %8s", "-", "-");
    else printf("%9s %+7.1f%%", text_bytes(closed).s, 100.0 * (total / closed - 1.0));
    printf(" %9s\n", text_bytes(line->sent).s);
}

int rings_print(const struct options *options)
{
    struct ring_line lines[RINGS_MOST];
    int rings[RINGS_MOST], count;
    double largest = 0.0;
    int status = read_rings(options->rings, rings, &count);
    for (int i = 0; i < count && !status; i++) {
        status = ask(options, rings[i], &lines[i]);
        if (!status && (double)lines[i].memory.total > largest)
            largest = (double)lines[i].memory.total;
    }
    if (status) return status;
    printf("memory of the rank that needs most; formula: shard + two KV blocks in transit + "
           "state\n");
    printf("%5s %9s %9s %9s %9s %9s  %-12s %9s %8s %9s\n", "ring", "shard", "travel",
           options->trial.backward ? "sums" : "state", "workspace", "total", "", "formula",
           "off by", "sent");
    for (int i = 0; i < count; i++) print_line(&options->trial, &lines[i], largest);
    return EXIT_PASS;
}
