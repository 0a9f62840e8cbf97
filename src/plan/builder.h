/* builder.h - what the strategies share while they write a program: who needs which rows of whose
 * block, the rows of this rank against a block, and the appending of steps and messages. */
#ifndef RA__PLAN_BUILDER_H
#define RA__PLAN_BUILDER_H

#include "plan/plan.h"

/* Rows of one owner's block, as this rank meets them. A block visits the ranks behind its owner one
 * after the other; who they are and what they need is worked out by every rank for itself, from the
 * same numbers in the same order, so that senders and receivers agree without talking. */
struct ra__flow {
    struct ra__ranges seen;   /* what this rank sees of it */
    struct ra__ranges coming; /* what this rank and later visitors see: it must get here */
    struct ra__ranges onward; /* what later visitors see: it must leave here */
    struct ra__ranges before; /* what earlier visitors saw, so have gradients for */
    struct ra__ranges after;  /* what they and this rank saw */
};

struct ra__builder {
    const struct ra__plan_input *input;
    struct ra__plan *plan;
    struct ra__program *program; /* the one being written */
    struct ra__account *account;
    int ranks, rank;
    struct ra__row *rows; /* this rank's queries, global positions; every query is in one row */
    int64_t *row_starts;  /* where in the shard the queries of rows[i] start */
    int row_count;
    struct ra__flow *flows;    /* [owner] */
    struct ra__ranges *wanted; /* [reader]: what it sees of this rank's own block */
    int last_visit;            /* how many ranks on the own block travels; 0 = nobody needs it */
};

/* rank + distance, round the ring; distance >= -ranks. */
static inline int ra__peer(const struct ra__builder *b, int distance)
{
    return (b->rank + distance + b->ranks) % b->ranks;
}
static inline int64_t ra__block_rows(const struct ra__builder *b, int owner)
{
    return b->input->k_layout->count[owner];
}

/* Notes that `slot` is used with this many rows. */
void ra__use_slot(struct ra__builder *b, enum ra__slot slot, int64_t rows);

/* Appends a step. */
ra_status ra__put_step(struct ra__builder *b, struct ra__step step);

/* Opens a round; ra__send and ra__recv add to the newest one. Empty rounds are dropped: the two steps
 * do nothing when the round holds no message. */
ra_status ra__open_round(struct ra__builder *b, int hop);
ra_status ra__send(struct ra__builder *b, int peer, enum ra__topic topic, enum ra__slot slot,
                   const struct ra__ranges *ranges);
ra_status ra__recv(struct ra__builder *b, int peer, enum ra__topic topic, enum ra__slot slot,
                   const struct ra__ranges *ranges);
ra_status ra__put_move(struct ra__builder *b);
ra_status ra__put_wait(struct ra__builder *b);

/* Appends ATTEND over the keys of `owner`'s block that lies in `from`; nothing if no row sees any. */
ra_status ra__put_attend(struct ra__builder *b, int hop, int owner, enum ra__slot from,
                         enum ra__slot to);
/* The same over all keys at once, lying in `from` by position less plan->gather_base. */
ra_status ra__put_attend_gathered(struct ra__builder *b, enum ra__slot from, enum ra__slot to);

/* Half 0 or 1 of the queries only: lets own keys be worked on at both ends of a backward ring. */
ra_status ra__put_attend_half(struct ra__builder *b, int hop, int owner, enum ra__slot from,
                              enum ra__slot to, int half);

/* Sets first and last of every row of the program, adds an ATTEND without keys for queries that see
 * nothing, and notes whether state must outlast a step. Forward programs only. */
ra_status ra__mark_first_and_last(struct ra__builder *b);

#endif
