/* SPDX-License-Identifier: Apache-2.0 */
/* loan.c - blocks of keys that ranks of one process lend to one another. What goes round the ring
 * is the address of a loan, which says where the owner has K and V. The last round of a program
 * tells owners that nobody reads their blocks any more. */
#include "exec/loan.h"

#include "core/dtype.h"
#include "exec/exec.h"

static const enum ra__buffer values[] = { RA__LENT_VALUES_A, RA__LENT_VALUES_B };

static int index_of(enum ra__buffer travel) { return travel == RA__TRAVEL_B; }

/* Kernels that can read packed keys can read these as well: how they are laid out must not matter,
 * since other ranks have chosen their kernels without knowing it. */
static bool is_aligned(const struct ra__location *at)
{
    enum { BYTES = 16 };
    const struct ra__storage *s = &at->storage;
    const int64_t strides[] = { s->batch_stride, s->token_stride, s->head_stride };
    bool aligned = (uintptr_t)at->data % BYTES == 0;
    for (int i = 0; i < RA__COUNT(strides); i++)
        aligned = aligned && strides[i] > 0 &&
                  (size_t)strides[i] * ra__dtype_bytes(s->dtype) % BYTES == 0;
    return aligned;
}

/* A block that is packed: V of each head follows its K. */
static struct ra__loan packed(const struct ra__exec *exec, enum ra__buffer travel, int dim)
{
    struct ra__loan loan = { .k = { .data = exec->buffers[travel],
                                    .storage = exec->plan->storage[travel] } };
    loan.v = loan.k;
    if (loan.v.data) loan.v.data += (size_t)dim * ra__dtype_bytes(loan.v.storage.dtype);
    return loan;
}

/* Steps find the block there from now on. */
static void place(struct ra__exec *exec, int index, const struct ra__loan *loan)
{
    exec->call->at[index ? RA__TRAVEL_B : RA__TRAVEL_A] = loan->k;
    exec->call->at[values[index]] = loan->v;
}

void ra__loans_begin(struct ra__exec *exec, const struct ra__program *program,
                     const struct ra__io *io)
{
    const struct ra__location *at = exec->call->at;
    const struct ra__side *work = &program->work;
    struct ra__loans *loans = &exec->loans;
    if (!program->lends) return;
    const struct ra__loan nothing = packed(exec, RA__TRAVEL_A, work->shape.dim);
    place(exec, index_of(RA__TRAVEL_A), &nothing); /* until a block is borrowed */
    loans->now[index_of(RA__TRAVEL_A)] = NULL;
    /* On a queue of the caller they may not be there yet; what is packed is, when it is lent. */
    loans->in_place = work->k == RA__K && !io->queue && is_aligned(&at[RA__K]) &&
                      is_aligned(&at[RA__V]);
    loans->own = loans->in_place ? (struct ra__loan){ at[RA__K], at[RA__V] }
                                 : packed(exec, RA__TRAVEL_B, work->shape.dim);
    place(exec, index_of(RA__TRAVEL_B), &loans->own);
    loans->now[index_of(RA__TRAVEL_B)] = &loans->own;
}

bool ra__loans_skip(const struct ra__exec *exec, const struct ra__program *program,
                    const struct ra__step *step)
{
    return program->lends && exec->loans.in_place && step->op == RA__OP_GATHER &&
           step->gather == RA__GATHER_PACK;
}

void ra__loans_lend(struct ra__exec *exec, const struct ra__program *program,
                    const struct ra__plan_round *planned, struct ra__round *round)
{
    for (int i = 0; i < round->send_count; i++) {
        const struct ra__transfer *send = &program->sends[planned->first_send + i];
        if (send->lends) round->sends[i].data = (void *)exec->loans.now[index_of(send->buffer)];
    }
}

void ra__loans_borrow(struct ra__exec *exec, const struct ra__program *program,
                      const struct ra__plan_round *planned, const struct ra__round *round)
{
    for (int i = 0; i < round->recv_count; i++) {
        const struct ra__transfer *recv = &program->recvs[planned->first_recv + i];
        const int index = index_of(recv->buffer);
        if (!recv->lends || round->recvs[i].bytes == 0) continue;
        exec->loans.now[index] = round->recvs[i].data;
        place(exec, index, round->recvs[i].data);
    }
}
