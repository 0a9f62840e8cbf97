/* fold.c - all queries of a problem against one stretch of its keys, on the calling thread. */
#include "exec/fold.h"

/* One row of the pattern and those of its keys that are at hand. */
struct slice {
    const struct ra__fold *fold;
    struct ra__cut cut;
    const struct ra__row *row;
    struct ra__key_run runs[RA__SIGHTS];
    int run_count;
};

static void fold_job(const struct slice *slice, int64_t offset, int64_t count, struct ra__lane lane)
{
    const struct ra__fold *fold = slice->fold;
    const struct ra__shape *shape = fold->shape;
    int64_t shift = shape->k_len - shape->q_len; /* position -> index */
    int64_t q = slice->row->q.start + offset * slice->row->q.step - shift;
    int64_t at = (lane.batch * shape->q_len + q) * shape->q_heads + lane.head;
    struct ra__forward_job job = {
        .view = { .shape = shape,
                  .heads = lane.heads,
                  .q_count = count,
                  .q_pos = q + shift,
                  .q_pos_step = slice->row->q.step,
                  .q = ra__matrix_at(&fold->q, shape->dtype, lane.batch, q, lane.head),
                  .k = ra__matrix_at(&fold->k, shape->dtype, lane.batch, 0, lane.kv_head),
                  .v = ra__matrix_at(&fold->v, shape->dtype, lane.batch, 0, lane.kv_head),
                  .runs = slice->runs,
                  .run_count = slice->run_count },
        .m = { fold->m + at, shape->q_heads },
        .l = { fold->l + at, shape->q_heads },
        .acc = fold->acc + at * shape->value_dim,
        .acc_row_stride = (int64_t)shape->q_heads * shape->value_dim,
    };
    fold->kernel->forward(&job, fold->workspace);
}

static ra_status fold_row(void *context, const struct ra__row *row)
{
    struct slice *slice = context;
    const struct ra__fold *fold = slice->fold;
    slice->row = row;
    slice->run_count = 0;
    for (int i = 0; i < row->sight_count; i++) {
        int64_t skipped;
        ra_run keys = ra__run_clip(row->sights[i].keys, fold->first_key,
                                   fold->first_key + fold->keys, &skipped);
        if (keys.count == 0) continue;
        slice->runs[slice->run_count++] = (struct ra__key_run){
            keys.start - fold->first_key, keys.step, keys.start, keys.step, keys.count,
            row->sights[i].band
        };
    }
    if (slice->run_count == 0) return RA_OK;
    int64_t lanes = fold->shape->batch * fold->shape->kv_heads * slice->cut.head_chunks;
    for (int64_t lane = 0; lane < lanes; lane++)
        for (int64_t at = 0; at < row->q.count; at += slice->cut.queries)
            fold_job(slice, at, ra__min(slice->cut.queries, row->q.count - at),
                     ra__lane_at(fold->shape, &slice->cut, lane));
    return RA_OK;
}

ra_status ra__fold_run(const struct ra__fold *fold)
{
    const struct ra__shape *shape = fold->shape;
    struct slice slice = { .fold = fold, .cut = ra__cut_for(shape, fold->kernel, shape->q_len, 1) };
    ra_run queries = { shape->k_len - shape->q_len, 1, shape->q_len };
    return ra__pattern_rows(fold->pattern, shape->k_len, queries,
                            (struct ra__row_sink){ fold_row, &slice });
}
