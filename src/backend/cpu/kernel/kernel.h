/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h - the contract between the CPU backend and its kernels.
 *
 * A kernel folds keys into the running softmax (m, l, acc) of some query rows, or, backward, adds
 * to dQ, dK and dV. It never allocates, fails, logs or knows ranks; its scratch memory is announced
 * by `workspace` at plan time, for the largest job of the plan, and is bounded for every job size.
 *
 * Rules of arithmetic for every kernel:
 *   - Sums are f32 for every dtype. A kernel may round the weights p, and ds backward, to `weights`
 *     before it multiplies them; l is always the sum of p in f32. Scores are in units of log2: x =
 *     q.k scale log2(e), so that weights are exp2(x - m); m is kept in that unit, LSE is written as
 *     a natural logarithm. m need not be the largest x of a row, only near it: within 1 above it.
 *   - m = -inf means "nothing folded yet": such a row has l = 0, acc = 0 and must not give NaN.
 *     A NaN in q, k or v that a row sees does give NaN in that row. Forward, a job without runs
 *     does not read q: it may not be there.
 *   - The result of a query row depends on its own keys only: not on the other rows of the job, nor
 *     on how many there are. Key runs are folded in the order given, each split into blocks at
 *     multiples of the kernel's block size counted in pos / pos_step; a key keeps its column in its
 *     block wherever the run starts. So rows give the same bits however queries are split.
 *   - Score terms (core/terms.h) come between q.k and the softmax, in the same places for every
 *     kernel. Key i of a run is at index pos + i pos_step, query i at q_pos + i q_pos_step: these
 *     are original positions, or, under an order, terms->origin maps them to original positions. A
 *     key masked by see_from and see_to is not folded and not counted as a pair; one that a bias
 *     hides is a pair. Of a bias, only elements at keys inside the bands of the runs are read.
 *   - A key is hidden from a row by that mask, by a byte of 0, or by what is added to its score,
 *     bias and slope together, if that is -inf in units of log2 (below -2.3e38 in natural ones).
 *     Its score is -inf and its weight 0 whatever q, k and v hold: a NaN in a hidden key or its
 *     value changes no bit of the row's output and does not reach its dq, nor does one in q, dout,
 *     lse or delta of a row reach dk and dv of keys hidden from it. A dropped key is not hidden: it
 *     is visible, and so is a NaN in it.
 *   - Dropout decides by integers, the same in every kernel. Counters take the low 32 bits
 *     of original positions; heads are view->head + h, as for slopes and sinks.
 *   - A sink is folded by the job that ends a row (`last`); m, l and acc never hold one.
 *   - Runs may share keys: a key in two runs counts twice, with one dropout decision.
 */
#ifndef RA__BACKEND_CPU_KERNEL_KERNEL_H
#define RA__BACKEND_CPU_KERNEL_KERNEL_H

#include <math.h>
#include <stdbool.h>

#include "core/dtype.h"
#include "core/shape.h"
#include "core/terms.h"

/* A matrix in the problem's dtype, dim contiguous; strides count elements. */
struct ra__matrix {
    void *data; /* read only if it is an input */
    int64_t row_stride, head_stride;
};

/* `n` numbers of it, from element `index` on. */
static inline void ra__matrix_load(const struct ra__shape *shape, const struct ra__matrix *from,
                                   int64_t index, int n, float *to)
{
    for (int d = 0; d < n; d++) to[d] = ra__load(shape->dtype, from->data, index + d);
}

/* One f32 per query and head: LSE, m, l, delta. */
struct ra__column {
    float *data;
    int64_t row_stride; /* heads are adjacent */
};

/* The queries and keys of a job: one batch item, one KV head, `heads` consecutive query heads that
 * read it, q_count queries, and the key runs they see. heads * q_count is at most kernel->rows, or
 * kernel->backward_rows.
 *
 * Forward, a job of one query may take all heads of a batch item (a wide job), if
 * kernel->wide(shape) is true, keys and values of the KV heads are adjacent, all runs have
 * token_step 1 and consecutive keys are adjacent, and no bias, slope or mask applies. */
struct ra__view {
    const struct ra__shape *shape;
    int64_t batch;
    int head, heads; /* the first query head; how many */
    /* KV heads they read: 1, or all of them if wide(), the same number of query heads for each */
    int kv_heads;
    int64_t q_count;
    int64_t q_pos, q_pos_step; /* query i is at position q_pos + i q_pos_step */
    struct ra__matrix q;       /* row i, head h at data + i row_stride + h head_stride */
    struct ra__matrix k, v;    /* a KV block; rows as counted by the runs */
    const struct ra__key_run *runs;
    int run_count;
    const struct ra__terms *terms; /* NULL = none */
    struct ra__bias bias;          /* with or without terms */
    bool smt;                      /* SMT: another thread may be using the L1 cache of this core */
    /* NULL, or to be called every few milliseconds of work: polls the transport */
    void (*kernel_poll)(void *context);
    void *context; /* of kernel_poll */
};

/* The logit of the sink of head h of a job, in natural units; -inf where there is none. */
static inline float ra__sink(const struct ra__view *view, int h)
{
    return view->terms && view->terms->sinks ? view->terms->sinks[view->head + h] : -INFINITY;
}

/* Kernels call this between key blocks: a job may be long, and the peers wait for a heartbeat. */
static inline void ra__kernel_poll(const struct ra__view *view)
{
    if (view->kernel_poll) view->kernel_poll(view->context);
}

struct ra__forward_job {
    struct ra__view view;
    bool first; /* start from empty state; otherwise from m, l, acc */
    bool last;  /* write out and lse; otherwise m, l, acc */
    struct ra__column m, l;
    float *acc; /* row i, head h at acc + i acc_row_stride + h value_dim */
    int64_t acc_row_stride;
    struct ra__matrix out;
    struct ra__column lse; /* data may be NULL: not wanted */
    int64_t pairs;         /* the kernel adds the query-key pairs it folded */
};

struct ra__backward_job {
    struct ra__view view;
    struct ra__matrix dout;
    struct ra__column lse;   /* natural log; rows without weights (lse.h) get no gradient */
    struct ra__column delta; /* rowsum(dout * out) - dlse */
    float *dq;               /* added to; row i, head h at dq + i dq_row_stride + h dim */
    int64_t dq_row_stride;
    float *dk, *dv; /* added to; rows as in k and v */
    int64_t dk_row_stride, dv_row_stride;
    int64_t pairs;
};

/* What no job exceeds: its query rows, q_count x heads, and the keys of each of its runs. */
struct ra__extent {
    int64_t rows, keys;
};

static inline struct ra__extent ra__view_extent(const struct ra__view *view)
{
    struct ra__extent extent = { view->q_count * view->heads, 0 };
    for (int i = 0; i < view->run_count; i++)
        extent.keys = ra__max(extent.keys, view->runs[i].count);
    return extent;
}

struct ra__kernel {
    const char *name;
    const char *summary;
    const char *needs;    /* the CPU features it needs, human-readable; "" for none */
    bool (*usable)(void); /* can this CPU run it? */
    bool (*slow)(void);   /* on this CPU, compared with the kernels before it? NULL = never */
    unsigned dtypes;      /* the dtypes it supports: bits 1 << dtype */
    ra_dtype weights;     /* what p and ds are rounded to; f32: not rounded */
    int rows;             /* most query rows in one job */
    int backward_rows;    /* the same for backward */
    int backward_few;     /* the same if there would be too few jobs otherwise; 0 = backward_rows */
    bool (*wide)(const struct ra__shape *shape); /* see struct ra__view; NULL = never */
    /* Bytes per thread, for jobs up to `most`; a job uses no more than its own extent needs. */
    size_t (*workspace)(const struct ra__shape *shape, struct ra__extent most, bool backward);
    /* workspace is aligned to 64 bytes */
    void (*forward)(struct ra__forward_job *job, void *workspace);
    void (*backward)(struct ra__backward_job *job, void *workspace);
};

/* The entries of kernel.list, slowest first; NULL after the last. */
const struct ra__kernel *ra__kernel_at(int index);

#define RA__ALL_DTYPES (1u << RA_F32 | 1u << RA_BF16 | 1u << RA_F16)

static inline bool ra__kernel_takes(const struct ra__kernel *kernel, ra_dtype dtype)
{
    return kernel->dtypes >> dtype & 1;
}

/* How many query rows of one query, as in decoding, read the same key: one if each KV head has one
 * query head, or a few. Several queries, or many heads, are many. */
enum ra__query_rows { RA__MANY_ROWS, RA__FEW_ROWS, RA__ONE_ROW };

static inline enum ra__query_rows ra__query_rows_of(const struct ra__shape *shape)
{
    enum { FEW = 16 };
    const int group = shape->q_heads / shape->kv_heads;
    if (shape->q_len != 1 || group > FEW) return RA__MANY_ROWS;
    return group > 1 ? RA__FEW_ROWS : RA__ONE_ROW;
}

/* By name; or (NULL) the one that RINGATTN_KERNEL names, or the fastest usable one that supports
 * the dtype, for this number of rows. */
ra_status ra__kernel_choose(const char *name, ra_dtype dtype, enum ra__query_rows rows,
                            const struct ra__kernel **out);

/* Is it the default for some dtype and number of rows? */
bool ra__kernel_chosen(const struct ra__kernel *kernel);

/* Why a kernel is or is not chosen on this machine, as a sentence. */
const char *ra__kernel_why(const struct ra__kernel *kernel);

/* delta = rowsum(dout * out) - dlse for q_count queries of `heads` heads; dlse.data may be NULL. */
void ra__kernel_delta(const struct ra__shape *shape, int64_t q_count, int heads,
                      struct ra__matrix out, struct ra__matrix dout, struct ra__column dlse,
                      struct ra__column delta);

/* *dsink -= the sum over q_count rows of one head of exp(sink - lse) delta; delta as above, lse
 * with the sink in it. Rows of lse = -inf add nothing. */
void ra__kernel_dsinks(int64_t q_count, float sink, struct ra__column lse, struct ra__column delta,
                       double *dsink);

#endif
