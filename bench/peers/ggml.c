/* SPDX-License-Identifier: Apache-2.0 */
/* ggml.c - ggml_flash_attn_ext() on the CPU, the attention of llama.cpp: f32 queries and output,
 * keys and values in the dtype of the problem. Causality is a mask of f16, as ggml has no other way
 * to say it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ggml-cpu.h>
#include <ggml.h>

#include "peer.h"

struct job {
    struct peer_case problem;
    struct ggml_context *context; /* owns tensors and graph */
    struct ggml_tensor *out;      /* [position, head, dim] */
    struct ggml_cgraph *graph;
    struct ggml_threadpool *pool;
    struct ggml_cplan plan;
    void *work; /* of the plan */
};

static const enum ggml_type types[] = { GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_F16 };

static void ggml_close(void *context)
{
    struct job *job = context;
    if (!job) return;
    if (job->pool) ggml_threadpool_free(job->pool);
    if (job->context) ggml_free(job->context);
    free(job->work);
    free(job);
}

/* A tensor [head, position, dim] of this type from the file `name`. */
static struct ggml_tensor *load(struct job *job, const char *name, enum ggml_type type)
{
    const struct peer_case *p = &job->problem;
    int64_t count = (int64_t)peer_elements(p);
    void *data = peer_load_by_head(p, name);
    if (!data) return NULL;
    struct ggml_tensor *tensor = ggml_new_tensor_3d(job->context, type, p->dim, p->tokens,
                                                    p->heads);
    if (type == types[p->dtype]) memcpy(tensor->data, data, ggml_nbytes(tensor));
    else if (p->dtype == PEER_BF16) ggml_bf16_to_fp32_row(data, tensor->data, count);
    else ggml_fp16_to_fp32_row(data, tensor->data, count);
    free(data);
    return tensor;
}

static struct ggml_tensor *causal_mask(struct job *job)
{
    int64_t tokens = job->problem.tokens;
    struct ggml_tensor *mask = ggml_new_tensor_2d(job->context, GGML_TYPE_F16, tokens, tokens);
    ggml_fp16_t *row = mask->data, hidden = ggml_fp32_to_fp16(-INFINITY),
                seen = ggml_fp32_to_fp16(0.0f);
    for (int64_t i = 0; i < tokens; i++, row += tokens)
        for (int64_t j = 0; j < tokens; j++) row[j] = j <= i ? seen : hidden;
    return mask;
}

static bool build(struct job *job)
{
    const struct peer_case *p = &job->problem;
    size_t mask_bytes = p->causal ? (size_t)p->tokens * (size_t)p->tokens * 2 : 0;
    struct ggml_init_params room = {
        .mem_size = 4 * peer_elements(p) * 4 + mask_bytes + (1 << 20) + ggml_graph_overhead(),
    };
    job->context = ggml_init(room);
    if (!job->context) return peer_refuse("ggml has no room");
    struct ggml_tensor *q = load(job, "q", GGML_TYPE_F32);
    struct ggml_tensor *k = load(job, "k", types[p->dtype]);
    struct ggml_tensor *v = load(job, "v", types[p->dtype]);
    if (!q || !k || !v) return false;
    float scale = 1.0f / sqrtf((float)p->dim);
    struct ggml_tensor *mask = p->causal ? causal_mask(job) : NULL;
    job->out = ggml_flash_attn_ext(job->context, q, k, v, mask, scale, 0.0f, 0.0f);
    job->graph = ggml_new_graph(job->context);
    ggml_build_forward_expand(job->graph, job->out);
    struct ggml_threadpool_params params = ggml_threadpool_params_default(p->threads);
    job->pool = ggml_threadpool_new(&params);
    job->plan = ggml_graph_plan(job->graph, p->threads, job->pool);
    job->work = malloc(job->plan.work_size + 1);
    job->plan.work_data = job->work;
    return job->work || peer_refuse("out of memory");
}

static void *ggml_open(const struct peer_case *problem)
{
    if (problem->backward) return peer_refuse("forward only");
    struct job *job = calloc(1, sizeof *job);
    if (!job) return peer_refuse("out of memory");
    job->problem = *problem;
    if (build(job)) return job;
    ggml_close(job);
    return NULL;
}

static bool ggml_run(void *context)
{
    struct job *job = context;
    return ggml_graph_compute(job->graph, &job->plan) == GGML_STATUS_SUCCESS ||
           peer_refuse("ggml_graph_compute failed");
}

static const void *ggml_row(void *context, int which, int64_t position, int head,
                            enum peer_dtype *dtype)
{
    struct job *job = context;
    const struct peer_case *p = &job->problem;
    (void)which;
    *dtype = PEER_F32;
    return (const float *)job->out->data +
           ((size_t)position * (size_t)p->heads + (size_t)head) * (size_t)p->dim;
}

static const char *ggml_detail(void *context)
{
    static const char *const details[] = { "f32", "f32 q, bf16 k and v", "f32 q, f16 k and v" };
    return details[((struct job *)context)->problem.dtype];
}

static const struct peer ggml = {
    .name = "ggml",
    .version = ggml_version,
    .open = ggml_open,
    .run = ggml_run,
    .row = ggml_row,
    .detail = ggml_detail,
    .close = ggml_close,
};

int main(int argc, char **argv) { return peer_main(argc, argv, &ggml); }
