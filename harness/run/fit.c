/* SPDX-License-Identifier: Apache-2.0 */
/* fit.c - what fits into so much memory per rank, found by bisection. */
#include "fit.h"

#include <math.h>
#include <string.h>

#include "forecast.h"

#define TOKENS_MOST ((int64_t)1 << 36)

/* Bytes of the rank that needs most, for some tokens (OWN: those of the trial) on some ranks;
 * infinite if there are more pairs than can be counted. */
enum { OWN = -1 };
static int ask(const struct trial *trial, int64_t tokens, int64_t ranks, double *bytes)
{
    struct forecast forecast;
    struct trial t = *trial; /* borrows its texts */
    if (tokens != OWN) t.q_len = t.k_len = tokens;
    t.ranks = ranks;
    *bytes = trial_pairs_fit(&t) ? 0.0 : INFINITY;
    if (isinf(*bytes)) return EXIT_PASS;
    int status = forecast_open_some(&forecast, &t, 0, FORECAST_FEW);
    if (status) return status;
    for (int rank = 0; rank < forecast.ranks; rank++)
        if ((double)forecast.rank[rank].memory.total > *bytes)
            *bytes = (double)forecast.rank[rank].memory.total;
    forecast_close(&forecast);
    return EXIT_PASS;
}

/* The first power of two that fits, then between it and the one before: a plan's own size grows
 * with the ranks, so of thousands none may fit though few do. */
static int find_ring(const struct trial *t, struct fit_answer *answer)
{
    int64_t low = 0, high = 1; /* low does not fit, high is asked */
    double bytes;
    int status = ask(t, OWN, high, &bytes);
    while (!status && bytes > (double)answer->memory) {
        low = high;
        high *= 2;
        if (high > TRIAL_RANKS_MOST) return EXIT_PASS;
        status = ask(t, OWN, high, &bytes);
    }
    answer->ring_bytes = bytes;
    while (!status && high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        status = ask(t, OWN, middle, &bytes);
        if (bytes > (double)answer->memory) {
            low = middle;
        } else {
            high = middle;
            answer->ring_bytes = bytes;
        }
    }
    answer->ring = high;
    return status;
}

/* Documents, sequences, bitmaps and orders from files are of one length; keys of another number
 * stay. */
static bool is_fixed(const struct trial *t)
{
    return t->q_len != t->k_len || t->bias || t->seqs || (t->order && strstr(t->order, ".npy")) ||
           (t->pattern && (strstr(t->pattern, "docs=") || strstr(t->pattern, "bitmap=")));
}

static int find_tokens(const struct trial *t, struct fit_answer *answer)
{
    int64_t low = 0, high = 1; /* low fits, high does not */
    double bytes = 0.0;
    int status = EXIT_PASS;
    if (is_fixed(t)) {
        answer->tokens = -1;
        return EXIT_PASS;
    }
    for (; !status && high < TOKENS_MOST; high *= 2) {
        status = ask(t, high, t->ranks, &bytes);
        if (bytes > (double)answer->memory) break;
        low = high;
        answer->tokens_bytes = bytes;
    }
    while (!status && high - low > 1 && high - low > low / 1024) { /* a thousandth is near enough */
        int64_t middle = low + (high - low) / 2;
        status = ask(t, middle, t->ranks, &bytes);
        if (bytes > (double)answer->memory) {
            high = middle;
        } else {
            low = middle;
            answer->tokens_bytes = bytes;
        }
    }
    answer->tokens = low;
    return status;
}

int fit_find(const struct trial *trial, int64_t memory, struct fit_answer *answer)
{
    *answer = (struct fit_answer){ .memory = memory };
    int status = find_ring(trial, answer);
    return status ? status : find_tokens(trial, answer);
}
