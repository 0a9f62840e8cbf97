/* exec.h - runs the steps of a plan: the one place where kernel, device and transport meet. */
#ifndef RA__EXEC_EXEC_H
#define RA__EXEC_EXEC_H

#include <stdatomic.h>

#include "core/pool.h"
#include "device/device.h"
#include "exec/job.h"
#include "kernel/kernel.h"
#include "plan/plan.h"
#include "transport/transport.h"

/* The caller's tensors of one run, strides filled in. */
struct ra__io {
    ra_tensor q, k, v, out, dout, dq, dk, dv;
    float *lse;
    const float *dlse;
    ra_progress_fn progress;
    void *context;
};

/* What a rank brings to its plans. */
struct ra__rank {
    int rank, ranks;
    struct ra__pool *pool;
    const struct ra__transport *transport;
    void *link;
    ra_trace_fn trace;
    void *context;
};

/* Fields by which ranks compare their problems before the first message. */
#define RA__HELLO_LIST(X)                                                                          \
    X(version, "library version")                                                                  \
    X(ranks, "number of ranks")                                                                    \
    X(dtype, "dtype")                                                                              \
    X(batch, "batch")                                                                              \
    X(q_len, "number of queries")                                                                  \
    X(k_len, "number of keys")                                                                     \
    X(q_heads, "query heads")                                                                      \
    X(kv_heads, "KV heads")                                                                        \
    X(dim, "dim")                                                                                  \
    X(value_dim, "value dim")                                                                      \
    X(scale, "scale")                                                                              \
    X(pattern, "pattern")                                                                          \
    X(partition, "partition")                                                                      \
    X(strategy, "strategy")

struct ra__hello {
#define RA__HELLO_FIELD(name, text) uint64_t name;
    RA__HELLO_LIST(RA__HELLO_FIELD)
#undef RA__HELLO_FIELD
};

/* A program with its messages bound to buffers. */
struct ra__bound {
    const struct ra__program *program;
    struct ra__message *sends, *recvs;
    struct ra__round *rounds;
    struct ra__cut cut;    /* of its rows into jobs */
    int64_t *chunk_starts; /* [row]: chunks of the rows before it in its step */
};

struct ra__exec {
    const struct ra__plan *plan;
    const struct ra__kernel *kernel;
    const struct ra__device *device;
    const struct ra__rank *rank; /* NULL: a plan that is only asked */
    struct ra__account *account;

    void *slots[RA__SLOTS];
    float *m, *l, *acc; /* state of rows that span hops: [batch, query, head(, value_dim)] */
    float *dq, *delta;  /* backward sums: [batch, query, head, dim] and [batch, query, head] */
    char *workspace;    /* kernel scratch, one part per thread */
    size_t workspace_bytes;
    struct ra__bound forward, backward;

    struct ra__hello hello;
    bool greeted;
    struct ra__hello *hellos; /* what the others say: [ranks] */
    struct ra__message *hello_messages;

    /* Of the run under way. */
    const struct ra__io *io;
    const struct ra__bound *bound;
    struct ra__round *outstanding; /* posted and not yet waited for */
    atomic_int_least64_t pairs;
    int64_t pairs_expected;
    double last_tick;
    ra_stats stats; /* of the last run */
};

/* Bytes by purpose that ra__exec_create would allocate, with the plan's own and the caller's. */
ra_status ra__exec_memory(const struct ra__plan *plan, size_t plan_bytes,
                          const struct ra__kernel *kernel, int threads, ra_memory *out);

/* Makes all buffers. `exec` is zeroed but for plan, kernel, device, rank and account. */
ra_status ra__exec_create(struct ra__exec *exec);
void ra__exec_destroy(struct ra__exec *exec); /* accepts a half-made one */

/* Runs one of the two bound programs. */
ra_status ra__exec_run(struct ra__exec *exec, const struct ra__bound *bound,
                       const struct ra__io *io);

/* Steps, by file. */
ra_status ra__exec_hello(struct ra__exec *exec);
ra_status ra__exec_attend(struct ra__exec *exec, const struct ra__step *step);
ra_status ra__exec_pack(struct ra__exec *exec, const struct ra__step *step);
ra_status ra__exec_place(struct ra__exec *exec, const struct ra__step *step);
ra_status ra__exec_clear(struct ra__exec *exec, const struct ra__step *step);
ra_status ra__exec_add(struct ra__exec *exec, const struct ra__step *step);
ra_status ra__exec_pick(struct ra__exec *exec, const struct ra__step *step);
ra_status ra__exec_finish(struct ra__exec *exec, const struct ra__step *step);

/* Life, abort and progress; between slices of work. */
ra_status ra__exec_tick(struct ra__exec *exec);

#endif
