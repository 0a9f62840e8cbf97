/* SPDX-License-Identifier: Apache-2.0 */
/* naive.c - attention as it is first written down, on OpenBLAS: scores = q k^T, softmax, times v.
 *
 * A task is a block of queries of one head against all its keys; threads take tasks in turn and
 * each calls a single-threaded GEMM, which beats a threaded GEMM on matrices this narrow. Causal
 * blocks stop at their last visible key. The exponential is a polynomial that the compiler can
 * vectorise, so that the softmax is no straw man. f32 and forward only. */
#include <cblas.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

enum { BLOCK = 256 }; /* queries; at 4096 tokens 64 take a quarter longer, 512 a tenth less */

struct job {
    struct peer_case problem;
    float *q, *k, *v, *out; /* [head, position, dim] */
    float *scores;          /* [thread, BLOCK, tokens] */
    atomic_llong next;      /* task to be taken */
    atomic_int threads_in;  /* so far, this run */
};

static void naive_close(void *context)
{
    struct job *job = context;
    if (!job) return;
    free(job->q);
    free(job->k);
    free(job->v);
    free(job->out);
    free(job->scores);
    free(job);
}

static void *naive_open(const struct peer_case *problem)
{
    if (problem->dtype != PEER_F32) return peer_refuse("f32 only");
    if (problem->backward) return peer_refuse("forward only");
    struct job *job = calloc(1, sizeof *job);
    if (!job) return peer_refuse("out of memory");
    job->problem = *problem;
    size_t scores = (size_t)problem->threads * BLOCK * (size_t)problem->tokens;
    if ((job->q = peer_load_by_head(problem, "q")) && (job->k = peer_load_by_head(problem, "k")) &&
        (job->v = peer_load_by_head(problem, "v")) &&
        (job->out = peer_alloc(peer_elements(problem) * sizeof *job->out)) &&
        (job->scores = peer_alloc(scores * sizeof *job->scores))) {
        openblas_set_num_threads(1);
        return job;
    }
    naive_close(job);
    return NULL;
}

/* exp2 for x <= 0: the whole part goes into the exponent, the rest through a polynomial (relative
 * error 2e-6); below 2^-126 it is as good as 0. */
static inline float power_of_two(float x)
{
    x = x < -126.0f ? -126.0f : x;
    float whole = rintf(x), r = x - whole;
    float p = 1.3333558e-3f;
    p = p * r + 9.6181291e-3f;
    p = p * r + 5.5504109e-2f;
    p = p * r + 2.4022651e-1f;
    p = p * r + 6.9314718e-1f;
    p = p * r + 1.0f;
    union {
        int32_t bits;
        float value;
    } scale = { .bits = ((int32_t)whole + 127) << 23 };
    return p * scale.value;
}

/* Replaces the first `seen` of `keys` scores by weights and the others by 0. */
static void softmax(float *scores, int64_t seen, int64_t keys)
{
    float most = scores[0], sum = 0.0f;
#pragma omp simd reduction(max : most)
    for (int64_t j = 0; j < seen; j++) most = scores[j] > most ? scores[j] : most;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < seen; j++) {
        scores[j] = power_of_two(scores[j] - most);
        sum += scores[j];
    }
    float inverse = 1.0f / sum;
#pragma omp simd
    for (int64_t j = 0; j < seen; j++) scores[j] *= inverse;
    memset(scores + seen, 0, (size_t)(keys - seen) * sizeof *scores);
}

static void attend(struct job *job, int head, int64_t first, float *scores)
{
    const struct peer_case *p = &job->problem;
    int64_t rows = p->tokens - first < BLOCK ? p->tokens - first : BLOCK;
    int64_t keys = p->causal ? first + rows : p->tokens;
    size_t start = (size_t)head * (size_t)p->tokens * (size_t)p->dim;
    size_t at = start + (size_t)first * (size_t)p->dim;
    float scale = 1.44269504f / sqrtf((float)p->dim); /* to powers of two */
    int m = (int)rows, n = (int)keys, d = p->dim;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, d, scale, job->q + at, d,
                job->k + start, d, 0.0f, scores, n);
    for (int64_t i = 0; i < rows; i++)
        softmax(scores + i * keys, p->causal ? first + i + 1 : keys, keys);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, d, n, 1.0f, scores, n, job->v + start,
                d, 0.0f, job->out + at, d);
}

/* Later blocks of a causal head see more keys, so they are taken first. */
static void *work(void *context)
{
    struct job *job = context;
    const struct peer_case *p = &job->problem;
    int64_t blocks = (p->tokens + BLOCK - 1) / BLOCK, task;
    size_t thread = (size_t)atomic_fetch_add(&job->threads_in, 1);
    float *scores = job->scores + thread * BLOCK * (size_t)p->tokens;
    while ((task = atomic_fetch_add(&job->next, 1)) < blocks * p->heads)
        attend(job, (int)(task % p->heads), (blocks - 1 - task / p->heads) * BLOCK, scores);
    return NULL;
}

static bool naive_run(void *context)
{
    enum { MOST = 1024 };
    struct job *job = context;
    pthread_t threads[MOST];
    int wanted = job->problem.threads < MOST ? job->problem.threads : MOST, started = 1;
    atomic_store(&job->next, 0);
    atomic_store(&job->threads_in, 0);
    while (started < wanted && !pthread_create(&threads[started], NULL, work, job)) started++;
    work(job);
    for (int i = 1; i < started; i++) pthread_join(threads[i], NULL);
    return started == wanted || peer_refuse("threads could not be started");
}

static const void *naive_row(void *context, int which, int64_t position, int head,
                             enum peer_dtype *dtype)
{
    struct job *job = context;
    (void)which;
    *dtype = PEER_F32;
    return job->out + ((size_t)head * (size_t)job->problem.tokens + (size_t)position) *
                          (size_t)job->problem.dim;
}

static const char *naive_version(void) { return openblas_get_config(); }

static const char *naive_detail(void *context)
{
    (void)context;
    return "sgemm, softmax, sgemm";
}

static const struct peer naive = {
    .name = "naive",
    .version = naive_version,
    .open = naive_open,
    .run = naive_run,
    .row = naive_row,
    .detail = naive_detail,
    .close = naive_close,
};

int main(int argc, char **argv) { return peer_main(argc, argv, &naive); }
