/* move.c - steps that move rows inside one rank: PACK, PLACE, PICK, CLEAR, ADD, FINISH.
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
static void copy_rows(struct ra__exec *exec, struct place to, struct place from, int64_t count,
                      int kv_head)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    int first = kv_head == RA__ALL_HEADS ? 0 : kv_head;
    int end = kv_head == RA__ALL_HEADS ? shape->kv_heads : kv_head + 1;
    for (int64_t batch = 0; batch < shape->batch; batch++)
        for (int head = first; head < end; head++) copy_head(exec, to, from, count, batch, head);
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
        copy_rows(exec, (struct place){ step->to, piece->at, 1 },
                  (struct place){ step->from, piece->rows.start, piece->rows.step },
                  piece->rows.count, piece->kv_head);
    }
    return RA_OK;
}

/* Between a piece in a slot and the gathered rows, position by position. */
static void copy_by_position(struct ra__exec *exec, const struct ra__step *step,
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
        copy_rows(exec, to_gathered ? all : packed, to_gathered ? packed : all, rows.count,
                  piece->kv_head);
    }
}

ra_status ra__exec_place(struct ra__exec *exec, const struct ra__step *step)
{
    for (int i = 0; i < step->piece_count; i++)
        copy_by_position(exec, step, piece_at(exec, step, i), true);
    return RA_OK;
}

ra_status ra__exec_pick(struct ra__exec *exec, const struct ra__step *step)
{
    for (int i = 0; i < step->piece_count; i++)
        copy_by_position(exec, step, piece_at(exec, step, i), false);
    return RA_OK;
}

ra_status ra__exec_clear(struct ra__exec *exec, const struct ra__step *step)
{
    size_t row_bytes = ra__slot_row_bytes(exec->plan, step->to);
    for (int i = 0; i < step->piece_count; i++) {
        const struct ra__piece *piece = piece_at(exec, step, i);
        exec->device->clear(slot_row(exec, step->to, piece->at),
                            (size_t)piece->rows.count * row_bytes);
    }
    return RA_OK;
}

/* Rows of one KV head, one by one, into rows of all. */
static void add_head(struct ra__exec *exec, const struct ra__step *step,
                     const struct ra__piece *piece)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    size_t width = (size_t)(shape->dim + shape->value_dim);
    for (int64_t i = 0; i < piece->rows.count; i++) {
        struct place to = { step->to, piece->rows.start + i * piece->rows.step, 1 };
        struct place from = { step->from, piece->at + i, 1 };
        for (int64_t batch = 0; batch < shape->batch; batch++)
            exec->device->add((float *)slot_head(exec, to, batch, piece->kv_head),
                              (const float *)slot_head(exec, from, batch, piece->kv_head), width);
    }
}

ra_status ra__exec_add(struct ra__exec *exec, const struct ra__step *step)
{
    size_t width = (size_t)ra__slot_width(exec->plan, step->to);
    for (int i = 0; i < step->piece_count; i++) {
        const struct ra__piece *piece = piece_at(exec, step, i);
        if (piece->kv_head != RA__ALL_HEADS) {
            add_head(exec, step, piece);
            continue;
        }
        int64_t together = piece->rows.step == 1 ? piece->rows.count : 1;
        for (int64_t n = 0; n < piece->rows.count; n += together)
            exec->device->add(
                (float *)slot_row(exec, step->to, piece->rows.start + n * piece->rows.step),
                (const float *)slot_row(exec, step->from, piece->at + n), (size_t)together * width);
    }
    return RA_OK;
}

/* f32 sums [batch, rows, heads, dim] or [rows, batch, heads, ...] -> the caller's tensor. */
static void store_sums(const struct ra__shape *shape, struct ra__matrix to, const float *from,
                       int64_t from_stride, int64_t rows, int dim)
{
    for (int64_t row = 0; row < rows; row++)
        for (int d = 0; d < dim; d++)
            ra__store(shape->dtype, to.data, row * to.row_stride + d, from[row * from_stride + d]);
}

ra_status ra__exec_finish(struct ra__exec *exec, const struct ra__step *step)
{
    const struct ra__plan_input *input = &exec->plan->input;
    const struct ra__shape *shape = &input->shape;
    int64_t q_rows = input->q_layout->count[input->rank],
            k_rows = input->k_layout->count[step->block];
    int64_t stride = ra__slot_width(exec->plan, RA__GRAD_OWN);
    for (int64_t batch = 0; batch < shape->batch; batch++) {
        for (int head = 0; head < shape->q_heads; head++) {
            store_sums(shape, ra__matrix_at(&exec->io->dq, shape->dtype, batch, 0, head),
                       exec->dq + (batch * q_rows * shape->q_heads + head) * shape->dim,
                       (int64_t)shape->q_heads * shape->dim, q_rows, shape->dim);
            RA__TRY(ra__exec_tick(exec));
        }
        for (int head = 0; head < shape->kv_heads; head++) {
            const float *sums = (const float *)exec->slots[RA__GRAD_OWN] +
                                ra__slot_head(exec->plan, RA__GRAD_OWN, batch, head);
            store_sums(shape, ra__matrix_at(&exec->io->dk, shape->dtype, batch, 0, head), sums,
                       stride, k_rows, shape->dim);
            store_sums(shape, ra__matrix_at(&exec->io->dv, shape->dtype, batch, 0, head),
                       sums + shape->dim, stride, k_rows, shape->value_dim);
            RA__TRY(ra__exec_tick(exec));
        }
    }
    return RA_OK;
}
