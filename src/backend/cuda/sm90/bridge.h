/* SPDX-License-Identifier: Apache-2.0 */
/* bridge.h - steps of a program (core/program.h) on the Hopper kernels: what sm90.h asks for, made
 * from the row families of a plan. Plain C; only bridge_launch.c and the kernels see a GPU.
 *
 *     bridge_rows.c     the rows of a step, expanded: bands, views, positions of score terms
 *     bridge_keys.c     the same backward: rows of keys, runs of the queries that see them
 *     bridge_views.c    backward, with views: every token in one of them
 *     bridge_work.c     the work of a step: its kernel, its schedule, its memory
 *     bridge.c          a program: which steps these kernels run
 *     bridge_launch.c   one step of one call
 *     bridge_ends.cu    before and after a GRADIENT step
 *
 * What the kernels cannot do is not an error: the step is left to another kernel. */
#ifndef RA__SM90_BRIDGE_H
#define RA__SM90_BRIDGE_H

#include <stdbool.h>

#include "backend/cuda/kernel.h"
#include "backend/cuda/sm90/sm90.h"
#include "core/program.h"

/* Whether something can be done: a step that the kernels cannot run is left to others. */
enum ra__sm90_answer { RA__SM90_YES, RA__SM90_NO, RA__SM90_NO_MEMORY };

/* ---- bridge_rows.c --------------------------------------------------------------------------- */

/* Queries that see the same runs; of heads first, first + step, ..., of every batch item. */
struct ra__sm90_family {
    int32_t q_row, q_count; /* of the view */
    int32_t first_run, run_count;
    int32_t flags; /* FIRST, LAST, stairs, view */
    int32_t head, head_step, heads;
};

static inline int ra__sm90_family_view(const struct ra__sm90_family *family)
{
    return (int)((uint32_t)family->flags >> RA__SM90_VIEW_SHIFT);
}
static inline int ra__sm90_run_view(const struct ra__sm90_run *run)
{
    return (int)((uint32_t)run->row >> RA__SM90_RUN_VIEW_SHIFT);
}

/* Positions of a tensor's tokens, as far as they are linear: that of one token, and the difference
 * between one token and the next; 0: only one token is known. */
struct ra__sm90_line {
    bool known, bent; /* bent: they are not linear */
    int64_t token, pos, step;
};

/* The rows of a step. Its arrays are its own. */
struct ra__sm90_expanded {
    struct ra__sm90_family *families;
    struct ra__sm90_run *runs;
    int family_count, family_room, run_count, run_room;
    struct ra__sm90_view views[RA__SM90_VIEWS];
    int view_count;         /* 0: all tokens follow one another */
    int32_t q_rows, k_rows; /* tokens of the tensors that are read: 1 + the last one */
    struct ra__sm90_line q_line, k_line;
    bool all_heads; /* every row has all heads */
    bool banded;    /* some run is not seen in full */
    int stair;      /* log2, of the families that have stairs; 0: none has */
    bool mixed;     /* with stairs, and some run of a family without them is not seen in full */
    /* Of ra__sm90_classify: bits of the views that the tokens of each KV head are in. */
    uint8_t *head_views;
    int head_count;
};

struct ra__sm90_expand_input {
    const struct ra__program *program;
    const struct ra__step *step;
    int tile_rows; /* stairs divide it */
    bool stairs;   /* rows that repeat may become one row with stairs */
};

enum ra__sm90_answer ra__sm90_expand(const struct ra__sm90_expand_input *in,
                                     struct ra__sm90_expanded *out);
void ra__sm90_expanded_clear(struct ra__sm90_expanded *expanded); /* accepts a zeroed one */

/* Adds a run, or a family whose runs were added before it. RA__SM90_NO: there are too many. */
enum ra__sm90_answer ra__sm90_put_run(struct ra__sm90_expanded *out, struct ra__sm90_run run);
enum ra__sm90_answer ra__sm90_put_family(struct ra__sm90_expanded *out,
                                         struct ra__sm90_family family);

/* The family with those of its heads that are in a range; heads 0: it has none. */
struct ra__sm90_family ra__sm90_heads_in(const struct ra__sm90_family *family,
                                         struct ra__range heads);

static inline bool ra__sm90_has_heads(const struct ra__sm90_family *family, int first, int count)
{
    return ra__sm90_heads_in(family, (struct ra__range){ first, first + count }).heads > 0;
}

/* Families of rows for all heads and batch items, in the order in which heads share keys. With
 * `one_head`, a token is that of one KV head: all are head 0 of the tensor. */
struct ra__sm90_row_list {
    struct ra__sm90_rows *rows;
    struct ra__sm90_run *runs; /* NULL: those of the expanded rows */
    int row_count, row_room, run_count, run_room;
};
struct ra__sm90_heads {
    int batch, q_heads, kv_heads;
    bool one_head;
};
enum ra__sm90_answer ra__sm90_list_rows(const struct ra__sm90_expanded *expanded,
                                        const struct ra__sm90_heads *heads,
                                        struct ra__sm90_row_list *out);
void ra__sm90_row_list_clear(struct ra__sm90_row_list *list); /* accepts a zeroed one */

/* More room for an array whose last element was used; the same array, or NULL: memory is short. */
void *ra__sm90_grow(void *array, int count, int *room, size_t bytes);

/* ---- bridge_keys.c --------------------------------------------------------------------------- */

/* Rows of keys, with the queries of all heads of a group as runs: struct ra__sm90_backward.
 * `view_starts`: as there, or NULL. */
enum ra__sm90_answer ra__sm90_list_keys(const struct ra__sm90_expanded *expanded,
                                        const struct ra__sm90_heads *heads, int padded_rows,
                                        const int32_t *view_starts, struct ra__sm90_row_list *out);

/* ---- bridge_views.c -------------------------------------------------------------------------- */

/* The same rows, with views of which each KV head has every token in one. */
enum ra__sm90_answer ra__sm90_classify(const struct ra__sm90_expanded *rows,
                                       const struct ra__sm90_heads *heads,
                                       struct ra__sm90_expanded *out);

/* Where the rows of each view start among those of a head, at multiples of `block`; returns how
 * many rows a head has. Views that no head has both of may be in the same place. */
int ra__sm90_place_classes(const struct ra__sm90_expanded *rows, int block, int32_t *starts);

/* The view of each of `count` blocks of a KV head, or RA__SM90_NO_VIEW. */
void ra__sm90_fill_blocks(const struct ra__sm90_expanded *rows, const int32_t *starts, int block,
                          int kv_head, uint8_t *block_views, int count);

/* ---- bridge_work.c --------------------------------------------------------------------------- */

/* What a call may have that the plan does not know of. It takes another kernel. */
enum ra__sm90_extra { RA__SM90_WITH_SINKS = 1, RA__SM90_WITH_BIAS = 2, RA__SM90_EXTRAS = 4 };

/* The work of one step, or of several whose rows are the same. Arrays of `schedule`, and
 * `block_views`, are in host memory until they are placed, then on the device. */
struct ra__sm90_work {
    struct ra__sm90_expanded rows; /* until the program is made, to compare steps */
    bool one_head;                 /* a token of K and V is that of one KV head */
    int32_t q_rows, k_rows;        /* as in `rows` */
    struct ra__sm90_view views[RA__SM90_VIEWS];
    struct ra__sm90_needs needs;
    struct ra__sm90_shape shape;
    bool extras[RA__SM90_EXTRAS]; /* is there a kernel of the same shape? */
    struct ra__sm90_schedule schedule;
    bool placed;
    int64_t rows_used, rows_paid; /* times runs: rows, and rows of the tiles they take */
    bool backward;                /* what follows is for it */
    bool direct;                  /* dq, dk and dv are written as the caller wants them; no sums */
    int padded_rows;
    int32_t view_starts[RA__SM90_VIEWS];
    uint8_t *block_views; /* with views: of blocks of dq, [query head][block] */
    bool by_head;         /* one launch per batch item and KV head, all by the same schedule */
    int64_t adds;         /* to blocks of dq, in one launch */
    int32_t *ranks;
    int64_t *rank_starts;
    bool sets_dq; /* the first add to each block of dq may set it */
    bool covers;  /* every key is in an item */
};

/* The shape of the kernel for `rows`, and a schedule. RA__SM90_NO: there is no kernel, or it would
 * need too much memory. Takes `rows`, also on failure. */
enum ra__sm90_answer ra__sm90_work_make(const struct ra__program *program, int terms,
                                        struct ra__sm90_work *work);
void ra__sm90_work_clear(struct ra__sm90_work *work); /* accepts a zeroed one */

/* Bytes of its arrays, and those arrays moved to `host`, a copy of what will be at `device`. 0, or
 * -1: memory is short. */
size_t ra__sm90_work_bytes(const struct ra__sm90_work *work, const struct ra__shape *shape);
int ra__sm90_work_place(struct ra__sm90_work *work, const struct ra__shape *shape, char *host,
                        char *device);

/* Memory of a launch, from `scratch` on. It need not be set. */
struct ra__sm90_scratch {
    float *parts;
    uint8_t *failed;
    float *lse2, *delta, *dq_sum;
    int32_t *turns;
    size_t bytes;
};
struct ra__sm90_scratch ra__sm90_scratch_of(const struct ra__sm90_work *work,
                                            const struct ra__shape *shape, char *scratch);

/* ---- bridge.c -------------------------------------------------------------------------------- */

struct ra__sm90_step {
    bool taken; /* false: these kernels do not run it */
    int work;   /* in program.works */
    /* A GRADIENT step that sets all of its sums of dk and dv instead of adding to them, and the
     * step before it that clears them: each the index of the other; or -1. */
    int partner;
    struct ra__sm90_line q_line, k_line;
};

struct ra__sm90_program {
    const struct ra__program *program;
    struct ra__sm90_step *steps; /* [step] */
    struct ra__sm90_work *works;
    int work_count, work_room;
    int terms;    /* enum ra__sm90_term: those of the plan */
    bool carried; /* states go from step to step: these kernels run all ATTEND steps, or none */
    bool origin;  /* positions of score terms go through an order */
    int direct;   /* the GRADIENT step that writes results, so that sums are not used; or -1 */
    /* Backward, several GRADIENT steps, all run by these kernels: dq stays in their workspace from
     * the first to the last of them. -1: each step adds to the sums of the engine. */
    int first_gradient, last_gradient;
    bool finishes_dq; /* the last of them may write the caller's dq: no other step needs the sums */
    char *scratch;
};

extern const struct ra__cuda_scheduler ra__sm90_scheduler;

/* ---- bridge_launch.c ------------------------------------------------------------------------- */

int ra__sm90_writes_queries(const void *schedule, const struct ra__call *call);
int ra__sm90_run(const void *schedule, int index, const struct ra__call *call,
                 const struct ra__cuda_step *step, void *stream);

#endif
