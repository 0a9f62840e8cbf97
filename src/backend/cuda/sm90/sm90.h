/* SPDX-License-Identifier: Apache-2.0 */
/* sm90.h - attention on Hopper GPUs: what the host tells the kernels, as plain C.
 *
 * Call order: ra__sm90_schedule cuts rows of queries into work items, once per plan; the caller
 * copies its arrays to the device; ra__sm90_forward_launch, any number of times. Nothing here
 * allocates device memory or waits for the device. All pointers of a launch are device pointers and
 * belong to the caller; a schedule belongs to whoever made it.
 *
 * Who sees whom is a band, counted in keys of a run and queries of a row: query i sees key j of a
 * run if lo + i <= j <= hi + i. That covers every pattern whose queries and keys have the same
 * spacing: full, causal, window, documents and blocks of any kind, dilated rows by strides. With
 * stairs (RA__SM90_STAIR_SHIFT) it also covers blocks of queries that move along together. */
#ifndef RA__SM90_SM90_H
#define RA__SM90_SM90_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open side of a band; sums of two such numbers and of row counts stay in 32 bits. */
enum { RA__SM90_FAR = 1 << 29 };

/* Keys [row, row + count) of the tensor. */
struct ra__sm90_run {
    int32_t row, count;
    int32_t lo, hi;
};

/* Do all queries see all of it? */
static inline int ra__sm90_is_open(const struct ra__sm90_run *run)
{
    return run->lo <= -RA__SM90_FAR && run->hi >= RA__SM90_FAR;
}

enum ra__sm90_flag {
    RA__SM90_FIRST = 1, /* start from empty state; otherwise from m, l, acc */
    RA__SM90_LAST = 2,  /* write out and lse; otherwise m, l, acc */
    /* From this bit on: log2 of the stairs of the bands. Query i counts as i rounded down to a
     * multiple of 2^stair, which divides the tile's rows: blocks of queries that see blocks.
     * Backward, where queries are the runs, the same number is given in the other place; runs then
     * start at a multiple of 2^stair of the queries that the bands count. */
    RA__SM90_STAIR_SHIFT = 8,
    RA__SM90_RUN_STAIR_SHIFT = 13,
    RA__SM90_STAIR_MASK = 31,
    RA__SM90_VIEW_SHIFT = 24, /* from this bit on: the view of the queries, see below */
};

/* Views: rows of a tensor that are `step` apart, for dilated patterns. A launch may have several;
 * an item names that of its queries in its flags (backward, that of its keys in the high bits of
 * q_row), each run names its own in the high bits of its row. Only kernels with views read them
 * (struct ra__sm90_needs). */
enum {
    RA__SM90_VIEWS = 8,
    RA__SM90_RUN_VIEW_SHIFT = 27,
    RA__SM90_VIEW_ROWS = (1 << RA__SM90_RUN_VIEW_SHIFT) - 1, /* the other bits */
    RA__SM90_NO_VIEW = 255
};

struct ra__sm90_view {
    int32_t first, step;
};

/* The row of a run, without its view where there are views. */
static inline int32_t ra__sm90_row_of(const struct ra__sm90_run *run, int views)
{
    return views ? run->row & RA__SM90_VIEW_ROWS : run->row;
}

/* Queries of one head and the key runs they see, in the order in which they are folded. */
struct ra__sm90_rows {
    int32_t batch;
    uint16_t head, kv_head;
    int32_t q_row, q_count;
    int32_t first_run, run_count;
    int32_t flags; /* enum ra__sm90_flag */
};

/* At most tile_rows of these queries and some of their keys: what a cluster does at a time. The
 * kernel reads items and runs as 16-byte words. */
struct ra__sm90_item {
    int32_t batch;
    uint16_t head, kv_head;
    int32_t q_row, q_count;
    int32_t first_run, run_count;
    int32_t part; /* -1, or the part that this share of the keys is written to */
    int32_t flags;
};

/* A tile whose keys were shared out: parts [first_part, first_part + part_count). */
struct ra__sm90_merge {
    int32_t batch, head;
    int32_t q_row, q_count;
    int32_t first_part, part_count;
    int32_t flags;
};

struct ra__sm90_schedule_input {
    const struct ra__sm90_rows *rows;
    const struct ra__sm90_run *runs;
    int row_count;
    int tile_rows, block_keys; /* of the kernel: struct ra__sm90_shape */
    int clusters;              /* clusters that run at the same time */
    int section_heads;         /* KV heads that are worked on together; what fits the L2 cache */
    int item_cost;             /* of starting and ending an item, in key blocks */
    int split;                 /* may share out the keys of a tile, so that clusters end together */
    int spread; /* of spread x clusters neighbouring tiles, every spread-th first, then those after
                   them, ...; 0 = 1. Tiles that are worked on together are then far apart:
                   deterministic backward they would otherwise wait for one another at the same
                   dq */
    int rotate; /* tiles that see all keys start at different ones: backward, they would otherwise
                   add to the same dq at the same time */
    int views;  /* rows of runs have a view in their high bits */
};

struct ra__sm90_schedule {
    struct ra__sm90_item *items;
    struct ra__sm90_run *runs;
    struct ra__sm90_merge *merges;
    int32_t *queues; /* items [queues[w], queues[w + 1]) are cluster w's */
    int item_count, run_count, merge_count, part_count, clusters;
    int hides; /* some block has a key that some of its rows do not see */
};

/* 0, or -1 where memory is short. */
int ra__sm90_schedule(const struct ra__sm90_schedule_input *input, struct ra__sm90_schedule *out);
void ra__sm90_schedule_clear(struct ra__sm90_schedule *schedule); /* accepts a zeroed one */

/* Backward with the same bits every time: the rank of each add to a block of dq among all adds to
 * that block. Cluster w's are ranks[starts[w]], ..., in the order in which it goes through its
 * queue. All clusters must run at the same time. */
struct ra__sm90_order_input {
    const struct ra__sm90_schedule *schedule; /* of a backward kernel */
    int batch, heads, padded_rows, block_queries, item_cost;
    int walks; /* of an item over its queries: struct ra__sm90_shape; 0 = 1 */
    int views; /* rows of runs have a view in their high bits */
};

struct ra__sm90_order {
    int32_t *ranks;
    int64_t *starts;
    int complete; /* every block of dq has an add */
};

/* How many ranks there will be. */
int64_t ra__sm90_order_adds(const struct ra__sm90_order_input *input);

/* 0, or -1 where memory is short. */
int ra__sm90_order(const struct ra__sm90_order_input *input, struct ra__sm90_order *out);
void ra__sm90_order_clear(struct ra__sm90_order *order); /* accepts a zeroed one */

/* Rows of 16-bit numbers, dim contiguous; strides count elements. */
struct ra__sm90_tensor {
    void *data;
    int32_t rows, heads, batch;
    int64_t row_stride, head_stride, batch_stride;
};

/* Numbers per row in f32; `acc` has dim of them side by side, in an order that is the kernels' own:
 * it goes from one launch to the next. */
struct ra__sm90_column {
    float *data;
    int64_t row_stride, head_stride, batch_stride;
};

/* What is done to a score besides scale q.k, as core/terms.h defines it. Zeroed: nothing. Row r of
 * Q is at position q_pos + r q_step, row r of K at k_pos + r k_step. */
struct ra__sm90_terms {
    int32_t q_pos, q_step, k_pos, k_step;
    float softcap;       /* 0 = none */
    const float *slopes; /* [heads], or NULL */
    const float *sinks;  /* [heads], natural logarithms, or NULL; forward only */
    const void *bias;    /* f32, or bytes of which 0 hides the key; or NULL */
    int32_t bias_bytes;  /* 1 or 4 */
    int64_t bias_row_stride, bias_head_stride, bias_batch_stride; /* keys by position */
    uint64_t drop_below; /* dropped if the random word is below; 0 = no dropout */
    uint64_t seed;
    float kept_scale;
};

enum ra__sm90_term {
    RA__SM90_SOFTCAP = 1,
    RA__SM90_SLOPES = 2,
    RA__SM90_BIAS = 4,
    RA__SM90_DROPOUT = 8,
    RA__SM90_SINKS = 16,
    RA__SM90_ALL_TERMS = 31,
};

/* One launch: device pointers throughout. m is in units of log2 and near the largest score of its
 * row; -inf where nothing was folded, and then l = 0 and acc = 0. */
struct ra__sm90_forward {
    struct ra__sm90_tensor q, k, v, out;
    struct ra__sm90_column lse; /* natural logarithm; data may be NULL */
    struct ra__sm90_column m, l, acc;
    float scale;
    const struct ra__sm90_item *items;
    const struct ra__sm90_run *runs;
    const struct ra__sm90_merge *merges;
    const int32_t *queues;
    int clusters, merge_count;
    float *parts;    /* part_count * shape.part_floats */
    uint8_t *failed; /* item_count * shape.warps; need not be set */
    int hides;       /* of the schedule; or terms with a bias */
    int crowded;     /* launches of other ranks run on this GPU at the same time */
    struct ra__sm90_terms terms;
    struct ra__sm90_view views[RA__SM90_VIEWS]; /* kernels with views */
};

/* Backward. Items and runs of a schedule change sides: an item is at most 128 keys of a KV head
 * (q_row, q_count), a run is queries that see them: query j sees key i if lo + i <= j <= hi + i.
 * The row of a run is h padded_rows + row for query head `head` + h: all heads of a group are runs
 * of one item, so no two items write the same dk and dv. dq is summed in f32 in `dq_sum`, whose
 * order is the kernel's own. With views, a query and a key are each in one view that their KV head
 * has, and the row of a run is h padded_rows + view_starts[view] + the row in the view. Its fields
 * are many because they are all that one launch is given. */
struct ra__sm90_backward {
    struct ra__sm90_tensor q, k, v, out, dout, dq, dk, dv;
    struct ra__sm90_column lse; /* natural logarithm; -inf: the row has no gradient */
    float scale;
    const struct ra__sm90_item *items;
    const struct ra__sm90_run *runs;
    const struct ra__sm90_merge *merges;
    const int32_t *queues;
    int clusters, merge_count;
    int padded_rows;     /* of a head: queries, those of each view, as multiples of block_keys */
    float *lse2, *delta; /* workspace: batch * heads * padded_rows each */
    float *dq_sum;       /* batch * heads * padded_rows * dim */
    float *parts;        /* part_count * shape.part_floats */
    /* Deterministic kernels: struct ra__sm90_order, and 2 numbers per block of dq of workspace. */
    const int32_t *ranks;
    const int64_t *rank_starts;
    int32_t *turns;
    struct ra__sm90_terms terms;
    /* Rings: dk and dv in f32, read by items without RA__SM90_FIRST, written by those without
     * RA__SM90_LAST; every item has the bits of `item_flags`, too. `flags`: FIRST where this launch
     * is the first for these queries (workspace is set up), LAST where it is the last one (dq is
     * written). */
    struct ra__sm90_column dk_sum, dv_sum;
    int32_t flags;
    int32_t item_flags;
    /* Kernels with views: all that are named have a step; view_starts are multiples of
     * shape.block_keys. */
    struct ra__sm90_view views[RA__SM90_VIEWS];
    int32_t view_starts[RA__SM90_VIEWS];
    /* Not 0: dq_sum is not cleared, and the first add to a block sets it. For deterministic kernels
     * of one walk, where every block has an add (struct ra__sm90_order). */
    int32_t fresh;
};

/* What a kernel asks of the host. */
struct ra__sm90_shape {
    int dim, tile_rows, block_keys, cluster_ctas, threads, shared_bytes;
    int part_floats; /* of one part */
    int warps;       /* that compute, in one cluster */
    int walks;       /* backward: over the queries of an item */
};

enum ra__sm90_dtype { RA__SM90_BF16, RA__SM90_F16 };

/* What a problem needs of a kernel. */
struct ra__sm90_needs {
    int dim, dtype;
    int rows;  /* queries per head; forward only */
    int terms; /* bits of enum ra__sm90_term */
    int views;
    int deterministic; /* backward only: the same bits every time; needs an order */
};

/* The kernel for a problem, and how many clusters run at the same time on the current device. 0 or
 * a CUDA error: there is none, or the device is not Hopper. */
int ra__sm90_forward_shape(const struct ra__sm90_needs *needs, struct ra__sm90_shape *shape,
                           int *clusters);

/* Launches that kernel, and the one that merges parts where there are any. Asynchronous; 0 or a
 * CUDA error. ra__sm90_forward_shape must have been called for this device before. */
int ra__sm90_forward_launch(const struct ra__sm90_forward *args, const struct ra__sm90_needs *needs,
                            void *stream);

/* The same backward. */
int ra__sm90_backward_shape(const struct ra__sm90_needs *needs, struct ra__sm90_shape *shape,
                            int *clusters);
int ra__sm90_backward_launch(const struct ra__sm90_backward *args,
                             const struct ra__sm90_needs *needs, void *stream);

#ifdef __cplusplus
}
#endif
#endif
