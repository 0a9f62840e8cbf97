/* SPDX-License-Identifier: Apache-2.0 */
/* handshake.h - before its first message a plan compares its problem with that of every other
 * rank. */
#ifndef RA__EXEC_HANDSHAKE_H
#define RA__EXEC_HANDSHAKE_H

#include "core/arena.h"
#include "exec/rank.h"
#include "plan/plan.h"

/* What ranks compare before the first message: field, name in sentences, and how handshake.c shows
 * the two values that differ. */
#define RA__HANDSHAKE_LIST(X)                                                                      \
    X(version, "library version", version)                                                         \
    X(ranks, "number of ranks", number)                                                            \
    X(dtype, "dtype", dtype)                                                                       \
    X(batch, "batch", number)                                                                      \
    X(q_len, "number of queries", number)                                                          \
    X(k_len, "number of keys", number)                                                             \
    X(query_offset, "query offset", number)                                                        \
    X(sequences, "list of sequences", digest)                                                      \
    X(q_heads, "query heads", number)                                                              \
    X(kv_heads, "KV heads", number)                                                                \
    X(dim, "dim", number)                                                                          \
    X(value_dim, "value dim", number)                                                              \
    X(scale, "scale", real)                                                                        \
    X(softcap, "softcap", real)                                                                    \
    X(alibi, "ALiBi slopes", digest)                                                               \
    X(dropout, "dropout rate", fraction)                                                           \
    X(order, "order", digest)                                                                      \
    X(pattern, "pattern", pattern)                                                                 \
    X(partition, "partition", digest)                                                              \
    X(strategy, "strategy", strategy)

struct ra__handshake_data {
#define RA__HANDSHAKE_FIELD(name, text, show) uint64_t name;
    RA__HANDSHAKE_LIST(RA__HANDSHAKE_FIELD)
#undef RA__HANDSHAKE_FIELD
};

struct ra__handshake {
    const struct ra__plan_input *input; /* what this rank was given */
    struct ra__handshake_data mine;
    /* In the order of the other ranks; then `mine`, as it is sent. */
    struct ra__handshake_data *theirs;
    struct ra__message *messages; /* [2 (ranks - 1)] */
    bool done;
};

/* Takes its memory; fills in `mine` where the arena is real. */
ra_status ra__handshake_take(struct ra__handshake *handshake, const struct ra__plan_input *input,
                             const struct ra__problem_terms *terms, struct ra__arena *arena);
/* Once, before the first message of a plan. */
ra_status ra__handshake(struct ra__handshake *handshake, const struct ra__rank *rank);

#endif
