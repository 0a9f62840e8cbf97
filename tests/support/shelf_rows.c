/* SPDX-License-Identifier: Apache-2.0 */
/* shelf_rows.c - see shelf.h: steps that work on rows, and what they must find there. */
#include "support/shelf.h"

static void expect(const struct shelf *shelf, enum ra__buffer buffer, int64_t token, int head,
                   int number, uint64_t want)
{
    if (shelf_read(shelf, buffer, token, head, number) != want)
        fail_msg(
            "%s: rank %d, hop %d, %s: token %d, head %d, number %d of %s is not what it should "
            "be",
            shelf->world->text, shelf->plan->caller.rank, shelf->step->hop,
            ra__step_name(shelf->step), (int)token, head, number, ra__buffer_facts(buffer)->name);
}

/* The numbers of a query of one head that a step reads. */
static void expect_query(const struct shelf *shelf, enum ra__buffer buffer, enum ra__buffer tensor,
                         const struct look *look, int head, int width)
{
    for (int d = 0; d < width; d++)
        expect(shelf, buffer, look->token, head, d,
               shelf_number(tensor, look->query, shelf->plan->input.first_head + head, d));
}

/* The numbers of a key: K and V of a head, which may be in one buffer. */
static void expect_key(const struct shelf *shelf, int64_t key, int64_t token, int kv_head)
{
    const struct ra__side *work = &shelf->program->work;
    const enum ra__buffer from = shelf->step->from;
    const bool own = from == RA__OWN_KV, one_head = !own && shelf->plan->storage[from].one_head;
    const int dim = work->shape.dim, all = kv_head + shelf->plan->team.slice.kv_first;
    const enum ra__buffer k = own ? work->k : from, v = own ? work->v : from;
    const int head = one_head ? 0 : kv_head;
    for (int d = 0; d < dim; d++)
        expect(shelf, k, token, head, d, shelf_number(RA__K, key, all, d));
    for (int d = 0; d < work->shape.value_dim; d++)
        expect(shelf, v, token, head, k == v ? dim + d : d, shelf_number(RA__V, key, all, d));
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
                    expect_key(shelf, key, run.token + i * run.token_step, head_at(row, h) / group);
        }
    }
}

/* ---- Forward --------------------------------------------------------------------------------- */

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
    fold->sum += shelf_pair(look->query, head_of(look, fold->index), key);
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
            uint64_t before = shelf_read(shelf, RA__STATE_L, look->token, head, 0);
            for (int i = 0; i < TEST_COUNT(state); i++)
                for (int d = 0; d < state[i].width; d++)
                    expect(shelf, state[i].buffer, look->token, head, d, shelf_times(before, d));
            fold.sum += before;
        }
        for (int i = 0; i < TEST_COUNT(state) && !look->row->last; i++)
            for (int d = 0; d < state[i].width; d++)
                *shelf_write(shelf, state[i].buffer, look->token, head, d) = shelf_times(fold.sum,
                                                                                         d);
        if (!look->row->last) continue;
        *shelf_write(shelf, work->lse, look->token, head, 0) = fold.sum;
        for (int d = 0; d < work->shape.value_dim; d++)
            *shelf_write(shelf, work->out, look->token, head, d) = shelf_times(fold.sum, d);
    }
}

/* ---- Backward -------------------------------------------------------------------------------- */

static void add_to(const struct shelf *shelf, enum ra__buffer buffer, int64_t token, int head,
                   int width, uint64_t sum)
{
    for (int d = 0; d < width; d++) {
        if (shelf_read(shelf, buffer, token, head, d) == SHELF_NOTHING)
            fail_msg("%s: hop %d adds to %s, which nobody cleared", shelf->world->text,
                     shelf->step->hop, ra__buffer_facts(buffer)->name);
        *shelf_write(shelf, buffer, token, head, d) += shelf_times(sum, d);
    }
}

static void add_gradient(const struct look *look, int64_t key, int64_t row, void *context)
{
    struct fold *fold = context;
    const struct shelf *shelf = fold->shelf;
    const struct ra__shape *shape = &shelf->program->work.shape;
    const enum ra__buffer to = shelf->step->to;
    const uint64_t pair = shelf_pair(look->query, head_of(look, fold->index), key);
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

void shelf_delta(const struct shelf *shelf)
{
    const struct ra__side *caller = &shelf->program->caller;
    const struct ra__plan_input *input = &shelf->plan->caller;
    for (int64_t i = 0; i < caller->queries * caller->shape.q_heads; i++) {
        const int64_t token = i / caller->shape.q_heads;
        const int64_t query = position_of(input->q_layout, input->rank, token);
        const int head = (int)(i % caller->shape.q_heads);
        for (int d = 0; d < caller->shape.value_dim; d++) {
            expect(shelf, caller->out, token, head, d, shelf_number(RA__OUT, query, head, d));
            expect(shelf, caller->dout, token, head, d, shelf_number(RA__DOUT, query, head, d));
        }
        expect(shelf, caller->dlse, token, head, 0, shelf_number(RA__DLSE, query, head, 0));
        *shelf_write(shelf, caller->delta, token, head, 0) = shelf_number(RA__DELTA, query, head,
                                                                          0);
    }
}

void shelf_sinks(const struct shelf *shelf)
{
    const struct ra__side *caller = &shelf->program->caller;
    const struct ra__plan_input *input = &shelf->plan->caller;
    for (int64_t token = 0; token < caller->queries; token++) {
        const int64_t query = position_of(input->q_layout, input->rank, token);
        expect(shelf, caller->lse, token, 0, 0, shelf_number(RA__LSE, query, 0, 0));
        expect(shelf, caller->delta, token, 0, 0, shelf_number(RA__DELTA, query, 0, 0));
    }
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void fold_rows(struct shelf *shelf, query_fn fold)
{
    const struct ra__step *step = shelf->step;
    for (int r = step->first_row; r < step->first_row + step->row_count; r++) {
        const struct ra__plan_row *row = &shelf->program->rows[r];
        for (int64_t n = 0; n < row->repeat; n++) expect_keys(shelf, row, n);
        each_query(shelf->world, shelf->plan, shelf->program, row, fold, shelf);
    }
}

void shelf_attend(struct shelf *shelf) { fold_rows(shelf, attend_query); }
void shelf_gradient(struct shelf *shelf) { fold_rows(shelf, gradient_query); }
