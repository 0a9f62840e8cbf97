/* fold.c - all queries of a problem against one stretch of its keys, on the calling thread. */
#include "exec/fold.h"

/* Key runs handed to a kernel at once; a row with more is folded in several goes. */
enum { RUNS = 32 };

/* One row of the pattern and those of its keys that are at hand. */
struct slice {
    const struct ra__fold *fold;
    const struct ra__row *row;
    struct ra__key_run runs[RUNS];
    int run_count;
};

static void fold_job(const struct slice *slice, int64_t offset, int64_t count, struct ra__lane lane)
{
    const struct ra__fold *fold = slice->fold;
    const struct ra__shape *shape = fold->shape;
    int64_t shift = shape->k_len - shape->q_len; /* position -> index */
    int64_t step = slice->row->q.step, q = slice->row->q.start + offset * step - shift;
    int64_t at = (lane.batch * shape->q_len + q) * shape->q_heads + lane.head;
    struct ra__forward_job job = {
        .view = { .shape = shape,
                  .batch = lane.batch,
                  .head = lane.head,
                  .heads = lane.heads,
                  .kv_heads = 1,
                  .q_count = count,
                  .q_pos = q + shift,
                  .q_pos_step = step,
                  .q = ra__matrix_at(&fold->q, shape->dtype, lane.batch, q, lane.head),
                  .k = ra__matrix_at(&fold->k, shape->dtype, lane.batch, 0, lane.kv_head),
                  .v = ra__matrix_at(&fold->v, shape->dtype, lane.batch, 0, lane.kv_head),
                  .runs = slice->runs,
                  .run_count = slice->run_count,
                  .terms = fold->terms },
        .m = { fold->m + at, shape->q_heads * step },
        .l = { fold->l + at, shape->q_heads * step },
        .acc = fold->acc + at * shape->value_dim,
        .acc_row_stride = (int64_t)shape->q_heads * shape->value_dim * step,
    };
    job.view.q.row_stride *= step;
    fold->kernel->forward(&job, fold->workspace);
}

/* Folds the runs collected so far into all queries of the row. */
static void fold_runs(struct slice *slice)
{
    const struct ra__shape *shape = slice->fold->shape;
    ra_run q = slice->row->q, heads = slice->row->heads;
    int most = ra__all_heads(shape, heads) ? shape->q_heads : 1;
    struct ra__cut cut = ra__cut_for(shape, slice->fold->kernel->rows, most);
    if (slice->run_count == 0) return;
    for (int64_t lane = 0; lane < ra__lanes(shape, &cut, heads); lane++)
        for (int64_t chunk = 0; chunk < ra__cut_chunks(&cut, q.count); chunk++) {
            int64_t offset, count = ra__cut_at(&cut, q.count, chunk, &offset);
            fold_job(slice, offset, count, ra__lane_at(shape, &cut, heads, lane));
        }
    slice->run_count = 0;
}

static ra_status fold_row(void *context, const struct ra__row *row)
{
    struct slice *slice = context;
    const struct ra__fold *fold = slice->fold;
    slice->row = row;
    for (int i = 0; i < row->sight_count; i++) {
        int64_t skipped;
        ra_run keys = ra__run_clip(row->sights[i].keys, fold->first_key,
                                   fold->first_key + fold->keys, &skipped);
        if (keys.count == 0) continue;
        slice->runs[slice->run_count++] = (struct ra__key_run){
            keys.start - fold->first_key, keys.step, keys.start, keys.step, keys.count,
            row->sights[i].band
        };
        if (slice->run_count == RUNS) fold_runs(slice);
    }
    fold_runs(slice);
    return RA_OK;
}

ra_status ra__fold_run(const struct ra__fold *fold)
{
    const struct ra__shape *shape = fold->shape;
    struct slice slice = { .fold = fold };
    struct ra__rows rows = { fold->pattern, shape->k_len, shape->q_heads, false };
    ra_run queries = { shape->k_len - shape->q_len, 1, shape->q_len };
    return ra__pattern_rows(&rows, queries, (struct ra__row_sink){ fold_row, &slice });
}
