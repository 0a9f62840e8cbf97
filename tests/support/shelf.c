/* SPDX-License-Identifier: Apache-2.0 */
/* shelf.c - see shelf.h: numbers and buffers. */
#include "support/shelf.h"

#include <stdlib.h>

#include "core/dtype.h"

/* ---- Numbers --------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x *= UINT64_C(0x9E3779B97F4A7C15);
    return (x ^ x >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
}

uint64_t shelf_number(enum ra__buffer tensor, int64_t position, int head, int number)
{
    return mix((uint64_t)(((position * MOST_HEADS + head) * 64 + number) * RA__BUFFERS + tensor));
}

uint64_t shelf_pair(int64_t query, int head, int64_t key)
{
    return mix((uint64_t)(((query * MOST_HEADS + head) * MOST_N + key) * 64 + 63));
}

uint64_t shelf_times(uint64_t sum, int number) { return sum * (uint64_t)(2 * number + 1); }

/* ---- Buffers --------------------------------------------------------------------------------- */

static struct shelf_space tensor_space(const struct ra__side *caller, enum ra__buffer tensor)
{
    const struct ra__shape *s = &caller->shape;
    switch (tensor) {
    case RA__Q:
    case RA__DQ: return (struct shelf_space){ NULL, caller->queries, s->q_heads, s->dim, false };
    case RA__K:
    case RA__DK: return (struct shelf_space){ NULL, caller->keys, s->kv_heads, s->dim, false };
    case RA__V:
    case RA__DV:
        return (struct shelf_space){ NULL, caller->keys, s->kv_heads, s->value_dim, false };
    case RA__OUT:
    case RA__DOUT:
        return (struct shelf_space){ NULL, caller->queries, s->q_heads, s->value_dim, false };
    case RA__LSE:
    case RA__DLSE: return (struct shelf_space){ NULL, caller->queries, s->q_heads, 1, false };
    default: return (struct shelf_space){ 0 };
    }
}

static struct shelf_space buffer_space(const struct shelf *shelf, enum ra__buffer buffer)
{
    const struct ra__storage *s = &shelf->plan->storage[buffer];
    const int64_t batch = shelf->plan->caller.shape.batch;
    if (ra__buffer_facts(buffer)->provider == RA__BY_CALLER)
        return tensor_space(&shelf->program->caller, buffer);
    if (s->tokens == 0) return (struct shelf_space){ 0 };
    if (s->message) return (struct shelf_space){ NULL, s->tokens, 1, 1, true };
    /* Whatever the order of tokens and batch items, a token of an item is in one place. */
    const int64_t token = ra__min(s->batch_stride, s->token_stride);
    assert_int_equal(ra__max(s->batch_stride, s->token_stride),
                     token * (s->token_stride > s->batch_stride ? batch : s->tokens));
    assert_int_equal(s->bytes, (size_t)(token * batch * s->tokens) * ra__dtype_bytes(s->dtype));
    return (struct shelf_space){ NULL, s->tokens, (int)(token / s->head_stride),
                                 (int)s->head_stride, false };
}

uint64_t *shelf_cell(const struct shelf *shelf, enum ra__buffer buffer, int64_t token, int head,
                     int number)
{
    const struct shelf_space *s = &shelf->space[buffer];
    if (token < 0 || token >= s->tokens || head < 0 || head >= s->heads || number < 0 ||
        number >= s->width)
        fail_msg("%s: rank %d: %s has no token %d, head %d, number %d", shelf->world->text,
                 shelf->plan->caller.rank, ra__buffer_facts(buffer)->name, (int)token, head,
                 number);
    return &s->cells[(token * s->heads + head) * s->width + number];
}

void shelf_check_use(const struct shelf *shelf, enum ra__buffer buffer, bool write)
{
    const ra__buffer_set set = write ? shelf->step->writes : shelf->step->reads;
    if (!(set & ra__buffer_bit(buffer)))
        fail_msg("%s: %s does not say that it %s %s", shelf->world->text,
                 ra__step_name(shelf->step), write ? "writes" : "reads",
                 ra__buffer_facts(buffer)->name);
}

uint64_t shelf_read(const struct shelf *shelf, enum ra__buffer buffer, int64_t token, int head,
                    int number)
{
    shelf_check_use(shelf, buffer, false);
    return *shelf_cell(shelf, buffer, token, head, number);
}

uint64_t *shelf_write(const struct shelf *shelf, enum ra__buffer buffer, int64_t token, int head,
                      int number)
{
    shelf_check_use(shelf, buffer, true);
    return shelf_cell(shelf, buffer, token, head, number);
}

/* Fills a tensor of the caller. */
static void bring_tensor(struct shelf *shelf, enum ra__buffer tensor, bool keys)
{
    const struct shelf_space *s = &shelf->space[tensor];
    const struct ra__plan_input *caller = &shelf->plan->caller;
    for (int64_t i = 0; i < s->tokens * s->heads * s->width; i++) {
        const int64_t token = i / s->width / s->heads;
        const int64_t position = position_of(keys ? caller->k_layout : caller->q_layout,
                                             caller->rank, token);
        s->cells[i] = shelf_number(tensor, position, (int)(i / s->width % s->heads),
                                   (int)(i % s->width));
    }
}

void shelf_open(struct shelf *shelf, const struct world *w, int rank, bool backward)
{
    *shelf = (struct shelf){ .world = w,
                             .plan = &w->steps[rank],
                             .program = program_of(w, rank, backward) };
    shelf->left = shelf->program->step_count;
    shelf->stage = calloc((size_t)shelf->left + 1, sizeof *shelf->stage);
    assert_non_null(shelf->stage);
    for (int i = 0; i < RA__BUFFERS; i++) {
        struct shelf_space *s = &shelf->space[i];
        *s = buffer_space(shelf, (enum ra__buffer)i);
        const size_t cells = (size_t)(s->tokens * s->heads * s->width);
        s->cells = shelf->memory[i] = malloc((cells + 1) * sizeof *s->cells);
        assert_non_null(s->cells);
        for (size_t k = 0; k < cells; k++) s->cells[k] = SHELF_NOTHING;
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

void shelf_close(struct shelf *shelf)
{
    for (int i = 0; i < RA__BUFFERS; i++) free(shelf->memory[i]);
    free(shelf->stage);
}
