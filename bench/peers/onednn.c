/* SPDX-License-Identifier: Apache-2.0 */
/* onednn.c - scaled dot-product attention by oneDNN's graph API on the CPU: matmul, multiply by the
 * scale, add a mask where causal, softmax, matmul. The library fuses all of it into one partition;
 * where it does not, the case is refused. Scores are f32 in between, as its documentation
 * recommends. A mask made of indices inside the graph would need no memory, but takes five times as
 * long on the CPU. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_graph.h>

#include "peer.h"

/* Tensors of the graph, by the id that oneDNN wants for each. */
enum tensor { Q, K, V, SCALE, MASK, OUT, SCORES, SCALED, MASKED, WEIGHTS, TENSORS };
enum { INPUTS = MASK + 1, RANK = 4 };

struct job {
    struct peer_case problem;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_graph_graph_t graph;
    dnnl_graph_partition_t partition;
    dnnl_graph_compiled_partition_t compiled;
    dnnl_graph_logical_tensor_t shapes[TENSORS];
    void *data[TENSORS];                      /* of inputs and OUT */
    dnnl_graph_tensor_t tensors[TENSORS];     /* likewise */
    const_dnnl_graph_tensor_t inputs[INPUTS]; /* in the order the partition wants */
    size_t input_count;
};

static const dnnl_data_type_t types[] = { dnnl_f32, dnnl_bf16, dnnl_f16 };

static bool ok(dnnl_status_t status, const char *what)
{
    return status == dnnl_success || peer_refuse("oneDNN: %s: status %d", what, (int)status);
}

static void onednn_close(void *context)
{
    struct job *job = context;
    if (!job) return;
    for (int i = 0; i < TENSORS; i++) {
        if (job->tensors[i]) dnnl_graph_tensor_destroy(job->tensors[i]);
        free(job->data[i]);
    }
    if (job->compiled) dnnl_graph_compiled_partition_destroy(job->compiled);
    if (job->partition) dnnl_graph_partition_destroy(job->partition);
    if (job->graph) dnnl_graph_graph_destroy(job->graph);
    if (job->stream) dnnl_stream_destroy(job->stream);
    if (job->engine) dnnl_engine_destroy(job->engine);
    free(job);
}

/* ---- Data ------------------------------------------------------------------------------------ */

/* One number in the dtype of the problem; those used here are exact in the upper half of an f32 or,
 * as f16, given by their bits. */
static void put(const struct peer_case *p, void *to, size_t index, float value, uint16_t f16_bits)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t half = p->dtype == PEER_BF16 ? (uint16_t)(bits >> 16) : f16_bits;
    if (p->dtype == PEER_F32) memcpy((float *)to + index, &value, sizeof value);
    else memcpy((uint16_t *)to + index, &half, sizeof half);
}

static bool make_mask(struct job *job)
{
    const struct peer_case *p = &job->problem;
    size_t n = (size_t)p->tokens;
    if (!p->causal) return true;
    if (!(job->data[MASK] = peer_alloc(n * n * peer_bytes(p->dtype)))) return false;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            put(p, job->data[MASK], i * n + j, j <= i ? 0.0f : -INFINITY, j <= i ? 0 : 0xfc00);
    return true;
}

static bool load(struct job *job)
{
    const struct peer_case *p = &job->problem;
    job->data[Q] = peer_load_by_head(p, "q");
    job->data[K] = peer_load_by_head(p, "k");
    job->data[V] = peer_load_by_head(p, "v");
    job->data[OUT] = peer_alloc(peer_elements(p) * peer_bytes(p->dtype));
    job->data[SCALE] = peer_alloc(sizeof(float));
    if (!job->data[Q] || !job->data[K] || !job->data[V] || !job->data[OUT] || !job->data[SCALE])
        return false;
    *(float *)job->data[SCALE] = 1.0f / sqrtf((float)p->dim);
    return make_mask(job);
}

/* ---- Graph ----------------------------------------------------------------------------------- */

static bool shape(struct job *job, enum tensor id, dnnl_data_type_t type, int64_t heads,
                  int64_t rows, int64_t columns)
{
    dnnl_dims_t dims = { 1, heads, rows, columns };
    return ok(dnnl_graph_logical_tensor_init_with_dims(&job->shapes[id], id, type, RANK, dims,
                                                       dnnl_graph_layout_type_strided,
                                                       dnnl_graph_tensor_property_undef),
              "tensor");
}

static bool shape_all(struct job *job)
{
    const struct peer_case *p = &job->problem;
    dnnl_data_type_t type = types[p->dtype];
    int64_t h = p->heads, n = p->tokens, d = p->dim;
    return shape(job, Q, type, h, n, d) && shape(job, K, type, h, n, d) &&
           shape(job, V, type, h, n, d) && shape(job, SCALE, dnnl_f32, 1, 1, 1) &&
           shape(job, MASK, type, 1, n, n) && shape(job, OUT, type, h, n, d) &&
           shape(job, SCORES, dnnl_f32, h, n, n) && shape(job, SCALED, dnnl_f32, h, n, n) &&
           shape(job, MASKED, dnnl_f32, h, n, n) && shape(job, WEIGHTS, type, h, n, n);
}

/* Adds left OP right = result; a softmax has no right. */
static bool add(struct job *job, dnnl_graph_op_kind_t kind, int left, int right, int result)
{
    dnnl_graph_op_t op = NULL;
    if (!ok(dnnl_graph_op_create(&op, (size_t)result, kind, "op"), "operation")) return false;
    bool good = ok(dnnl_graph_op_add_input(op, &job->shapes[left]), "left input");
    if (right >= 0)
        good = good && ok(dnnl_graph_op_add_input(op, &job->shapes[right]), "right input");
    good = good && ok(dnnl_graph_op_add_output(op, &job->shapes[result]), "output");
    uint8_t transposed = 1;
    int64_t last_axis = -1;
    if (result == SCORES)
        dnnl_graph_op_set_attr_bool(op, dnnl_graph_op_attr_transpose_b, &transposed, 1);
    if (kind == dnnl_graph_op_softmax)
        dnnl_graph_op_set_attr_s64(op, dnnl_graph_op_attr_axis, &last_axis, 1);
    good = good && ok(dnnl_graph_add_op(job->graph, op), "adding an operation");
    dnnl_graph_op_destroy(op); /* the graph has its own copy */
    return good;
}

static bool build(struct job *job)
{
    bool causal = job->problem.causal;
    size_t count = 0;
    if (!ok(dnnl_graph_graph_create(&job->graph, dnnl_cpu), "graph") || !shape_all(job))
        return false;
    if (!add(job, dnnl_graph_op_matmul, Q, K, SCORES) ||
        !add(job, dnnl_graph_op_multiply, SCORES, SCALE, SCALED) ||
        (causal && !add(job, dnnl_graph_op_add, SCALED, MASK, MASKED)) ||
        !add(job, dnnl_graph_op_softmax, causal ? MASKED : SCALED, -1, WEIGHTS) ||
        !add(job, dnnl_graph_op_matmul, WEIGHTS, V, OUT))
        return false;
    if (!ok(dnnl_graph_graph_finalize(job->graph), "finalize") ||
        !ok(dnnl_graph_graph_filter(job->graph, dnnl_graph_partition_policy_fusion), "filter") ||
        !ok(dnnl_graph_graph_get_partition_num(job->graph, &count), "partitions"))
        return false;
    if (count != 1) return peer_refuse("oneDNN cuts the graph into %zu partitions", count);
    return ok(dnnl_graph_graph_get_partitions(job->graph, 1, &job->partition), "partition");
}

/* The partition takes its inputs in an order of its own. */
static bool compile(struct job *job)
{
    dnnl_graph_logical_tensor_t ports[INPUTS];
    const dnnl_graph_logical_tensor_t *shapes[INPUTS], *out = &job->shapes[OUT];
    size_t *count = &job->input_count;
    if (!ok(dnnl_graph_partition_get_input_ports_num(job->partition, count), "ports")) return false;
    if (*count > INPUTS) return peer_refuse("oneDNN wants %zu inputs", *count);
    if (!ok(dnnl_graph_partition_get_input_ports(job->partition, *count, ports), "ports"))
        return false;
    for (size_t i = 0; i < *count; i++) shapes[i] = &job->shapes[ports[i].id];
    if (!ok(dnnl_graph_compiled_partition_create(&job->compiled, job->partition), "compiling") ||
        !ok(dnnl_graph_partition_compile(job->partition, job->compiled, *count, shapes, 1, &out,
                                         job->engine),
            "not for this dtype or processor"))
        return false;
    for (int id = 0; id <= OUT; id++)
        if (job->data[id] && !ok(dnnl_graph_tensor_create(&job->tensors[id], &job->shapes[id],
                                                          job->engine, job->data[id]),
                                 "tensor"))
            return false;
    for (size_t i = 0; i < *count; i++) job->inputs[i] = job->tensors[ports[i].id];
    return true;
}

/* ---- The peer -------------------------------------------------------------------------------- */

/* A oneDNN built for SYCL computes on an OpenCL device; the one for the CPU is beside the library
 * and is found only if named. */
static void name_opencl_device(void)
{
    Dl_info library;
    char path[4096];
    if (!dladdr(dnnl_version(), &library)) return;
    const char *slash = strrchr(library.dli_fname, '/');
    if (!slash) return;
    snprintf(path, sizeof path, "%.*s/libintelocl.so", (int)(slash - library.dli_fname),
             library.dli_fname);
    if (access(path, R_OK) == 0) setenv("OCL_ICD_FILENAMES", path, 0);
}

static void *onednn_open(const struct peer_case *problem)
{
    if (problem->backward) return peer_refuse("forward only");
    struct job *job = calloc(1, sizeof *job);
    if (!job) return peer_refuse("out of memory");
    job->problem = *problem;
    name_opencl_device();
    if (ok(dnnl_engine_create(&job->engine, dnnl_cpu, 0), "engine") &&
        ok(dnnl_stream_create(&job->stream, job->engine, dnnl_stream_default_flags), "stream") &&
        load(job) && build(job) && compile(job))
        return job;
    onednn_close(job);
    return NULL;
}

static bool onednn_run(void *context)
{
    struct job *job = context;
    const_dnnl_graph_tensor_t out = job->tensors[OUT];
    return ok(dnnl_graph_compiled_partition_execute(job->compiled, job->stream, job->input_count,
                                                    job->inputs, 1, &out),
              "execute") &&
           ok(dnnl_stream_wait(job->stream), "wait");
}

static const void *onednn_row(void *context, int which, int64_t position, int head,
                              enum peer_dtype *dtype)
{
    struct job *job = context;
    const struct peer_case *p = &job->problem;
    (void)which;
    *dtype = p->dtype;
    size_t row = (size_t)head * (size_t)p->tokens + (size_t)position;
    return (const char *)job->data[OUT] + row * (size_t)p->dim * peer_bytes(p->dtype);
}

static const char *onednn_version(void)
{
    static char text[64];
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, sizeof text, "%d.%d.%d", version->major, version->minor, version->patch);
    return text;
}

static const char *onednn_detail(void *context)
{
    return ((struct job *)context)->problem.causal ? "graph, added mask" : "graph";
}

static const struct peer onednn = {
    .name = "onednn",
    .version = onednn_version,
    .open = onednn_open,
    .run = onednn_run,
    .row = onednn_row,
    .detail = onednn_detail,
    .close = onednn_close,
};

int main(int argc, char **argv) { return peer_main(argc, argv, &onednn); }
