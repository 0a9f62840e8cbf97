/* SPDX-License-Identifier: Apache-2.0 */
/* sequences.c - see sequences.h. */
#include "sequences.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/text/number.h"

#define LENGTH_MOST ((int64_t)1 << 40)

/* "5/9" or "7". */
static int read_one(const char *what, char *text, ra_sequence *out)
{
    char *keys = strchr(text, '/');
    if (keys) *keys++ = '\0';
    int status = number_whole(what, text, 0, LENGTH_MOST, &out->q_count);
    if (!status && keys) status = number_whole(what, keys, 0, LENGTH_MOST, &out->k_count);
    if (!keys) out->k_count = out->q_count;
    return status;
}

/* One after the other; `out` has room for all of them, or is NULL. */
static int read_all(const char *what, const char *text, ra_sequence *out)
{
    char *copy = strdup(text), *rest = copy;
    int status = copy ? EXIT_PASS : fault("out of memory: %zu bytes", strlen(text));
    ra_sequence at = { 0, 0, 0, 0 };
    while (!status && rest) {
        status = read_one(what, strsep(&rest, ","), &at);
        if (out) *out++ = at;
        at.q_first += at.q_count;
        at.k_first += at.k_count;
        if (!status && (at.q_first > LENGTH_MOST || at.k_first > LENGTH_MOST))
            status = refuse("%s: more than 2^40 queries or keys", what);
    }
    free(copy);
    return status;
}

int sequences_check(const char *what, const char *text) { return read_all(what, text, NULL); }

static int64_t count_of(const char *text)
{
    int64_t count = 1;
    for (; *text; text++) count += *text == ',';
    return count;
}

int sequences_resolve(struct trial *trial)
{
    free(trial->sequences);
    trial->sequence_count = count_of(trial->seqs);
    trial->sequences = malloc((size_t)trial->sequence_count * sizeof *trial->sequences);
    if (!trial->sequences)
        return fault("out of memory: %" PRId64 " sequences", trial->sequence_count);
    int status = read_all("sequences", trial->seqs, trial->sequences);
    if (status) return status;
    const ra_sequence *last = &trial->sequences[trial->sequence_count - 1];
    const int64_t queries = last->q_first + last->q_count, keys = last->k_first + last->k_count;
    if (queries == 0) return refuse("sequences: there is no query in %.60s", trial->seqs);
    if ((trial->q_len && trial->q_len != queries) ||
        (trial->k_len != KEYS_AUTO && trial->k_len != keys))
        return refuse("sequences: %.60s have %" PRId64 " queries and %" PRId64
                      " keys together, but other numbers are given",
                      trial->seqs, queries, keys);
    trial->q_len = queries;
    trial->k_len = keys;
    return EXIT_PASS;
}

ra_sequence sequences_of(const struct trial *t, int64_t query)
{
    if (!t->sequences) return (ra_sequence){ 0, t->q_len, 0, t->k_len };
    int64_t low = 0, high = t->sequence_count; /* the last that starts at or before the query */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (t->sequences[middle].q_first <= query) low = middle;
        else high = middle;
    }
    return t->sequences[low];
}

int64_t sequences_position(const struct trial *t, const ra_sequence *at, int64_t query)
{
    return query - at->q_first + at->k_count - at->q_count + t->query_offset;
}

ra_status sequences_layout(const struct trial *t, const ra_pattern *pattern, int ranks, bool keys,
                           ra_layout **out)
{
    const int64_t length = keys ? t->k_len : t->q_len;
    if (!t->sequences) return ra_layout_create(t->partition, length, ranks, pattern, out);
    int64_t *bounds = calloc((size_t)t->sequence_count + 1, sizeof *bounds);
    if (!bounds) return RA_ERR_MEMORY;
    for (int64_t i = 1; i < t->sequence_count; i++)
        bounds[i] = keys ? t->sequences[i].k_first : t->sequences[i].q_first;
    bounds[t->sequence_count] = length;
    ra_status status = ra_layout_create_parts(t->partition, bounds, t->sequence_count + 1, ranks,
                                              out);
    free(bounds);
    return status;
}
