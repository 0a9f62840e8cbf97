/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c - see digest.h. */
#include "digest.h"

#include "harness/base/half.h"

enum { START = 1 };

static uint64_t add_bytes(uint64_t sum, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t b = 0; b < bytes; b++) sum = (sum ^ at[b]) * 0x9e3779b97f4a7c15u + (sum >> 41);
    return sum;
}

static uint64_t digest_tensor(const struct engine *engine, const struct engine *owner,
                              enum tensor tensor)
{
    const struct trial *t = engine->trial;
    size_t bytes = (size_t)tensor_dim(t, tensor) * half_bytes(tensor_dtype(t, tensor));
    int64_t heads = tensor_heads(t, tensor);
    uint64_t sum = START;
    for (int64_t position = 0; position < tensor_length(t, tensor); position++) {
        int64_t local;
        if (!engine_find(owner, tensor, position, &local)) continue;
        const struct view *view = engine_find(engine, tensor, position, &local);
        for (int64_t i = 0; view && i < t->batch * heads; i++)
            sum = add_bytes(sum, view_row(view, i / heads, local, i % heads), bytes);
    }
    return sum;
}

static uint64_t digest_sinks(const struct engine *engine)
{
    size_t bytes = (size_t)engine->trial->q_heads * sizeof *engine->dsinks;
    uint64_t sum = START;
    for (int i = 0; i < engine->count; i++)
        sum = add_bytes(sum, engine->rank[engine->first + i].dsinks, bytes);
    return sum;
}

struct digests digest_all(const struct engine *engine, const struct engine *owner)
{
    struct digests digests = { { 0 }, 0 };
    for (int i = TENSOR_OUT; i < TENSOR_COUNT; i++)
        if (!tensor_is_backward(i) || engine->trial->backward)
            digests.of[i] = digest_tensor(engine, owner, i);
    if (engine->dsinks) digests.dsinks = digest_sinks(engine);
    return digests;
}
