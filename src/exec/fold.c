/* SPDX-License-Identifier: Apache-2.0 */
/* fold.c - see fold.h. The program of a fold is written anew each time, since keys come in any
 * ranges, into memory that is kept: after the first folds of a size nothing is allocated. */
#include "exec/fold.h"

#include "exec/location.h"

ra_status ra__folder_open(struct ra__folder *folder, const struct ra__kernel *kernel)
{
    const struct ra__device_options alone = { .threads = 1 };
    folder->backend = ra__backend_at(0);
    folder->kernel = kernel;
    return folder->backend->open(&alone, &folder->device);
}

static void free_workspace(struct ra__folder *folder)
{
    if (folder->workspace) folder->backend->free(folder->device, folder->workspace, 0);
    folder->workspace = NULL;
}

void ra__folder_close(struct ra__folder *folder)
{
    free_workspace(folder);
    ra__free(folder->split_state);
    ra__free(folder->program.rows);
    ra__free(folder->program.keys);
    ra__free(folder->program.advances);
    ra__free(folder->block);
    if (folder->backend) folder->backend->close(folder->device);
}

/* ---- The program ----------------------------------------------------------------------------- */

/* Room for `count` elements of an array that grows by doubling and is filled anew each time. */
static ra_status make_room(void **array, int *room, int count, size_t bytes)
{
    if (count <= *room) return RA_OK;
    const int larger = count > 2 * *room ? count : 2 * *room;
    void *memory = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)larger, bytes);
    if (!memory) return ra__fail(RA_ERR_MEMORY, "state: %d entries", larger);
    ra__free(*array);
    *array = memory;
    *room = larger;
    return RA_OK;
}

/* The pattern is walked twice: first to count, then to write. */
struct writing {
    struct ra__folder *folder;
    const struct ra__fold *fold;
    bool counting;
    int64_t queries, positions; /* the most of a row: queries, and from its first key to its last */
};

static void note_row(struct writing *writing, const struct ra__row *row, int first_key)
{
    const struct ra__program *p = &writing->folder->program;
    int64_t low = p->keys[first_key].pos, high = low;
    for (int i = first_key; i < p->key_count; i++) {
        const struct ra__key_run *run = &p->keys[i];
        low = ra__min(low, run->pos);
        high = ra__max(high, run->pos + (run->count - 1) * run->pos_step);
    }
    writing->queries = ra__max(writing->queries, row->q.count);
    writing->positions = ra__max(writing->positions, high - low + 1);
}

/* One row of the pattern, with those of its keys that are folded now. */
static ra_status write_row(void *context, const struct ra__row *row)
{
    struct writing *writing = context;
    const struct ra__fold *fold = writing->fold;
    struct ra__program *p = &writing->folder->program;
    const int first = p->key_count;
    for (int i = 0; i < row->tile_count; i++) {
        int64_t skipped;
        const ra_run keys = ra__run_clip(row->tiles[i].keys, fold->first_key,
                                         fold->first_key + fold->keys, &skipped);
        if (keys.count == 0) continue;
        if (!writing->counting)
            p->keys[p->key_count] = (struct ra__key_run){ keys.start - fold->first_key,
                                                          keys.step,
                                                          keys.start,
                                                          keys.step,
                                                          keys.count,
                                                          row->tiles[i].band };
        p->key_count++;
    }
    if (p->key_count == first) return RA_OK;
    if (!writing->counting) {
        note_row(writing, row, first);
        p->rows[p->row_count] = (struct ra__plan_row){ .q_token = row->query,
                                                       .q_token_step = row->q.step,
                                                       .q_count = row->q.count,
                                                       .q_pos = row->q.start,
                                                       .q_step = row->q.step,
                                                       .heads = row->heads,
                                                       .first_key = first,
                                                       .key_count = p->key_count - first,
                                                       .repeat = 1 };
    }
    p->row_count++;
    return RA_OK;
}

static ra_status walk_rows(struct writing *writing)
{
    const struct ra__fold *fold = writing->fold;
    const struct ra__rows rows = { fold->pattern, fold->shape, fold->sequences,
                                   fold->shape->q_heads, false };
    const ra_run queries = { 0, 1, fold->shape->q_len };
    writing->folder->program.row_count = writing->folder->program.key_count = 0;
    return ra__pattern_rows(&rows, queries, (struct ra__row_sink){ write_row, writing });
}

/* How many ranges keys of so many positions are split into, for rows of few queries. They must not
 * depend on the threads there are: each range is a sum of its own. */
static int64_t ranges_of(const struct ra__fold *fold, int64_t positions)
{
    enum {
        ENOUGH_JOBS = 64, /* four for each of 16 threads */
        LEAST_KEYS = 256  /* of a range: blocks of kernels */
    };
    const struct ra__shape *s = fold->shape;
    const int64_t jobs = ra__max(fold->sequences->count, 1) * s->batch * s->kv_heads;
    return ra__max(ra__min(positions / LEAST_KEYS, ra__ceil_div(ENOUGH_JOBS, jobs)), 1);
}

/* Room for the states of all ranges there may be, however much a cache grows. */
static ra_status make_split_room(struct ra__folder *folder, const struct ra__fold *fold)
{
    const struct ra__shape *s = fold->shape;
    const int64_t ranges = ranges_of(fold, INT64_MAX);
    const size_t numbers = (size_t)(ranges * s->batch * s->q_len * s->q_heads) *
                           (size_t)(s->value_dim + 2);
    if (ranges == 1 || numbers <= folder->split_room) return RA_OK;
    ra__free(folder->split_state);
    folder->split_room = 0;
    folder->split_state = ra__alloc_array(NULL, RA__FOR_STATE, numbers, sizeof(float));
    if (!folder->split_state) return ra__fail(RA_ERR_MEMORY, "state: %zu numbers", numbers);
    folder->split_room = numbers;
    return RA_OK;
}

static ra_status split_keys(struct ra__folder *folder, const struct writing *writing)
{
    const struct ra__shape *s = writing->fold->shape;
    const bool few = writing->queries * (s->q_heads / s->kv_heads) <= RA__MOST_SPLIT_ROWS;
    const int64_t ranges = few ? ranges_of(writing->fold, writing->positions) : 1;
    folder->program.split = ra__key_split_into(writing->positions, ranges);
    folder->program.split.of_row = true;
    return few ? make_split_room(folder, writing->fold) : RA_OK;
}

static ra_status write_program(struct ra__folder *folder, const struct ra__fold *fold)
{
    struct ra__program *p = &folder->program;
    struct writing writing = { folder, fold, true, 0, 0 };
    int advance_room = folder->key_room;
    RA__TRY(walk_rows(&writing));
    RA__TRY(make_room((void **)&p->rows, &folder->row_room, p->row_count, sizeof *p->rows));
    RA__TRY(make_room((void **)&p->advances, &advance_room, p->key_count, sizeof *p->advances));
    RA__TRY(make_room((void **)&p->keys, &folder->key_room, p->key_count, sizeof *p->keys));
    writing.counting = false;
    RA__TRY(walk_rows(&writing));
    const struct ra__side side = { .shape = *fold->shape,
                                   .queries = fold->shape->q_len,
                                   .keys = fold->keys,
                                   .q = RA__Q,
                                   .k = RA__K,
                                   .v = RA__V,
                                   .out = RA__OUT,
                                   .lse = RA__LSE };
    p->caller = p->work = side;
    return p->row_count > 0 ? split_keys(folder, &writing) : RA_OK;
}

/* ---- Running it ------------------------------------------------------------------------------ */

static void set_call(const struct ra__folder *folder, const struct ra__fold *fold,
                     struct ra__call *call)
{
    const struct ra__shape *s = fold->shape;
    *call = (struct ra__call){ .has_terms = fold->terms != NULL };
    if (fold->terms) call->terms = *fold->terms;
    ra__locate_tensor(&call->at[RA__Q], &fold->q, s->dtype);
    ra__locate_tensor(&call->at[RA__K], &fold->k, s->dtype);
    ra__locate_tensor(&call->at[RA__V], &fold->v, s->dtype);
    ra__locate_packed(&call->at[RA__STATE_M], fold->m, s->q_len, s->q_heads, 1);
    ra__locate_packed(&call->at[RA__STATE_L], fold->l, s->q_len, s->q_heads, 1);
    ra__locate_packed(&call->at[RA__STATE_ACC], fold->acc, s->q_len, s->q_heads, s->value_dim);
    call->at[RA__SPLIT_STATE].data = folder->split_state;
}

/* Memory of the arena that is kept: a block as large as the largest fold needed, and workspace. */
static ra_status keep_memory(struct ra__folder *folder, const struct ra__arena *counted)
{
    const size_t room = counted->bytes[RA__FOR_BOOKKEEPING];
    if (room > folder->block_room) {
        ra__free(folder->block);
        folder->block_room = 0;
        folder->block = ra__alloc(NULL, RA__FOR_BOOKKEEPING, room);
        if (!folder->block) return ra__fail(RA_ERR_MEMORY, "state: %zu bytes", room);
        folder->block_room = room;
    }
    const size_t workspace = counted->bytes[RA__FOR_WORKSPACE];
    if (workspace <= folder->workspace_room) return RA_OK;
    free_workspace(folder);
    folder->workspace_room = 0;
    folder->workspace = folder->backend->alloc(folder->device, workspace);
    if (!folder->workspace) return ra__fail(RA_ERR_MEMORY, "state: %zu bytes", workspace);
    folder->workspace_room = workspace;
    return RA_OK;
}

/* Counted as if keys were split, where a cache that grows may bring that: it then takes no more. */
static ra_status count_memory(struct ra__folder *folder, const struct ra__setup *setup,
                              struct ra__arena *counted)
{
    struct ra__program *p = &folder->program;
    const int ranges = p->split.ranges;
    void *prepared = NULL;
    if (folder->split_state) p->split.ranges = ra__max(ranges, 2);
    const ra_status status = folder->backend->prepare(setup, counted, &prepared);
    p->split.ranges = ranges;
    return status;
}

static ra_status poll_group(void *context)
{
    const struct ra__rank *rank = context;
    return rank ? rank->transport->poll(rank->link) : RA_OK;
}

static ra_status run_steps(struct ra__folder *folder, const struct ra__fold *fold, void *device,
                           void *prepared)
{
    struct ra__call call;
    struct ra__event done;
    const struct ra__heartbeat heartbeat = { poll_group, (void *)folder->rank };
    set_call(folder, fold, &call);
    for (int i = 0; i < folder->program.step_count; i++) {
        const struct ra__launch launch = { .direction = RA__FORWARD,
                                           .step = &folder->program.steps[i],
                                           .call = &call,
                                           .heartbeat = &heartbeat };
        RA__TRY(folder->backend->issue(device, prepared, &launch, &done));
        RA__TRY(folder->backend->wait(device, &done, &heartbeat));
    }
    return RA_OK;
}

ra_status ra__fold_run(struct ra__folder *folder, const struct ra__fold *fold)
{
    RA__TRY(write_program(folder, fold));
    struct ra__program *p = &folder->program;
    if (p->row_count == 0) return RA_OK;
    struct ra__step steps[] = {
        { .op = RA__OP_ATTEND, .from = RA__OWN_KV, .row_count = p->row_count },
        { .op = RA__OP_MERGE, .from = RA__OWN_KV, .row_count = p->row_count },
    };
    p->steps = steps;
    p->step_count = p->split.ranges > 1 ? 2 : 1;
    void *device = folder->rank ? folder->rank->device : folder->device, *prepared = NULL;
    const int threads = folder->backend->threads(device);
    const struct ra__setup setup = { .forward = p, .kernel = folder->kernel, .threads = threads };
    struct ra__arena counted = { .counting = true };
    RA__TRY(count_memory(folder, &setup, &counted));
    RA__TRY(keep_memory(folder, &counted));
    struct ra__arena arena = { .block = folder->block,
                               .room = folder->block_room,
                               .workspace = folder->workspace };
    RA__TRY(folder->backend->prepare(&setup, &arena, &prepared));
    ra_status status = run_steps(folder, fold, device, prepared);
    if (folder->rank && status == RA_OK) ra__rank_idle(folder->rank);
    p->steps = NULL;
    return status;
}
