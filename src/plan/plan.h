/* plan.h - what one rank does, as a flat list of steps: plain data that can be printed, counted and
 * run again and again. Knows no kernel, no transport and no memory; exec brings those.
 *
 * K and V travel in slots: rows of [batch, kv_head, K then V], so that any stretch of rows is one
 * stretch of bytes. A block always lies in a slot as in its owner's shard, row for row; only the rows
 * somebody needs are filled. Gradients of K and V travel in slots of their own, in f32. */
#ifndef RA__PLAN_PLAN_H
#define RA__PLAN_PLAN_H

#include "plan/layout.h"

enum ra__slot {
    RA__SLOT_OWN,      /* K, V: the caller's shard itself. Never sent: it may have any strides */
    RA__SLOT_TRAVEL_A, /* two blocks of K and V, one computed on while the other arrives */
    RA__SLOT_TRAVEL_B,
    RA__SLOT_PACKED, /* allgather: the own block, as it is sent to each rank in turn */
    RA__SLOT_GATHER, /* allgather: all keys somebody here sees, in global order */
    RA__GRAD_OWN,    /* gradients of the own block */
    RA__GRAD_A,      /* gradients of visiting blocks: one being summed, one on its way */
    RA__GRAD_B,
    RA__GRAD_ARRIVE, /* what earlier visitors of a block have summed */
    RA__GRAD_HOME,   /* likewise for the own block, coming home while another arrives */
    RA__GRAD_GATHER, /* allgather: gradients of all gathered keys */
    RA__SLOTS
};
/* Numbers in a row of a slot, and where those of one KV head start: K first, V dim behind it. */
static inline int64_t ra__slot_width(const struct ra__shape *shape)
{
    return shape->batch * shape->kv_heads * (shape->dim + shape->value_dim);
}
static inline int64_t ra__slot_head(const struct ra__shape *shape, int64_t batch, int kv_head)
{
    return (batch * shape->kv_heads + kv_head) * (shape->dim + shape->value_dim);
}
static inline bool ra__slot_is_gradient(enum ra__slot slot) { return slot >= RA__GRAD_OWN; }

/* Every operation: name in programs, name for people. */
#define RA__OP_LIST(X)                                                                             \
    X(PACK, "pack")     /* own K and V -> `to`, the rows of `range` */                             \
    X(MOVE, "move")     /* start a round of messages */                                            \
    X(WAIT, "wait")     /* until that round is done */                                             \
    X(PLACE, "place")   /* a block in `from` -> its positions in the gathered `to` */              \
    X(ATTEND, "attend") /* fold rows over the block in `from`; gradients of its keys -> `to` */    \
    X(CLEAR, "clear")   /* rows of `to` = 0 */                                                     \
    X(ADD, "add")       /* rows of `from` added to those of `to` */                                \
    X(PICK, "pick")     /* a block's rows of the gathered `from` -> `to`, as in its shard */       \
    X(FINISH, "finish") /* sums in f32 -> the caller's gradients */

enum ra__op {
#define RA__OP_ENUM(name, text) RA__OP_##name,
    RA__OP_LIST(RA__OP_ENUM)
#undef RA__OP_ENUM
        RA__OPS
};

const char *ra__op_name(enum ra__op op); /* for people: plans and timelines */

/* Rows [lo, hi) of a block. */
struct ra__range {
    int64_t lo, hi;
};

/* A few ranges, ascending and apart. When there would be more, the nearest are joined: some rows
 * travel for nothing, but messages stay few. */
enum { RA__RANGES = 8 };
struct ra__ranges {
    int count;
    struct ra__range at[RA__RANGES];
};
void ra__ranges_add(struct ra__ranges *ranges, int64_t lo, int64_t hi);
void ra__ranges_union(struct ra__ranges *ranges, const struct ra__ranges *other);
int64_t ra__ranges_rows(const struct ra__ranges *ranges);

/* What messages are about; part of their tag, so that they cannot meet the wrong receive. */
enum ra__topic { RA__TOPIC_KEYS, RA__TOPIC_CHAIN, RA__TOPIC_HOME, RA__TOPIC_HELLO, RA__TOPICS };
static inline int ra__tag(int hop, enum ra__topic topic) { return hop * RA__TOPICS + (int)topic; }

/* Rows of a slot to or from a peer. */
struct ra__transfer {
    int peer, tag, hop;
    enum ra__slot slot;
    struct ra__range range;
};

struct ra__plan_round {
    int hop;
    int first_send, send_count; /* in program.sends */
    int first_recv, recv_count; /* in program.recvs */
};

/* Queries of this rank, consecutive in its shard, and the keys they see in one block. */
struct ra__plan_row {
    int64_t q_row, q_count;
    int64_t q_pos, q_step;
    int first_key, key_count; /* in program.keys */
    int origin;               /* the same for rows of the same queries in other steps */
    bool first, last;         /* starts from empty state; writes the result */
};

struct ra__step {
    enum ra__op op;
    int hop;
    int block; /* whose keys; -1 where none */
    enum ra__slot from, to;
    struct ra__ranges range;  /* PACK, CLEAR, ADD, PLACE, PICK: rows of the block */
    int first_row, row_count; /* ATTEND: in program.rows */
    int round;                /* MOVE, WAIT: in program.rounds */
};

struct ra__program {
    struct ra__step *steps;
    struct ra__plan_row *rows;
    struct ra__key_run *keys;
    struct ra__plan_round *rounds;
    struct ra__transfer *sends, *recvs;
    int step_count, row_count, key_count, round_count, send_count, recv_count;
};

struct ra__strategy;
struct ra__builder;

/* What a plan is made from. */
struct ra__plan_input {
    struct ra__shape shape;
    const ra_pattern *pattern;
    const ra_layout *q_layout, *k_layout;
    const struct ra__strategy *strategy;
    int ranks, rank;
    bool backward;
};

struct ra__plan {
    struct ra__plan_input input; /* its pointers belong to the caller and outlive the plan */
    struct ra__program forward, backward;
    int64_t slot_rows[RA__SLOTS]; /* rows each slot must hold; 0 = not used */
    int64_t gather_base;          /* allgather: position of the first gathered row */
    int64_t state_rows;           /* queries whose state must outlast a step */
};

struct ra__strategy {
    const char *name;
    const char *summary;
    /* Write the program of builder->rank. */
    ra_status (*forward)(struct ra__builder *builder);
    ra_status (*backward)(struct ra__builder *builder);
};

/* The rows of strategy.list; NULL behind the last. */
const struct ra__strategy *ra__strategy_at(int index);
ra_status ra__strategy_find(const char *name,
                            const struct ra__strategy **out); /* NULL = the first */

/* Fills *plan; its arrays are charged to `account`. On failure nothing is left to destroy. */
ra_status ra__plan_build(const struct ra__plan_input *input, struct ra__account *account,
                         struct ra__plan *plan);
void ra__plan_clear(struct ra__plan *plan); /* accepts a zeroed or half-built plan */

/* Bytes of a row in a slot. */
size_t ra__slot_row_bytes(const struct ra__shape *shape, enum ra__slot slot);

/* Query-key pairs the program will fold on this rank, over heads and batch. */
int64_t ra__program_pairs(const struct ra__shape *shape, const struct ra__program *program);
int64_t ra__program_bytes(const struct ra__shape *shape, const struct ra__transfer *transfers,
                          int count);

void ra__plan_explain(const struct ra__plan *plan, const struct ra__program *program,
                      ra_line_fn line, void *context);

#endif
