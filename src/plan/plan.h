/* plan.h - what one rank does, as a flat list of steps: plain data that can be printed, counted and
 * run again and again. Knows no kernel, no transport and no memory; exec brings those.
 *
 * K and V travel in slots: rows of [batch, kv_head, K then V], so that any stretch of rows is one
 * stretch of bytes. Round a dense ring a block lies in a slot as in its owner's shard, row for row,
 * and only the rows somebody needs are filled. Rows that go straight to a reader lie packed, one
 * piece behind the other; where KV heads need different rows, a row of such a slot is one KV head.
 * Gradients of K and V travel in slots of their own, in f32.
 *
 * Neighbouring ranks may be a team (team.h): they swap heads first, so that each has a share of the
 * heads for the positions of all, and then a team is what a rank is otherwise. */
#ifndef RA__PLAN_PLAN_H
#define RA__PLAN_PLAN_H

#include "core/tags.h"
#include "core/terms.h"
#include "plan/team.h"

enum ra__slot {
    RA__SLOT_OWN,      /* K, V: the caller's shard itself. Never sent: it may have any strides. In a
                          team: those of the share */
    RA__SLOT_TRAVEL_A, /* two blocks of K and V, one computed on while the other arrives */
    RA__SLOT_TRAVEL_B,
    RA__SLOT_PACKED, /* allgather, straight ring: what one reader after the other sees of ours */
    RA__SLOT_GATHER, /* allgather: all keys somebody here sees, in global order */
    RA__SWAP_HOME,   /* the caller's tensors of this rank, all heads; never a slot with memory */
    RA__SWAP_SHARE,  /* those of the share: not one slot but the three below, and sums */
    RA__SWAP_OUT,    /* teams: what one member after the other gets; rows of one byte, as below */
    RA__SWAP_A,      /* what came from a member, while that of the next one arrives */
    RA__SWAP_B,
    RA__SHARE_Q,   /* the share: queries, [batch, head, dim] in a row */
    RA__SHARE_KV,  /* keys and values, as in a travelling slot */
    RA__SHARE_OUT, /* forward the result, backward its gradient: [batch, head, value_dim] */
    RA__GRAD_OWN,  /* gradients of the own block */
    RA__GRAD_A,    /* gradients of visiting blocks: one being summed, one on its way */
    RA__GRAD_B,
    RA__GRAD_ARRIVE, /* what others have summed: earlier visitors of a block, or readers of ours */
    RA__GRAD_HOME,   /* likewise for the own block, coming home while another arrives */
    RA__GRAD_GATHER, /* allgather: gradients of all gathered keys */
    RA__GRAD_SHARED, /* teams: gradients of the caller's keys, where members share KV heads */
    RA__SLOTS
};
static inline bool ra__slot_is_gradient(enum ra__slot slot) { return slot >= RA__GRAD_OWN; }

/* Every operation: name in programs, name for people. */
#define RA__OP_LIST(X)                                                                             \
    X(PACK, "pack")     /* pieces of the own K and V -> `to` */                                    \
    X(MOVE, "move")     /* start a round of messages */                                            \
    X(WAIT, "wait")     /* until that round is done */                                             \
    X(PLACE, "place")   /* pieces in `from` -> their positions in the gathered `to` */             \
    X(ATTEND, "attend") /* fold rows over the keys in `from`; gradients of these -> `to` */        \
    X(CLEAR, "clear")   /* pieces in `to` = 0 */                                                   \
    X(ADD, "add")       /* pieces in `from` added to the block in `to` */                          \
    X(PICK, "pick")     /* pieces of the gathered `from` -> `to` */                                \
    X(SWAP,                                                                                        \
      "swap") /* teams: rows and heads that this rank and `block` exchange, `from` -> `to` */      \
    X(FINISH, "finish") /* sums in f32 in `from` -> the caller's gradients */

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

/* Rows of a block, start, start + step, ..., of all KV heads or of one, and where in a slot they
 * lie: one behind the other from row `at` on. */
enum { RA__ALL_HEADS = -1 };
struct ra__piece {
    int kv_head;
    ra_run rows;
    int64_t at;
    int64_t reach; /* the last row of this and earlier pieces of the KV head, for searching needs */
};

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

/* A family of rows: queries of this rank and the keys they see in one block, `repeat` times, each
 * time moved along by the advances. Most rows of a regular pattern are such; others repeat once. */
struct ra__plan_row {
    int64_t q_row, q_row_step, q_count; /* rows of the shard */
    int64_t q_pos, q_step;              /* their positions */
    ra_run heads;                       /* query heads */
    int first_key, key_count;           /* in program.keys */
    int64_t repeat, q_row_advance, q_pos_advance;
    bool first, last; /* starts from empty state; writes the result */
};

/* How far a key run moves between two rows of a family. */
struct ra__advance {
    int64_t row, pos;
};

/* A key run of the `repeat`-th row of a family. */
static inline struct ra__key_run ra__key_run_at(const struct ra__key_run *run,
                                                const struct ra__advance *advance, int64_t repeat)
{
    struct ra__key_run moved = *run;
    moved.row += repeat * advance->row;
    moved.pos += repeat * advance->pos;
    return moved;
}

struct ra__step {
    enum ra__op op;
    int hop;
    int block; /* whose keys, a team for a rank; SWAP: with which rank; -1 where none */
    enum ra__slot from, to;
    int first_piece, piece_count; /* PACK, CLEAR, ADD, PLACE, PICK: in program.pieces */
    int first_row, row_count;     /* ATTEND: in program.rows */
    int round;                    /* MOVE, WAIT: in program.rounds */
};

struct ra__program {
    struct ra__step *steps;
    struct ra__plan_row *rows;
    struct ra__key_run *keys;
    struct ra__advance *advances; /* of keys, one each */
    struct ra__piece *pieces;
    struct ra__plan_round *rounds;
    struct ra__transfer *sends, *recvs;
    int step_count, row_count, key_count, piece_count, round_count, send_count, recv_count;
};

struct ra__strategy;
struct ra__builder;

/* What a plan is made from; or, in a team, what its programs work on: the share's heads for a
 * shape, teams for ranks. */
struct ra__plan_input {
    struct ra__shape shape;
    int first_head; /* which query head of the problem is head 0 of the shape */
    int all_heads;  /* query heads of the problem */
    const ra_pattern *pattern;
    const ra_order *order; /* NULL: positions are what they are */
    const struct ra__problem_terms *terms;
    const ra_layout *q_layout, *k_layout;
    const struct ra__strategy *strategy;
    int team; /* how many neighbouring ranks swap heads; 1: nobody does */
    int ranks, rank;
    bool backward;
};

struct ra__plan {
    struct ra__plan_input
        home; /* as given; its pointers belong to the caller and outlive the plan */
    struct ra__plan_input input; /* what programs work on; the same where nobody swaps */
    struct ra__team team;
    struct ra__program forward, backward;
    bool by_head;                 /* travelling rows are of one KV head each */
    int64_t slot_rows[RA__SLOTS]; /* rows each slot must hold; 0 = not used */
    int64_t gather_base;          /* allgather: position of the first gathered row */
    int64_t state_rows;           /* queries whose state must outlast a step */
};

struct ra__strategy {
    const char *name;
    const char *summary;
    bool chooses;    /* stands for another row, by what each would cost; has no functions */
    bool gathers;    /* every row sees all its keys at once */
    bool takes_args; /* UxR, behind a colon */
    /* How many of `ranks` neighbours swap heads; `args` is what stands behind the colon, or NULL.
     * NULL: nobody does. */
    ra_status (*team)(const char *args, int ranks, int *size);
    /* Write the program of builder->rank; a backward one leaves its sums in GRAD_OWN. */
    ra_status (*forward)(struct ra__builder *builder);
    ra_status (*backward)(struct ra__builder *builder);
};

/* The rows of strategy.list; NULL behind the last. */
const struct ra__strategy *ra__strategy_at(int index);
/* Sets input->strategy and input->team from a text, NULL = the first row, for input->ranks
 * ranks. */
ra_status ra__strategy_parse(const char *text, struct ra__plan_input *input);
/* The text of what was chosen: two texts that mean the same give the same. */
enum { RA__STRATEGY_TEXT = 32 };
void ra__strategy_format(const struct ra__plan_input *input, char text[RA__STRATEGY_TEXT]);

/* Fills *plan; its arrays are charged to `account`. On failure nothing is left to destroy. */
ra_status ra__plan_build(const struct ra__plan_input *input, struct ra__account *account,
                         struct ra__plan *plan);
void ra__plan_clear(struct ra__plan *plan); /* accepts a zeroed or half-built plan */

/* Numbers in a row of a slot, where those of a KV head start (K first, V dim behind it), and
 * bytes. */
int64_t ra__slot_width(const struct ra__plan *plan, enum ra__slot slot);
int64_t ra__slot_head(const struct ra__plan *plan, enum ra__slot slot, int64_t batch, int kv_head);
size_t ra__slot_row_bytes(const struct ra__plan *plan, enum ra__slot slot);

/* The first of the ranks that the block of a step belongs to. */
static inline int ra__step_rank(const struct ra__plan *plan, const struct ra__step *step)
{
    return step->op == RA__OP_SWAP || step->block < 0 ? step->block : step->block * plan->team.size;
}

/* Query-key pairs the program will fold on this rank, over heads and batch. */
int64_t ra__program_pairs(const struct ra__plan *plan, const struct ra__program *program);
/* The same at once and without memory, for a progress bar: under an order by average. */
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
};

/* What a program takes, cost.c. */
struct ra__cost {
    double seconds;
    double waited; /* of these, for messages */
};
struct ra__cost ra__program_cost(const struct ra__plan *plan, const struct ra__program *program,
                                 const struct ra__machine *machine);

void ra__plan_explain(const struct ra__plan *plan, const struct ra__program *program,
                      ra_line_fn line, void *context);

#endif
