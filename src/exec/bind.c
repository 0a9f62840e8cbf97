/* bind.c - gives a plan its memory: slots, state, sums, scratch, and messages that point into
 * them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/philox.h"
#include "exec/exec.h"

static enum ra__purpose slot_purpose(enum ra__slot slot)
{
    return ra__slot_is_gradient(slot) ? RA__FOR_GRADIENT : RA__FOR_TRAVEL;
}

/* Sums up checked products; a size that overflows is remembered and refused once, at the end. */
struct tally {
    bool overflow;
};

static size_t bytes_of(struct tally *tally, size_t element, const int64_t *factors, int count)
{
    size_t bytes = element;
    for (int i = 0; i < count; i++)
        if (!ra__size_mul(&bytes, factors[i])) tally->overflow = true;
    return bytes;
}

static void add_bytes(struct tally *tally, size_t *sum, size_t bytes)
{
    if (__builtin_add_overflow(*sum, bytes, sum)) tally->overflow = true;
}

/* The caller's tensors: Q, O, K, V, and for a backward plan their gradients and the LSE. */
static void count_shard(struct tally *tally, const struct ra__plan *plan, ra_memory *memory)
{
    const struct ra__plan_input *input = &plan->home;
    const struct ra__shape *s = &input->shape;
    int64_t width = s->dim + s->value_dim, twice = input->backward ? 2 : 1;
    int64_t q[] = { s->batch, input->q_layout->count[input->rank], s->q_heads, width, twice };
    int64_t k[] = { s->batch, input->k_layout->count[input->rank], s->kv_heads, width, twice };
    size_t element = ra__dtype_bytes(s->dtype);
    add_bytes(tally, &memory->shard, bytes_of(tally, element, q, RA__COUNT(q)));
    add_bytes(tally, &memory->shard, bytes_of(tally, element, k, RA__COUNT(k)));
    if (input->backward) add_bytes(tally, &memory->shard, bytes_of(tally, sizeof(float), q, 3));
}

static void count_slots(struct tally *tally, const struct ra__plan *plan, ra_memory *memory)
{
    for (enum ra__slot slot = 0; slot < RA__SLOTS; slot++) {
        size_t *sum = ra__slot_is_gradient(slot) ? &memory->gradient : &memory->travel;
        add_bytes(tally, sum,
                  bytes_of(tally, ra__slot_row_bytes(plan, slot), &plan->slot_rows[slot], 1));
    }
}

/* Rows of the states that stretches of keys leave. */
static int64_t count_parts(const struct ra__plan_input *input)
{
    int stretches = ra__split_for(&input->shape).stretches;
    return stretches > 1 ? stretches * ra__query_rows(input) : 0;
}

/* m, l, acc of rows that span hops, and of stretches of keys; dQ and delta of a backward plan; LSE
 * and once more delta in a team. */
static void count_rows(struct tally *tally, const struct ra__plan *plan, ra_memory *memory)
{
    const struct ra__plan_input *input = &plan->input;
    const struct ra__shape *s = &input->shape;
    int64_t state[] = { s->batch, plan->state_rows, s->q_heads, s->value_dim + 2 };
    int64_t queries = ra__query_rows(input), home = ra__query_rows(&plan->home);
    int64_t sums[] = { queries, s->dim + 1 };
    int64_t parts[] = { count_parts(input), s->value_dim + 2 };
    add_bytes(tally, &memory->state, bytes_of(tally, sizeof(float), state, RA__COUNT(state)));
    add_bytes(tally, &memory->state, bytes_of(tally, sizeof(float), parts, RA__COUNT(parts)));
    if (input->backward)
        add_bytes(tally, &memory->gradient, bytes_of(tally, sizeof(float), sums, RA__COUNT(sums)));
    if (plan->team.size == 1) return;
    add_bytes(tally, &memory->travel, bytes_of(tally, sizeof(float), &queries, 1));
    if (input->backward)
        add_bytes(tally, &memory->gradient, bytes_of(tally, sizeof(float), &home, 1));
}

/* No job of a program exceeds this, however its rows are cut. */
static struct ra__extent largest_job(const struct ra__shape *shape,
                                     const struct ra__program *program)
{
    int64_t queries = 0, keys = 0;
    for (int i = 0; i < program->row_count; i++)
        queries = ra__max(queries, program->rows[i].q_count);
    for (int i = 0; i < program->key_count; i++) keys = ra__max(keys, program->keys[i].count);
    int heads = shape->q_heads; /* of one query a job may take all */
    if (queries > 1) heads /= shape->kv_heads;
    return (struct ra__extent){ queries * heads, keys };
}

/* Rows of a backward job. It packs its keys, and adds up their gradients, once for all of them: the
 * more the better, where jobs stay many enough for many threads. How many there are it must not
 * know, for the cut decides in which order gradients are summed. */
static int backward_rows(const struct ra__plan_input *input, const struct ra__kernel *kernel)
{
    enum { ENOUGH_JOBS = 64 }; /* four for each of 16 threads */
    const struct ra__shape *shape = &input->shape;
    int rows = kernel->backward_rows;
    for (; kernel->backward_few > 0 && rows > kernel->backward_few; rows /= 2) {
        struct ra__cut cut = ra__cut_for(shape, rows, shape->q_heads);
        int64_t chunks = ra__ceil_div(input->q_layout->count[input->rank], cut.queries);
        if (shape->batch * shape->kv_heads * cut.head_chunks * chunks >= ENOUGH_JOBS) break;
    }
    return rows;
}

static size_t workspace_per_thread(const struct ra__plan *plan, const struct ra__kernel *kernel)
{
    const struct ra__shape *shape = &plan->input.shape;
    size_t bytes = kernel->workspace(shape, largest_job(shape, &plan->forward), false);
    if (plan->input.backward) {
        struct ra__extent most = largest_job(shape, &plan->backward);
        most.rows = ra__min(most.rows, backward_rows(&plan->input, kernel));
        size_t backward = kernel->workspace(shape, most, true);
        if (backward > bytes) bytes = backward;
    }
    return (bytes + 63) / 64 * 64;
}

/* The most key runs of a row that repeats, or is split: room to move them along, and to cut
 * them. */
static int most_keys(const struct ra__program *program, bool split)
{
    int most = 0;
    for (int r = 0; r < program->row_count; r++)
        if ((split || program->rows[r].repeat > 1) && program->rows[r].key_count > most)
            most = program->rows[r].key_count;
    return most;
}

static size_t count_moved(const struct ra__plan *plan, int threads)
{
    bool split = ra__split_for(&plan->input.shape).stretches > 1;
    return (size_t)most_keys(&plan->forward, split) * (size_t)threads;
}

/* What bind_program, prepare_hello, take_scratch, take_turns and take_shares will take. */
static size_t count_binding(const struct ra__plan *plan, int threads)
{
    const struct ra__program *programs[] = { &plan->forward, &plan->backward };
    size_t others = (size_t)plan->home.ranks - 1;
    size_t bytes = (size_t)plan->home.ranks * sizeof(struct ra__hello) +
                   2 * others * sizeof(struct ra__message) +
                   count_moved(plan, threads) * sizeof(struct ra__key_run);
    const struct ra__shape *shape = &plan->input.shape;
    if (plan->input.backward)
        bytes += (size_t)plan->home.shape.q_heads * sizeof(double) +
                 (size_t)shape->kv_heads * sizeof(struct ra__range) +
                 RA__MOST_TASKS * sizeof(atomic_bool);
    bytes += (size_t)plan->forward.row_count * (sizeof(struct ra__turn) + sizeof(struct ra__size)) +
             (size_t)plan->backward.row_count * sizeof(struct ra__share) +
             (size_t)plan->backward.step_count * sizeof(int);
    for (int i = 0; i < RA__COUNT(programs); i++)
        bytes += (size_t)(programs[i]->send_count + programs[i]->recv_count) *
                     sizeof(struct ra__message) +
                 (size_t)programs[i]->round_count * sizeof(struct ra__round);
    return bytes;
}

ra_status ra__exec_memory(const struct ra__plan *plan, size_t plan_bytes,
                          const struct ra__kernel *kernel, int threads, ra_memory *out)
{
    struct tally tally = { false };
    ra_memory memory = ra_memory_default();
    count_shard(&tally, plan, &memory);
    count_slots(&tally, plan, &memory);
    count_rows(&tally, plan, &memory);
    memory.workspace = workspace_per_thread(plan, kernel) * (size_t)threads;
    memory.bookkeeping = plan_bytes + count_binding(plan, threads);
    size_t parts[] = { memory.shard,    memory.travel,    memory.state,
                       memory.gradient, memory.workspace, memory.bookkeeping };
    for (int i = 0; i < RA__COUNT(parts); i++) add_bytes(&tally, &memory.total, parts[i]);
    if (tally.overflow)
        return ra__fail(RA_ERR_ARGUMENT,
                        "plan: the tensors of rank %d need more bytes than a size_t "
                        "can hold",
                        plan->home.rank);
    *out = memory;
    return RA_OK;
}

/* Takes memory of the device from the rank's pool; nothing for 0 bytes. */
static ra_status take(struct ra__exec *exec, enum ra__purpose purpose, size_t bytes, void **out)
{
    if (bytes == 0) return RA_OK;
    *out = ra__buffers_take(exec->rank->buffers, exec->account, purpose, bytes);
    if (*out) return RA_OK;
    return ra__fail(RA_ERR_MEMORY, "plan: rank %d could not get %zu bytes", exec->plan->home.rank,
                    bytes);
}

static ra_status take_floats(struct ra__exec *exec, enum ra__purpose purpose, int64_t count,
                             float **out)
{
    void *memory = NULL;
    RA__TRY(take(exec, purpose, (size_t)count * sizeof(float), &memory));
    *out = memory;
    return RA_OK;
}

static ra_status take_buffers(struct ra__exec *exec)
{
    const struct ra__plan *plan = exec->plan;
    const struct ra__shape *s = &plan->input.shape;
    for (enum ra__slot slot = 0; slot < RA__SLOTS; slot++)
        RA__TRY(take(exec, slot_purpose(slot),
                     (size_t)plan->slot_rows[slot] * ra__slot_row_bytes(plan, slot),
                     &exec->slots[slot]));
    int64_t rows = s->batch * plan->state_rows * s->q_heads;
    RA__TRY(take_floats(exec, RA__FOR_STATE, rows, &exec->m));
    RA__TRY(take_floats(exec, RA__FOR_STATE, rows, &exec->l));
    RA__TRY(take_floats(exec, RA__FOR_STATE, rows * s->value_dim, &exec->acc));
    RA__TRY(take_floats(exec, RA__FOR_STATE, count_parts(&plan->input) * (s->value_dim + 2),
                        &exec->parts));
    rows = ra__query_rows(&plan->input);
    if (plan->team.size > 1) RA__TRY(take_floats(exec, RA__FOR_TRAVEL, rows, &exec->lse));
    if (plan->input.backward) {
        RA__TRY(take_floats(exec, RA__FOR_GRADIENT, rows * s->dim, &exec->dq));
        RA__TRY(take_floats(exec, RA__FOR_GRADIENT, rows, &exec->delta));
        if (plan->team.size > 1)
            RA__TRY(take_floats(exec, RA__FOR_GRADIENT, ra__query_rows(&plan->home),
                                &exec->home_delta));
    }
    void *workspace = NULL;
    exec->workspace_bytes = workspace_per_thread(plan, exec->kernel);
    RA__TRY(take(exec, RA__FOR_WORKSPACE,
                 exec->workspace_bytes * (size_t)ra__pool_threads(exec->rank->pool), &workspace));
    exec->workspace = workspace;
    return RA_OK;
}

static ra_status take_array(struct ra__exec *exec, int64_t count, size_t bytes, void **out)
{
    *out = ra__alloc_array(exec->account, RA__FOR_BOOKKEEPING, (size_t)count, bytes);
    return *out ? RA_OK : ra__fail(RA_ERR_MEMORY, "plan: %" PRId64 " entries", count);
}

/* Tags start with a fingerprint of the problem and the direction: messages of another plan, or of
 * another direction of the same one, never meet. */
static int fingerprint(const struct ra__exec *exec, const struct ra__program *program)
{
    bool backward = program == &exec->plan->backward;
    uint64_t hash = ra__hash(RA__HASH_START, &exec->hello, sizeof exec->hello);
    hash = ra__hash(hash, &backward, sizeof backward);
    return (int)(hash % 0x7fff) + 1; /* not 0: greetings have no fingerprint */
}

static struct ra__message bind_transfer(const struct ra__exec *exec, int prefix,
                                        const struct ra__transfer *transfer)
{
    size_t row_bytes = ra__slot_row_bytes(exec->plan, transfer->slot);
    return (struct ra__message){
        .peer = transfer->peer,
        .tag = prefix << RA__TAG_FINGERPRINT_SHIFT | transfer->tag,
        .hop = transfer->hop,
        .data = (char *)exec->slots[transfer->slot] + (size_t)transfer->range.lo * row_bytes,
        .bytes = (size_t)(transfer->range.hi - transfer->range.lo) * row_bytes,
    };
}

static ra_status take_turns(struct ra__exec *exec, int threads)
{
    struct ra__bound *bound = &exec->forward;
    int64_t rows = exec->plan->forward.row_count;
    RA__TRY(take_array(exec, rows, sizeof *bound->turns, (void **)&bound->turns));
    RA__TRY(take_array(exec, rows, sizeof *bound->sizes, (void **)&bound->sizes));
    ra__turns_take(&exec->plan->input.shape, threads, bound);
    return RA_OK;
}

/* Counts the chunks of a step by the first head of their rows; `counts` has an entry for each
 * head. */
static void share_out(const struct ra__shape *shape, const struct ra__bound *bound,
                      const struct ra__step *step, int64_t *counts)
{
    const struct ra__plan_row *rows = bound->program->rows;
    int end = step->first_row + step->row_count;
    for (int h = 0; h < shape->q_heads; h++) counts[h] = 0;
    for (int r = step->first_row; r < end; r++) {
        bound->shares[r].before = counts[rows[r].heads.start];
        counts[rows[r].heads.start] += ra__bound_chunks(shape, bound, &rows[r]);
    }
    for (int r = step->first_row; r < end; r++) bound->shares[r].all = counts[rows[r].heads.start];
}

static ra_status take_shares(struct ra__exec *exec, struct ra__bound *bound)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    const struct ra__program *program = bound->program;
    RA__TRY(take_array(exec, program->row_count, sizeof *bound->shares, (void **)&bound->shares));
    int64_t *counts = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)shape->q_heads,
                                      sizeof *counts);
    if (!counts) return ra__fail(RA_ERR_MEMORY, "plan: %d heads", shape->q_heads);
    for (int i = 0; i < program->step_count; i++)
        if (program->steps[i].op == RA__OP_ATTEND)
            share_out(shape, bound, &program->steps[i], counts);
    ra__free(counts);
    RA__TRY(take_array(exec, program->step_count, sizeof *bound->chunks, (void **)&bound->chunks));
    for (int i = 0; i < program->step_count; i++)
        if (program->steps[i].op == RA__OP_ATTEND)
            bound->chunks[i] = ra__exec_backward_chunks(exec, &program->steps[i]);
    return RA_OK;
}

/* Can threads, all about as busy, take all heads of one query at once, with all its keys or a
 * stretch? */
static bool takes_wide_jobs(const struct ra__exec *exec, const struct ra__split *split,
                            int64_t queries, int threads)
{
    const struct ra__plan_input *input = &exec->plan->input;
    const struct ra__shape *shape = &input->shape;
    if (queries != 1 || shape->kv_heads == 1) return false;
    if (!exec->kernel->wide || !exec->kernel->wide(shape)) return false;
    int64_t at_hand = ra__max(split->stretches / input->ranks, 1);
    return shape->batch % threads == 0 || shape->batch * at_hand >= 2 * (int64_t)threads;
}

/* `threads` may pull on the jobs of this program at once. */
static ra_status bind_program(struct ra__exec *exec, const struct ra__program *program, int threads,
                              struct ra__bound *bound)
{
    const struct ra__plan_input *input = &exec->plan->input;
    int prefix = fingerprint(exec, program);
    bound->program = program;
    int64_t queries = input->q_layout->count[input->rank];
    bool backward = program == &exec->plan->backward;
    int rows = backward ? backward_rows(input, exec->kernel) : exec->kernel->rows;
    bound->split = ra__split_for(&input->shape);
    bound->cut = !backward && takes_wide_jobs(exec, &bound->split, queries, threads)
                     ? ra__cut_wide(&input->shape)
                     : ra__cut_for(&input->shape, rows, input->shape.q_heads);
    bound->each = ra__cut_for(&input->shape, rows, 1);
    bound->most_keys = most_keys(program, bound->split.stretches > 1);
    RA__TRY(take_array(exec, program->send_count, sizeof *bound->sends, (void **)&bound->sends));
    RA__TRY(take_array(exec, program->recv_count, sizeof *bound->recvs, (void **)&bound->recvs));
    RA__TRY(take_array(exec, program->round_count, sizeof *bound->rounds, (void **)&bound->rounds));
    for (int i = 0; i < program->send_count; i++)
        bound->sends[i] = bind_transfer(exec, prefix, &program->sends[i]);
    for (int i = 0; i < program->recv_count; i++)
        bound->recvs[i] = bind_transfer(exec, prefix, &program->recvs[i]);
    for (int i = 0; i < program->round_count; i++) {
        const struct ra__plan_round *round = &program->rounds[i];
        bound->rounds[i] = (struct ra__round){ .sends = bound->sends + round->first_send,
                                               .recvs = bound->recvs + round->first_recv,
                                               .send_count = round->send_count,
                                               .recv_count = round->recv_count,
                                               .hop = round->hop };
    }
    return RA_OK;
}

static uint64_t hash_name(const char *name) { return ra__hash(RA__HASH_START, name, strlen(name)); }

static ra_status prepare_hello(struct ra__exec *exec)
{
    const struct ra__plan_input *input = &exec->plan->home;
    const struct ra__shape *s = &input->shape;
    const struct ra__problem_terms *terms = exec->problem_terms;
    char strategy[RA__STRATEGY_TEXT];
    ra__strategy_format(input, strategy);
    exec->hello = (struct ra__hello){
        .version = RA_VERSION_MAJOR * 1000000 + RA_VERSION_MINOR * 1000 + RA_VERSION_PATCH,
        .ranks = (uint64_t)input->ranks,
        .dtype = s->dtype,
        .batch = (uint64_t)s->batch,
        .q_len = (uint64_t)s->q_len,
        .k_len = (uint64_t)s->k_len,
        .q_heads = (uint64_t)s->q_heads,
        .kv_heads = (uint64_t)s->kv_heads,
        .dim = (uint64_t)s->dim,
        .value_dim = (uint64_t)s->value_dim,
        .scale = ra__f32_bits(s->scale),
        .softcap = ra__f32_bits(terms->softcap),
        .alibi = terms->alibi
                     ? ra__hash(RA__HASH_START, terms->alibi, (size_t)s->q_heads * sizeof(float))
                     : 0,
        .dropout = ra__philox_limit(terms->dropout),
        .order = ra__order_hash(input->order),
        .pattern = ra__pattern_hash(input->pattern),
        .partition = ra__layout_hash(input->q_layout) * 31 + ra__layout_hash(input->k_layout),
        .strategy = hash_name(strategy),
    };
    RA__TRY(take_array(exec, input->ranks, sizeof *exec->hellos, (void **)&exec->hellos));
    return take_array(exec, 2 * (int64_t)(input->ranks - 1), sizeof *exec->hello_messages,
                      (void **)&exec->hello_messages);
}

/* The largest round of a program. */
static int most_messages(const struct ra__program *program)
{
    int most = 0;
    for (int i = 0; i < program->round_count; i++) {
        int messages = program->rounds[i].send_count + program->rounds[i].recv_count;
        if (messages > most) most = messages;
    }
    return most;
}

static ra_status reserve_messages(const struct ra__exec *exec)
{
    const struct ra__rank *rank = exec->rank;
    int sizes[] = { 2 * (rank->ranks - 1), most_messages(&exec->plan->forward),
                    most_messages(&exec->plan->backward) };
    for (int i = 0; rank->transport->reserve && i < RA__COUNT(sizes); i++)
        RA__TRY(rank->transport->reserve(rank->link, sizes[i]));
    return RA_OK;
}

/* Scratch of attend.c, of backward.c and of the gradient of sinks. */
static ra_status take_scratch(struct ra__exec *exec, int threads)
{
    const struct ra__plan *plan = exec->plan;
    const struct ra__shape *shape = &plan->input.shape;
    int64_t moved = (int64_t)count_moved(plan, threads);
    RA__TRY(take_array(exec, moved, sizeof *exec->moved, (void **)&exec->moved));
    if (!plan->input.backward) return RA_OK;
    RA__TRY(take_array(exec, RA__MOST_TASKS, sizeof *exec->done, (void **)&exec->done));
    RA__TRY(take_array(exec, shape->kv_heads, sizeof *exec->reach, (void **)&exec->reach));
    return take_array(exec, plan->home.shape.q_heads, sizeof *exec->dsinks, (void **)&exec->dsinks);
}

ra_status ra__exec_create(struct ra__exec *exec)
{
    int threads = ra__pool_threads(exec->rank->pool);
    RA__TRY(take_buffers(exec));
    RA__TRY(prepare_hello(exec));
    RA__TRY(reserve_messages(exec));
    RA__TRY(take_scratch(exec, threads));
    RA__TRY(bind_program(exec, &exec->plan->forward, threads, &exec->forward));
    RA__TRY(take_turns(exec, threads));
    /* Backward, how queries are cut decides in which order the gradients of keys are summed: the
     * cut must not know the threads. */
    RA__TRY(bind_program(exec, &exec->plan->backward, 1, &exec->backward));
    return take_shares(exec, &exec->backward);
}

static void unbind(struct ra__bound *bound)
{
    ra__free(bound->sends);
    ra__free(bound->recvs);
    ra__free(bound->rounds);
    ra__free(bound->turns);
    ra__free(bound->sizes);
    ra__free(bound->shares);
    ra__free(bound->chunks);
}

/* Slots and greetings are what messages read and write. */
static void give_travelling(struct ra__exec *exec)
{
    struct ra__buffers *pool = exec->rank->buffers;
    if (ra__rank_holds(exec->rank)) return;
    for (int i = 0; i < RA__SLOTS; i++) ra__buffers_give(pool, exec->account, exec->slots[i]);
    ra__free(exec->hellos);
}

static void give_buffers(struct ra__exec *exec)
{
    struct ra__buffers *pool = exec->rank->buffers;
    give_travelling(exec);
    void *buffers[] = { exec->m,     exec->l,   exec->acc,        exec->parts,    exec->dq,
                        exec->delta, exec->lse, exec->home_delta, exec->workspace };
    for (int i = 0; i < RA__COUNT(buffers); i++) ra__buffers_give(pool, exec->account, buffers[i]);
}

void ra__exec_destroy(struct ra__exec *exec)
{
    if (exec->rank) give_buffers(exec);
    unbind(&exec->forward);
    unbind(&exec->backward);
    ra__free(exec->moved);
    ra__free(exec->dsinks);
    ra__free(exec->done);
    ra__free(exec->reach);
    ra__free(exec->hello_messages);
}
