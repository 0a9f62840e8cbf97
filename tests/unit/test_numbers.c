/* SPDX-License-Identifier: Apache-2.0 */
/* test_numbers.c - follows every number through the programs of all ranks. A number says which one
 * it is: of a query, a key, an output. A sum is that of numbers which say what pair of query and
 * key each belongs to, so that their order does not matter, but every one counts. Steps run in any
 * order that their waits allow, and touch only the buffers that they say they do. */
#include <stdlib.h>

#include "core/dtype.h"
#include "support/worlds.h"

#define NOTHING UINT64_C(0x5eed5eed5eed5eed) /* what a buffer holds before somebody writes to it */

static uint64_t mix(uint64_t x)
{
    x *= UINT64_C(0x9E3779B97F4A7C15);
    return (x ^ x >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
}

/* A number of a tensor, by position and head. */
static uint64_t tensor_number(enum ra__buffer tensor, int64_t position, int head, int number)
{
    return mix((uint64_t)(((position * MOST_HEADS + head) * 64 + number) * RA__BUFFERS + tensor));
}

static uint64_t pair_number(int64_t query, int head, int64_t key)
{
    return mix((uint64_t)(((query * MOST_HEADS + head) * MOST_N + key) * 64 + 63));
}

/* What a sum of pairs is in the number-th number of a vector. */
static uint64_t times(uint64_t sum, int number) { return sum * (uint64_t)(2 * number + 1); }

/* ---- Buffers --------------------------------------------------------------------------------- */

/* One buffer: of one batch item, since all are treated alike; bytes of a message are all there, and
 * a number lies at its first byte. */
struct space {
    uint64_t *cells;
    int64_t tokens;
    int heads, width; /* of a token, of a head */
    bool message;
};

enum stage { WAITING, UNDER_WAY, DONE };

struct shelf {
    const struct world *world;
    const struct ra__plan *plan;
    const struct ra__program *program;
    const struct ra__step *step; /* under way */
    struct space space[RA__BUFFERS];
    enum stage *stage; /* [step] */
    int left;          /* steps */
};

static struct space tensor_space(const struct ra__side *home, enum ra__buffer tensor)
{
    const struct ra__shape *s = &home->shape;
    switch (tensor) {
    case RA__Q:
    case RA__DQ: return (struct space){ NULL, home->queries, s->q_heads, s->dim, false };
    case RA__K:
    case RA__DK: return (struct space){ NULL, home->keys, s->kv_heads, s->dim, false };
    case RA__V:
    case RA__DV: return (struct space){ NULL, home->keys, s->kv_heads, s->value_dim, false };
    case RA__OUT:
    case RA__DOUT: return (struct space){ NULL, home->queries, s->q_heads, s->value_dim, false };
    case RA__LSE:
    case RA__DLSE: return (struct space){ NULL, home->queries, s->q_heads, 1, false };
    default: return (struct space){ 0 };
    }
}

static struct space buffer_space(const struct shelf *shelf, enum ra__buffer buffer)
{
    const struct ra__storage *s = &shelf->plan->storage[buffer];
    const int64_t batch = shelf->plan->home.shape.batch;
    if (ra__buffer_facts(buffer)->provider == RA__BY_CALLER)
        return tensor_space(&shelf->program->home, buffer);
    if (s->tokens == 0) return (struct space){ 0 };
    if (s->message) return (struct space){ NULL, s->tokens, 1, 1, true };
    /* Whatever the order of tokens and batch items, a token of an item is in one place. */
    const int64_t token = ra__min(s->batch_stride, s->token_stride);
    assert_int_equal(ra__max(s->batch_stride, s->token_stride),
                     token * (s->token_stride > s->batch_stride ? batch : s->tokens));
    assert_int_equal(s->bytes, (size_t)(token * batch * s->tokens) * ra__dtype_bytes(s->dtype));
    return (struct space){ NULL, s->tokens, (int)(token / s->head_stride), (int)s->head_stride,
                           false };
}

static uint64_t *cell_of(const struct shelf *shelf, enum ra__buffer buffer, int64_t token, int head,
                         int number)
{
    const struct space *s = &shelf->space[buffer];
    if (token < 0 || token >= s->tokens || head < 0 || head >= s->heads || number < 0 ||
        number >= s->width)
        fail_msg("%s: rank %d: %s has no token %d, head %d, number %d", shelf->world->text,
                 shelf->plan->home.rank, ra__buffer_facts(buffer)->name, (int)token, head, number);
    return &s->cells[(token * s->heads + head) * s->width + number];
}

/* A step may touch only what it says it does. */
static void check_use(const struct shelf *shelf, enum ra__buffer buffer, bool write)
{
    const ra__buffer_set set = write ? shelf->step->writes : shelf->step->reads;
    if (!(set & ra__buffer_bit(buffer)))
        fail_msg("%s: %s does not say that it %s %s", shelf->world->text,
                 ra__step_name(shelf->step), write ? "writes" : "reads",
                 ra__buffer_facts(buffer)->name);
}

static uint64_t read_cell(const struct shelf *shelf, enum ra__buffer buffer, int64_t token,
                          int head, int number)
{
    check_use(shelf, buffer, false);
    return *cell_of(shelf, buffer, token, head, number);
}

static uint64_t *write_cell(const struct shelf *shelf, enum ra__buffer buffer, int64_t token,
                            int head, int number)
{
    check_use(shelf, buffer, true);
    return cell_of(shelf, buffer, token, head, number);
}

/* Fills a tensor of the caller. */
static void bring_tensor(struct shelf *shelf, enum ra__buffer tensor, bool keys)
{
    const struct space *s = &shelf->space[tensor];
    const struct ra__plan_input *home = &shelf->plan->home;
    for (int64_t i = 0; i < s->tokens * s->heads * s->width; i++) {
        const int64_t token = i / s->width / s->heads;
        const int64_t position = position_of(keys ? home->k_layout : home->q_layout, home->rank,
                                             token);
        s->cells[i] = tensor_number(tensor, position, (int)(i / s->width % s->heads),
                                    (int)(i % s->width));
    }
}

static void shelf_open(struct shelf *shelf, const struct world *w, int rank, bool backward)
{
    *shelf = (struct shelf){ .world = w,
                             .plan = &w->steps[rank],
                             .program = program_of(w, rank, backward) };
    shelf->left = shelf->program->step_count;
    shelf->stage = calloc((size_t)shelf->left + 1, sizeof *shelf->stage);
    assert_non_null(shelf->stage);
    for (int i = 0; i < RA__BUFFERS; i++) {
        struct space *s = &shelf->space[i];
        *s = buffer_space(shelf, (enum ra__buffer)i);
        const size_t cells = (size_t)(s->tokens * s->heads * s->width);
        s->cells = malloc((cells + 1) * sizeof *s->cells);
        assert_non_null(s->cells);
        for (size_t k = 0; k < cells; k++) s->cells[k] = NOTHING;
    }
    bring_tensor(shelf, RA__Q, false);
    bring_tensor(shelf, RA__K, true);
    bring_tensor(shelf, RA__V, true);
    if (!backward) return;
    bring_tensor(shelf, RA__OUT, false);
    bring_tensor(shelf, RA__LSE, false);
    bring_tensor(shelf, RA__DOUT, false);
    bring_tensor(shelf, RA__DLSE, false);
}

static void shelf_close(struct shelf *shelf)
{
    for (int i = 0; i < RA__BUFFERS; i++) free(shelf->space[i].cells);
    free(shelf->stage);
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

/* One number of a piece at one of its ends: of a token, counted within the piece, and a head. In a
 * message there is one for each batch item. */
static uint64_t *number_at(const struct shelf *shelf, const struct ra__piece *piece, bool to,
                           int64_t batch, int64_t token, int head, int number)
{
    const struct ra__end *end = to ? &piece->to : &piece->from;
    check_use(shelf, end->buffer, to);
    if (!shelf->space[end->buffer].message)
        return cell_of(shelf, end->buffer, end->token + token * end->step, end->head + head,
                       end->number + number);
    const int64_t index = ((batch * piece->heads + head) * piece->tokens + token) * piece->width +
                          number;
    const int64_t bytes = (int64_t)ra__dtype_bytes(piece->message);
    assert_int_equal(end->token % bytes, 0);
    return cell_of(shelf, end->buffer, end->token + index * bytes, 0, 0);
}

static void move_number(const struct shelf *shelf, const struct ra__piece *piece, int64_t token,
                        int head, int number)
{
    const int64_t batches = shelf->plan->home.shape.batch;
    uint64_t value = 0;
    for (int64_t batch = 0; batch < batches && piece->from.buffer != RA__NO_BUFFER; batch++) {
        uint64_t got = *number_at(shelf, piece, false, batch, token, head, number);
        if (got == NOTHING)
            fail_msg("%s: hop %d: %s moves a number of %s that nobody filled", shelf->world->text,
                     shelf->step->hop, ra__step_name(shelf->step),
                     ra__buffer_facts(piece->from.buffer)->name);
        if (batch > 0) assert_true(value == got);
        value = got;
    }
    for (int64_t batch = 0; batch < batches; batch++) {
        uint64_t *out = number_at(shelf, piece, true, batch, token, head, number);
        if (piece->add && batch == 0)
            value += read_cell(shelf, piece->to.buffer, piece->to.token + token * piece->to.step,
                               piece->to.head + head, piece->to.number + number);
        *out = value;
    }
}

static void move_bytes(const struct shelf *shelf, const struct ra__piece *piece)
{
    check_use(shelf, piece->from.buffer, false);
    check_use(shelf, piece->to.buffer, true);
    for (int64_t i = 0; i < piece->tokens; i++)
        *cell_of(shelf, piece->to.buffer, piece->to.token + i, 0,
                 0) = *cell_of(shelf, piece->from.buffer, piece->from.token + i, 0, 0);
}

static void move_pieces(const struct shelf *shelf)
{
    const struct ra__step *step = shelf->step;
    assert_true(step->piece_count > 0);
    for (int i = 0; i < step->piece_count; i++) {
        const struct ra__piece *piece = &shelf->program->pieces[step->first_piece + i];
        assert_true(piece->tokens > 0);
        if (piece->width == 0) move_bytes(shelf, piece);
        for (int64_t n = 0; n < piece->tokens * piece->heads * piece->width; n++)
            move_number(shelf, piece, n / piece->width / piece->heads,
                        (int)(n / piece->width % piece->heads), (int)(n % piece->width));
    }
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void expect(const struct shelf *shelf, enum ra__buffer buffer, int64_t token, int head,
                   int number, uint64_t want)
{
    if (read_cell(shelf, buffer, token, head, number) != want)
        fail_msg(
            "%s: rank %d, hop %d, %s: token %d, head %d, number %d of %s is not what it should "
            "be",
            shelf->world->text, shelf->plan->home.rank, shelf->step->hop,
            ra__step_name(shelf->step), (int)token, head, number, ra__buffer_facts(buffer)->name);
}

/* The numbers of a query of one head that a step reads. */
static void expect_query(const struct shelf *shelf, enum ra__buffer buffer, enum ra__buffer tensor,
                         const struct look *look, int head, int width)
{
    for (int d = 0; d < width; d++)
        expect(shelf, buffer, look->token, head, d,
               tensor_number(tensor, look->query, shelf->plan->input.first_head + head, d));
}

/* The numbers of a key: K and V of a head, which may be in one buffer. */
static void expect_key(const struct shelf *shelf, int64_t key, int64_t token, int kv_head)
{
    const struct ra__side *work = &shelf->program->work;
    const enum ra__buffer from = shelf->step->from;
    const bool own = from == RA__OWN_KV, one_head = !own && shelf->plan->storage[from].one_head;
    const int dim = work->shape.dim, all = kv_head + shelf->plan->team.share.kv_first;
    const enum ra__buffer k = own ? work->k : from, v = own ? work->v : from;
    const int head = one_head ? 0 : kv_head;
    for (int d = 0; d < dim; d++)
        expect(shelf, k, token, head, d, tensor_number(RA__K, key, all, d));
    for (int d = 0; d < work->shape.value_dim; d++)
        expect(shelf, v, token, head, k == v ? dim + d : d, tensor_number(RA__V, key, all, d));
}

/* All keys of a row must be there that are between the first and the last its queries see. */
static void expect_keys(const struct shelf *shelf, const struct ra__plan_row *row, int64_t repeat)
{
    const struct ra__shape *shape = &shelf->program->work.shape;
    const int group = shape->q_heads / shape->kv_heads;
    const int64_t first = row->q_pos + repeat * row->q_pos_advance;
    const int64_t last = first + (row->q_count - 1) * row->q_step;
    for (int k = row->first_key; k < row->first_key + row->key_count; k++) {
        struct ra__key_run run = ra__key_run_at(&shelf->program->keys[k],
                                                &shelf->program->advances[k], repeat);
        for (int64_t i = 0; i < run.count; i++) {
            const int64_t key = run.pos + i * run.pos_step;
            if (key < first - run.band.left || key > last + run.band.right) continue;
            for (int64_t h = 0; h < row->heads.count; h++)
                if (h == 0 || head_at(row, h) / group != head_at(row, h - 1) / group)
                    expect_key(shelf, key, run.row + i * run.row_step, head_at(row, h) / group);
        }
    }
}

/* One head of a query, and the sum of its pairs in this step. */
struct fold {
    struct shelf *shelf;
    int64_t index; /* which head of the row */
    uint64_t sum;
};

static void add_pair(const struct look *look, int64_t key, int64_t row, void *context)
{
    struct fold *fold = context;
    (void)row;
    fold->sum += pair_number(look->query, head_of(look, fold->index), key);
}

/* State starts at nothing or from what is there, and is left there or becomes the result. */
static void attend_query(const struct look *look, void *context)
{
    struct shelf *shelf = context;
    const struct ra__side *work = &shelf->program->work;
    const struct {
        enum ra__buffer buffer;
        int width;
    } state[] = { { RA__STATE_M, 1 },
                  { RA__STATE_L, 1 },
                  { RA__STATE_ACC, work->shape.value_dim } };
    for (int64_t h = 0; h < look->row->heads.count; h++) {
        struct fold fold = { shelf, h, 0 };
        const int head = head_at(look->row, h);
        expect_query(shelf, work->q, RA__Q, look, head, work->shape.dim);
        each_key(look, add_pair, &fold);
        if (!look->row->first) {
            uint64_t before = read_cell(shelf, RA__STATE_L, look->token, head, 0);
            for (int i = 0; i < TEST_COUNT(state); i++)
                for (int d = 0; d < state[i].width; d++)
                    expect(shelf, state[i].buffer, look->token, head, d, times(before, d));
            fold.sum += before;
        }
        for (int i = 0; i < TEST_COUNT(state) && !look->row->last; i++)
            for (int d = 0; d < state[i].width; d++)
                *write_cell(shelf, state[i].buffer, look->token, head, d) = times(fold.sum, d);
        if (!look->row->last) continue;
        *write_cell(shelf, work->lse, look->token, head, 0) = fold.sum;
        for (int d = 0; d < work->shape.value_dim; d++)
            *write_cell(shelf, work->out, look->token, head, d) = times(fold.sum, d);
    }
}

static void add_to(const struct shelf *shelf, enum ra__buffer buffer, int64_t token, int head,
                   int width, uint64_t sum)
{
    for (int d = 0; d < width; d++) {
        if (read_cell(shelf, buffer, token, head, d) == NOTHING)
            fail_msg("%s: hop %d adds to %s, which nobody cleared", shelf->world->text,
                     shelf->step->hop, ra__buffer_facts(buffer)->name);
        *write_cell(shelf, buffer, token, head, d) += times(sum, d);
    }
}

static void add_gradient(const struct look *look, int64_t key, int64_t row, void *context)
{
    struct fold *fold = context;
    const struct shelf *shelf = fold->shelf;
    const struct ra__shape *shape = &shelf->program->work.shape;
    const enum ra__buffer to = shelf->step->to;
    const uint64_t pair = pair_number(look->query, head_of(look, fold->index), key);
    int kv_head = head_at(look->row, fold->index) / (shape->q_heads / shape->kv_heads);
    if (shelf->plan->storage[to].one_head) kv_head = 0;
    add_to(shelf, to, row, kv_head, shape->dim + shape->value_dim, pair);
    fold->sum += pair;
}

static void gradient_query(const struct look *look, void *context)
{
    struct shelf *shelf = context;
    const struct ra__side *work = &shelf->program->work;
    for (int64_t h = 0; h < look->row->heads.count; h++) {
        struct fold fold = { shelf, h, 0 };
        const int head = head_at(look->row, h);
        expect_query(shelf, work->q, RA__Q, look, head, work->shape.dim);
        expect_query(shelf, work->dout, RA__DOUT, look, head, work->shape.value_dim);
        expect_query(shelf, work->lse, RA__LSE, look, head, 1);
        expect_query(shelf, work->delta, RA__DELTA, look, head, 1);
        each_key(look, add_gradient, &fold);
        add_to(shelf, RA__SUM_Q, look->token, head, work->shape.dim, fold.sum);
    }
}

static void fold_rows(struct shelf *shelf, query_fn fold)
{
    const struct ra__step *step = shelf->step;
    for (int r = step->first_row; r < step->first_row + step->row_count; r++) {
        const struct ra__plan_row *row = &shelf->program->rows[r];
        for (int64_t n = 0; n < row->repeat; n++) expect_keys(shelf, row, n);
        each_query(shelf->world, shelf->plan, shelf->program, row, fold, shelf);
    }
}

static void make_delta(const struct shelf *shelf)
{
    const struct ra__side *home = &shelf->program->home;
    const struct ra__plan_input *input = &shelf->plan->home;
    for (int64_t i = 0; i < home->queries * home->shape.q_heads; i++) {
        const int64_t token = i / home->shape.q_heads;
        const int64_t query = position_of(input->q_layout, input->rank, token);
        const int head = (int)(i % home->shape.q_heads);
        for (int d = 0; d < home->shape.value_dim; d++) {
            expect(shelf, home->out, token, head, d, tensor_number(RA__OUT, query, head, d));
            expect(shelf, home->dout, token, head, d, tensor_number(RA__DOUT, query, head, d));
        }
        expect(shelf, home->dlse, token, head, 0, tensor_number(RA__DLSE, query, head, 0));
        *write_cell(shelf, home->delta, token, head, 0) = tensor_number(RA__DELTA, query, head, 0);
    }
}

static void check_sinks(const struct shelf *shelf)
{
    const struct ra__side *home = &shelf->program->home;
    const struct ra__plan_input *input = &shelf->plan->home;
    for (int64_t token = 0; token < home->queries; token++) {
        const int64_t query = position_of(input->q_layout, input->rank, token);
        expect(shelf, home->lse, token, 0, 0, tensor_number(RA__LSE, query, 0, 0));
        expect(shelf, home->delta, token, 0, 0, tensor_number(RA__DELTA, query, 0, 0));
    }
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* What a receive brings: the sender's numbers when it posted the round. */
struct mail {
    int from, to, tag;
    bool taken;
    size_t count;
    uint64_t *numbers;
};

struct post_office {
    struct mail *mail;
    int count, capacity;
};

/* The numbers of a transfer. */
static uint64_t *numbers_of(const struct shelf *shelf, const struct ra__transfer *t, bool write,
                            size_t *count)
{
    const struct space *s = &shelf->space[t->buffer];
    assert_true(t->range.lo >= 0 && t->range.lo < t->range.hi && t->range.hi <= s->tokens);
    check_use(shelf, t->buffer, write);
    *count = (size_t)((t->range.hi - t->range.lo) * s->heads * s->width);
    return &s->cells[t->range.lo * s->heads * s->width];
}

static void post(struct post_office *office, const struct shelf *shelf,
                 const struct ra__transfer *t)
{
    if (office->count == office->capacity) {
        office->capacity = office->capacity ? 2 * office->capacity : 64;
        office->mail = realloc(office->mail, (size_t)office->capacity * sizeof *office->mail);
        assert_non_null(office->mail);
    }
    struct mail *mail = &office->mail[office->count++];
    *mail = (struct mail){ shelf->plan->home.rank, t->peer, t->tag, false, 0, NULL };
    const uint64_t *numbers = numbers_of(shelf, t, false, &mail->count);
    mail->numbers = malloc(mail->count * sizeof *numbers);
    assert_non_null(mail->numbers);
    memcpy(mail->numbers, numbers, mail->count * sizeof *numbers);
}

/* The next message of the tag; NULL as long as there is none. */
static struct mail *find_mail(const struct post_office *office, int rank,
                              const struct ra__transfer *t)
{
    for (int i = 0; i < office->count; i++) {
        struct mail *mail = &office->mail[i];
        if (mail->from == t->peer && mail->to == rank && mail->tag == t->tag && !mail->taken)
            return mail;
    }
    return NULL;
}

/* Numbers on their way in are nobody's until they have arrived. */
static void start_round(struct post_office *office, struct shelf *shelf,
                        const struct ra__plan_round *round)
{
    check_use(shelf, RA__LINK, true); /* one round at a time */
    for (int i = 0; i < round->send_count; i++)
        post(office, shelf, &shelf->program->sends[round->first_send + i]);
    for (int i = 0; i < round->recv_count; i++) {
        size_t count;
        uint64_t *numbers = numbers_of(shelf, &shelf->program->recvs[round->first_recv + i], true,
                                       &count);
        for (size_t k = 0; k < count; k++) numbers[k] = NOTHING;
    }
}

/* Numbers on their way out must be what they were. */
static void check_sent(const struct post_office *office, const struct shelf *shelf,
                       const struct ra__transfer *t)
{
    size_t count;
    const uint64_t *numbers = numbers_of(shelf, t, false, &count);
    bool found = false;
    for (int i = 0; i < office->count && !found; i++) {
        const struct mail *mail = &office->mail[i];
        if (mail->from != shelf->plan->home.rank || mail->to != t->peer || mail->tag != t->tag)
            continue;
        found = mail->count == count && !memcmp(mail->numbers, numbers, count * sizeof *numbers);
    }
    if (!found)
        fail_msg("%s: rank %d writes to numbers that are on their way to rank %d",
                 shelf->world->text, shelf->plan->home.rank, t->peer);
}

/* False as long as somebody has not sent. */
static bool end_round(struct post_office *office, struct shelf *shelf,
                      const struct ra__plan_round *round)
{
    int rank = shelf->plan->home.rank;
    for (int i = 0; i < round->recv_count; i++) {
        const struct ra__transfer *t = &shelf->program->recvs[round->first_recv + i];
        if (!find_mail(office, rank, t)) return false; /* all of a tag come in one round */
    }
    for (int i = 0; i < round->send_count; i++)
        check_sent(office, shelf, &shelf->program->sends[round->first_send + i]);
    for (int i = 0; i < round->recv_count; i++) {
        const struct ra__transfer *t = &shelf->program->recvs[round->first_recv + i];
        struct mail *mail = find_mail(office, rank, t);
        size_t count;
        uint64_t *numbers = numbers_of(shelf, t, true, &count);
        assert_int_equal(count, mail->count);
        for (size_t k = 0; k < count; k++)
            if (numbers[k] != NOTHING)
                fail_msg("%s: rank %d writes to numbers that are about to arrive",
                         shelf->world->text, rank);
        memcpy(numbers, mail->numbers, count * sizeof *numbers);
        mail->taken = true;
    }
    return true;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void run_step(struct shelf *shelf)
{
    switch (shelf->step->op) {
    case RA__OP_LOAD:
    case RA__OP_STORE:
    case RA__OP_GATHER: move_pieces(shelf); break;
    case RA__OP_DELTA: make_delta(shelf); break;
    case RA__OP_SINKS: check_sinks(shelf); break;
    case RA__OP_ATTEND: fold_rows(shelf, attend_query); break;
    case RA__OP_GRADIENT: fold_rows(shelf, gradient_query); break;
    default: fail_msg("%s: step %s", shelf->world->text, ra__step_name(shelf->step));
    }
}

static bool may_start(const struct shelf *shelf, const struct ra__step *step)
{
    for (int i = 0; i < step->wait_count; i++)
        if (shelf->stage[shelf->program->waits[step->first_wait + i]] != DONE) return false;
    return true;
}

/* Starts a step, or ends it where it is a round under way; false if neither can be done. */
static bool try_step(struct shelf *shelf, struct post_office *office, int index)
{
    const struct ra__step *step = shelf->step = &shelf->program->steps[index];
    enum stage *stage = &shelf->stage[index];
    const bool exchange = step->op == RA__OP_EXCHANGE;
    if (*stage == DONE || (*stage == WAITING && !may_start(shelf, step))) return false;
    if (*stage == WAITING && exchange) {
        start_round(office, shelf, &shelf->program->rounds[step->round]);
        *stage = UNDER_WAY;
        return true;
    }
    if (exchange && !end_round(office, shelf, &shelf->program->rounds[step->round])) return false;
    if (!exchange) run_step(shelf);
    *stage = DONE;
    shelf->left--;
    return true;
}

/* One rank as far as it gets, by the earliest step that can run, or by the latest; true if it
 * moved. */
static bool advance(struct shelf *shelf, struct post_office *office, bool latest)
{
    const int count = shelf->program->step_count;
    bool any = false;
    for (int i = 0; i < count; i++)
        if (try_step(shelf, office, latest ? count - 1 - i : i)) {
            any = true;
            i = -1;
        }
    return any;
}

/* ---- Results --------------------------------------------------------------------------------- */

/* What a result must be, in the first number of its vector. */
static uint64_t sum_of_query(const struct world *w, int64_t query, int head)
{
    uint64_t sum = 0;
    for (int64_t key = 0; key < w->k_len; key++)
        sum += seen.count[head][query][key] * pair_number(query, head, key);
    return sum;
}

static uint64_t sum_of_key(const struct world *w, int64_t key, int kv_head)
{
    const int group = w->q_heads / w->kv_heads;
    uint64_t sum = 0;
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t query = 0; query < w->n; query++)
            sum += seen.count[head][query][key] * pair_number(query, head, key);
    return sum;
}

/* A result of the caller: a vector for every token and head, `number` numbers into that of its
 * sums. */
static void check_result(const struct shelf *shelf, enum ra__buffer tensor, bool keys, int number)
{
    const struct space *s = &shelf->space[tensor];
    const struct ra__plan_input *home = &shelf->plan->home;
    for (int64_t i = 0; i < s->tokens * s->heads; i++) {
        const int64_t token = i / s->heads;
        const int head = (int)(i % s->heads);
        const int64_t at = position_of(keys ? home->k_layout : home->q_layout, home->rank, token);
        const uint64_t sum = keys ? sum_of_key(shelf->world, at, head)
                                  : sum_of_query(shelf->world, at, head);
        for (int d = 0; d < s->width; d++)
            if (*cell_of(shelf, tensor, token, head, d) != times(sum, number + d))
                fail_msg("%s: rank %d: %s of position %d, head %d is not whole", shelf->world->text,
                         home->rank, ra__buffer_facts(tensor)->name, (int)at, head);
    }
}

static void check_results(const struct shelf *shelf, bool backward)
{
    if (!backward) {
        check_result(shelf, RA__OUT, false, 0);
        check_result(shelf, RA__LSE, false, 0);
        return;
    }
    check_result(shelf, RA__DQ, false, 0);
    check_result(shelf, RA__DK, true, 0);
    check_result(shelf, RA__DV, true, shelf->program->home.shape.dim);
}

static void check_numbers_of(const struct world *w, bool backward, bool latest)
{
    struct shelf shelves[MOST_RANKS];
    struct post_office office = { NULL, 0, 0 };
    for (int rank = 0; rank < w->ranks; rank++) shelf_open(&shelves[rank], w, rank, backward);
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < w->ranks; rank++)
            moved |= advance(&shelves[rank], &office, latest);
    }
    for (int rank = 0; rank < w->ranks; rank++) {
        if (shelves[rank].left > 0)
            fail_msg("%s %s: rank %d does not come to an end", w->text, direction(backward), rank);
        check_results(&shelves[rank], backward);
        shelf_close(&shelves[rank]);
    }
    for (int i = 0; i < office.count; i++) {
        assert_true(office.mail[i].taken);
        free(office.mail[i].numbers);
    }
    free(office.mail);
}

static void check_numbers(const struct world *w)
{
    static int turn;
    turn++;
    check_numbers_of(w, false, turn % 2);
    check_numbers_of(w, true, turn % 2);
}

static void numbers_go_where_they_belong(void **state)
{
    (void)state;
    each_world(check_numbers);
}

static void numbers_go_where_they_belong_at_the_borders(void **state)
{
    (void)state;
    each_odd_world(check_numbers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_go_where_they_belong),
        cmocka_unit_test(numbers_go_where_they_belong_at_the_borders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
