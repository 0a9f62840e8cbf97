/* SPDX-License-Identifier: Apache-2.0 */
/* gather.c - GATHER: pieces that are copied, converted, cleared or added, all pieces of a step at
 * once on all threads. LOAD and STORE move pieces too, one after the other: see copier.c. */
#include <string.h>

#include "backend/cpu/cpu.h"

/* One end of a piece: where the numbers of (batch item, token, head) are, in bytes. */
struct end {
    char *data; /* NULL: a tensor that the caller does not want */
    ra_dtype dtype;
    size_t batch, token, head;
};

static struct end find_end(const struct ra__running *run, const struct ra__piece *piece,
                           const struct ra__end *end)
{
    const struct ra__location *place = &run->launch->call->at[end->buffer];
    const struct ra__storage *s = &place->storage;
    if (s->message) {
        const size_t token = (size_t)piece->width * ra__dtype_bytes(piece->message);
        const size_t head = token * (size_t)piece->tokens;
        return (struct end){ place->data + end->token, piece->message, head * (size_t)piece->heads,
                             token, head };
    }
    const size_t element = ra__dtype_bytes(s->dtype);
    const int64_t at = end->token * s->token_stride + end->head * s->head_stride + end->number;
    return (struct end){ place->data ? place->data + at * (int64_t)element : NULL, s->dtype,
                         (size_t)s->batch_stride * element,
                         (size_t)(s->token_stride * end->step) * element,
                         (size_t)s->head_stride * element };
}

/* A loop for each dtype, so that it becomes vector instructions. */
static void narrow_token(ra_dtype dtype, uint16_t *restrict out, const float *restrict in,
                         int width)
{
    if (dtype == RA_BF16)
        for (int d = 0; d < width; d++) out[d] = ra__to_bf16(in[d]);
    else
        for (int d = 0; d < width; d++) out[d] = ra__to_f16(in[d]);
}

/* f32 sums to the dtype of the problem: no piece converts the other way. */
static void narrow(const struct end *to, const struct end *from, char *out, const char *in,
                   int64_t tokens, int width)
{
    for (int64_t i = 0; i < tokens; i++, out += to->token, in += from->token)
        narrow_token(to->dtype, (uint16_t *)out, (const float *)in, width);
}

/* Tokens that follow one another are as one. */
static bool tokens_are_dense(const struct end *end, size_t bytes) { return end->token == bytes; }

static void add(const struct end *to, const struct end *from, char *out, const char *in,
                int64_t tokens, int64_t width)
{
    const size_t bytes = (size_t)width * sizeof(float);
    if (tokens_are_dense(to, bytes) && tokens_are_dense(from, bytes)) {
        width *= tokens;
        tokens = 1;
    }
    for (int64_t i = 0; i < tokens; i++, out += to->token, in += from->token)
        for (int64_t d = 0; d < width; d++) ((float *)out)[d] += ((const float *)in)[d];
}

static void copy(const struct end *to, const struct end *from, char *out, const char *in,
                 int64_t tokens, size_t bytes)
{
    if (tokens_are_dense(to, bytes) && tokens_are_dense(from, bytes)) {
        memcpy(out, in, bytes * (size_t)tokens);
        return;
    }
    for (int64_t i = 0; i < tokens; i++, out += to->token, in += from->token)
        memcpy(out, in, bytes);
}

static void clear(const struct end *to, char *out, int64_t tokens, size_t bytes)
{
    if (tokens_are_dense(to, bytes)) memset(out, 0, bytes * (size_t)tokens);
    else
        for (int64_t i = 0; i < tokens; i++, out += to->token) memset(out, 0, bytes);
}

/* Heads that follow one another on both sides are as one. */
static bool heads_are_dense(const struct end *end, size_t bytes) { return end->head == bytes; }

/* Tokens of some batch items between two ends. */
struct move {
    const struct ra__piece *piece;
    struct end to, from;
    int64_t batch, batches, first, tokens;
};

static void move(const struct move *m)
{
    const struct ra__piece *piece = m->piece;
    const struct end to = m->to, from = m->from;
    const bool clears = piece->from.buffer == RA__NO_BUFFER;
    size_t bytes = (size_t)piece->width * ra__dtype_bytes(from.dtype);
    int heads = piece->heads, width = piece->width;
    if (!to.data || !from.data) return;
    if (to.dtype == from.dtype && heads_are_dense(&to, bytes) && heads_are_dense(&from, bytes)) {
        width *= heads;
        bytes *= (size_t)heads;
        heads = 1;
    }
    for (int64_t i = 0; i < m->batches * heads; i++) {
        const size_t batch = (size_t)(m->batch + i / heads), head = (size_t)(i % heads);
        char *out = to.data + batch * to.batch + head * to.head + (size_t)m->first * to.token;
        const char *in = from.data + batch * from.batch + head * from.head +
                         (size_t)m->first * from.token;
        if (clears) clear(&to, out, m->tokens, bytes);
        else if (piece->add) add(&to, &from, out, in, m->tokens, width);
        else if (to.dtype != from.dtype) narrow(&to, &from, out, in, m->tokens, width);
        else copy(&to, &from, out, in, m->tokens, bytes);
    }
}

static void move_tokens(const struct ra__running *run, const struct ra__piece *piece, int64_t first,
                        int64_t tokens)
{
    const bool clears = piece->from.buffer == RA__NO_BUFFER;
    const struct end to = find_end(run, piece, &piece->to);
    move(&(struct move){ .piece = piece,
                         .to = to,
                         .from = clears ? to : find_end(run, piece, &piece->from),
                         .batches = ra__program_of(run)->work.shape.batch,
                         .first = first,
                         .tokens = tokens });
}

/* Rows of one batch item, packed, in the dtype of the caller's tensor. */
static struct end packed_end(const struct ra__piece *piece, const struct ra__rows_moved *rows,
                             ra_dtype dtype)
{
    const size_t head = (size_t)piece->width * ra__dtype_bytes(dtype);
    const size_t token = head * (size_t)piece->heads;
    /* As if the packed rows were all tokens of all batch items. */
    char *data = (char *)rows->packed - (size_t)rows->first * token;
    return (struct end){ data, dtype, 0, token, head };
}

void ra__piece_move_rows(const struct ra__running *run, const struct ra__piece *piece,
                         const struct ra__rows_moved *rows)
{
    const bool load = run->launch->step->op == RA__OP_LOAD;
    const struct ra__end *inside = load ? &piece->to : &piece->from;
    const enum ra__buffer tensor = load ? piece->from.buffer : piece->to.buffer;
    const struct end packed = packed_end(piece, rows, run->launch->call->at[tensor].storage.dtype);
    const struct end device = find_end(run, piece, inside);
    move(&(struct move){ .piece = piece,
                         .to = load ? device : packed,
                         .from = load ? packed : device,
                         .batch = rows->batch,
                         .batches = 1,
                         .first = rows->first,
                         .tokens = rows->tokens });
}

void *ra__piece_packed(const struct ra__running *run, const struct ra__piece *piece, int64_t batch,
                       int64_t first)
{
    const bool load = run->launch->step->op == RA__OP_LOAD;
    const enum ra__buffer tensor = load ? piece->from.buffer : piece->to.buffer;
    const ra_dtype dtype = run->launch->call->at[tensor].storage.dtype;
    const struct end end = find_end(run, piece, load ? &piece->to : &piece->from);
    const size_t head = (size_t)piece->width * ra__dtype_bytes(dtype);
    const bool packed = end.dtype == dtype && end.head == head &&
                        end.token == head * (size_t)piece->heads;
    return packed ? end.data + (size_t)batch * end.batch + (size_t)first * end.token : NULL;
}

static bool is_message(const struct ra__program *program, enum ra__buffer buffer)
{
    return buffer != RA__NO_BUFFER && program->storage[buffer].message;
}

/* Bytes of a message, as they are: both ends are messages. */
static void move_bytes(const struct ra__running *run, const struct ra__piece *piece, int64_t first,
                       int64_t bytes)
{
    const struct ra__location *at = run->launch->call->at;
    memcpy(at[piece->to.buffer].data + piece->to.token + first,
           at[piece->from.buffer].data + piece->from.token + first, (size_t)bytes);
}

int64_t ra__piece_items(const struct ra__program *program, const struct ra__piece *piece)
{
    return ra__ceil_div(piece->tokens, ra__tokens_per_item(program, piece));
}

int64_t ra__tokens_per_item(const struct ra__program *program, const struct ra__piece *piece)
{
    if (piece->width == 0) return ra__rows_per_item(1); /* bytes of a message */
    return ra__rows_per_item(program->work.shape.batch * piece->heads * piece->width *
                             (int64_t)sizeof(float));
}

/* The piece of a step that holds an item. */
static const struct ra__piece *find_piece(const struct ra__running *run, int64_t item,
                                          int64_t *within)
{
    const struct ra__step *step = run->launch->step;
    const int64_t *first = run->program->first_item + step->first_piece;
    int low = 0, high = step->piece_count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (first[middle] <= item) low = middle;
        else high = middle;
    }
    *within = item - first[low];
    return &ra__program_of(run)->pieces[step->first_piece + low];
}

void ra__piece_move(const struct ra__running *run, const struct ra__piece *piece, int64_t first,
                    int64_t tokens)
{
    const struct ra__program *program = ra__program_of(run);
    const bool bytes = is_message(program, piece->to.buffer) &&
                       is_message(program, piece->from.buffer);
    if (bytes) move_bytes(run, piece, first, tokens);
    else move_tokens(run, piece, first, tokens);
}

static void gather_item(void *context, int64_t item, int thread)
{
    const struct ra__running *run = context;
    int64_t within;
    const struct ra__piece *piece = find_piece(run, item, &within);
    const int64_t each = ra__tokens_per_item(ra__program_of(run), piece), first = within * each;
    (void)thread;
    ra__piece_move(run, piece, first, ra__min(each, piece->tokens - first));
}

ra_status ra__cpu_gather(const struct ra__running *run)
{
    const struct ra__step *step = run->launch->step;
    const int last = step->first_piece + step->piece_count - 1;
    const struct ra__piece *piece = &ra__program_of(run)->pieces[last];
    return ra__cpu_run(run,
                       &(struct ra__work){ .body = gather_item,
                                           .context = (void *)run,
                                           .items = run->program->first_item[last] +
                                                    ra__piece_items(ra__program_of(run), piece) });
}
