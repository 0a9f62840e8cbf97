/* SPDX-License-Identifier: Apache-2.0 */
/* prepare.c - once per plan: tables, arrays of score terms and workspace, all in one block of
 * device memory. The same walk counts the block and fills it. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/results.h"

/* ---- The block ------------------------------------------------------------------------------- */

/* Arrays in the order in which they are placed; without memory it only counts. */
struct place {
    char *host, *device; /* NULL: counting */
    size_t used;
};

/* Room for an array: its address on the device, and where its numbers are put on the host. */
static void *put(struct place *place, size_t count, size_t bytes, void **host)
{
    const size_t at = place->used;
    place->used += (count * bytes + 255) / 256 * 256;
    if (host) *host = place->host && count ? place->host + at : NULL;
    return place->device && count ? place->device + at : NULL;
}

static void put_array(struct place *place, const void *data, size_t count, size_t bytes, void **out)
{
    void *host;
    *out = put(place, data ? count : 0, bytes, &host);
    if (host) memcpy(host, data, count * bytes);
}

static ra_status put_tables(const struct ra__kernel *kernel, struct ra__cuda_program *p,
                            const struct ra__cuda_facts *facts, struct place *place)
{
    const struct ra__shape *s = &p->program->work.shape;
    const struct ra__cuda_tiling tiling = kernel->tiling((int)s->dtype, s->dim, s->value_dim);
    struct ra__cuda_tables host = { .rows = NULL }, *device = &p->tables;
    for (int pass = 0; pass < (place->host ? 2 : 1); pass++) {
        RA__TRY(ra__cuda_tables_rows(p, &host));
        RA__TRY(ra__cuda_tables_slots(p, &tiling, facts, &host));
        RA__TRY(ra__cuda_tables_keys(p, tiling.tile_keys, &host));
        RA__TRY(ra__cuda_tables_pieces(p, &host));
        if (pass == 1) {
            /* A scheduler may take the step and add to sums, by an answer of its own. */
            p->writes_keys = !p->own && kernel->writes_keys &&
                             ra__cuda_writes_results(p->program) && ra__cuda_tables_cover(p, &host);
            break;
        }
#define PUT(array, count)                                                                          \
    device->array = put(place, (size_t)host.count, sizeof *host.array, (void **)&host.array)
        PUT(rows, row_count);
        PUT(runs, run_count);
        PUT(slots, slot_count);
        PUT(key_tiles, key_tile_count);
        PUT(parts, part_count);
        PUT(pieces, piece_count);
#undef PUT
    }
    return RA_OK;
}

/* What the scheduler has made for a program. */
static ra_status put_own(struct ra__cuda_plan *plan, struct ra__cuda_program *p,
                         struct place *place)
{
    void *host, *device;
    if (!p->own) return RA_OK;
    const size_t bytes = plan->scheduler->bytes(p->own, &plan->scratch_bytes);
    device = put(place, bytes, 1, &host);
    if (host && plan->scheduler->place(p->own, host, device, plan->scratch))
        return ra__cuda_fail(RA_ERR_MEMORY, "plan: %zu bytes of a schedule", bytes);
    return RA_OK;
}

static int64_t most_heads(const struct ra__setup *setup)
{
    return setup->forward->caller.shape.q_heads;
}

/* The length of the arrays of an order: all keys, and as many queries. */
static size_t order_length(const struct ra__setup *setup)
{
    return (size_t)setup->forward->caller.shape.k_len;
}

static ra_status fill_block(const struct ra__setup *setup, const struct ra__cuda_facts *facts,
                            struct ra__cuda_plan *plan, struct place *place)
{
    const struct ra__problem_terms none = { .softcap = 0 };
    const struct ra__problem_terms *terms = setup->terms ? setup->terms : &none;
    const size_t heads = (size_t)most_heads(setup), length = order_length(setup);
    put_array(place, terms->alibi, heads, sizeof(float), (void **)&plan->alibi);
    put_array(place, terms->origin, length, sizeof(int32_t), (void **)&plan->origin);
    put_array(place, terms->see_from, length, sizeof(int32_t), (void **)&plan->see_from);
    put_array(place, terms->see_to, length, sizeof(int32_t), (void **)&plan->see_to);
    plan->sinks = put(place, heads, sizeof(float), NULL);
    plan->sink_sums = put(place, heads, sizeof(double), NULL);
    plan->dsinks = put(place, heads, sizeof(float), NULL);
    if (setup->forward->counts)
        plan->counts = put(place, (size_t)setup->forward->work.shape.batch, sizeof *plan->counts,
                           NULL);
    const int directions = setup->backward ? 2 : 1;
    int steps = 0;
    for (int i = 0; i < directions; i++)
        if (plan->programs[i].program->step_count > steps)
            steps = plan->programs[i].program->step_count;
    plan->pair_counts = put(place, (size_t)steps, sizeof *plan->pair_counts, NULL);
    for (int i = 0; i < directions; i++)
        RA__TRY(put_tables(plan->kernel, &plan->programs[i], facts, place));
    for (int i = 0; i < directions; i++) RA__TRY(put_own(plan, &plan->programs[i], place));
    return RA_OK;
}

/* ---- Pairs ----------------------------------------------------------------------------------- */

/* Counted on the device once, as a step does no more than its rows say. */
static ra_status count_pairs(struct ra__cuda_plan *plan, struct ra__cuda_program *p)
{
    const struct ra__program *program = p->program;
    const struct ra__shape *s = &program->work.shape;
    const size_t bytes = (size_t)program->step_count * sizeof *p->pairs;
    cudaStream_t stream = plan->device->queues[RA__CUDA_COMPUTE].stream;
    if (bytes == 0) return RA_OK;
    RA__CUDA_TRY(cudaMemsetAsync(plan->pair_counts, 0, bytes, stream));
    for (int i = 0; i < program->step_count; i++) {
        const struct ra__step *step = &program->steps[i];
        if ((step->op != RA__OP_ATTEND && step->op != RA__OP_GRADIENT) || !step->row_count)
            continue;
        const struct ra__cuda_step counted = {
            .batch = (int32_t)s->batch,
            .rows = p->tables.rows,
            .runs = p->tables.runs,
            .slots = p->tables.slots + p->steps[i].first_slot,
            .slot_count = p->steps[i].slot_count,
            .terms = { .origin = plan->origin, .see_from = plan->see_from, .see_to = plan->see_to },
        };
        RA__CUDA_TRY(ra__cuda_pairs_launch(&counted, &plan->pair_counts[i], stream));
    }
    RA__CUDA_TRY(
        cudaMemcpyAsync(p->pairs, plan->pair_counts, bytes, cudaMemcpyDeviceToHost, stream));
    RA__CUDA_TRY(cudaStreamSynchronize(stream));
    return RA_OK;
}

void ra__cuda_collect_pairs(struct ra__cuda_plan *plan)
{
    while (plan->pending_count > 0 &&
           ra__cuda_has_passed(&plan->pending[plan->pending_first].event)) {
        plan->pairs += plan->pending[plan->pending_first].pairs;
        plan->pending_first = (plan->pending_first + 1) % RA__CUDA_PENDING;
        plan->pending_count--;
    }
}

int64_t ra__cuda_pairs(const void *prepared)
{
    struct ra__cuda_plan *plan = (struct ra__cuda_plan *)prepared;
    RA__CUDA_VISIT(visit);
    if (plan->pending_count > 0 && ra__cuda_enter_quietly(plan->device, &visit))
        ra__cuda_collect_pairs(plan);
    return plan->pairs;
}

/* ---- Preparing ------------------------------------------------------------------------------- */

static ra_status take_program(struct ra__arena *arena, const struct ra__program *program,
                              struct ra__cuda_program *p)
{
    p->program = program;
    p->one_queue = ra__cuda_has_one_queue(program);
    RA__TRY(ra__cuda_host->arena_array(arena, program->step_count, sizeof *p->steps,
                                       (void **)&p->steps));
    return ra__cuda_host->arena_array(arena, program->step_count, sizeof *p->pairs,
                                      (void **)&p->pairs);
}

/* A kernel that divides steps itself does so once; the walk that counts and the one that fills use
 * the same schedules. */
static ra_status take_kernel(const struct ra__setup *setup, struct ra__cuda_plan *plan)
{
    plan->kernel = ra__cuda_tabled(setup->kernel, &setup->forward->work.shape,
                                   setup->backward != NULL);
    plan->scheduler = setup->kernel->scheduler;
    if (!plan->scheduler) return RA_OK;
    bool runs_some = false;
    for (int i = 0; i < (setup->backward ? 2 : 1); i++) {
        if (plan->scheduler->create(plan->programs[i].program, setup->terms,
                                    &plan->programs[i].own))
            return ra__cuda_fail(RA_ERR_MEMORY, "plan: no memory for the schedule of kernel %s",
                                 setup->kernel->name);
        runs_some = runs_some || plan->programs[i].own;
    }
    if (setup->runs && !runs_some) *setup->runs = plan->kernel;
    return RA_OK;
}

static void drop_kernel(struct ra__cuda_plan *plan)
{
    for (int i = 0; plan->scheduler && i < RA__COUNT(plan->programs); i++)
        plan->scheduler->destroy(plan->programs[i].own);
}

/* cudaMemcpy() may return before the bytes are there, and our streams do not wait for its own. */
static ra_status copy_block(struct ra__cuda_plan *plan, const void *from, size_t bytes)
{
    cudaStream_t stream = plan->device->queues[RA__CUDA_COMPUTE].stream;
    RA__CUDA_TRY(cudaMemcpyAsync(plan->block, from, bytes, cudaMemcpyHostToDevice, stream));
    RA__CUDA_TRY(cudaStreamSynchronize(stream));
    return RA_OK;
}

/* The block is filled on the host, then copied. */
static ra_status upload(const struct ra__setup *setup, const struct ra__cuda_facts *facts,
                        struct ra__cuda_plan *plan, size_t bytes)
{
    struct place place = { ra__cuda_host->alloc(bytes), plan->block, 0 };
    if (!place.host) return ra__cuda_fail(RA_ERR_MEMORY, "plan: %zu bytes", bytes);
    ra_status status = fill_block(setup, facts, plan, &place);
    if (status == RA_OK) status = copy_block(plan, place.host, bytes);
    ra__cuda_host->free(place.host);
    return status;
}

static ra_status prepare(const struct ra__setup *setup, struct ra__arena *arena,
                         struct ra__cuda_plan *plan)
{
    const struct ra__cuda_facts unknown = { .l2_bytes = 1 };
    struct place counted = { NULL, NULL, 0 };
    RA__CUDA_VISIT(visit);
    plan->device = setup->device;
    if (plan->device) RA__TRY(ra__cuda_enter(plan->device, &visit));
    else RA__TRY(ra__cuda_visit_number(setup->number, &visit));
    RA__TRY(take_program(arena, setup->forward, &plan->programs[RA__FORWARD]));
    if (setup->backward)
        RA__TRY(take_program(arena, setup->backward, &plan->programs[RA__BACKWARD]));
    RA__TRY(take_kernel(setup, plan));
    RA__TRY(fill_block(setup, &unknown, plan, &counted));
    for (int i = 0; i < RA__COUNT(plan->programs); i++)
        RA__TRY(ra__cuda_host->arena_array(arena, plan->programs[i].wave_count,
                                           sizeof *plan->programs[i].waves,
                                           (void **)&plan->programs[i].waves));
    RA__TRY(ra__cuda_host->arena_kept(arena, RA__FOR_WORKSPACE, counted.used, &plan->block));
    RA__TRY(
        ra__cuda_host->arena_kept(arena, RA__FOR_WORKSPACE, plan->scratch_bytes, &plan->scratch));
    if (arena->counting) return RA_OK;
    RA__TRY(upload(setup, &plan->device->facts, plan, counted.used));
    RA__TRY(count_pairs(plan, &plan->programs[RA__FORWARD]));
    return setup->backward ? count_pairs(plan, &plan->programs[RA__BACKWARD]) : RA_OK;
}

ra_status ra__cuda_prepare(const struct ra__setup *setup, struct ra__arena *arena, void **prepared)
{
    struct ra__cuda_plan counted = { .kernel = NULL }, *plan = NULL;
    RA__TRY(ra__cuda_host->arena_array(arena, 1, sizeof *plan, (void **)&plan));
    *prepared = plan;
    const ra_status status = prepare(setup, arena, plan ? plan : &counted);
    if (!plan) drop_kernel(&counted);
    return status;
}

void ra__cuda_release(void *prepared, struct ra__buffers *pool, const struct ra__account *account)
{
    struct ra__cuda_plan *plan = prepared;
    RA__CUDA_VISIT(visit);
    if (!plan) return;
    /* A call that followed a stream may still be running. */
    if (plan->device && ra__cuda_enter_quietly(plan->device, &visit)) {
        ra__cuda_synchronize(plan->device);
        if (plan->bias.data) cudaFree(plan->bias.data);
        if (plan->dbias.data) cudaFree(plan->dbias.data);
    }
    drop_kernel(plan);
    ra__cuda_host->buffers_give(pool, account, plan->scratch);
    ra__cuda_host->buffers_give(pool, account, plan->block);
}
