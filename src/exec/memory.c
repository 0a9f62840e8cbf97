/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - the memory of a plan, in one walk: buffers, what the backend needs, messages,
 * bookkeeping. A counting arena answers what the plan will take, a real one takes it. */
#include "core/dtype.h"
#include "core/hash.h"
#include "exec/exec.h"

/* ---- The walk -------------------------------------------------------------------------------- */

static const struct ra__program *program_of(const struct ra__plan *plan,
                                            enum ra__direction direction)
{
    return direction == RA__FORWARD ? &plan->forward : &plan->backward;
}

static ra_status take_buffers(struct ra__exec *exec, struct ra__arena *arena)
{
    for (int i = 0; i < RA__BUFFERS; i++) {
        const struct ra__buffer_facts *facts = ra__buffer_facts((enum ra__buffer)i);
        const size_t bytes = exec->plan->storage[i].bytes;
        if (facts->provider == RA__BY_DEVICE)
            RA__TRY(ra__arena_buffer(arena, facts->purpose, bytes, &exec->buffers[i]));
        if (facts->provider == RA__BY_HOST)
            RA__TRY(ra__arena_host(arena, facts->purpose, bytes, &exec->buffers[i]));
    }
    return RA_OK;
}

/* Messages read and write staging memory while steps copy from and to it. */
static void pin_staging(struct ra__exec *exec, bool pinned)
{
    const struct ra__backend *backend = exec->rank->backend;
    for (int i = 0; i < RA__BUFFERS && backend->pin; i++) {
        const enum ra__buffer buffer = (enum ra__buffer)i;
        if (ra__buffer_facts(buffer)->provider != RA__BY_HOST || !exec->buffers[i]) continue;
        if (pinned)
            backend->pin(exec->rank->device, exec->buffers[i], exec->plan->storage[i].bytes);
        else backend->unpin(exec->rank->device, exec->buffers[i]);
    }
}

static ra_status take_messages(struct ra__exec *exec, struct ra__arena *arena)
{
    int most = 0;
    for (int i = 0; i < RA__COUNT(exec->messages); i++) {
        const struct ra__program *program = program_of(exec->plan, (enum ra__direction)i);
        struct ra__messages *m = &exec->messages[i];
        RA__TRY(ra__arena_array(arena, program->send_count, sizeof *m->sends, (void **)&m->sends));
        RA__TRY(ra__arena_array(arena, program->recv_count, sizeof *m->recvs, (void **)&m->recvs));
        RA__TRY(
            ra__arena_array(arena, program->round_count, sizeof *m->rounds, (void **)&m->rounds));
        if (program->step_count > most) most = program->step_count;
    }
    RA__TRY(ra__arena_array(arena, most, sizeof *exec->steps, (void **)&exec->steps));
    /* A step uses one or two buffers that rounds have brought. */
    return ra__arena_array(arena, 2 * most, sizeof *exec->after, (void **)&exec->after);
}

static ra_status take(struct ra__exec *exec, const struct ra__target *target,
                      struct ra__arena *arena)
{
    const struct ra__plan *plan = exec->plan;
    const struct ra__setup setup = { .forward = &plan->forward,
                                     .backward = plan->caller.backward ? &plan->backward : NULL,
                                     .kernel = target->kernel,
                                     .runs = target->runs,
                                     .terms = target->terms,
                                     .device = target->device,
                                     .number = target->number,
                                     .threads = target->threads };
    RA__TRY(take_buffers(exec, arena));
    RA__TRY(take_messages(exec, arena));
    RA__TRY(ra__arena_array(arena, 1, sizeof *exec->call, (void **)&exec->call));
    RA__TRY(ra__handshake_take(&exec->handshake, &plan->caller, exec->terms, arena));
    return target->backend->prepare(&setup, arena, &exec->prepared);
}

/* ---- Counting -------------------------------------------------------------------------------- */

/* The caller's tensors: Q, O, K, V, and for a backward plan their gradients and the LSE. None of
 * them is in memory if callbacks give them. */
static size_t shard_bytes(const struct ra__plan *plan)
{
    const struct ra__plan_input *input = &plan->caller;
    if (input->sourced && input->strategy->streams) return 0;
    const struct ra__shape *s = &input->shape;
    const int64_t width = s->dim + s->value_dim, twice = input->backward ? 2 : 1;
    const int64_t q[] = { s->batch, input->q_layout->count[input->rank], s->q_heads, width, twice };
    const int64_t k[] = { s->batch, input->k_layout->count[input->rank], s->kv_heads, width,
                          twice };
    const size_t element = ra__dtype_bytes(s->dtype);
    size_t q_bytes = element, k_bytes = element, lse = input->backward ? sizeof(float) : 0, sum;
    bool fits = true;
    for (int i = 0; i < RA__COUNT(q); i++)
        fits = fits && ra__size_mul(&q_bytes, q[i]) && ra__size_mul(&k_bytes, k[i]) &&
               (i > 2 || ra__size_mul(&lse, q[i]));
    fits = fits && !__builtin_add_overflow(q_bytes, k_bytes, &sum) &&
           !__builtin_add_overflow(sum, lse, &sum);
    return fits ? sum : SIZE_MAX;
}

ra_status ra__exec_memory(const struct ra__plan *plan, size_t plan_bytes,
                          const struct ra__target *target, ra_memory *out)
{
    struct ra__arena arena = { .counting = true };
    struct ra__exec counted = { .plan = plan };
    const size_t shard = shard_bytes(plan);
    RA__TRY(take(&counted, target, &arena));
    ra_memory memory = ra_memory_default();
    const size_t *bytes = arena.bytes;
    memory.shard = shard;
    memory.travel = bytes[RA__FOR_TRAVEL];
    memory.state = bytes[RA__FOR_STATE];
    memory.gradient = bytes[RA__FOR_GRADIENT];
    memory.workspace = bytes[RA__FOR_WORKSPACE];
    memory.bookkeeping = plan_bytes + bytes[RA__FOR_BOOKKEEPING];
    memory.device = target->backend->host ? 0 : arena.device;
    const size_t parts[] = { memory.shard,    memory.travel,    memory.state,
                             memory.gradient, memory.workspace, memory.bookkeeping };
    bool fits = !arena.overflow && shard != SIZE_MAX;
    for (int i = 0; i < RA__COUNT(parts); i++)
        fits = fits && !__builtin_add_overflow(memory.total, parts[i], &memory.total);
    if (!fits)
        return ra__fail(RA_ERR_ARGUMENT,
                        "plan: the tensors of rank %d need more bytes than a size_t can hold",
                        plan->caller.rank);
    *out = memory;
    return RA_OK;
}

/* ---- Taking ---------------------------------------------------------------------------------- */

/* Tags start with a fingerprint of the problem and the direction: messages of another plan, or of
 * another direction of the same one, never meet. */
static int fingerprint(const struct ra__exec *exec, enum ra__direction direction)
{
    const bool backward = direction == RA__BACKWARD;
    const struct ra__handshake_data *mine = &exec->handshake.mine;
    uint64_t hash = ra__hash(RA__HASH_START, mine, sizeof *mine);
    hash = ra__hash(hash, &backward, sizeof backward);
    return (int)(hash % 0x7fff) + 1; /* not 0: control messages have no fingerprint */
}

static struct ra__message bind_transfer(const struct ra__exec *exec, int prefix,
                                        const struct ra__transfer *transfer)
{
    const size_t token = ra__token_bytes(exec->plan, transfer->buffer);
    return (struct ra__message){
        .peer = transfer->peer,
        .tag = prefix << RA__TAG_FINGERPRINT_SHIFT | transfer->tag,
        .hop = transfer->hop,
        .data = (char *)exec->buffers[transfer->buffer] + (size_t)transfer->range.lo * token,
        .bytes = (size_t)(transfer->range.hi - transfer->range.lo) * token,
        .lends = transfer->lends,
    };
}

static void bind_messages(struct ra__exec *exec, enum ra__direction direction)
{
    const struct ra__program *program = program_of(exec->plan, direction);
    const int prefix = fingerprint(exec, direction);
    struct ra__messages *m = &exec->messages[direction];
    for (int i = 0; i < program->send_count; i++)
        m->sends[i] = bind_transfer(exec, prefix, &program->sends[i]);
    for (int i = 0; i < program->recv_count; i++)
        m->recvs[i] = bind_transfer(exec, prefix, &program->recvs[i]);
    for (int i = 0; i < program->round_count; i++) {
        const struct ra__plan_round *round = &program->rounds[i];
        m->rounds[i] = (struct ra__round){ .sends = m->sends + round->first_send,
                                           .recvs = m->recvs + round->first_recv,
                                           .send_count = round->send_count,
                                           .recv_count = round->recv_count,
                                           .hop = round->hop };
    }
}

/* Room in the transport for the largest round, and for a handshake. */
static ra_status reserve_messages(const struct ra__exec *exec)
{
    const struct ra__rank *rank = exec->rank;
    int most = 2 * (rank->ranks - 1);
    for (int d = 0; d < RA__COUNT(exec->messages); d++) {
        const struct ra__program *program = program_of(exec->plan, (enum ra__direction)d);
        for (int i = 0; i < program->round_count; i++) {
            int count = program->rounds[i].send_count + program->rounds[i].recv_count;
            if (count > most) most = count;
        }
    }
    return rank->transport->reserve ? rank->transport->reserve(rank->link, most) : RA_OK;
}

ra_status ra__exec_create(struct ra__exec *exec)
{
    const struct ra__rank *rank = exec->rank;
    const struct ra__target target = { .backend = rank->backend,
                                       .kernel = exec->kernel,
                                       .threads = ra__rank_threads(rank),
                                       .terms = exec->terms,
                                       .device = rank->device };
    if (exec->room == 0) {
        struct ra__arena counted = { .counting = true };
        RA__TRY(take(exec, &target, &counted));
        exec->room = counted.bytes[RA__FOR_BOOKKEEPING];
    }
    struct ra__arena arena = { .account = exec->account,
                               .pool = rank->buffers,
                               .room = exec->room,
                               .rank = exec->plan->caller.rank };
    exec->block = arena.block = ra__alloc(exec->account, RA__FOR_BOOKKEEPING, arena.room);
    if (!arena.block) return ra__fail(RA_ERR_MEMORY, "plan: %zu bytes of bookkeeping", arena.room);
    RA__TRY(take(exec, &target, &arena));
    pin_staging(exec, true);
    ra__call_prepare(exec);
    for (int i = 0; i < RA__COUNT(exec->messages); i++) bind_messages(exec, (enum ra__direction)i);
    return reserve_messages(exec);
}

/* Memory that messages read and write is retained where the transport may still use it. */
static void give_buffers(struct ra__exec *exec, bool retained)
{
    for (int i = 0; i < RA__BUFFERS; i++) {
        const struct ra__buffer_facts *facts = ra__buffer_facts((enum ra__buffer)i);
        if (retained && facts->purpose != RA__FOR_STATE) continue;
        if (facts->provider == RA__BY_HOST) ra__free(exec->buffers[i]);
        else ra__buffers_give(exec->rank->buffers, exec->account, exec->buffers[i]);
    }
}

void ra__exec_destroy(struct ra__exec *exec)
{
    if (!exec->rank) return;
    const bool retained = ra__rank_retains(exec->rank);
    exec->rank->backend->release(exec->prepared, exec->rank->buffers, exec->account);
    if (!retained) pin_staging(exec, false);
    give_buffers(exec, retained);
    if (!retained) ra__free(exec->block); /* messages are in it */
}
