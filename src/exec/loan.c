/* SPDX-License-Identifier: Apache-2.0 */
/* loan.c - blocks that ranks of one process lend to one another. What goes round the ring is the
 * address of a loan, which says where the owner has K, V and the sums of their gradients. The last
 * round of a program tells owners that nobody uses their blocks any more. */
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
static void place(struct ra__exec *exec, int index, const struct ra__loan *loan)
{
    struct ra__location *at = exec->call->at;
    at[index ? RA__TRAVEL_B : RA__TRAVEL_A] = loan->k;
    at[values[index]] = loan->v;
    at[index ? RA__SUM_B : RA__SUM_A] = loan->sums;
}

/* All that has come here in this run. */
static void give_back(struct ra__exec *exec, const struct ra__program *program)
{
    struct ra__message *recvs = exec->messages[program->direction].recvs;
    for (int i = 0; i < program->recv_count; i++) {
        if (!recvs[i].lends || !recvs[i].holders) continue;
        atomic_fetch_sub(recvs[i].holders, 1);
        recvs[i].holders = NULL;
        recvs[i].after = (struct ra__event){ NULL, 0 };
    }
}

void ra__loans_begin(struct ra__exec *exec, const struct ra__program *program,
                     const struct ra__io *io)
{
    const struct ra__location *at = exec->call->at;
    const struct ra__side *work = &program->work;
    struct ra__message *recvs = exec->messages[program->direction].recvs;
    struct ra__loans *loans = &exec->loans;
    struct ra__loan none = { .sums = at[RA__SUM_OWN] };
    if (!program->lends) return;
    for (int i = 0; i < program->recv_count; i++) {
        recvs[i].holders = NULL;
        recvs[i].after = (struct ra__event){ NULL, 0 };
    }
    set_packed(exec, RA__TRAVEL_A, work->shape.dim, &none.k, &none.v);
    place(exec, index_of(RA__TRAVEL_A), &none); /* until a block is borrowed */
    loans->now[index_of(RA__TRAVEL_A)] = NULL;
    /* On a queue of the caller they may not be there yet; what is packed is, when it is lent. */
    loans->in_place = work->k == RA__K && !io->queue && is_aligned(&at[RA__K], work) &&
                      is_aligned(&at[RA__V], work);
    if (loans->in_place) loans->own.k = at[RA__K], loans->own.v = at[RA__V];
    else set_packed(exec, RA__TRAVEL_B, work->shape.dim, &loans->own.k, &loans->own.v);
    loans->own.sums = at[RA__SUM_OWN];
    place(exec, index_of(RA__TRAVEL_B), &loans->own);
    loans->now[index_of(RA__TRAVEL_B)] = &loans->own;
}

bool ra__loans_in_place(const struct ra__exec *exec, const struct ra__program *program)
{
    return program->lends && exec->loans.in_place;
}

bool ra__loans_skip(const struct ra__exec *exec, const struct ra__program *program,
                    const struct ra__step *step)
{
    return ra__loans_in_place(exec, program) && step->op == RA__OP_GATHER &&
           step->gather == RA__GATHER_PACK;
}

/* The message with which a round that has ended brought the sums in `buffer`. */
static const struct ra__message *find_arrival(const struct ra__exec *exec,
                                              const struct ra__program *program, int index,
                                              enum ra__buffer buffer)
{
    const struct ra__round *round = &exec->messages[program->direction].rounds[index];
    const struct ra__transfer *recvs = program->recvs + program->rounds[index].first_recv;
    for (int i = 0; i < round->recv_count; i++)
        if (recvs[i].buffer == buffer) return &round->recvs[i];
    return NULL;
}

/* The sums in `buffer` are passed on with the event of the step that added to them here or, where
 * none did, with the one that they came with. That is the last step that writes the buffer, and the
 * round waits for it. */
static void pass_on(struct ra__exec *exec, const struct ra__program *program,
                    const struct ra__step *step, enum ra__buffer buffer,
                    struct ra__message *message)
{
    int last = -1;
    for (int i = 0; i < step->wait_count; i++) {
        const int other = program->waits[step->first_wait + i];
        if (program->steps[other].writes & ra__buffer_bit(buffer)) last = ra__max(last, other);
    }
    message->holders = &exec->loans.own.holders;
    message->after = (struct ra__event){ NULL, 0 };
    if (last < 0) return;
    const struct ra__step *writer = &program->steps[last];
    const struct ra__message *came = writer->op == RA__OP_EXCHANGE
                                         ? find_arrival(exec, program, writer->round, buffer)
                                         : NULL;
    if (came) {
        message->holders = came->holders;
        message->after = came->after;
    } else if (exec->steps[last].stage == RA__ISSUED) message->after = exec->steps[last].event;
}

void ra__loans_lend(struct ra__exec *exec, const struct ra__program *program,
                    const struct ra__step *step, struct ra__round *round)
{
    const struct ra__transfer *sends = program->sends + program->rounds[step->round].first_send;
    for (int i = 0; i < round->send_count; i++) {
        struct ra__message *message = &round->sends[i];
        if (sends[i].done) give_back(exec, program);
        if (!sends[i].lends) continue;
        if (!ra__has_tokens(&sends[i])) {
            pass_on(exec, program, step, sends[i].buffer, message);
            continue;
        }
        message->data = exec->loans.now[index_of(sends[i].buffer)];
        message->holders = &exec->loans.now[index_of(sends[i].buffer)]->holders;
    }
}

void ra__loans_borrow(struct ra__exec *exec, const struct ra__program *program,
                      const struct ra__step *step, const struct ra__round *round)
{
    const struct ra__transfer *recvs = program->recvs + program->rounds[step->round].first_recv;
    for (int i = 0; i < round->recv_count; i++) {
        struct ra__loan *loan = round->recvs[i].data;
        if (!recvs[i].lends || !ra__has_tokens(&recvs[i])) continue;
        exec->loans.now[index_of(recvs[i].buffer)] = loan;
        place(exec, index_of(recvs[i].buffer), loan);
    }
}

void ra__loans_give_up(struct ra__exec *exec, const struct ra__program *program)
{
    enum { SECONDS = 10 }; /* who has not noticed by then does not compute any more */
    const double start = ra__now();
    if (!program->lends) return;
    give_back(exec, program);
    while (atomic_load(&exec->loans.own.holders) > 0 && ra__now() - start < SECONDS)
        ra__backoff(start);
}
