/* job.h - cutting rows into jobs that fit a kernel, and finding a head's numbers in a tensor. */
#ifndef RA__EXEC_JOB_H
#define RA__EXEC_JOB_H

#include "core/dtype.h"
#include "kernel/kernel.h"

/* How queries and heads are cut: a job takes up to `heads` query heads of one KV head and up to
 * `queries` queries. Forward results do not depend on it; backward, it decides the order of sums.
 *
 * Rows that all heads share are cut so that the heads of a KV head share its panels; rows of other
 * heads have one head per job.
 *
 * Forward, the first queries of a row are the last to be worked on. Where that is the end of a
 * step, they are cut ever finer, so that no thread is left with a large job when the others have
 * none. */
struct ra__cut {
    int heads;           /* per job */
    int kv_heads;        /* per job: 1 or all */
    int head_chunks;     /* jobs per KV head */
    int64_t queries;     /* per job */
    int64_t front, fine; /* but of the first `front` queries of a row ever fewer, down to `fine` */
};

/* The largest jobs of at most `rows` rows and `heads` heads. */
static inline struct ra__cut ra__cut_for(const struct ra__shape *shape, int rows, int heads)
{
    int group = shape->q_heads / shape->kv_heads;
    int most = heads < rows ? heads : rows;
    struct ra__cut cut = { .heads = group < most ? group : most, .kv_heads = 1 };
    cut.head_chunks = (group + cut.heads - 1) / cut.heads;
    cut.queries = rows / cut.heads;
    return cut;
}

/* One query, and all heads of a batch item: keys are read once, as they lie. */
static inline struct ra__cut ra__cut_wide(const struct ra__shape *shape)
{
    return (struct ra__cut){
        .heads = shape->q_heads, .kv_heads = shape->kv_heads, .head_chunks = 1, .queries = 1
    };
}

/* How many of the first queries of a row the next job takes, of which `left` are still to be cut:
 * half of them, or less where they were several jobs. No rest is smaller than `fine`. */
static inline int64_t ra__cut_front(const struct ra__cut *cut, int64_t left)
{
    if (left < 2 * cut->fine) return ra__min(left, cut->queries);
    int64_t share = ra__max(ra__ceil_div(cut->front, cut->queries), 2);
    return ra__min(ra__max(ra__ceil_div(left, share), cut->fine), cut->queries);
}

static inline int64_t ra__cut_front_chunks(const struct ra__cut *cut, int64_t front)
{
    int64_t chunks = 0;
    for (; front > 0; front -= ra__cut_front(cut, front)) chunks++;
    return chunks;
}

/* The chunks of queries of a row of q_count. */
static inline int64_t ra__cut_chunks(const struct ra__cut *cut, int64_t q_count)
{
    int64_t front = ra__min(cut->front, q_count);
    return ra__cut_front_chunks(cut, front) + ra__ceil_div(q_count - front, cut->queries);
}

/* The queries of one of them. What is left over comes before the whole ones. */
static inline int64_t ra__cut_at(const struct ra__cut *cut, int64_t q_count, int64_t chunk,
                                 int64_t *offset)
{
    int64_t front = ra__min(cut->front, q_count), fine = ra__cut_front_chunks(cut, front);
    if (chunk >= fine) {
        /* Those of this chunk and the ones behind it, as if all were whole. */
        int64_t behind = (ra__cut_chunks(cut, q_count) - chunk) * cut->queries;
        *offset = ra__max(front, q_count - behind);
        return q_count - behind + cut->queries - *offset;
    }
    int64_t count = ra__cut_front(cut, front);
    for (*offset = front - count; ++chunk < fine; *offset -= count)
        count = ra__cut_front(cut, *offset);
    return count;
}

/* One slice of work: which batch item, which heads. */
struct ra__lane {
    int64_t batch;
    int kv_head, kv_heads;
    int head, heads; /* query heads head .. head + heads - 1 read these, as many each */
};

static inline bool ra__all_heads(const struct ra__shape *shape, ra_run heads)
{
    return heads.count == shape->q_heads;
}

/* Lanes of a row with these heads. */
static inline int64_t ra__lanes(const struct ra__shape *shape, const struct ra__cut *cut,
                                ra_run heads)
{
    return shape->batch * (ra__all_heads(shape, heads)
                               ? shape->kv_heads / cut->kv_heads * cut->head_chunks
                               : (int)heads.count);
}

static inline struct ra__lane ra__lane_at(const struct ra__shape *shape, const struct ra__cut *cut,
                                          ra_run heads, int64_t index)
{
    int group = shape->q_heads / shape->kv_heads;
    if (!ra__all_heads(shape, heads)) {
        int head = (int)(heads.start + index % heads.count * heads.step);
        return (struct ra__lane){ index / heads.count, head / group, 1, head, 1 };
    }
    int chunk = (int)(index % cut->head_chunks);
    int64_t rest = index / cut->head_chunks;
    int per_item = shape->kv_heads / cut->kv_heads;
    struct ra__lane lane = { .batch = rest / per_item,
                             .kv_head = (int)(rest % per_item) * cut->kv_heads,
                             .kv_heads = cut->kv_heads };
    lane.head = lane.kv_head * group + chunk * cut->heads;
    lane.heads = (int)ra__min(cut->heads, group * cut->kv_heads - chunk * cut->heads);
    return lane;
}

/* The rows of a tensor from `row` on, for one batch item, from one head on. */
static inline struct ra__matrix ra__matrix_at(const ra_tensor *tensor, ra_dtype dtype,
                                              int64_t batch, int64_t row, int head)
{
    int64_t offset = batch * tensor->batch_stride + row * tensor->position_stride +
                     head * tensor->head_stride;
    return (struct ra__matrix){ (char *)tensor->data + offset * (int64_t)ra__dtype_bytes(dtype),
                                tensor->position_stride, tensor->head_stride };
}

/* The same for packed numbers [batch, rows, heads]; NULL stays NULL. */
static inline struct ra__column ra__column_at(const struct ra__shape *shape, float *data,
                                              int64_t rows, int64_t batch, int64_t row, int head)
{
    int64_t offset = (batch * rows + row) * shape->q_heads + head;
    return (struct ra__column){ data ? data + offset : NULL, shape->q_heads };
}

#endif
