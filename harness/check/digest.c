/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c - see digest.h. */
#include "digest.h"

#include <inttypes.h>
#include <stdlib.h>

#include "harness/world/world.h"

static uint64_t digest_tensor(const struct engine *engine, const struct engine *owner,
                              enum tensor tensor)
{
    const struct trial *t = engine->trial;
    const int64_t heads = tensor_heads(t, tensor), dim = tensor_dim(t, tensor);
    const int64_t length = tensor_length(t, tensor);
    uint64_t sum = 0;
    for (int64_t position = 0; position < length; position++) {
        int64_t local;
        if (!engine_find(owner, tensor, position, &local)) continue;
        const struct view *view = engine_find(engine, tensor, position, &local);
        for (int64_t i = 0; view && i < t->batch * heads; i++) {
            const int64_t batch = i / heads, head = i % heads;
            const int64_t index = ((batch * length + position) * heads + head) * dim;
            sum += data_digest(view->dtype, view_row(view, batch, local, head), index, dim);
        }
    }
    return sum;
}

static uint64_t digest_sinks(const struct engine *engine)
{
    const int64_t heads = engine->trial->q_heads;
    uint64_t sum = 0;
    for (int i = 0; i < engine->count; i++)
        sum += data_digest(RA_F32, engine->rank[engine->first + i].dsinks, i * heads, heads);
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

/* The parts of all processes. */
static int share(const struct engine *engine, struct digests *digests)
{
    struct digests *all = malloc((size_t)engine->ranks * sizeof *all);
    if (!all) return fault("out of memory: %d ranks", engine->ranks);
    const int status = world_share(digests, all, sizeof *digests);
    *digests = (struct digests){ { 0 }, 0 };
    for (int rank = 0; rank < engine->ranks && !status; rank++)
        for (int i = 0; i < TENSOR_COUNT; i++) digests->of[i] += all[rank].of[i];
    free(all);
    return status;
}

int digest_forward(const struct engine *engine, struct digests *digests)
{
    static const enum tensor written[] = { TENSOR_OUT, TENSOR_LSE };
    int status = EXIT_PASS;
    *digests = (struct digests){ { 0 }, 0 };
    for (int i = 0; i < COUNT(written) && !status; i++) {
        uint64_t *digest = &digests->of[written[i]];
        if (engine->streaming) status = streaming_digest(engine->streaming, written[i], digest);
        else *digest = digest_tensor(engine, engine, written[i]);
    }
    return !status && engine->joined ? share(engine, digests) : status;
}

struct text digest_text(uint64_t digest)
{
    struct text text;
    snprintf(text.s, sizeof text.s, "%016" PRIx64, digest);
    return text;
}
