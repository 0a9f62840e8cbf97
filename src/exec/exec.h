/* exec.h - runs the steps of a plan: the one place where kernel, device and transport meet. */
#ifndef RA__EXEC_EXEC_H
#define RA__EXEC_EXEC_H

#include <stdatomic.h>

#include "core/buffers.h"
#include "core/pool.h"
#include "device/device.h"
#include "exec/job.h"
#include "exec/split.h"
#include "exec/tasks.h"
#include "kernel/kernel.h"
#include "plan/plan.h"
#include "transport/transport.h"

/* The caller's tensors of one run, strides filled in. */
struct ra__io {
    ra_tensor q, k, v, out, dout, dq, dk, dv;
    float *lse;
    const float *dlse;
    ra_bias bias;       /* strides filled in */
    const float *sinks; /* NULL = none */
    float *dsinks;      /* NULL = not wanted */
    uint64_t seed;      /* of dropout */
    ra_progress_fn progress;
    void *context;
};

/* What a rank brings to its plans. */
struct ra__rank {
    int rank, ranks;
    bool crowded; /* more threads at work than half of the CPUs there are: two may share a core */
    struct ra__pool *pool;
    struct ra__buffers *buffers; /* large ones, shared by its plans */
    const struct ra__transport *transport;
    void *link;
    ra_trace_fn trace;
    void *context;
};

/* Fields by which ranks compare their problems before the first message: name in hellos, name for
 * people, and how hello.c shows the two values that differ. */
#define RA__HELLO_LIST(X)                                                                          \
    X(version, "library version", version)                                                         \
    X(ranks, "number of ranks", number)                                                            \
    X(dtype, "dtype", dtype)                                                                       \
    X(batch, "batch", number)                                                                      \
    X(q_len, "number of queries", number)                                                          \
    X(k_len, "number of keys", number)                                                             \
    X(q_heads, "query heads", number)                                                              \
    X(kv_heads, "KV heads", number)                                                                \
    X(dim, "dim", number)                                                                          \
    X(value_dim, "value dim", number)                                                              \
    X(scale, "scale", real)                                                                        \
    X(softcap, "softcap", real)                                                                    \
    X(alibi, "ALiBi slopes", digest)                                                               \
    X(dropout, "dropout rate", share)                                                              \
    X(order, "order", digest)                                                                      \
    X(pattern, "pattern", pattern)                                                                 \
    X(partition, "partition", digest)                                                              \
    X(strategy, "strategy", strategy)

struct ra__hello {
#define RA__HELLO_FIELD(name, text, show) uint64_t name;
    RA__HELLO_LIST(RA__HELLO_FIELD)
#undef RA__HELLO_FIELD
};

/* When a row of a step has its turn forward: those of the largest jobs come first. */
struct ra__turn {
    int row;             /* of the program */
    int64_t work;        /* of its largest job: pairs, those between that nobody sees included */
    int64_t jobs_before; /* in the step */
};

/* Forward: how a row is cut into jobs, as in struct ra__cut. */
struct ra__size {
    int queries, front, fine;
};

/* Backward, the chunks of all rows that begin with the same head are shared out evenly among the
 * query chunks of a step. */
struct ra__share {
    int64_t before, all; /* chunks of such rows: of those before this one, and of all of the step */
};

/* A program with its messages bound to buffers. */
struct ra__bound {
    const struct ra__program *program;
    struct ra__message *sends, *recvs;
    struct ra__round *rounds;
    struct ra__cut cut;       /* of rows with all heads into jobs */
    struct ra__cut each;      /* of rows with other heads: one head per job */
    struct ra__size *sizes;   /* forward, [row]: what is its own; NULL: nothing */
    struct ra__split split;   /* forward, of keys */
    struct ra__turn *turns;   /* forward, [row]: those of a step in the order of its rows, sorted */
    struct ra__share *shares; /* backward, [row] */
    int *chunks;              /* backward, [step]: of the keys and queries of an ATTEND */
    int most_keys;            /* of a row that repeats; where keys are split, of any */
};

/* Work in pieces on all threads of the rank, as struct ra__work of the pool says; between its items
 * the calling thread ticks. */
struct ra__deal {
    void (*body)(void *context, int64_t item, int thread);
    bool (*ready)(void *context, int64_t item);                   /* NULL: items are independent */
    bool (*clashes)(void *context, int64_t item, int64_t before); /* NULL: none overlap */
    /* Returns when the last items have begun; `context`, and this, stay until they end. */
    bool lingers;
    void *context;
    int64_t items;
    /* NULL, or what the calling thread posts while the others work, once all of the work before is
     * done; then it is NULL. */
    struct ra__round *round;
    struct ra__exec *exec; /* by ra__exec_deal() */
};

/* A forward ATTEND. The next one may begin while its last jobs are under way. */
struct ra__attend {
    struct ra__exec *exec;
    const struct ra__step *step;
    int64_t jobs;                    /* of each stretch */
    const struct ra__attend *before; /* the one whose last jobs may be under way */
    struct ra__deal deal;
};

struct ra__exec {
    const struct ra__plan *plan;
    const struct ra__kernel *kernel;
    const struct ra__device *device;
    const struct ra__rank *rank;                   /* NULL: a plan that is only asked */
    const struct ra__problem_terms *problem_terms; /* belongs to the caller, as the plan does */
    struct ra__account *account;

    void *slots[RA__SLOTS];
    float *m, *l, *acc; /* state of rows that span hops: [batch, query, head(, value_dim)] */
    float *parts;       /* states of stretches, [stretch] of each: all m, all l, all acc */
    float *dq, *delta;  /* backward sums: [batch, query, head, dim] and [batch, query, head] */
    float *lse;         /* teams: that of the share, [batch, query, head] */
    float *home_delta;  /* teams: delta of the caller's queries, all heads */
    char *workspace;    /* kernel scratch, one part per thread */
    size_t workspace_bytes;
    struct ra__key_run
        *moved;     /* forward: keys of a job that are not as in the program, [thread][most_keys] */
    double *dsinks; /* [q_heads] sums of a backward run */
    struct ra__tasks tasks;  /* of the backward step under way */
    atomic_bool *done;       /* [task][lane] of it, where tasks wait */
    struct ra__range *reach; /* [kv_head]: the rows of its keys */
    struct ra__bound forward, backward;

    struct ra__hello hello;
    bool greeted;
    struct ra__hello
        *hellos; /* what the others say, in the order of their ranks; then what is sent */
    struct ra__message *hello_messages;

    /* Of the run under way. */
    const struct ra__io *home; /* the caller's tensors */
    const struct ra__io *io;   /* what jobs read and write: the same, or those of the share */
    struct ra__io share;
    const struct ra__bound *bound;
    struct ra__terms terms; /* of the problem, and the sinks and the seed of the run */
    bool has_terms;         /* scores are more than q.k */
    /* The newest ATTEND, the one before, the one that jobs of that look at, and, when the next is
     * made before the pool is asked, one more. */
    struct ra__attend attends[4];
    int attend;                    /* which of them is the newest */
    struct ra__round *held;        /* to be posted while the next jobs are begun */
    struct ra__round *outstanding; /* posted and not yet waited for */
    atomic_int_least64_t pairs;
    int64_t pairs_expected;
    double last_tick;
    ra_stats stats; /* of the last run */
};

/* One for each query and head of this rank: on its side of a team, or of the caller's. */
static inline int64_t ra__query_rows(const struct ra__plan_input *input)
{
    return input->shape.batch * input->q_layout->count[input->rank] * input->shape.q_heads;
}

/* Delta of the caller's queries: that of the jobs, unless these are of other queries and heads. */
static inline float *ra__home_delta(const struct ra__exec *exec)
{
    return exec->plan->team.size > 1 ? exec->home_delta : exec->delta;
}

/* Some queries of one row of a family, for some heads of one KV head. */
struct ra__job {
    const struct ra__plan_row *row;
    int64_t repeat;        /* which row of the family */
    int64_t offset, count; /* queries of the row */
    struct ra__lane lane;
    const struct ra__key_run *runs; /* the keys they meet */
    int run_count;
    int stretch; /* of its keys, where they are split */
    int thread;
};

/* The position of the first query of a job. */
static inline int64_t ra__job_position(const struct ra__job *job)
{
    const struct ra__plan_row *row = job->row;
    return row->q_pos + job->repeat * row->q_pos_advance + job->offset * row->q_step;
}

/* The keys of a run that lie between the first and the last one that a query of the job sees. */
static inline int64_t ra__job_keys(const struct ra__job *job, const struct ra__key_run *run,
                                   int64_t *first)
{
    int64_t position = ra__job_position(job), unused, end;
    ra__band_clip(run, position, first, &unused);
    ra__band_clip(run, position + (job->count - 1) * job->row->q_step, &unused, &end);
    return ra__max(end - *first, 0);
}

/* How the rows of a family are cut, into how many chunks of queries, and into how many jobs. */
static inline struct ra__cut ra__bound_cut(const struct ra__shape *shape,
                                           const struct ra__bound *bound,
                                           const struct ra__plan_row *row)
{
    struct ra__cut cut = ra__all_heads(shape, row->heads) ? bound->cut : bound->each;
    if (!bound->sizes) return cut;
    const struct ra__size *size = &bound->sizes[row - bound->program->rows];
    cut.queries = size->queries;
    cut.front = size->front;
    cut.fine = size->fine;
    return cut;
}
static inline int64_t ra__bound_chunks(const struct ra__shape *shape, const struct ra__bound *bound,
                                       const struct ra__plan_row *row)
{
    const struct ra__cut cut = ra__bound_cut(shape, bound, row);
    return row->repeat * ra__cut_chunks(&cut, row->q_count);
}
static inline int64_t ra__bound_jobs(const struct ra__shape *shape, const struct ra__bound *bound,
                                     const struct ra__plan_row *row)
{
    const struct ra__cut cut = ra__bound_cut(shape, bound, row);
    return row->repeat * ra__cut_chunks(&cut, row->q_count) * ra__lanes(shape, &cut, row->heads);
}

/* Forward: cuts the rows into jobs that so many threads share, and puts them in order. */
void ra__turns_take(const struct ra__shape *shape, int threads, struct ra__bound *bound);

/* Sets the queries of a job of job->row: its chunk-th stretch of them, over all rows of the
 * family. */
void ra__job_set(const struct ra__shape *shape, const struct ra__bound *bound, struct ra__job *job,
                 int64_t chunk);

/* Do two jobs keep their sums in the same place? */
bool ra__job_clashes(const struct ra__job *a, const struct ra__job *b);

/* Runs a job on the keys of a step. */
void ra__job_forward(struct ra__exec *exec, const struct ra__step *step, const struct ra__job *job);
void ra__job_backward(struct ra__exec *exec, const struct ra__step *step,
                      const struct ra__job *job);

/* Merges the states that the stretches of a job left, and ends its rows where they end. */
void ra__job_merge(struct ra__exec *exec, const struct ra__job *job);

/* Bytes by purpose that ra__exec_create would allocate, with the plan's own and the caller's. */
ra_status ra__exec_memory(const struct ra__plan *plan, size_t plan_bytes,
                          const struct ra__kernel *kernel, int threads, ra_memory *out);

/* Makes all buffers. `exec` is zeroed but for plan, kernel, device, rank and account. */
ra_status ra__exec_create(struct ra__exec *exec);
void ra__exec_destroy(struct ra__exec *exec); /* accepts a half-made one */

/* Runs one of the two bound programs. */
ra_status ra__exec_run(struct ra__exec *exec, const struct ra__bound *bound,
                       const struct ra__io *io);

/* A call that used the link has ended well. */
static inline void ra__rank_rest(const struct ra__rank *rank)
{
    if (rank->transport->rest) rank->transport->rest(rank->link);
}

/* May somebody still read and write the buffers of messages that this rank has posted? Then they
 * are not freed: the memory is lost on purpose, and the process had better end. */
static inline bool ra__rank_holds(const struct ra__rank *rank)
{
    return rank->transport->holds && rank->transport->holds(rank->link);
}

/* Sends `mine` to every other rank and receives the same number of bytes from each: entry i of
 * `theirs` comes from the i-th of the others. `messages` has room for 2 (ranks - 1). */
ra_status ra__exec_share(const struct ra__rank *rank, struct ra__message *messages, int tag,
                         const void *mine, void *theirs, size_t bytes);

/* Steps, by file. */
ra_status ra__exec_hello(struct ra__exec *exec);
ra_status ra__exec_attend(struct ra__exec *exec, const struct ra__step *step);
ra_status ra__exec_attend_backward(struct ra__exec *exec, const struct ra__step *step);

/* While a plan is made: into how many chunks a backward step is cut. The most that leave enough for
 * each: of keys, of queries, and for each call of the kernel, unless rows mostly keep together. */
int ra__exec_backward_chunks(struct ra__exec *exec, const struct ra__step *step);

ra_status ra__exec_pack(struct ra__exec *exec, const struct ra__step *step);
ra_status ra__exec_place(struct ra__exec *exec, const struct ra__step *step);
ra_status ra__exec_clear(struct ra__exec *exec, const struct ra__step *step);
ra_status ra__exec_add(struct ra__exec *exec, const struct ra__step *step);
ra_status ra__exec_pick(struct ra__exec *exec, const struct ra__step *step);
ra_status ra__exec_swap(struct ra__exec *exec, const struct ra__step *step);
ra_status ra__exec_finish(struct ra__exec *exec, const struct ra__step *step);

/* Posts a round; no job may be under way that reads what it overwrites. */
ra_status ra__exec_post(struct ra__exec *exec, struct ra__round *round);

/* The round that the next ATTEND is to post, if any; it is taken. */
struct ra__round *ra__exec_take_held(struct ra__exec *exec);

/* Teams: the tensors of the share, for a run with these of the caller. */
struct ra__io ra__exec_share_io(const struct ra__exec *exec, const struct ra__io *home);

/* Score terms of the run that starts, and the gradient of its sinks once delta is known. */
void ra__exec_set_terms(struct ra__exec *exec);
void ra__exec_sum_sinks(struct ra__exec *exec);

ra_status ra__exec_deal(struct ra__exec *exec, struct ra__deal *deal);

/* body(exec, context, first, count) for all of `rows` rows, some at a time, on all threads; a row
 * has about `row_bytes` bytes to be moved. */
typedef void ra__sweep_fn(struct ra__exec *exec, const void *context, int64_t first, int64_t count);
ra_status ra__exec_sweep(struct ra__exec *exec, int64_t rows, size_t row_bytes, ra__sweep_fn *body,
                         const void *context);

/* Life, abort and progress; between slices of work. */
ra_status ra__exec_tick(struct ra__exec *exec);

#endif
