/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.h - states that callers hold: merging two of them, and adding up those of a group. */
#ifndef RA__EXEC_REDUCE_H
#define RA__EXEC_REDUCE_H

#include "exec/exec.h"
#include "core/state.h"

/* What states must have in common to be added up, and how it is called where they have not. */
#define RA__STATE_SHAPE_LIST(X)                                                                    \
    X(batch, "batch")                                                                              \
    X(q_len, "number of queries")                                                                  \
    X(q_heads, "number of query heads")                                                            \
    X(value_dim, "value dim")

struct ra__state_shape {
#define RA__STATE_SHAPE_FIELD(name, text) int64_t name;
    RA__STATE_SHAPE_LIST(RA__STATE_SHAPE_FIELD)
#undef RA__STATE_SHAPE_FIELD
};

/* The name of the first field in which two shapes differ; NULL if they are the same. */
const char *ra__state_shape_difference(const struct ra__state_shape *a,
                                       const struct ra__state_shape *b);

struct ra__state_memory {
    struct ra__state_shape shape;
    float *data;  /* m, then l, then acc */
    int64_t rows; /* batch x queries x heads */
    size_t bytes;
};

/* into += from; they have the same shape. */
void ra__state_memories_merge(const struct ra__state_memory *into,
                              const struct ra__state_memory *from);

/* Room for what the other ranks have; made by the first ra__reduce() and kept. */
struct ra__state_exchange {
    int others; /* ranks there is room for */
    struct ra__message *messages;
    struct ra__state_shape
        *shapes; /* theirs, then its own: sent from here, because a transport may retain it */
    float *states;
    bool retained; /* a transport may still access it, and the state: both are never freed */
};
void ra__state_exchange_clear(struct ra__state_exchange *exchange);

/* The state of every rank becomes the sum of all. */
ra_status ra__reduce(const struct ra__state_memory *state, struct ra__state_exchange *exchange,
                     const struct ra__rank *rank);

#endif
