/* move.c - steps that move rows inside one rank: PACK, PLACE, PICK, CLEAR, ADD, FINISH. */
#include "exec/exec.h"

/* Rows row, row + step, ... of a slot. */
struct place {
    enum ra__slot slot;
    int64_t row, step;
};

static char *slot_row(const struct ra__exec *exec, enum ra__slot slot, int64_t row)
{
    return (char *)exec->slots[slot] +
           (size_t)row * ra__slot_row_bytes(&exec->plan->input.shape, slot);
}

/* The caller's K and V have strides of their own, so they are copied head by head. */
static void copy_own(struct ra__exec *exec, struct place to, int64_t row, int64_t count)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    size_t element = ra__dtype_bytes(shape->dtype), row_bytes = ra__slot_row_bytes(shape, to.slot);
    size_t k_bytes = (size_t)shape->dim * element, v_bytes = (size_t)shape->value_dim * element;
    char *target = slot_row(exec, to.slot, to.row);
    for (int64_t batch = 0; batch < shape->batch; batch++)
        for (int head = 0; head < shape->kv_heads; head++) {
            struct ra__matrix k = ra__matrix_at(&exec->io->k, shape->dtype, batch, row, head);
            struct ra__matrix v = ra__matrix_at(&exec->io->v, shape->dtype, batch, row, head);
            struct ra__copy copy = { .rows = count, .to_stride = (size_t)to.step * row_bytes };
            copy.to = target, copy.from = k.data, copy.bytes = k_bytes;
            copy.from_stride = (size_t)k.row_stride * element;
            exec->device->copy(&copy);
            copy.to = target + k_bytes, copy.from = v.data, copy.bytes = v_bytes;
            copy.from_stride = (size_t)v.row_stride * element;
            exec->device->copy(&copy);
            target += k_bytes + v_bytes;
        }
}

static void copy_rows(struct ra__exec *exec, struct place to, struct place from, int64_t count)
{
    if (from.slot == RA__SLOT_OWN) {
        copy_own(exec, to, from.row, count);
        return;
    }
    size_t row_bytes = ra__slot_row_bytes(&exec->plan->input.shape, from.slot);
    exec->device->copy(&(struct ra__copy){ .to = slot_row(exec, to.slot, to.row),
                                           .to_stride = (size_t)to.step * row_bytes,
                                           .from = slot_row(exec, from.slot, from.row),
                                           .from_stride = (size_t)from.step * row_bytes,
                                           .bytes = row_bytes,
                                           .rows = count });
}

ra_status ra__exec_pack(struct ra__exec *exec, const struct ra__step *step)
{
    for (int i = 0; i < step->range.count; i++) {
        struct ra__range range = step->range.at[i];
        copy_rows(exec, (struct place){ step->to, range.lo, 1 },
                  (struct place){ step->from, range.lo, 1 }, range.hi - range.lo);
    }
    return RA_OK;
}

/* Between a block, row by row, and the gathered rows, position by position. */
static void copy_by_position(struct ra__exec *exec, const struct ra__step *step,
                             struct ra__range range, bool to_gathered)
{
    const ra_layout *layout = exec->plan->input.k_layout;
    for (int64_t i = layout->first[step->block]; i < layout->first[step->block + 1]; i++) {
        const struct ra__shard_run *run = &layout->runs[i];
        int64_t lo = ra__max(range.lo, run->row), hi = ra__min(range.hi, run->row + run->at.count);
        if (lo >= hi) continue;
        int64_t position = run->at.start + (lo - run->row) * run->at.step;
        struct place block = { to_gathered ? step->from : step->to, lo, 1 };
        struct place all = { to_gathered ? step->to : step->from,
                             position - exec->plan->gather_base, run->at.step };
        copy_rows(exec, to_gathered ? all : block, to_gathered ? block : all, hi - lo);
    }
}

ra_status ra__exec_place(struct ra__exec *exec, const struct ra__step *step)
{
    for (int i = 0; i < step->range.count; i++)
        copy_by_position(exec, step, step->range.at[i], true);
    return RA_OK;
}

ra_status ra__exec_pick(struct ra__exec *exec, const struct ra__step *step)
{
    for (int i = 0; i < step->range.count; i++)
        copy_by_position(exec, step, step->range.at[i], false);
    return RA_OK;
}

ra_status ra__exec_clear(struct ra__exec *exec, const struct ra__step *step)
{
    size_t row_bytes = ra__slot_row_bytes(&exec->plan->input.shape, step->to);
    for (int i = 0; i < step->range.count; i++) {
        struct ra__range range = step->range.at[i];
        exec->device->clear(slot_row(exec, step->to, range.lo),
                            (size_t)(range.hi - range.lo) * row_bytes);
    }
    return RA_OK;
}

ra_status ra__exec_add(struct ra__exec *exec, const struct ra__step *step)
{
    size_t width = ra__slot_row_bytes(&exec->plan->input.shape, step->to) / sizeof(float);
    for (int i = 0; i < step->range.count; i++) {
        struct ra__range range = step->range.at[i];
        exec->device->add((float *)slot_row(exec, step->to, range.lo),
                          (const float *)slot_row(exec, step->from, range.lo),
                          (size_t)(range.hi - range.lo) * width);
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
    int64_t stride = ra__slot_width(shape);
    for (int64_t batch = 0; batch < shape->batch; batch++) {
        for (int head = 0; head < shape->q_heads; head++) {
            store_sums(shape, ra__matrix_at(&exec->io->dq, shape->dtype, batch, 0, head),
                       exec->dq + (batch * q_rows * shape->q_heads + head) * shape->dim,
                       (int64_t)shape->q_heads * shape->dim, q_rows, shape->dim);
            RA__TRY(ra__exec_tick(exec));
        }
        for (int head = 0; head < shape->kv_heads; head++) {
            const float *sums = (const float *)exec->slots[RA__GRAD_OWN] +
                                ra__slot_head(shape, batch, head);
            store_sums(shape, ra__matrix_at(&exec->io->dk, shape->dtype, batch, 0, head), sums,
                       stride, k_rows, shape->dim);
            store_sums(shape, ra__matrix_at(&exec->io->dv, shape->dtype, batch, 0, head),
                       sums + shape->dim, stride, k_rows, shape->value_dim);
            RA__TRY(ra__exec_tick(exec));
        }
    }
    return RA_OK;
}
