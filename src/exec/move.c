/* move.c - steps that move rows inside one rank: PACK, PLACE, PICK, CLEAR, ADD, FINISH; for SWAP
 * see swap.c.
 *
 * A piece names rows of a block and where in a slot they lie. Slots hold all KV heads in a row, or
 * travelling ones one KV head each; rows go from one kind to the other head by head. */
#include "exec/exec.h"

/* Rows row, row + step, ... of a slot. */
struct place {
    enum ra__slot slot;
    int64_t row, step;
};

static char *slot_row(const struct ra__exec *exec, enum ra__slot slot, int64_t row)
{
    return (char *)exec->slots[slot] + (size_t)row * ra__slot_row_bytes(exec->plan, slot);
}

static size_t element_bytes(const struct ra__exec *exec, enum ra__slot slot)
{
    return ra__slot_is_gradient(slot) ? sizeof(float)
                                      : ra__dtype_bytes(exec->plan->input.shape.dtype);
}

/* Where K of a KV head starts in a row of a slot. */
static char *slot_head(const struct ra__exec *exec, struct place place, int64_t batch, int head)
{
    return slot_row(exec, place.slot, place.row) +
           (size_t)ra__slot_head(exec->plan, place.slot, batch, head) *
               element_bytes(exec, place.slot);
}

/* The caller's K and V have strides of their own. */
static void copy_own(struct ra__exec *exec, struct place to, struct place from, int64_t count,
                     int64_t batch, int head)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    size_t element = ra__dtype_bytes(shape->dtype);
    struct ra__matrix k = ra__matrix_at(&exec->io->k, shape->dtype, batch, from.row, head);
    struct ra__matrix v = ra__matrix_at(&exec->io->v, shape->dtype, batch, from.row, head);
    struct ra__copy copy = {
        .rows = count,
        .to = slot_head(exec, to, batch, head),
        .to_stride = (size_t)to.step * ra__slot_row_bytes(exec->plan, to.slot),
        .from = k.data,
        .from_stride = (size_t)(k.row_stride * from.step) * element,
        .bytes = (size_t)shape->dim * element,
    };
    exec->device->copy(&copy);
    copy.to = (char *)copy.to + copy.bytes;
    copy.from = v.data;
    copy.from_stride = (size_t)(v.row_stride * from.step) * element;
    copy.bytes = (size_t)shape->value_dim * element;
    exec->device->copy(&copy);
}

static void copy_head(struct ra__exec *exec, struct place to, struct place from, int64_t count,
                      int64_t batch, int head)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    if (from.slot == RA__SLOT_OWN) {
        copy_own(exec, to, from, count, batch, head);
        return;
    }
    exec->device->copy(&(struct ra__copy){
        .to = slot_head(exec, to, batch, head),
        .to_stride = (size_t)to.step * ra__slot_row_bytes(exec->plan, to.slot),
        .from = slot_head(exec, from, batch, head),
        .from_stride = (size_t)from.step * ra__slot_row_bytes(exec->plan, from.slot),
        .bytes = (size_t)(shape->dim + shape->value_dim) * element_bytes(exec, from.slot),
        .rows = count });
}

/* Rows of all KV heads, or of one. */
struct rows {
    struct place to, from;
    int kv_head;
};

static void copy_some(struct ra__exec *exec, const void *context, int64_t first, int64_t count)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    const struct rows *rows = context;
    struct place to = rows->to, from = rows->from;
    int begin = rows->kv_head == RA__ALL_HEADS ? 0 : rows->kv_head;
    int end = rows->kv_head == RA__ALL_HEADS ? shape->kv_heads : rows->kv_head + 1;
    to.row += first * to.step;
    from.row += first * from.step;
    for (int64_t batch = 0; batch < shape->batch; batch++)
        for (int head = begin; head < end; head++) copy_head(exec, to, from, count, batch, head);
}

static ra_status copy_rows(struct ra__exec *exec, struct rows rows, int64_t count)
{
    return ra__exec_sweep(exec, count, ra__slot_row_bytes(exec->plan, rows.to.slot), copy_some,
                          &rows);
}

/* The i-th piece of a step. */
static const struct ra__piece *piece_at(const struct ra__exec *exec, const struct ra__step *step,
                                        int i)
{
    return &exec->bound->program->pieces[step->first_piece + i];
}

ra_status ra__exec_pack(struct ra__exec *exec, const struct ra__step *step)
{
    for (int i = 0; i < step->piece_count; i++) {
        const struct ra__piece *piece = piece_at(exec, step, i);
        struct rows rows = { { step->to, piece->at, 1 },
                             { step->from, piece->rows.start, piece->rows.step },
                             piece->kv_head };
        RA__TRY(copy_rows(exec, rows, piece->rows.count));
    }
    return RA_OK;
}

/* Between a piece in a slot and the gathered rows, position by position. */
static ra_status copy_by_position(struct ra__exec *exec, const struct ra__step *step,
                                  const struct ra__piece *piece, bool to_gathered)
{
    const ra_layout *layout = exec->plan->input.k_layout;
    int64_t last = ra__run_last(piece->rows);
    for (int64_t i = ra__layout_run_at(layout, step->block, piece->rows.start);
         i < layout->first[step->block + 1] && layout->runs[i].row <= last; i++) {
        const struct ra__shard_run *run = &layout->runs[i];
        int64_t skipped;
        ra_run rows = ra__run_clip(piece->rows, run->row, run->row + run->at.count, &skipped);
        if (rows.count == 0) continue;
        int64_t position = run->at.start + (rows.start - run->row) * run->at.step;
        struct place packed = { to_gathered ? step->from : step->to, piece->at + skipped, 1 };
        struct place all = { to_gathered ? step->to : step->from,
                             position - exec->plan->gather_base, run->at.step * rows.step };
        struct rows copied = { to_gathered ? all : packed, to_gathered ? packed : all,
                               piece->kv_head };
        RA__TRY(copy_rows(exec, copied, rows.count));
    }
    return RA_OK;
}

ra_status ra__exec_place(struct ra__exec *exec, const struct ra__step *step)
{
    for (int i = 0; i < step->piece_count; i++)
        RA__TRY(copy_by_position(exec, step, piece_at(exec, step, i), true));
    return RA_OK;
}

ra_status ra__exec_pick(struct ra__exec *exec, const struct ra__step *step)
{
    for (int i = 0; i < step->piece_count; i++)
        RA__TRY(copy_by_position(exec, step, piece_at(exec, step, i), false));
    return RA_OK;
}

/* Pieces whose rows are cleared, or added to others. */
struct sums {
    enum ra__slot to, from;
    const struct ra__piece *piece;
};

static void clear_some(struct ra__exec *exec, const void *context, int64_t first, int64_t count)
{
    const struct sums *sums = context;
    exec->device->clear(slot_row(exec, sums->to, sums->piece->at + first),
                        (size_t)count * ra__slot_row_bytes(exec->plan, sums->to));
}

ra_status ra__exec_clear(struct ra__exec *exec, const struct ra__step *step)
{
    for (int i = 0; i < step->piece_count; i++) {
        struct sums sums = { .to = step->to, .piece = piece_at(exec, step, i) };
        RA__TRY(ra__exec_sweep(exec, sums.piece->rows.count,
                               ra__slot_row_bytes(exec->plan, step->to), clear_some, &sums));
    }
    return RA_OK;
}

/* A row of one KV head into a row of all. */
static void add_head(struct ra__exec *exec, struct place to, struct place from, int kv_head)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    size_t width = (size_t)(shape->dim + shape->value_dim);
    for (int64_t batch = 0; batch < shape->batch; batch++)
        exec->device->add((float *)slot_head(exec, to, batch, kv_head),
                          (const float *)slot_head(exec, from, batch, kv_head), width);
}

static void add_some(struct ra__exec *exec, const void *context, int64_t first, int64_t count)
{
    const struct sums *sums = context;
    const struct ra__piece *piece = sums->piece;
    size_t width = (size_t)ra__slot_width(exec->plan, sums->to);
    bool all = piece->kv_head == RA__ALL_HEADS;
    int64_t together = all && piece->rows.step == 1 ? count : 1;
    for (int64_t i = first; i < first + count; i += together) {
        struct place to = { sums->to, piece->rows.start + i * piece->rows.step, 1 };
        struct place from = { sums->from, piece->at + i, 1 };
        if (!all) add_head(exec, to, from, piece->kv_head);
        else
            exec->device->add((float *)slot_row(exec, to.slot, to.row),
                              (const float *)slot_row(exec, from.slot, from.row),
                              (size_t)together * width);
    }
}

ra_status ra__exec_add(struct ra__exec *exec, const struct ra__step *step)
{
    for (int i = 0; i < step->piece_count; i++) {
        struct sums sums = { step->to, step->from, piece_at(exec, step, i) };
        RA__TRY(ra__exec_sweep(exec, sums.piece->rows.count,
                               ra__slot_row_bytes(exec->plan, step->from), add_some, &sums));
    }
    return RA_OK;
}

/* Row `row` of f32 sums -> that of the caller's tensor. */
static void store_sums(ra_dtype dtype, struct ra__matrix to, const float *from, int dim)
{
    for (int d = 0; d < dim; d++) ra__store(dtype, to.data, d, from[d]);
}

static void finish_queries(struct ra__exec *exec, const void *context, int64_t first, int64_t count)
{
    const struct ra__shape *s = &exec->plan->input.shape;
    int64_t rows = exec->plan->input.q_layout->count[exec->plan->input.rank];
    (void)context;
    for (int64_t i = first; i < first + count; i++)
        for (int head = 0; head < s->q_heads; head++)
            store_sums(s->dtype, ra__matrix_at(&exec->home->dq, s->dtype, i / rows, i % rows, head),
                       exec->dq + (i * s->q_heads + head) * s->dim, s->dim);
}

static void finish_keys(struct ra__exec *exec, const void *context, int64_t first, int64_t count)
{
    const struct ra__shape *s = &exec->plan->home.shape;
    const struct ra__step *step = context;
    for (int64_t i = first * s->batch; i < (first + count) * s->batch; i++)
        for (int head = 0; head < s->kv_heads; head++) {
            int64_t row = i / s->batch, batch = i % s->batch;
            struct place at = { step->from, row, 1 };
            const float *sums = (const float *)slot_head(exec, at, batch, head);
            store_sums(s->dtype, ra__matrix_at(&exec->home->dk, s->dtype, batch, row, head), sums,
                       s->dim);
            store_sums(s->dtype, ra__matrix_at(&exec->home->dv, s->dtype, batch, row, head),
                       sums + s->dim, s->value_dim);
        }
}

/* Where ranks swap heads, dQ has gone home already. */
ra_status ra__exec_finish(struct ra__exec *exec, const struct ra__step *step)
{
    const struct ra__plan_input *home = &exec->plan->home;
    const struct ra__shape *shape = &home->shape;
    size_t q_bytes = (size_t)shape->q_heads * (size_t)shape->dim * sizeof(float);
    if (exec->plan->team.size == 1)
        RA__TRY(ra__exec_sweep(exec, shape->batch * home->q_layout->count[home->rank], q_bytes,
                               finish_queries, NULL));
    return ra__exec_sweep(exec, home->k_layout->count[home->rank],
                          ra__slot_row_bytes(exec->plan, step->from), finish_keys, step);
}
