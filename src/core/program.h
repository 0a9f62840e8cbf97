/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - what one rank does, as plain data: steps over numbered buffers, and the dependencies
 * between them. The plan writes programs, a backend runs their steps, exec puts them in order. None
 * of the three knows how the others work.
 *
 * K and V travel in buffers whose tokens are [batch, kv_head, K then V], so that any range of
 * tokens is one range of bytes. In a dense ring a block is stored as in its owner's shard, token by
 * token, and only the tokens somebody needs are filled. Tokens sent directly to a reader are
 * packed; where KV heads need different tokens, a token of such a buffer is that of one KV head.
 * Gradients of K and V travel in buffers of their own, in f32. */
#ifndef RA__CORE_PROGRAM_H
#define RA__CORE_PROGRAM_H

#include "core/memory.h"
#include "core/shape.h"
#include "core/terms.h"
#include "ringattn_stream.h"

/* Who provides the memory of a buffer. */
enum ra__provider {
    RA__BY_CALLER, /* a tensor of the call, with the call's strides */
    RA__BY_DEVICE, /* the plan, in memory of its device */
    RA__BY_HOST,   /* the plan, in host memory that messages and the device reach */
    RA__BY_NOBODY  /* no memory of its own: something that steps use one after the other, or what
                      another rank has */
};

/* Every buffer: name in code, name in print, provider, and what its bytes are counted as. */
#define RA__BUFFER_LIST(X)                                                                         \
    /* Tensors of the call. */                                                                     \
    X(Q, "Q", CALLER, TRAVEL)                                                                      \
    X(K, "K", CALLER, TRAVEL)                                                                      \
    X(V, "V", CALLER, TRAVEL)                                                                      \
    X(OUT, "out", CALLER, TRAVEL)                                                                  \
    X(LSE, "LSE", CALLER, TRAVEL)                                                                  \
    X(DOUT, "dout", CALLER, TRAVEL)                                                                \
    X(DLSE, "dlse", CALLER, TRAVEL)                                                                \
    X(DQ, "dQ", CALLER, TRAVEL)                                                                    \
    X(DK, "dK", CALLER, TRAVEL)                                                                    \
    X(DV, "dV", CALLER, TRAVEL)                                                                    \
    X(BIAS, "bias", CALLER, TRAVEL)                                                                \
    X(SINKS, "sinks", CALLER, TRAVEL)                                                              \
    X(DSINKS, "dsinks", CALLER, TRAVEL)                                                            \
    X(SPILL_A, "partial dQ A", CALLER, TRAVEL) /* f32 sums of a stream; versions alternate */      \
    X(SPILL_B, "partial dQ B", CALLER, TRAVEL)                                                     \
    /* Copies of them, where the device cannot reach the memory of the caller. */                  \
    X(DEVICE_Q, "Q on the device", DEVICE, TRAVEL)                                                 \
    X(DEVICE_K, "K on the device", DEVICE, TRAVEL)                                                 \
    X(DEVICE_V, "V on the device", DEVICE, TRAVEL)                                                 \
    X(DEVICE_OUT, "out on the device", DEVICE, TRAVEL)                                             \
    X(DEVICE_LSE, "LSE on the device", DEVICE, TRAVEL)                                             \
    X(DEVICE_DOUT, "dout on the device", DEVICE, TRAVEL)                                           \
    X(DEVICE_DLSE, "dlse on the device", DEVICE, TRAVEL)                                           \
    X(DEVICE_DQ, "dQ on the device", DEVICE, TRAVEL)                                               \
    X(DEVICE_DK, "dK on the device", DEVICE, TRAVEL)                                               \
    X(DEVICE_DV, "dV on the device", DEVICE, TRAVEL)                                               \
    /* The second window of a stream: one is worked on while the other is loaded or stored. */     \
    X(NEXT_Q, "next Q", DEVICE, TRAVEL)                                                            \
    X(NEXT_OUT, "next out", DEVICE, TRAVEL)                                                        \
    X(NEXT_LSE, "next LSE", DEVICE, TRAVEL)                                                        \
    X(NEXT_DOUT, "next dout", DEVICE, TRAVEL)                                                      \
    X(NEXT_DLSE, "next dlse", DEVICE, TRAVEL)                                                      \
    /* K and V of blocks. Two travel: one is worked on while the other arrives. */                 \
    X(TRAVEL_A, "travel A", DEVICE, TRAVEL)                                                        \
    X(TRAVEL_B, "travel B", DEVICE, TRAVEL)                                                        \
    X(PACKED, "packed", DEVICE, TRAVEL)     /* what one reader needs of the own block */           \
    X(GATHERED, "gathered", DEVICE, TRAVEL) /* allgather: all keys in global order */              \
    /* Teams: messages of the all-to-all, field after field; then the head slice. */               \
    X(SWAP_OUT, "swap out", DEVICE, TRAVEL)                                                        \
    X(SWAP_A, "swap A", DEVICE, TRAVEL)                                                            \
    X(SWAP_B, "swap B", DEVICE, TRAVEL)                                                            \
    X(SLICE_Q, "slice of Q", DEVICE, TRAVEL)                                                       \
    X(SLICE_KV, "slice of K, V", DEVICE, TRAVEL)                                                   \
    X(SLICE_OUT, "slice of out", DEVICE, TRAVEL) /* backward: of dout */                           \
    X(SLICE_LSE, "slice of LSE", DEVICE, TRAVEL)                                                   \
    /* State of rows that span hops, and of the ranges of split keys. */                           \
    X(STATE_M, "m", DEVICE, STATE)                                                                 \
    X(STATE_L, "l", DEVICE, STATE)                                                                 \
    X(STATE_ACC, "acc", DEVICE, STATE)                                                             \
    X(SPLIT_STATE, "split states", DEVICE, STATE) /* [split] m, then l, then acc */                \
    /* Sums of gradients, f32. */                                                                  \
    X(SUM_Q, "sums of dQ", DEVICE, GRADIENT)                                                       \
    X(DELTA, "delta", DEVICE, GRADIENT)                                                            \
    X(SLICE_DELTA, "slice of delta", DEVICE, GRADIENT)                                             \
    X(NEXT_SUM_Q, "next sums of dQ", DEVICE, GRADIENT)                                             \
    X(NEXT_DELTA, "next delta", DEVICE, GRADIENT)                                                  \
    X(SPILL, "partial dQ", DEVICE, GRADIENT) /* of a stream over memory: all queries */            \
    X(SUM_OWN, "own sums", DEVICE, GRADIENT)                                                       \
    X(SUM_A, "sums A", DEVICE, GRADIENT) /* of a block: one summed, one on its way */              \
    X(SUM_B, "sums B", DEVICE, GRADIENT)                                                           \
    X(SUM_ARRIVED, "arrived sums", DEVICE, GRADIENT)                                               \
    X(SUM_RETURNED, "returned sums", DEVICE, GRADIENT) /* of the own block, beside the last */     \
    X(SUM_GATHERED, "gathered sums", DEVICE, GRADIENT)                                             \
    X(SUM_SHARED, "shared sums", DEVICE, GRADIENT) /* teams whose members share KV heads */        \
    /* Host copies of the buffers that messages use, where messages cannot reach the device. */    \
    X(STAGE_TRAVEL_A, "staged travel A", HOST, TRAVEL)                                             \
    X(STAGE_TRAVEL_B, "staged travel B", HOST, TRAVEL)                                             \
    X(STAGE_PACKED, "staged packed", HOST, TRAVEL)                                                 \
    X(STAGE_SWAP_OUT, "staged swap out", HOST, TRAVEL)                                             \
    X(STAGE_SWAP_A, "staged swap A", HOST, TRAVEL)                                                 \
    X(STAGE_SWAP_B, "staged swap B", HOST, TRAVEL)                                                 \
    X(STAGE_SUM_A, "staged sums A", HOST, GRADIENT)                                                \
    X(STAGE_SUM_B, "staged sums B", HOST, GRADIENT)                                                \
    X(STAGE_SUM_ARRIVED, "staged arrived sums", HOST, GRADIENT)                                    \
    X(STAGE_SUM_RETURNED, "staged returned sums", HOST, GRADIENT)                                  \
    /* V of a travelling block that is lent: it may be in another tensor than K. */                \
    X(LENT_VALUES_A, "lent V A", NOBODY, TRAVEL)                                                   \
    X(LENT_VALUES_B, "lent V B", NOBODY, TRAVEL)                                                   \
    X(LINK, "link", NOBODY, TRAVEL) /* carries one round at a time */

enum ra__buffer {
#define RA__BUFFER_ENUM(name, text, provider, purpose) RA__##name,
    RA__BUFFER_LIST(RA__BUFFER_ENUM)
#undef RA__BUFFER_ENUM
        RA__BUFFERS,
    RA__NO_BUFFER = RA__BUFFERS,
    RA__OWN_KV = RA__K /* in steps: K and V of this rank together, wherever they are */
};

/* A set of buffers. */
__extension__ typedef unsigned __int128 ra__buffer_set;
_Static_assert(RA__BUFFERS <= 128, "a set of buffers has 128 bits");
static inline ra__buffer_set ra__buffer_bit(enum ra__buffer buffer)
{
    return buffer == RA__NO_BUFFER ? 0 : (ra__buffer_set)1 << buffer;
}

/* The first buffer of a set that is not empty. */
static inline enum ra__buffer ra__buffer_first(ra__buffer_set set)
{
    const uint64_t low = (uint64_t)set;
    return (enum ra__buffer)(low ? __builtin_ctzll(low)
                                 : 64 + __builtin_ctzll((uint64_t)(set >> 64)));
}

struct ra__buffer_facts {
    const char *name; /* human-readable */
    enum ra__provider provider;
    enum ra__purpose purpose;
};
const struct ra__buffer_facts *ra__buffer_facts(enum ra__buffer buffer);

/* How numbers are stored: element (batch, token, head) starts at
 *     batch * batch_stride + token * token_stride + head * head_stride
 * and its numbers follow one another. Strides count numbers. A message buffer has no strides of its
 * own: it is a sequence of bytes, and each piece in it is packed [batch, head, token, number]. */
struct ra__storage {
    ra_dtype dtype;
    bool message;
    bool one_head;  /* a token is that of one KV head; which one, the plan knows */
    int64_t tokens; /* 0: not used by this plan */
    int64_t batch_stride, token_stride, head_stride;
    size_t bytes; /* of the whole buffer; 0 where the caller provides it */
};

/* Tensors as one side of a program uses them: the caller's shard with all heads, or the head slice
 * of a team. The same on both sides where no heads are exchanged. */
struct ra__side {
    struct ra__shape shape;
    int first_head;        /* which query head of the problem is head 0 of the shape */
    int64_t queries, keys; /* tokens of this rank */
    enum ra__buffer q, k, v, out, lse, dout, dlse, dq, dk, dv, delta, sum_q;
};

/* A stream works on some queries at a time, in one of two sets of buffers. Rows of its steps count
 * tokens from the first of these queries. */
struct ra__window {
    enum { RA__NO_WINDOW, RA__WINDOW_A, RA__WINDOW_B } side;
    int64_t first, count; /* queries of the shard */
};

enum ra__direction { RA__FORWARD, RA__BACKWARD };

/* Every operation. */
#define RA__OP_LIST(X)                                                                             \
    X(LOAD, "load")         /* pieces of host memory -> the device */                              \
    X(STORE, "store")       /* pieces of the device -> host memory */                              \
    X(GATHER, "gather")     /* pieces copied, cleared, added or converted on the device */         \
    X(DELTA, "delta")       /* delta = rowsum(dout * out) - dlse */                                \
    X(SINKS, "sinks")       /* gradient of the sinks */                                            \
    X(MERGE, "merge")       /* states of split keys */                                             \
    X(ATTEND, "attend")     /* rows folded over the keys in `from` */                              \
    X(GRADIENT, "gradient") /* the same backward; gradients of the keys -> `to` */                 \
    X(EXCHANGE, "exchange") /* a round of messages */

enum ra__op {
#define RA__OP_ENUM(name, text) RA__OP_##name,
    RA__OP_LIST(RA__OP_ENUM)
#undef RA__OP_ENUM
        RA__OPS
};

/* What a GATHER is for, and how it is called in print. Only clearing and adding differ in what they
 * do; all others copy, and convert where the dtypes differ. */
#define RA__GATHER_LIST(X)                                                                         \
    X(COPY, "copy")     /* LOAD and STORE, which have names of their own */                        \
    X(PACK, "pack")     /* tokens of the own K and V -> what is sent */                            \
    X(PLACE, "place")   /* what arrived -> its positions among the gathered keys */                \
    X(PICK, "pick")     /* the way back, for gradients */                                          \
    X(CLEAR, "clear")   /* = 0 */                                                                  \
    X(ADD, "add")       /* to what is there */                                                     \
    X(SWAP, "swap")     /* teams: heads of one member, tokens of another */                        \
    X(FINISH, "finish") /* f32 sums -> the gradients of the call */

enum ra__gather {
#define RA__GATHER_ENUM(name, text) RA__GATHER_##name,
    RA__GATHER_LIST(RA__GATHER_ENUM)
#undef RA__GATHER_ENUM
        RA__GATHERS
};

/* One end of a piece: tokens token, token + step, ... of a buffer, from a head on, from a number of
 * each head on. In a message `token` is the byte the piece starts at, and the rest is 0. */
struct ra__end {
    enum ra__buffer buffer;
    int head, number;
    int64_t token, step;
};

/* Numbers to be moved from one end to the other, for all batch items. */
struct ra__piece {
    struct ra__end to, from; /* cleared: no `from` */
    int64_t tokens;
    int heads, width; /* heads of a token, numbers of a head */
    ra_dtype message; /* dtype in a message, where one end is one */
    bool add;         /* to what is at `to` */
};

/* Tokens [lo, hi) of a block. */
struct ra__range {
    int64_t lo, hi;
};

/* A message: tokens of a buffer to or from a peer. */
struct ra__transfer {
    int peer, tag, hop;
    enum ra__buffer buffer;
    struct ra__range range;
    /* Its tokens stay where they are: the receiver is told where, and reads them. Without tokens:
     * the sender has added its part to sums that the receiver knows where to find. */
    bool lends;
    bool done; /* no tokens: the sender does not read what it was lent any more */
};

struct ra__plan_round {
    int hop;
    int first_send, send_count; /* in program.sends */
    int first_recv, recv_count; /* in program.recvs */
};

/* A row family: queries of this rank and the keys they see in one block, `repeat` times, each time
 * moved by the advances. Most rows of a regular pattern are such; others repeat once. */
struct ra__plan_row {
    int64_t q_token, q_token_step, q_count; /* tokens of the shard */
    int64_t q_pos, q_step;                  /* their positions */
    ra_run heads;                           /* query heads */
    int first_key, key_count;               /* in program.keys */
    int64_t repeat, q_token_advance, q_pos_advance;
    bool first, last; /* starts from empty state; writes the result */
};

/* How far a key run moves between two rows of a family. */
struct ra__advance {
    int64_t token, pos;
};

/* A key run of the `repeat`-th row of a family. */
static inline struct ra__key_run ra__key_run_at(const struct ra__key_run *run,
                                                const struct ra__advance *advance, int64_t repeat)
{
    struct ra__key_run moved = *run;
    moved.token += repeat * advance->token;
    moved.pos += repeat * advance->pos;
    return moved;
}

enum {
    RA__MOST_RANGES = 64,
    RA__MOST_SPLIT_ROWS = 16 /* per KV head: kernels have a path of their own for so few */
};

/* Few queries against many keys, as in decoding: keys are split into ranges of positions, each is
 * folded into a state of its own, and MERGE adds these in ascending order. Where keys are split
 * follows from the problem alone, and from whether jobs are to be many, as on a GPU; so results
 * depend neither on threads nor, with all keys in one place, on ranks. `many`: the KV heads of the
 * problem over the batch, or 0 where jobs are to be few. */
struct ra__key_split {
    int ranges;   /* 1: keys are not split */
    int64_t keys; /* positions of a range */
    bool of_row;  /* positions are counted from the row's first key, not from 0 */
};
struct ra__key_split ra__key_split_for(const struct ra__shape *shape, int64_t many);
/* So many positions in at most so many ranges, which start at key blocks of kernels. */
struct ra__key_split ra__key_split_into(int64_t positions, int64_t ranges);

/* A unit of a stream is what a later run may skip, since its results are final: a block of queries
 * forward, of keys backward. Steps of the sinks are skipped where their gradient is not wanted. */
enum { RA__SINKS_UNIT = -1 };

struct ra__step {
    enum ra__op op;
    enum ra__gather gather; /* of LOAD, STORE, GATHER */
    int hop;
    int block; /* whose keys, a team counting as a rank; swaps: with which rank; -1 where none */
    enum ra__buffer from, to;     /* ATTEND, GRADIENT: K and V, their gradients; else for print */
    int first_piece, piece_count; /* LOAD, STORE, GATHER: in program.pieces */
    int first_row, row_count;     /* ATTEND, GRADIENT, MERGE: in program.rows */
    int round;                    /* EXCHANGE: in program.rounds */
    struct ra__window window;     /* of a stream */
    int unit; /* of a stream: what the step belongs to, from 1 on; RA__SINKS_UNIT; 0: neither */
    bool ends_unit; /* a STORE: with it the results of the unit are complete */
    ra__buffer_set reads, writes;
    int first_wait, wait_count; /* in program.waits: the steps that must have finished */
};

/* What a rank does in one direction. Its fields are many because steps, rows, keys, pieces and
 * messages are flat arrays, each with its count, and steps name ranges of them. */
struct ra__program {
    enum ra__direction direction;
    struct ra__side caller; /* the caller's shard, with all heads */
    /* what ATTEND and GRADIENT work on: the same, or a head slice; of a stream: window A */
    struct ra__side work;
    struct ra__side next; /* of a stream: window B */
    int units;            /* of a stream */
    struct ra__key_split split;
    bool any_order;   /* backward: dq may be summed in any order */
    bool same_bits;   /* forward: those of a row do not depend on the rows beside it (allgather) */
    bool counts;      /* calls may have fewer keys than the shape */
    int device_ranks; /* ranks of this process on the same device, itself included */
    bool lends;       /* blocks are not copied from rank to rank, but lent */
    bool uneven; /* some blocks do not go to all ranks: at some hops few have something to do */
    const struct ra__storage *storage; /* [RA__BUFFERS], of the plan */
    struct ra__step *steps;
    int *waits;
    struct ra__plan_row *rows;
    struct ra__key_run *keys;
    struct ra__advance *advances; /* of keys, one each */
    struct ra__piece *pieces;
    struct ra__plan_round *rounds;
    struct ra__transfer *sends, *recvs;
    int step_count, wait_count, row_count, key_count, piece_count, round_count, send_count,
        recv_count;
};

/* The name of a step in print: plans and timelines. */
const char *ra__step_name(const struct ra__step *step);

/* What ATTEND and GRADIENT of a step work on. */
static inline const struct ra__side *ra__work_side(const struct ra__program *program,
                                                   const struct ra__step *step)
{
    return step->window.side == RA__WINDOW_B ? &program->next : &program->work;
}
/* What DELTA and SINKS work on: the tensors of the caller, or a window of them. */
static inline const struct ra__side *ra__caller_side(const struct ra__program *program,
                                                     const struct ra__step *step)
{
    return step->window.side == RA__NO_WINDOW ? &program->caller : ra__work_side(program, step);
}
static inline bool ra__has_tokens(const struct ra__transfer *transfer)
{
    return transfer->range.hi > transfer->range.lo;
}
/* Are messages of a round about blocks or sums? Others only end loans. */
static inline bool ra__round_carries(const struct ra__program *program,
                                     const struct ra__plan_round *round)
{
    for (int i = 0; i < round->send_count; i++)
        if (!program->sends[round->first_send + i].done) return true;
    for (int i = 0; i < round->recv_count; i++)
        if (!program->recvs[round->first_recv + i].done) return true;
    return false;
}

/* Does a round only lend? Then it may be posted while steps that use what was borrowed are still in
 * the queue of the device: where they look was settled when they were issued. */
static inline bool ra__round_lends(const struct ra__program *program,
                                   const struct ra__plan_round *round)
{
    for (int i = 0; i < round->send_count; i++)
        if (!program->sends[round->first_send + i].lends) return false;
    for (int i = 0; i < round->recv_count; i++)
        if (!program->recvs[round->first_recv + i].lends) return false;
    return true;
}

/* Where V of the keys in `keys` is, a buffer of blocks. */
static inline enum ra__buffer ra__values_of(const struct ra__program *program, enum ra__buffer keys)
{
    if (!program->lends) return keys;
    return keys == RA__TRAVEL_A   ? RA__LENT_VALUES_A
           : keys == RA__TRAVEL_B ? RA__LENT_VALUES_B
                                  : keys;
}

static inline int64_t ra__caller_queries(const struct ra__program *program,
                                         const struct ra__step *step)
{
    return step->window.side == RA__NO_WINDOW ? program->caller.queries : step->window.count;
}

/* Where a buffer is in one run of a program. */
struct ra__location {
    char *data; /* NULL: not wanted, not used, or not in memory */
    struct ra__storage storage;
    const ra_rows *rows; /* of the caller, who gives rows by callbacks; NULL: it is in memory */
};

/* One run of a program: where everything is, and what came with the call. */
struct ra__call {
    uint64_t run; /* counts the runs of a plan */
    struct ra__location at[RA__BUFFERS];
    struct ra__terms terms;
    bool has_terms;          /* scores are more than q.k */
    ra_bias bias;            /* strides filled in; read where the caller has it, as are the sinks */
    float *dbias;            /* strided like the bias, cleared; NULL: not wanted */
    const int64_t *counts;   /* [batch]: keys that are there, see ra_attend_args; NULL: all */
    const ra_stream *stream; /* the caller's callbacks; NULL: tensors are in memory */
};

#endif
