/* pattern.h - who looks at whom, in global positions. Knows nothing about ranks.
 *
 * A kind of pattern says which keys a run of queries may see; the modifiers `;causal` and `;docs=`
 * are applied to every kind alike, here. */
#ifndef RA__PATTERN_PATTERN_H
#define RA__PATTERN_PATTERN_H

#include <stdbool.h>

#include "core/memory.h"
#include "core/shape.h"

/* Keys of a row: those of `keys` that lie in the band round each query. */
struct ra__sight {
    ra_run keys;
    struct ra__band band;
};

enum { RA__SIGHTS = 4 }; /* most sights of one row */

/* One run of queries (positions) and the keys it sees, ascending. No sights: it sees nothing. */
struct ra__row {
    ra_run q;
    int sight_count;
    struct ra__sight sights[RA__SIGHTS];
};

struct ra__pattern_kind {
    const char *name;
    const char *syntax; /* "window:L[,R]" */
    const char *summary;
    const char *samples; /* small ones for tests, with a space between; one per way to write it */
    int min_args, max_args; /* non-negative numbers behind the colon, at most 2 */
    bool more_queries;      /* q_len > k_len makes sense */
    /* Writes what queries see of all_keys and returns how many sights that is. Sights need not be
     * clipped to their band: the caller does. */
    int (*see)(const ra_pattern *pattern, ra_run all_keys, struct ra__sight *sights);
};

struct ra_pattern {
    const struct ra__pattern_kind *kind;
    int64_t args[2]; /* 0 where not given */
    int arg_count;
    bool causal;
    int64_t *bounds; /* documents: 0, ..., n; NULL for none */
    int64_t bound_count;
};

/* The rows of pattern.list; NULL behind the last. */
const struct ra__pattern_kind *ra__pattern_kind_at(int index);
const struct ra__pattern_kind *ra__pattern_kind_find(const char *name);

ra_status ra__pattern_create(const struct ra__pattern_kind *kind, ra_pattern **out);
ra_status ra__pattern_copy(const ra_pattern *pattern, ra_pattern **out); /* NULL copies to full */
ra_status ra__pattern_set_bounds(ra_pattern *pattern, const int64_t *bounds, int64_t count);
ra_status ra__pattern_parse(const char *text, ra_pattern **out);

/* Does the pattern make sense for these lengths? */
ra_status ra__pattern_check(const ra_pattern *pattern, int64_t q_len, int64_t k_len);

/* Calls put for each row of the queries at positions `q` (cut where documents end), in order. */
struct ra__row_sink {
    ra_status (*put)(void *context, const struct ra__row *row);
    void *context;
};
ra_status ra__pattern_rows(const ra_pattern *pattern, int64_t k_len, ra_run q,
                           struct ra__row_sink sink);

#endif
