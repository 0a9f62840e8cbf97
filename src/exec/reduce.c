/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c - adds up the states that the ranks of a group have folded from their own keys.
 *
 * Every rank sends its state to every other and adds up all of them itself, in the order of ranks:
 * a state is small where this is used (a few queries against a long cache), and so all ranks get
 * the same bits after one exchange. */
#include "exec/reduce.h"

#include <string.h>

static const char *const field_names[] = {
#define NAME(name, text) text,
    RA__STATE_SHAPE_LIST(NAME)
#undef NAME
};

const char *ra__state_shape_difference(const struct ra__state_shape *a,
                                       const struct ra__state_shape *b)
{
    for (int i = 0; i < RA__COUNT(field_names); i++)
        if (((const int64_t *)a)[i] != ((const int64_t *)b)[i]) return field_names[i];
    return NULL;
}

void ra__state_exchange_clear(struct ra__state_exchange *exchange)
{
    ra__free(exchange->messages);
    ra__free(exchange->shapes);
    ra__free(exchange->states);
    *exchange = (struct ra__state_exchange){ .others = 0 };
}

static ra_status make_room(const struct ra__state_memory *state,
                           struct ra__state_exchange *exchange, const struct ra__rank *rank)
{
    int others = rank->ranks - 1;
    if (rank->transport->reserve) RA__TRY(rank->transport->reserve(rank->link, 2 * others));
    if (others <= exchange->others) return RA_OK;
    ra__state_exchange_clear(exchange);
    size_t n = (size_t)others, bytes = state->bytes;
    if (!ra__size_mul(&bytes, others))
        return ra__fail(RA_ERR_ARGUMENT, "state: more bytes than a size_t can hold");
    exchange->messages = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 2 * n,
                                         sizeof *exchange->messages);
    exchange->shapes = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, n + 1, sizeof *exchange->shapes);
    exchange->states = ra__alloc(NULL, RA__FOR_TRAVEL, bytes);
    if (!exchange->messages || !exchange->shapes || !exchange->states) {
        ra__state_exchange_clear(exchange);
        return ra__fail(RA_ERR_MEMORY, "state: rank %d could not get %zu bytes", rank->rank, bytes);
    }
    exchange->others = others;
    return RA_OK;
}

/* Sizes of messages follow from the shape, so it is exchanged first. */
static ra_status compare_shapes(const struct ra__state_memory *state,
                                struct ra__state_exchange *exchange, const struct ra__rank *rank)
{
    struct ra__state_shape *mine = &exchange->shapes[rank->ranks - 1];
    *mine = state->shape;
    RA__TRY(ra__control_share(rank, exchange->messages, ra__reserved_tag(RA__RESERVED_STATE_SHAPE),
                              mine, exchange->shapes, sizeof *mine));
    for (int i = 0; i < rank->ranks - 1; i++) {
        const char *other = ra__state_shape_difference(mine, &exchange->shapes[i]);
        if (other)
            return ra__fail(RA_ERR_MISMATCH, "rank %d, hop 0: the state of rank %d has another %s",
                            rank->rank, i < rank->rank ? i : i + 1, other);
    }
    return RA_OK;
}

/* Rank 0's state, plus rank 1's, and so on, on every rank: the same sums in the same order. */
static ra_status add_up(const struct ra__state_memory *state,
                        const struct ra__state_exchange *exchange, const struct ra__rank *rank)
{
    enum { ROWS = 1024 }; /* between two polls */
    size_t floats = state->bytes / sizeof(float);
    float *sum = rank->rank == 0 ? state->data : exchange->states;
    for (int i = 1; i < rank->ranks; i++) {
        float *next = i == rank->rank
                          ? state->data
                          : exchange->states + (size_t)(i < rank->rank ? i : i - 1) * floats;
        for (int64_t row = 0; row < state->rows; row += ROWS) {
            ra__state_merge_rows(sum, next, state->rows, (int)state->shape.value_dim, row,
                                 ra__min(ROWS, state->rows - row));
            RA__TRY(rank->transport->poll(rank->link));
        }
    }
    if (sum != state->data) memcpy(state->data, sum, state->bytes);
    return RA_OK;
}

void ra__state_memories_merge(const struct ra__state_memory *into,
                              const struct ra__state_memory *from)
{
    ra__state_merge_rows(into->data, from->data, into->rows, (int)into->shape.value_dim, 0,
                         into->rows);
}

static ra_status reduce(const struct ra__state_memory *state, struct ra__state_exchange *exchange,
                        const struct ra__rank *rank)
{
    RA__TRY(rank->transport->poll(rank->link)); /* an aborted group is good for nothing */
    if (exchange->retained)
        return ra__fail(RA_ERR_SYSTEM, "state: a group that failed did not let go of its memory");
    if (rank->ranks == 1) return RA_OK;
    RA__TRY(make_room(state, exchange, rank));
    RA__TRY(compare_shapes(state, exchange, rank));
    if (state->bytes == 0) return RA_OK;
    RA__TRY(ra__control_share(rank, exchange->messages, ra__reserved_tag(RA__RESERVED_STATE),
                              state->data, exchange->states, state->bytes));
    return add_up(state, exchange, rank);
}

ra_status ra__reduce(const struct ra__state_memory *state, struct ra__state_exchange *exchange,
                     const struct ra__rank *rank)
{
    ra_status status = reduce(state, exchange, rank);
    if (status != RA_OK) exchange->retained = exchange->retained || ra__rank_retains(rank);
    return status;
}
