/* SPDX-License-Identifier: Apache-2.0 */
/* chunks.h - dividing rows into jobs that fit a kernel. */
#ifndef RA__BACKEND_CPU_CHUNKS_H
#define RA__BACKEND_CPU_CHUNKS_H

#include "core/dtype.h"
#include "backend/cpu/kernel/kernel.h"

/* How queries and heads are divided: a job takes up to `heads` query heads of one KV head and up to
 * `queries` queries. Forward results do not depend on it; backward, it decides the order of sums.
 *
 * In rows of all heads, the heads of a KV head share a job and so its packed keys; rows of fewer
 * heads have one head per job.
 *
 * Forward, the first queries of a row are worked on last. Where that is the end of a step, its jobs
 * get smaller and smaller, so that no thread is left with a large job when the others have none. */
struct ra__chunks {
    int heads;           /* per job */
    int kv_heads;        /* per job: 1 or all */
    int head_chunks;     /* jobs per KV head */
    int64_t queries;     /* per job */
    int64_t front, fine; /* fewer and fewer of the first `front` queries, down to `fine` */
};

/* The largest jobs of at most `rows` rows and `heads` heads. */
static inline struct ra__chunks ra__chunks_for(const struct ra__shape *shape, int rows, int heads)
{
    int group = shape->q_heads / shape->kv_heads;
    int most = heads < rows ? heads : rows;
    struct ra__chunks chunks = { .heads = group < most ? group : most, .kv_heads = 1 };
    chunks.head_chunks = (group + chunks.heads - 1) / chunks.heads;
    chunks.queries = rows / chunks.heads;
    return chunks;
}

/* One query, and all heads of a batch item: keys are read once, in place. */
static inline struct ra__chunks ra__chunks_multi_head(const struct ra__shape *shape)
{
    return (struct ra__chunks){
        .heads = shape->q_heads, .kv_heads = shape->kv_heads, .head_chunks = 1, .queries = 1
    };
}

/* How many of the first queries of a row the next job takes, of which `left` are still to be
 * divided: half of them, or less where they were several jobs. No rest is smaller than `fine`. */
static inline int64_t ra__front_chunk(const struct ra__chunks *chunks, int64_t left)
{
    if (left < 2 * chunks->fine) return ra__min(left, chunks->queries);
    int64_t parts = ra__max(ra__ceil_div(chunks->front, chunks->queries), 2);
    return ra__min(ra__max(ra__ceil_div(left, parts), chunks->fine), chunks->queries);
}

static inline int64_t ra__count_front(const struct ra__chunks *chunks, int64_t front)
{
    int64_t count = 0;
    for (; front > 0; front -= ra__front_chunk(chunks, front)) count++;
    return count;
}

/* The chunks of queries of a row of q_count. */
static inline int64_t ra__chunk_count(const struct ra__chunks *chunks, int64_t q_count)
{
    int64_t front = ra__min(chunks->front, q_count);
    return ra__count_front(chunks, front) + ra__ceil_div(q_count - front, chunks->queries);
}

/* The queries of one of them. What is left over comes before the whole ones. */
static inline int64_t ra__chunk_at(const struct ra__chunks *chunks, int64_t q_count, int64_t chunk,
                                   int64_t *offset)
{
    int64_t front = ra__min(chunks->front, q_count), fine = ra__count_front(chunks, front);
    if (chunk >= fine) {
        /* Queries of this chunk and of those after it, as if all were whole. */
        int64_t rest = (ra__chunk_count(chunks, q_count) - chunk) * chunks->queries;
        *offset = ra__max(front, q_count - rest);
        return q_count - rest + chunks->queries - *offset;
    }
    int64_t count = ra__front_chunk(chunks, front);
    for (*offset = front - count; ++chunk < fine; *offset -= count)
        count = ra__front_chunk(chunks, *offset);
    return count;
}

/* The heads of a job: of which batch item, which ones. */
struct ra__job_heads {
    int64_t batch;
    int kv_head, kv_heads;
    int head, heads; /* query heads head .. head + heads - 1 read these, as many each */
};

static inline bool ra__all_heads(const struct ra__shape *shape, ra_run heads)
{
    return heads.count == shape->q_heads;
}

/* How many jobs each chunk of queries of a row is, by its heads and batch items. */
static inline int64_t ra__count_heads(const struct ra__shape *shape,
                                      const struct ra__chunks *chunks, ra_run heads)
{
    return shape->batch * (ra__all_heads(shape, heads)
                               ? shape->kv_heads / chunks->kv_heads * chunks->head_chunks
                               : (int)heads.count);
}

static inline struct ra__job_heads ra__heads_at(const struct ra__shape *shape,
                                                const struct ra__chunks *chunks, ra_run heads,
                                                int64_t index)
{
    int group = shape->q_heads / shape->kv_heads;
    if (!ra__all_heads(shape, heads)) {
        int head = (int)(heads.start + index % heads.count * heads.step);
        return (struct ra__job_heads){ index / heads.count, head / group, 1, head, 1 };
    }
    int chunk = (int)(index % chunks->head_chunks);
    int64_t rest = index / chunks->head_chunks;
    int per_item = shape->kv_heads / chunks->kv_heads;
    struct ra__job_heads at = { .batch = rest / per_item,
                                .kv_head = (int)(rest % per_item) * chunks->kv_heads,
                                .kv_heads = chunks->kv_heads };
    at.head = at.kv_head * group + chunk * chunks->heads;
    at.heads = (int)ra__min(chunks->heads, group * chunks->kv_heads - chunk * chunks->heads);
    return at;
}

#endif
