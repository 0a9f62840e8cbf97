/* SPDX-License-Identifier: Apache-2.0 */
/* worlds.h - plans of all ranks together, for many problems, and a walk over the rows of a plan. */
#ifndef TESTS_SUPPORT_WORLDS_H
#define TESTS_SUPPORT_WORLDS_H

#include "api/handles.h"
#include "support/walk.h"

enum { MOST_RANKS = 8, MOST_N = 128, MOST_HEADS = 12 };

/* What the device of a plan reaches: everything, even the memory of other ranks, not the tensors of
 * the caller, or not even the memory of messages. */
enum reach { REACHES_ALL, LENDS, LOADS, LOADS_AND_STAGES, REACHES };

struct world {
    char text[300]; /* for sentences */
    int ranks;
    int64_t n, k_len; /* queries, keys */
    int q_heads, kv_heads;
    const char *order; /* NULL: sequential */
    enum reach reach;
    bool unseen; /* too long for `seen` */
    ra_plan *plan[MOST_RANKS];
    struct ra__plan steps[MOST_RANKS]; /* what the plan does, on such a device */
    struct ra__account account;
};

/* How often a query of a head sees a key, by index: what all programs together must fold. Of the
 * world that was opened last. */
struct seen {
    char text[300];
    int64_t origin[MOST_N]; /* of an index */
    uint8_t count[MOST_HEADS][MOST_N][MOST_N];
};
extern struct seen seen;

void world_open(struct world *w, const char *text, int ranks, const char *partition,
                const char *strategy);
void world_close(struct world *w);

const struct ra__program *program_of(const struct world *w, int rank, bool backward);
const char *direction(bool backward);

/* Calls check for worlds of every pattern, partition, strategy and rank count; every pattern meets
 * every shape, but a modifier only some of them. */
void each_world(void (*check)(const struct world *w));

/* The same for one pattern and shape. */
void each_way(struct world *w, const char *text, bool perdoc, void (*check)(const struct world *w));

/* Worlds at the borders: more runs than ranges, other numbers of keys, few positions, odd rates and
 * strides, the largest numbers. */
void each_odd_world(void (*check)(const struct world *w));

/* ---- Rows ---- */

/* Where row `row` of a rank's shard is. */
int64_t position_of(const ra_layout *layout, int rank, int64_t row);

/* One query of one row of a family. */
struct look {
    const struct ra__plan *plan;
    const struct ra__program *program;
    const struct ra__plan_row *row;
    int64_t repeat;          /* which row of the family */
    int64_t token;           /* of the shard */
    int64_t query, position; /* index among the queries; among the keys */
};

/* Calls `visit` for each query of each row of the family. */
typedef void (*query_fn)(const struct look *look, void *context);
void each_query(const struct world *w, const struct ra__plan *plan, const struct ra__program *p,
                const struct ra__plan_row *row, query_fn visit, void *context);

/* Calls `visit` for each key that the query sees: its index, and its row in the buffer. */
typedef void (*pair_fn)(const struct look *look, int64_t key, int64_t row, void *context);
void each_key(const struct look *look, pair_fn visit, void *context);

/* The index-th head of a row, among those of the plan; the same among all heads. */
int head_at(const struct ra__plan_row *row, int64_t index);
int head_of(const struct look *look, int64_t index);

#endif
