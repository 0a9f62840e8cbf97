/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - a kernel job, its tensors, and what a slow reference in double says of it: for tests that
 * call the kernels of kernel.list themselves, with or without score terms. It knows nothing of
 * patterns, plans and rings.
 *
 * A test fills a plan and gives it to job_check(); or makes a world of it, changes what it likes,
 * calls job_reference() where it wants numbers to compare with, runs the kernel and frees the
 * world. job_reference() leaves LSE and delta for a backward; a forward then overwrites LSE.
 * Everything fails by cmocka, with the name of the world. */
#ifndef TESTS_SUPPORT_JOB_H
#define TESTS_SUPPORT_JOB_H

#include "support/test.h"

#include "core/dtype.h"
#include "backend/cpu/kernel/kernel.h"

/* ---- What to compute ------------------------------------------------------------------------- */

/* Score terms, to be or-ed. */
enum {
    JOB_SOFTCAP = 1,
    JOB_ALIBI = 2,
    JOB_BIAS = 4,
    JOB_HIDE = 8, /* a byte mask instead of the bias */
    JOB_SINKS = 16,
    JOB_DROPOUT = 32,
    JOB_ORDER = 64, /* a permutation of positions, and a mask by it */
    JOB_ALL = JOB_SOFTCAP | JOB_ALIBI | JOB_BIAS | JOB_SINKS | JOB_DROPOUT | JOB_ORDER,
};

/* A job with terms has its heads from JOB_FIRST_HEAD on, of JOB_MOST_HEADS in the whole problem, in
 * batch entry JOB_BATCH; one without has all heads of the only entry. */
enum { JOB_FIRST_HEAD = 3, JOB_MOST_HEADS = 1100, JOB_BATCH = 5 };

/* Bands of key runs. */
#define JOB_FULL                                                                                   \
    {                                                                                              \
        RA__UNBOUNDED, RA__UNBOUNDED                                                               \
    }
#define JOB_CAUSAL                                                                                 \
    {                                                                                              \
        RA__UNBOUNDED, 0                                                                           \
    }

extern const ra_dtype job_dtypes[3];

/* A kernel that this CPU can run, and a dtype that it takes. */
struct job_kind {
    const struct ra__kernel *kernel;
    ra_dtype dtype;
};

/* What tests walk; ends with a kernel of NULL. Filled by job_find_kinds(). */
extern struct job_kind job_kinds[64];   /* every kernel, every dtype that it takes */
extern struct job_kind job_kernels[32]; /* every kernel once, f32 where it takes that */
extern struct job_kind job_exact[32];   /* those that take f32 and leave weights as they are */
void job_find_kinds(void);

struct job_plan {
    const struct ra__kernel *kernel;
    int terms; /* of JOB_SOFTCAP, ...; 0 = none */
    ra_dtype dtype;
    int dim, value_dim, heads;
    int64_t q_count, q_pos, q_pos_step;
    int64_t gap; /* strides are as tight as they can be plus this; gaps hold NaN */
    const struct ra__key_run *runs;
    int run_count;
    float magnitude; /* of scores before terms, their standard deviation; 0 = 3 */
};

/* The amx kernel with tiles in plain C, where the compiler knows AMX: job_find_kinds() has it
 * too. */
extern const struct ra__kernel job_amx_emulated;

/* ---- Its tensors ----------------------------------------------------------------------------- */

/* Of the terms only those that the plan asks for are set; origin, see_from and see_to are there
 * only with JOB_ORDER, addends and shown only with a bias. Its fields are many because a test may
 * change any number of a job, and compare any with the reference: each array has its name. */
struct job_world {
    struct job_plan plan;
    struct ra__shape shape;
    struct ra__terms terms;
    struct ra__bias bias;
    int batch, head;                     /* where in the whole problem the job is */
    int64_t key_rows, rows;              /* rows = q_count x heads */
    int64_t places;                      /* an upper bound of the positions of queries and keys */
    float *alibi, *sinks;                /* [JOB_MOST_HEADS] */
    float *addends;                      /* [rows][places] */
    unsigned char *shown;                /* [rows][places] */
    int32_t *origin, *see_from, *see_to; /* [places] */
    struct ra__matrix q, k, v, dout, out;
    float *m, *l, *acc, *lse, *delta; /* [q_count][heads], acc [q_count][heads][value_dim] */
    float *dq, *dk, *dv;
    double *want_out, *want_lse, *want_dq, *want_dk, *want_dv;
    double *size_dq, *size_dk, *size_dv; /* sums of magnitudes: f32 errors are relative to them */
    double *weighed_out, *weighed_dq;    /* likewise, of p |v|, |ds k|, ...: and what a kernel */
    double *weighed_dk, *weighed_dv;     /* loses that rounds p and ds is relative to these */
    int64_t want_pairs;
    double reach; /* the same with terms, about */
    void *workspace;
    size_t workspace_bytes; /* nothing may write after them */
    char name[200];
};

struct job_world job_make(const struct job_plan *plan);
void job_free(struct job_world *w);

/* The same numbers for every world of a plan: below a limit, and between -1 and 1. */
uint32_t job_draw(uint32_t below);
float job_noise(void);

void *job_allocate(int64_t count, size_t bytes); /* zeros, for free() */

/* An element of a matrix in the world's dtype. Inline: the reference does little else. */
static inline double job_at(const struct job_world *w, struct ra__matrix x, int64_t i, int64_t h,
                            int d)
{
    return ra__load(w->plan.dtype, x.data, i * x.row_stride + h * x.head_stride + d);
}

static inline void job_put(const struct job_world *w, struct ra__matrix x, int64_t i, int64_t h,
                           int d, float value)
{
    ra__store(w->plan.dtype, x.data, i * x.row_stride + h * x.head_stride + d, value);
}

/* ---- The reference (job_reference.c) --------------------------------------------------------- */

/* A query row and a key that it sees. */
struct job_pair {
    int64_t i, key, row; /* key: its row in k and v */
    int h;
    double x;     /* -inf where a bias hides */
    double slope; /* dx / d(scale q.k) */
    double kept;
};

/* Key j of a run: whether query i sees it, and the pair that they are. */
bool job_sees(const struct job_world *w, int64_t i, const struct ra__key_run *run, int64_t j);
struct job_pair job_pair_of(const struct job_world *w, int64_t i, int h,
                            const struct ra__key_run *run, int64_t j);

/* Where a position was before the order, and what dropout decides on two of those. */
int64_t job_origin_of(const struct job_world *w, int64_t index);
bool job_kept(const struct job_world *w, int64_t query, int64_t key, int h);

/* Fills want_*, size_*, weighed_*, lse and delta; the other only the output and LSE of a row. */
void job_reference(struct job_world *w);
void job_reference_forward(struct job_world *w, int64_t i, int h);

void job_add_term(double *sum, double *size, double term); /* of want_* and its size_* */
double job_logaddexp(double a, double b);

/* ---- Running the kernel ---------------------------------------------------------------------- */

/* The whole world as one job. */
struct ra__forward_job job_forward_of(struct job_world *w);
struct ra__backward_job job_backward_of(struct job_world *w);

/* Both return the pairs that the kernel counted. Backward, the world is split into as many jobs as
 * necessary. */
int64_t job_run_forward(struct job_world *w);
int64_t job_run_backward(struct job_world *w);

/* Forward for `count` queries and `heads` heads only. */
void job_run_piece(struct job_world *w, int64_t from, int64_t count, int head, int heads);

/* The output of a forward, to be compared with that of another one; in worlds without gaps. */
struct job_bits {
    char *out;
    float *lse;
};

/* Runs the whole world and keeps what came out, which is NaN in the world from then on. */
struct job_bits job_keep_bits(struct job_world *w);
bool job_same_bits(const struct job_world *w, const struct job_bits *bits, int64_t row);
void job_expect_bits(const struct job_world *w, const struct job_bits *bits, const char *when);
void job_free_bits(struct job_bits *bits);

/* ---- Expectations ---------------------------------------------------------------------------- */

double job_unit_of(ra_dtype dtype);          /* half of what a 1 in its last place weighs */
double job_slack(const struct job_world *w); /* what f32 sums may lose, relative */
double job_lost(const struct job_world *w);  /* what a weight loses when it is rounded, likewise */
float job_weight(const struct job_world *w, float p); /* as the kernel multiplies it */

void job_expect_near(const struct job_world *w, const char *what, double got, double want,
                     double bound);
void job_expect_row(const struct job_world *w, int64_t row); /* out and lse */
void job_expect_dq(const struct job_world *w, int64_t row);
void job_expect_dk(const struct job_world *w, int64_t key);
void job_expect_dv(const struct job_world *w, int64_t key);
void job_expect_forward(const struct job_world *w);
void job_expect_backward(const struct job_world *w);

/* Makes a world and holds both passes and their pairs against the reference. */
void job_check(const struct job_plan *plan);

/* The same with queries and heads of many shapes in place of the plan's own; and with as many rows
 * as the kernel takes, of one head and of one query. */
void job_check_geometries(struct job_plan plan);
void job_check_most_rows(struct job_plan plan);

#endif
