/* SPDX-License-Identifier: Apache-2.0 */
/* loan.c - blocks of keys that ranks of one process lend to one another. What goes round the ring
 * is the address of a loan, which says where the owner has K and V. The last round of a program
 * tells owners that nobody reads their blocks any more. */
#include "exec/loan.h"

#include "core/clock.h"
#include "core/dtype.h"
#include "exec/exec.h"

static const enum ra__buffer values[] = { RA__LENT_VALUES_A, RA__LENT_VALUES_B };

static int index_of(enum ra__buffer travel) { return travel == RA__TRAVEL_B; }

/* Kernels that can read packed keys can read these as well: how they are laid out must not matter,
 * since other ranks have chosen their kernels without knowing it. */
static bool is_aligned(const struct ra__location *at, const struct ra__side *side)
{
    enum { BYTES = 16 };
    const struct ra__storage *s = &at->storage;
    const int64_t strides[] = { s->batch_stride, s->token_stride, s->head_stride };
    const int64_t counts[] = { side->shape.batch, side->keys, side->shape.kv_heads };
    bool aligned = at->data && (uintptr_t)at->data % BYTES == 0;
    for (int i = 0; i < RA__COUNT(strides); i++) /* those of one of something are never used */
        aligned = aligned &&
                  (counts[i] <= 1 ||
                   (strides[i] > 0 && (size_t)strides[i] * ra__dtype_bytes(s->dtype) % BYTES == 0));
    return aligned;
}

/* Where a block is that is packed: V of each head follows its K. */
static void set_packed(const struct ra__exec *exec, enum ra__buffer travel, int dim,
                       struct ra__location *k, struct ra__location *v)
{
    *k = *v = (struct ra__location){ .data = exec->buffers[travel],
                                     .storage = exec->plan->storage[travel] };
    if (v->data) v->data += (size_t)dim * ra__dtype_bytes(v->storage.dtype);
}

/* Steps find the block there from now on. */
static void place(struct ra__exec *exec, int index, const struct ra__location *k,
                  const struct ra__location *v)
{
    exec->call->at[index ? RA__TRAVEL_B : RA__TRAVEL_A] = *k;
    exec->call->at[values[index]] = *v;
}

static void give_back(struct ra__exec *exec, int index)
{
    struct ra__loan *loan = exec->loans.now[index];
    if (loan && loan != &exec->loans.own) atomic_fetch_sub(&loan->holders, 1);
    exec->loans.now[index] = NULL;
}

void ra__loans_begin(struct ra__exec *exec, const struct ra__program *program,
                     const struct ra__io *io)
{
    const struct ra__location *at = exec->call->at;
    const struct ra__side *work = &program->work;
    struct ra__loans *loans = &exec->loans;
    struct ra__location k, v;
    if (!program->lends) return;
    set_packed(exec, RA__TRAVEL_A, work->shape.dim, &k, &v);
    place(exec, index_of(RA__TRAVEL_A), &k, &v); /* until a block is borrowed */
    loans->now[index_of(RA__TRAVEL_A)] = NULL;
    /* On a queue of the caller they may not be there yet; what is packed is, when it is lent. */
    loans->in_place = work->k == RA__K && !io->queue && is_aligned(&at[RA__K], work) &&
                      is_aligned(&at[RA__V], work);
    if (loans->in_place) k = at[RA__K], v = at[RA__V];
    else set_packed(exec, RA__TRAVEL_B, work->shape.dim, &k, &v);
    loans->own.k = k;
    loans->own.v = v;
    place(exec, index_of(RA__TRAVEL_B), &k, &v);
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
        struct ra__loan *loan = exec->loans.now[index_of(send->buffer)];
        if (send->done) give_back(exec, index_of(send->buffer));
        if (!send->lends) continue;
        round->sends[i].data = loan;
        round->sends[i].holders = &loan->holders;
    }
    for (int i = 0; i < round->recv_count; i++)
        if (round->recvs[i].lends) round->recvs[i].data = NULL;
}

void ra__loans_borrow(struct ra__exec *exec, const struct ra__program *program,
                      const struct ra__plan_round *planned, const struct ra__round *round)
{
    for (int i = 0; i < round->recv_count; i++) {
        const int index = index_of(program->recvs[planned->first_recv + i].buffer);
        struct ra__loan *loan = round->recvs[i].data;
        if (!round->recvs[i].lends || !loan) continue;
        give_back(exec, index); /* of several messages about one block, all but the last */
        exec->loans.now[index] = loan;
        place(exec, index, &loan->k, &loan->v);
    }
}

void ra__loans_give_up(struct ra__exec *exec)
{
    enum { SECONDS = 10 }; /* who has not noticed by then does not compute any more */
    const struct timespec moment = { .tv_nsec = 50000 };
    const double start = ra__now();
    for (int i = 0; i < RA__COUNT(exec->loans.now); i++) give_back(exec, i);
    while (atomic_load(&exec->loans.own.holders) > 0 && ra__now() - start < SECONDS)
        nanosleep(&moment, NULL);
}
