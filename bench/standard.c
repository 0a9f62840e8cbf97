/* SPDX-License-Identifier: Apache-2.0 */
/* standard.c - attention with the score matrix in memory: scores = Q K^T, weights =
 * softmax(scores), out = weights V, each finished before the next begins. A thread takes blocks of
 * queries. */
#include "standard.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/half.h"
#include "harness/base/interrupt.h"
#include "harness/base/machine.h"
#include "harness/text/text.h"

enum { LANES = 8, GROUP = 8 /* queries that share what is loaded */, DIM_MOST = 256 };

typedef float vec __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

/* ---- Products -------------------------------------------------------------------------------- */

typedef void product_fn(const float *a, const float *b, int64_t inner, int64_t outer, float *to);

#define TARGET
#define NAMED(name) name##_plain
#include "products.inc"
#undef TARGET
#undef NAMED

#if defined(__x86_64__)
#define TARGET __attribute__((target("avx2,fma")))
#define NAMED(name) name##_wide
#include "products.inc"
#undef TARGET
#undef NAMED

static bool has_wide(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
#define scores_wide scores_plain
#define mix_wide mix_plain
static bool has_wide(void) { return false; }
#endif

/* ---- One stage over all queries -------------------------------------------------------------- */

enum stage { SCORES, WEIGHTS, MIX };

struct job {
    struct standard *standard;
    enum stage stage;
    int64_t queries, keys, padded, dim, value_dim, heads, kv_heads, batch;
    ra_dtype dtype;
    bool causal;
    product_fn *product;
    _Atomic int64_t next; /* block of queries */
    atomic_bool lost;     /* memory ran out */
};

/* A row of a matrix, in the problem's dtype. */
static char *matrix_row(const struct job *job, void *matrix, int64_t slice, int64_t query)
{
    return (char *)matrix + ((size_t)slice * (size_t)job->queries + (size_t)query) *
                                (size_t)job->keys * half_bytes(job->dtype);
}

static int64_t kv_slice(const struct job *job, int64_t slice)
{
    int64_t batch = slice / job->heads, head = slice % job->heads;
    return batch * job->kv_heads + head * job->kv_heads / job->heads;
}

static void do_scores(const struct job *job, int64_t slice, int64_t first, int count, float *room)
{
    const struct standard *s = job->standard;
    const float *q = s->queries + (slice * job->queries + first) * job->dim;
    float own[GROUP * DIM_MOST] = { 0 };
    memcpy(own, q, (size_t)(count * job->dim) * sizeof *own);
    job->product(own, s->keys + kv_slice(job, slice) * job->dim * job->padded, job->dim,
                 job->padded, room);
    for (int g = 0; g < count; g++)
        ra_convert(RA_F32, room + g * job->padded, job->dtype,
                   matrix_row(job, s->scores, slice, first + g), job->keys);
}

/* Returns the LSE. */
static float softmax(float *x, int64_t keys, int64_t seen)
{
    float most = -INFINITY, sum = 0.0f;
    for (int64_t j = 0; j < seen; j++) most = x[j] > most ? x[j] : most;
    for (int64_t j = 0; j < seen; j++) sum += x[j] = expf(x[j] - most);
    for (int64_t j = 0; j < seen; j++) x[j] /= sum;
    memset(x + seen, 0, (size_t)(keys - seen) * sizeof *x);
    return most + logf(sum);
}

static void do_weights(const struct job *job, int64_t slice, int64_t first, int count, float *room)
{
    const struct standard *s = job->standard;
    for (int g = 0; g < count; g++) {
        int64_t query = first + g, seen = job->keys;
        if (job->causal) seen = query + job->keys - job->queries + 1;
        ra_convert(job->dtype, matrix_row(job, s->scores, slice, query), RA_F32, room, job->keys);
        float lse = softmax(room, job->keys, seen);
        const struct view *view = &s->engine->rank[0].views[TENSOR_LSE];
        ((float *)(void *)view->data)[(slice / job->heads * job->queries + query) * job->heads +
                                      slice % job->heads] = lse;
        ra_convert(RA_F32, room, job->dtype, matrix_row(job, s->weights, slice, query), job->keys);
    }
}

static void do_mix(const struct job *job, int64_t slice, int64_t first, int count, float *room)
{
    const struct standard *s = job->standard;
    float *to = room + GROUP * job->padded;
    memset(room, 0, (size_t)(GROUP * job->padded) * sizeof *room);
    for (int g = 0; g < count; g++)
        ra_convert(job->dtype, matrix_row(job, s->weights, slice, first + g), RA_F32,
                   room + g * job->padded, job->keys);
    job->product(room, s->values + kv_slice(job, slice) * job->padded * job->value_dim, job->padded,
                 job->value_dim, to);
    const struct view *out = &s->engine->rank[0].views[TENSOR_OUT];
    for (int g = 0; g < count; g++) {
        int64_t batch = slice / job->heads, head = slice % job->heads;
        size_t place = (size_t)(((batch * job->queries + first + g) * job->heads + head) *
                                job->value_dim);
        ra_convert(RA_F32, to + g * job->value_dim, job->dtype,
                   (char *)out->data + place * half_bytes(job->dtype), job->value_dim);
    }
}

static void *worker(void *argument)
{
    static void (*const stages[])(const struct job *, int64_t, int64_t, int, float *) = {
        [SCORES] = do_scores, [WEIGHTS] = do_weights, [MIX] = do_mix
    };
    struct job *job = argument;
    int64_t blocks = (job->queries + GROUP - 1) / GROUP, slices = job->batch * job->heads, block;
    float *room = calloc((size_t)(GROUP * (job->padded + job->value_dim)), sizeof *room);
    if (!room) atomic_store(&job->lost, true);
    while (room && (block = atomic_fetch_add(&job->next, 1)) < blocks * slices) {
        if (interrupt_seen()) break;
        int64_t first = block % blocks * GROUP, left = job->queries - first;
        stages[job->stage](job, block / blocks, first, left < GROUP ? (int)left : GROUP, room);
    }
    free(room);
    return NULL;
}

static int run_stage(struct job *job, enum stage stage)
{
    pthread_t threads[TRIAL_THREADS_MOST];
    int started = 0;
    job->stage = stage;
    job->product = stage == SCORES ? (has_wide() ? scores_wide : scores_plain)
                                   : (has_wide() ? mix_wide : mix_plain);
    atomic_store(&job->next, 0);
    while (started < job->standard->threads - 1 &&
           !pthread_create(&threads[started], NULL, worker, job))
        started++;
    worker(job);
    while (started > 0) pthread_join(threads[--started], NULL);
    if (atomic_load(&job->lost)) return fault("out of memory: a row of scores");
    return interrupt_check();
}

/* ---- Opening --------------------------------------------------------------------------------- */

static int64_t padded(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

static struct job make_job(struct standard *standard)
{
    const struct trial *t = standard->engine->trial;
    return (struct job){ .standard = standard,
                         .queries = t->q_len,
                         .keys = t->k_len,
                         .padded = padded(t->k_len),
                         .dim = t->dim,
                         .value_dim = t->value_dim,
                         .heads = t->q_heads,
                         .kv_heads = t->kv_heads,
                         .batch = t->batch,
                         .dtype = (ra_dtype)t->dtype,
                         .causal = t->pattern && !strcmp(t->pattern, "causal") };
}

static double matrix_bytes(const struct trial *t)
{
    return (double)t->batch * (double)t->q_heads * (double)t->q_len * (double)t->k_len *
           (double)half_bytes((ra_dtype)t->dtype);
}

static double tensor_bytes(const struct trial *t)
{
    double queries = (double)(t->batch * t->q_heads) * (double)t->q_len;
    double keys = (double)(t->batch * t->kv_heads) * (double)t->k_len;
    return (queries + keys) * (double)(t->dim + t->value_dim) *
           (double)half_bytes((ra_dtype)t->dtype);
}

double standard_needs(const struct trial *trial)
{
    return 2.0 * matrix_bytes(trial) + tensor_bytes(trial);
}

static int check(const struct trial *t, int64_t memory)
{
    double needs = standard_needs(t),
           limit = memory ? (double)memory : 0.5 * (double)machine_memory();
    bool causal = t->pattern && !strcmp(t->pattern, "causal");
    bool full = !t->pattern || !strcmp(t->pattern, "full");
    if (t->ranks != 1 || t->backward || t->order || (!full && !causal) || t->alibi || t->bias ||
        t->sinks || t->softcap > 0.0 || t->dropout > 0.0 || t->value_dim % LANES ||
        t->dim > DIM_MOST || t->k_len < t->q_len || t->strides != STRIDES_PACKED)
        return refuse(
            "--standard: one rank, full or causal, forward, no score terms, dims of up to "
            "%d, value dims of whole %ds",
            DIM_MOST, LANES);
    if (needs <= limit) return EXIT_PASS;
    return refuse("its score matrices need %s; the limit is %s", text_bytes(needs).s,
                  text_bytes(limit).s);
}

/* Q scaled, K transposed, V as it is, all f32: a GEMM library would pack them too. */
static void pack(struct standard *s, const struct job *job)
{
    const struct trial *t = s->engine->trial;
    float scale = t->scale > 0.0 ? (float)t->scale : 1.0f / sqrtf((float)job->dim);
    for (int64_t slice = 0; slice < job->batch * job->heads; slice++)
        for (int64_t i = 0; i < job->queries; i++) {
            float *to = s->queries + (slice * job->queries + i) * job->dim;
            engine_read(s->engine, TENSOR_Q, slice / job->heads, i, slice % job->heads, to);
            for (int64_t d = 0; d < job->dim; d++) to[d] *= scale;
        }
    for (int64_t slice = 0; slice < job->batch * job->kv_heads; slice++)
        for (int64_t j = 0; j < job->keys; j++) {
            float key[DIM_MOST];
            float *keys = s->keys + slice * job->dim * job->padded + j;
            float *value = s->values + (slice * job->padded + j) * job->value_dim;
            engine_read(s->engine, TENSOR_K, slice / job->kv_heads, j, slice % job->kv_heads, key);
            engine_read(s->engine, TENSOR_V, slice / job->kv_heads, j, slice % job->kv_heads,
                        value);
            for (int64_t d = 0; d < job->dim; d++) keys[d * job->padded] = key[d];
        }
}

int standard_open(struct standard *standard, const struct engine *engine, int64_t memory)
{
    const struct trial *t = engine->trial;
    *standard = (struct standard){ .engine = engine, .threads = engine->threads };
    int status = check(t, memory);
    if (status) return status;
    struct job job = make_job(standard);
    int64_t kv = job.batch * job.kv_heads * job.padded;
    standard->bytes = (size_t)standard_needs(t);
    standard->scores = machine_tensor((size_t)matrix_bytes(t));
    standard->weights = machine_tensor((size_t)matrix_bytes(t));
    standard->queries = calloc((size_t)(job.batch * job.heads * job.queries * job.dim),
                               sizeof(float));
    standard->keys = calloc((size_t)(kv * job.dim), sizeof(float));
    standard->values = calloc((size_t)(kv * job.value_dim), sizeof(float));
    if (!standard->scores || !standard->weights || !standard->queries || !standard->keys ||
        !standard->values)
        return fault("out of memory: %s of scores", text_bytes(standard_needs(t)).s);
    pack(standard, &job);
    return EXIT_PASS;
}

int standard_run(struct standard *standard, double *seconds)
{
    struct job job = make_job(standard);
    double start = machine_seconds();
    int status = run_stage(&job, SCORES);
    if (!status) status = run_stage(&job, WEIGHTS);
    if (!status) status = run_stage(&job, MIX);
    *seconds = machine_seconds() - start;
    return status;
}

void standard_close(struct standard *standard)
{
    free(standard->scores);
    free(standard->weights);
    free(standard->keys);
    free(standard->values);
    free(standard->queries);
    *standard = (struct standard){ .engine = NULL };
}
