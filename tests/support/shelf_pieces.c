/* SPDX-License-Identifier: Apache-2.0 */
/* shelf_pieces.c - see shelf.h: steps that move pieces between buffers and messages. */
#include "support/shelf.h"

#include "core/dtype.h"

/* One number of a piece at one of its ends: of a token, counted within the piece, and a head. In a
 * message there is one for each batch item. */
static uint64_t *number_at(const struct shelf *shelf, const struct ra__piece *piece, bool to,
                           int64_t batch, int64_t token, int head, int number)
{
    const struct ra__end *end = to ? &piece->to : &piece->from;
    shelf_check_use(shelf, end->buffer, to);
    if (!shelf->space[end->buffer].message)
        return shelf_cell(shelf, end->buffer, end->token + token * end->step, end->head + head,
                          end->number + number);
    const int64_t index = ((batch * piece->heads + head) * piece->tokens + token) * piece->width +
                          number;
    const int64_t bytes = (int64_t)ra__dtype_bytes(piece->message);
    assert_int_equal(end->token % bytes, 0);
    return shelf_cell(shelf, end->buffer, end->token + index * bytes, 0, 0);
}

static void move_number(const struct shelf *shelf, const struct ra__piece *piece, int64_t token,
                        int head, int number)
{
    const int64_t batches = shelf->plan->caller.shape.batch;
    uint64_t value = 0;
    for (int64_t batch = 0; batch < batches && piece->from.buffer != RA__NO_BUFFER; batch++) {
        uint64_t got = *number_at(shelf, piece, false, batch, token, head, number);
        if (got == SHELF_NOTHING)
            fail_msg("%s: hop %d: %s moves a number of %s that nobody filled", shelf->world->text,
                     shelf->step->hop, ra__step_name(shelf->step),
                     ra__buffer_facts(piece->from.buffer)->name);
        if (batch > 0) assert_true(value == got);
        value = got;
    }
    for (int64_t batch = 0; batch < batches; batch++) {
        uint64_t *out = number_at(shelf, piece, true, batch, token, head, number);
        if (piece->add && batch == 0)
            value += shelf_read(shelf, piece->to.buffer, piece->to.token + token * piece->to.step,
                                piece->to.head + head, piece->to.number + number);
        *out = value;
    }
}

static void move_bytes(const struct shelf *shelf, const struct ra__piece *piece)
{
    shelf_check_use(shelf, piece->from.buffer, false);
    shelf_check_use(shelf, piece->to.buffer, true);
    for (int64_t i = 0; i < piece->tokens; i++)
        *shelf_cell(shelf, piece->to.buffer, piece->to.token + i, 0,
                    0) = *shelf_cell(shelf, piece->from.buffer, piece->from.token + i, 0, 0);
}

void shelf_move(const struct shelf *shelf)
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
