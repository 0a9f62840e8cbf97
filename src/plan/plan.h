/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - from a problem to the two programs of one rank (core/program.h): who owns what, who
 * needs what, in which order. Knows no kernel, no transport and no memory; exec brings those.
 *
 * Neighbouring ranks may be a team (team.h): they exchange heads first, so that each has a slice of
 * the heads for the positions of all, and then a team is what a rank is otherwise. */
#ifndef RA__PLAN_PLAN_H
#define RA__PLAN_PLAN_H

#include "core/program.h"
#include "core/tags.h"
#include "plan/team.h"

/* A few ranges, ascending and disjoint. If there would be more, the nearest are joined: some tokens
 * are sent for nothing, but messages stay few. */
enum { RA__RANGES = 8 };
struct ra__ranges {
    int count;
    struct ra__range at[RA__RANGES];
};
void ra__ranges_add(struct ra__ranges *ranges, int64_t lo, int64_t hi);

struct ra__strategy;
struct ra__builder;

/* What a plan is made from; or, in a team, what its programs work on: the heads of the slice, and
 * teams in place of ranks. */
struct ra__plan_input {
    struct ra__shape shape;
    int first_head; /* which query head of the problem is head 0 of the shape */
    int all_heads;  /* query heads of the problem */
    const ra_pattern *pattern;
    const ra_order *order;          /* NULL: sequential */
    struct ra__sequences sequences; /* the array belongs to the caller */
    const struct ra__problem_terms *terms;
    const ra_layout *q_layout, *k_layout;
    const struct ra__strategy *strategy;
    int team; /* how many neighbouring ranks exchange heads; 1: no rank does */
    int ranks, rank;
    int device_ranks; /* of this process on the same device, itself included */
    bool backward;
    bool loads;     /* the device cannot reach the caller's tensors: LOAD and STORE copy them */
    bool many_jobs; /* the device wants many small ones, as a GPU does */
    bool stages;    /* messages cannot reach the device: they are staged in host memory */
    bool lends;     /* ranks use each other's memory on the device: blocks need not be copied */
    bool sourced;   /* the caller gives tensors by callbacks */
    bool any_order; /* dq may be summed in any order */
    bool chosen;    /* the strategy was chosen by "auto", so nobody relies on what it promises */
    bool counts;    /* runs say how many keys there are */
    int64_t block;  /* of a stream: positions; 0: not chosen yet */
    size_t limit;   /* of a stream: bytes that its programs may take; 0: any */
};

struct ra__plan {
    /* As the caller has it: all heads, ranks. Its pointers belong to the caller and outlive the
     * plan. */
    struct ra__plan_input caller;
    /* What ATTEND and GRADIENT work on. In a team: the heads of the slice, and teams as ranks.
     * Otherwise the same. */
    struct ra__plan_input input;
    struct ra__team team;
    struct ra__program forward, backward;
    bool by_head; /* a token in transit is that of one KV head */
    struct ra__storage storage[RA__BUFFERS];
    struct ra__range gathered; /* allgather: positions of the tokens; empty: nothing is gathered */
};

struct ra__strategy {
    const char *name;
    const char *summary;
    bool chooses;    /* stands for another strategy, by predicted time; has no functions */
    bool gathers;    /* every row sees all its keys at once */
    bool streams;    /* one rank, blocks through windows: its programs are complete */
    bool takes_args; /* UxR, or BLOCK, after a colon */
    /* How many of `ranks` neighbours exchange heads; `args` is the text after the colon, or NULL.
     * NULL: none do. */
    ra_status (*team)(const char *args, int ranks, int *size);
    /* Write the program of builder->rank; a backward one leaves its sums in RA__SUM_OWN. */
    ra_status (*forward)(struct ra__builder *builder);
    ra_status (*backward)(struct ra__builder *builder);
};

/* The entries of strategy.list; NULL after the last. */
const struct ra__strategy *ra__strategy_at(int index);
/* Sets input->strategy and input->team from a text, NULL = the first entry, for input->ranks
 * ranks. */
ra_status ra__strategy_parse(const char *text, struct ra__plan_input *input);
/* The text of the strategy chosen: two texts with the same meaning give the same. */
enum { RA__STRATEGY_TEXT = 32 };
void ra__strategy_format(const struct ra__plan_input *input, char text[RA__STRATEGY_TEXT]);

/* Fills *plan; its arrays are charged to `account`. On failure nothing is left to destroy. */
ra_status ra__plan_build(const struct ra__plan_input *input, struct ra__account *account,
                         struct ra__plan *plan);
void ra__plan_clear(struct ra__plan *plan); /* accepts a zeroed or half-built plan */

/* Streams, stream.c. Sets input->block so that the windows need at most `bytes` bytes, as far as
 * that is possible. */
void ra__stream_choose_block(struct ra__plan_input *input, size_t bytes);

/* How the numbers of each buffer that is used are stored, once both programs are written. */
void ra__plan_fill_storage(struct ra__plan *plan);

/* Bytes of a token of a buffer of KV blocks, of a message buffer (1), or of any other. */
size_t ra__token_bytes(const struct ra__plan *plan, enum ra__buffer buffer);

/* The first of the ranks that the block of a step belongs to. */
static inline int ra__step_rank(const struct ra__plan *plan, const struct ra__step *step)
{
    bool swaps = step->op == RA__OP_GATHER && step->gather == RA__GATHER_SWAP;
    return swaps || step->block < 0 ? step->block : step->block * plan->team.size;
}

/* Query-key pairs the program will fold on this rank, over heads and batch. */
int64_t ra__program_pairs(const struct ra__plan *plan, const struct ra__program *program);
/* The same quickly and without memory, for a progress bar: under an order an average. */
int64_t ra__program_pairs_roughly(const struct ra__plan *plan, const struct ra__program *program);
int64_t ra__step_pairs_roughly(const struct ra__plan *plan, const struct ra__program *program,
                               const struct ra__step *step);
int64_t ra__program_bytes(const struct ra__plan *plan, const struct ra__transfer *transfers,
                          int count);

/* A rank and its link, for predictions. */
struct ra__machine {
    double latency;               /* seconds of a round, however small */
    double bandwidth;             /* bytes per second, each way */
    double flops, backward_flops; /* per second */
    double copy;                  /* bytes per second, read and written, in the rank's memory */
    double load;                  /* bytes per second that LOAD and STORE move */
};

/* Is it a LOAD or STORE of a stream? Others stage messages, or tensors of a device. And the bytes
 * that it moves, or one piece of it, in the dtype of the tensor outside. cost.c. */
bool ra__step_is_streamed(const struct ra__step *step);
int64_t ra__piece_bytes(const struct ra__program *program, enum ra__op op,
                        const struct ra__piece *piece);
int64_t ra__step_bytes(const struct ra__program *program, const struct ra__step *step);

/* What a run of a stream loads and stores, in bytes. */
struct ra__loads {
    int64_t loaded, stored;
};
struct ra__loads ra__program_loads(const struct ra__program *program);

/* The predicted time of a program, cost.c. */
struct ra__cost {
    double seconds;
    double waited; /* of these, waiting for messages */
};
struct ra__cost ra__program_cost(const struct ra__plan *plan, const struct ra__program *program,
                                 const struct ra__machine *machine);

void ra__plan_explain(const struct ra__plan *plan, const struct ra__program *program,
                      ra_line_fn line, void *context);

#endif
