/* SPDX-License-Identifier: Apache-2.0 */
/* shards.c - the tensors of a rank: where they are stored, what fills them, and how to find a
 * position. */
#include "shards.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/half.h"
#include "harness/base/machine.h"
#include "shardfile.h"

/* ---- Memory ---------------------------------------------------------------------------------- */

int shards_runs(struct engine *engine, int rank)
{
    struct engine_rank *r = &engine->rank[rank];
    for (int side = 0; side < 2; side++) {
        r->counts[side] = ra_layout_count(engine->layouts[side], rank);
        r->run_counts[side] = ra_layout_runs(engine->layouts[side], rank, NULL, 0);
        r->runs[side] = calloc((size_t)r->run_counts[side] + 1, sizeof *r->runs[side]);
        if (!r->runs[side]) return fault("out of memory: %" PRId64 " runs", r->run_counts[side]);
        ra_layout_runs(engine->layouts[side], rank, r->runs[side], r->run_counts[side]);
    }
    return EXIT_PASS;
}

/* One rank alone has everything in place. */
static bool in_place(const struct engine *engine)
{
    return engine->ranks == 1 && !engine->planner.order;
}

/* So it works on the inputs where they are. */
static bool is_borrowed(const struct engine *engine, enum tensor tensor)
{
    return in_place(engine) && engine->setup.inputs && engine->setup.inputs->data[tensor];
}

/* The original position of every query of a rank; NULL if memory ran out. */
static int64_t *list_queries(const struct engine *engine, const struct engine_rank *r)
{
    int64_t *queries = malloc(((size_t)r->counts[0] + 1) * sizeof *queries), count = 0;
    for (int64_t i = 0; queries && i < r->run_counts[0]; i++)
        for (int64_t j = 0; j < r->runs[0][i].count; j++) {
            int64_t index = r->runs[0][i].start + j * r->runs[0][i].step;
            queries[count++] = engine->origin ? engine->origin[index] : index;
        }
    return queries;
}

/* The bias of a rank's queries, and room for the gradient of the sinks. */
int shards_terms(struct engine *engine, int rank)
{
    struct engine_rank *r = &engine->rank[rank];
    const struct terms *terms = &engine->terms;
    r->dsinks = calloc((size_t)engine->trial->q_heads, sizeof *r->dsinks);
    if (!r->dsinks) return fault("out of memory: %" PRId64 " sinks", engine->trial->q_heads);
    if (!terms->bias) return EXIT_PASS;
    r->bias_borrowed = in_place(engine);
    int64_t *queries = r->bias_borrowed ? NULL : list_queries(engine, r);
    if (!r->bias_borrowed && !queries)
        return fault("out of memory: %" PRId64 " queries", r->counts[0]);
    int status = terms_rows(terms, queries, r->counts[0], &r->bias);
    free(queries);
    return status;
}

int shards_open(struct engine *engine, int rank)
{
    struct engine_rank *r = &engine->rank[rank];
    for (int i = 0; i < TENSOR_COUNT; i++) {
        size_t bytes;
        if (tensor_is_backward(i) && !engine->trial->backward) continue;
        if (!view_shape(engine->trial, i, r->counts[tensor_of_keys(i)], &r->views[i], &bytes))
            return refuse("%s needs more bytes than can be counted", tensor_name(i));
        if (is_borrowed(engine, i)) {
            r->views[i].data = engine->setup.inputs->data[i];
            continue;
        }
        r->owned[i] = machine_tensor(bytes);
        if (!r->owned[i]) return fault("out of memory: %zu bytes for %s", bytes, tensor_name(i));
        r->views[i].data = r->owned[i];
    }
    return EXIT_PASS;
}

/* ---- Filling --------------------------------------------------------------------------------- */

/* Between a shard and a whole tensor in original order, both packed, under an order. */
static void copy_ordered(const struct engine *engine, int rank, enum tensor tensor, char *whole,
                         bool to_shard)
{
    const struct engine_rank *r = &engine->rank[rank];
    const struct view *view = &r->views[tensor];
    int side = tensor_of_keys(tensor);
    size_t bytes = (size_t)view->position_stride * half_bytes(view->dtype);
    size_t length = (size_t)tensor_length(engine->trial, tensor);
    for (size_t b = 0; b < (size_t)engine->trial->batch; b++) {
        char *shard = view->data + b * (size_t)r->counts[side] * bytes;
        for (int64_t i = 0; i < r->run_counts[side]; i++)
            for (int64_t j = 0; j < r->runs[side][i].count; j++, shard += bytes) {
                int64_t index = r->runs[side][i].start + j * r->runs[side][i].step;
                char *there = whole + (b * length + (size_t)engine->origin[index]) * bytes;
                if (to_shard) memcpy(shard, there, bytes);
                else memcpy(there, shard, bytes);
            }
    }
}

ra_status shards_fill(struct engine *engine, int rank, enum tensor tensor)
{
    struct engine_rank *r = &engine->rank[rank];
    int side = tensor_of_keys(tensor);
    const struct inputs *inputs = engine->setup.inputs;
    if (is_borrowed(engine, tensor)) return RA_OK;
    if (!inputs) {
        struct shard shard = { r->runs[side], r->run_counts[side], engine->origin };
        int status = data_fill(engine->trial, tensor, &shard, &r->views[tensor]);
        return status ? ra_transport_error(RA_ERR_MEMORY, "out of memory") : RA_OK;
    }
    if (inputs->files[tensor]) {
        struct shard shard = { r->runs[side], r->run_counts[side], engine->origin };
        return shardfile_read(inputs->files[tensor], engine->trial, tensor, &shard,
                              &r->views[tensor]);
    }
    if (!inputs->data[tensor]) { /* only dlse may be missing: no gradient through the LSE */
        memset(r->views[tensor].data, 0,
               (size_t)(r->views[tensor].batch_stride * engine->trial->batch) *
                   half_bytes(r->views[tensor].dtype));
        return RA_OK;
    }
    if (engine->planner.order) {
        copy_ordered(engine, rank, tensor, inputs->data[tensor], true);
        return RA_OK;
    }
    ra_array array = { inputs->data[tensor], r->views[tensor].data, engine->trial->batch,
                       (size_t)r->views[tensor].position_stride *
                           half_bytes(r->views[tensor].dtype) };
    return ra_layout_take(engine->layouts[side], rank, &array, 1);
}

/* ---- Looking at results ---------------------------------------------------------------------- */

/* The place of an index in a list of runs; -1 if it is not there. */
static int64_t find_in_runs(const ra_run *runs, int64_t count, int64_t index)
{
    int64_t before = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t offset = index - runs[i].start;
        if (offset >= 0 && offset % runs[i].step == 0 && offset / runs[i].step < runs[i].count)
            return before + offset / runs[i].step;
        before += runs[i].count;
    }
    return -1;
}

const struct view *engine_find(const struct engine *engine, enum tensor tensor, int64_t position,
                               int64_t *local)
{
    int side = tensor_of_keys(tensor);
    int64_t index = engine->indices ? engine->indices[position] : position;
    *local = index;
    if (engine->streaming) return &engine->rank[0].views[tensor]; /* without data */
    for (int rank = engine->first; rank < engine->first + engine->count; rank++) {
        const struct engine_rank *r = &engine->rank[rank];
        *local = find_in_runs(r->runs[side], r->run_counts[side], index);
        if (*local >= 0) return &r->views[tensor];
    }
    return NULL;
}

void engine_read(const struct engine *engine, enum tensor tensor, int64_t batch, int64_t position,
                 int64_t head, float *to)
{
    int64_t local;
    if (engine->streaming) {
        streaming_read(engine->streaming, tensor, batch, position, head, to);
        return;
    }
    const struct view *view = engine_find(engine, tensor, position, &local);
    if (view) view_read(view, batch, local, head, to);
    else to[0] = NAN; /* no rank owns it: no check may pass */
}

int engine_gather(const struct engine *engine, enum tensor tensor, const void **data, void **memory)
{
    const struct trial *t = engine->trial;
    struct view view = engine->rank[0].views[tensor];
    int side = tensor_of_keys(tensor);
    size_t position_bytes = (size_t)view.position_stride * half_bytes(view.dtype);
    size_t bytes = position_bytes * (size_t)tensor_length(t, tensor) * (size_t)t->batch;
    *memory = NULL;
    *data = view.data;
    if (in_place(engine)) return EXIT_PASS;
    *memory = malloc(bytes);
    if (!*memory) return fault("out of memory: %zu bytes for %s", bytes, tensor_name(tensor));
    *data = *memory;
    for (int rank = 0; rank < engine->ranks; rank++) {
        if (engine->planner.order) {
            copy_ordered(engine, rank, tensor, *memory, false);
            continue;
        }
        ra_array array = { engine->rank[rank].views[tensor].data, *memory, t->batch,
                           position_bytes };
        ra_status status = ra_layout_give(engine->layouts[side], rank, &array, 1);
        if (status != RA_OK) {
            free(*memory);
            return library_failed(status);
        }
    }
    return EXIT_PASS;
}
