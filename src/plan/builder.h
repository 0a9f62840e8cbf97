/* builder.h - what the strategies share while they write a program: the rows of a rank, which rank
 * needs which tokens of which block, and functions that append steps and messages. */
#ifndef RA__PLAN_BUILDER_H
#define RA__PLAN_BUILDER_H

#include "plan/plan.h"

/* Tokens of one owner's block in a dense ring, as seen by this rank. A block goes to the ranks
 * after its owner, one after the other. Every rank computes what they need, from the same numbers
 * in the same order, so senders and receivers agree without a message. */
struct ra__flow {
    struct ra__ranges coming; /* what this rank and later ranks see: it must arrive here */
    struct ra__ranges onward; /* what later ranks see: it must be forwarded */
    struct ra__ranges before; /* what earlier ranks saw, so have gradients for */
    struct ra__ranges after;  /* what they and this rank saw */
};

/* Tokens of a block that a reader needs, start, start + step, ..., of all KV heads or of one. They
 * are stored one after the other from token `at` on in the buffer they travel in. */
enum { RA__ALL_HEADS = -1 };
struct ra__needed {
    int kv_head;
    ra_run tokens;
    int64_t at;
    int64_t max_last; /* the last token of this and earlier ones of the KV head, for searching */
};

/* All of these, of one owner and one reader: nothing else travels between the two. */
struct ra__needs {
    struct ra__needed *pieces; /* by KV head, then by first token */
    int count;
    int64_t tokens; /* of all of them together */
};

/* A run of keys of one owner. */
struct ra__owner_run {
    const struct ra__shard_run *run;
    int owner;
    int64_t max_last; /* the last position of this and earlier runs */
};

/* Ordinals whose newest family is kept; rows of higher ones are not folded. */
enum { RA__ORDINALS = 512 };

/* A plan while it is written. Its fields are many because a step is written from all of them: whose
 * keys go where, which rows see them, and what was written last. */
struct ra__builder {
    const struct ra__plan_input *input;
    struct ra__plan *plan;
    struct ra__program *program; /* the one being written */
    struct ra__account *account;
    int ranks, rank; /* in teams: which team of how many */
    /* rounds of the all-to-all, counted as hops, before hop 0 of what is being written */
    int hops_before;
    /* keys are sent directly to their readers, by needs; otherwise forwarded, by flows */
    bool direct;
    bool split_heads;             /* rows have the query heads of one KV head */
    struct ra__owner_run *owners; /* all runs of keys, by their first positions */
    struct ra__flow *flows;       /* [owner] */
    struct ra__needs *incoming;   /* [owner]: what this rank sees of its block */
    struct ra__needs *outgoing;   /* [reader]: what it sees of this rank's own block */
    /* how many ranks this rank's block goes to; 0 = no rank needs it */
    int last_visit;
    struct ra__key_run *found; /* keys of the row being written */
    int found_count, found_room;
    int newest[RA__ORDINALS];  /* rows of the step being written, by ordinal; -1 = none */
    int newest_count;          /* ordinals from here on have none */
    int *first_hop, *last_hop; /* [row of this rank]: hops at which it sees keys; -1 = none */
    int row_count;
    bool *sees; /* [owner]: some row of this rank sees keys of its block */
};

/* rank + distance, around the ring; distance >= -ranks. */
static inline int ra__peer(const struct ra__builder *b, int distance)
{
    return (b->rank + distance + b->ranks) % b->ranks;
}
static inline int64_t ra__block_tokens(const struct ra__builder *b, int owner)
{
    return b->input->k_layout->count[owner];
}

/* The buffers of the keys of a hop or round, and of the sums of their gradients: two buffers
 * alternate. What a rank forwards at hop 0, its own block, is stored where the keys of that hop
 * would be. */
static inline enum ra__buffer ra__key_buffer(int hop)
{
    return hop % 2 ? RA__TRAVEL_A : RA__TRAVEL_B;
}
static inline enum ra__buffer ra__sum_buffer(int hop) { return hop % 2 ? RA__SUM_A : RA__SUM_B; }

/* ---- rows.c: the rows of a rank ---- */

/* A row, where its queries are in the shard, and its number among the rows of its rank. */
struct ra__shard_row {
    const struct ra__row *row;
    int64_t q_token, q_token_step;
    int index;
    int64_t ordinal; /* that of the row, KV heads counted separately */
};
struct ra__shard_row_sink {
    ra_status (*put)(void *context, const struct ra__shard_row *row);
    void *context;
};
ra_status ra__rows_of_rank(const struct ra__builder *b, int rank, struct ra__shard_row_sink sink);
/* One rank alone: the rows of some queries. */
ra_status ra__rows_of_window(const struct ra__builder *b, const struct ra__window *window,
                             struct ra__row_sink sink);

/* ---- owners.c: whose blocks hold a key ---- */

ra_status ra__find_owners(struct ra__builder *b);
/* The next keys of a tile, whichever rank owns them: false when there are no more. *cursor starts
 * at -1. An owner comes once for each of its runs that holds some. */
bool ra__next_owner(const struct ra__builder *b, const struct ra__tile *tile, int64_t *cursor,
                    int *owner, struct ra__key_run *keys);

/* Does the row see keys of this block, or of any? */
enum { RA__ANYBODY = -1 };
bool ra__row_sees(const struct ra__builder *b, const struct ra__row *row, int owner);

/* ---- flows.c, needs.c: who needs what ---- */

ra_status ra__find_flows(struct ra__builder *b);
ra_status ra__find_needs(struct ra__builder *b);
void ra__needs_clear(struct ra__needs *needs, int count); /* and frees the array itself */

/* ---- builder.c: appending ---- */

/* Notes that a buffer is used with this many tokens. */
void ra__use_buffer(struct ra__builder *b, enum ra__buffer buffer, int64_t tokens);

/* Makes room for one more element of an array of the program; the caller fills and counts it. */
ra_status ra__make_more_room(struct ra__builder *b, void **array, int count, size_t bytes);
static inline ra_status ra__make_room(struct ra__builder *b, void **array, int count, size_t bytes)
{
    return ra__is_full((size_t)count) ? ra__make_more_room(b, array, count, bytes) : RA_OK;
}

ra_status ra__put_step(struct ra__builder *b, struct ra__step step);

/* ---- gather.c: GATHER, LOAD, STORE ---- */

static inline struct ra__step ra__gather(enum ra__gather gather, int hop, int block,
                                         enum ra__buffer from, enum ra__buffer to)
{
    return (struct ra__step){
        .op = RA__OP_GATHER, .gather = gather, .hop = hop, .block = block, .from = from, .to = to
    };
}

/* Begins a step of pieces; ra__put_piece() adds to it, ra__end_pieces() appends it, or drops it
 * where it has none. */
void ra__begin_pieces(struct ra__builder *b, struct ra__step *step);
ra_status ra__put_piece(struct ra__builder *b, struct ra__step *step, struct ra__piece piece);
ra_status ra__end_pieces(struct ra__builder *b, struct ra__step *step);

/* Is a token of this buffer of KV blocks that of one KV head? */
bool ra__holds_one_head(const struct ra__plan *plan, enum ra__buffer buffer);

/* A piece of whole tokens of a KV block or of bytes of a message, without its ends. */
struct ra__piece ra__whole_tokens(const struct ra__plan *plan, enum ra__buffer buffer,
                                  int64_t tokens);

/* Appends a step over tokens of a KV block, as its `gather` says. */
ra_status ra__put_needs(struct ra__builder *b, struct ra__step step, const struct ra__needs *needs);
/* The same over ranges of a block that is stored in its buffer as in its shard. */
ra_status ra__put_ranges(struct ra__builder *b, struct ra__step step,
                         const struct ra__ranges *ranges);
/* The same over the first tokens. */
ra_status ra__put_first(struct ra__builder *b, struct ra__step step, int64_t tokens);

/* Appends a step that clears the first tokens of a buffer of this rank's own sums. */
ra_status ra__put_clear(struct ra__builder *b, enum ra__buffer sums, int64_t tokens);

/* Before and after everything else: copies of the caller's tensors where the device cannot reach
 * them; delta, the gradient of the sinks and cleared sums of dQ; f32 sums -> gradients of K, V. */
ra_status ra__put_loads(struct ra__builder *b);
ra_status ra__put_stores(struct ra__builder *b);
ra_status ra__put_backward_start(struct ra__builder *b);
ra_status ra__put_finish(struct ra__builder *b, enum ra__buffer sums, bool with_queries);

/* ---- waits.c: dependencies ---- */

/* What a step reads and writes, from what it does. */
void ra__find_buffers(const struct ra__program *program, struct ra__step *step);

/* The steps that each step has to wait for. */
ra_status ra__find_waits(struct ra__builder *b);

/* ---- exchange.c: messages ---- */

/* Opens a round; ra__send and ra__recv add to the newest one, ra__put_exchange() appends its step.
 * A round without messages has none. */
ra_status ra__open_round(struct ra__builder *b, int hop);
ra_status ra__send(struct ra__builder *b, int peer, enum ra__topic topic, enum ra__buffer buffer,
                   const struct ra__ranges *ranges);
ra_status ra__recv(struct ra__builder *b, int peer, enum ra__topic topic, enum ra__buffer buffer,
                   const struct ra__ranges *ranges);
/* A message without tokens. RA__TOPIC_DONE: its sender does not use the block in `buffer` any more,
 * which the peer has lent; other topics: its sender has added its part to the sums in `buffer`. */
ra_status ra__send_empty(struct ra__builder *b, int peer, enum ra__topic topic,
                         enum ra__buffer buffer);
ra_status ra__recv_empty(struct ra__builder *b, int peer, enum ra__topic topic,
                         enum ra__buffer buffer);
/* The first `bytes` of a message buffer to or from a member of the team. */
ra_status ra__send_bytes(struct ra__builder *b, int member, enum ra__buffer buffer, int64_t bytes);
ra_status ra__recv_bytes(struct ra__builder *b, int member, enum ra__buffer buffer, int64_t bytes);
/* All tokens of a buffer that holds needs, as one message. */
ra_status ra__send_needs(struct ra__builder *b, int peer, enum ra__topic topic,
                         enum ra__buffer buffer, const struct ra__needs *needs);
ra_status ra__recv_needs(struct ra__builder *b, int peer, enum ra__topic topic,
                         enum ra__buffer buffer, const struct ra__needs *needs);
ra_status ra__put_exchange(struct ra__builder *b);

/* The host copy of a buffer that messages use, and the way back; RA__NO_BUFFER where there is
 * none. */
enum ra__buffer ra__stage_of(enum ra__buffer buffer);
enum ra__buffer ra__staged_by(enum ra__buffer stage);

/* ---- attend.c: ATTEND ---- */

/* Appends ATTEND over the keys of `owner`'s block that is stored in `from`; nothing if no row sees
 * any. */
ra_status ra__put_attend(struct ra__builder *b, int hop, int owner, enum ra__buffer from,
                         enum ra__buffer to);
/* The same over all keys at once, stored in `from` by position minus plan->gathered.lo. */
ra_status ra__put_attend_gathered(struct ra__builder *b, enum ra__buffer from, enum ra__buffer to);

/* Half 0 or 1 of the queries only: so own keys can be worked on at both ends of a backward ring. */
ra_status ra__put_attend_half(struct ra__builder *b, int hop, int owner, enum ra__buffer from,
                              enum ra__buffer to, int half);

/* Appends an ATTEND without keys for queries that see nothing. Forward programs only. */
ra_status ra__put_empty_rows(struct ra__builder *b);

/* A stream: appends the rows of step.window over the keys at these positions, which are stored in
 * step.from one after the other; or, without positions, the rows that see no key. */
ra_status ra__put_window(struct ra__builder *b, struct ra__step step, struct ra__range keys);
/* From the first key that a row sees to after the last; lo = hi if it sees none. */
struct ra__range ra__row_keys_range(const struct ra__row *row);

/* Finds the hops at which each row sees keys, for `first` and `last`: blocks come in the order of
 * the ring, or all at once. */
ra_status ra__find_hops(struct ra__builder *b);

/* ---- swap.c: teams ---- */

/* Before a program, heads are exchanged: the caller's tensors become the head slice. After it,
 * results return to their owners. Without teams, only the sums of gradients are converted to the
 * caller's. */
ra_status ra__put_swap_in(struct ra__builder *b);
ra_status ra__put_swap_out(struct ra__builder *b);

/* ---- ring.c: also what teams do among each other ---- */

ra_status ra__ring_forward(struct ra__builder *b);
ra_status ra__ring_backward(struct ra__builder *b);

/* ---- stream.c ---- */

/* Takes the text after the colon of "stream:BLOCK", or NULL; refuses more ranks than one. */
ra_status ra__stream_parse(const char *args, struct ra__plan_input *input);

/* ---- direct.c: the ring when keys go straight to their readers ---- */

ra_status ra__direct_forward(struct ra__builder *b);
ra_status ra__direct_backward(struct ra__builder *b);

#endif
