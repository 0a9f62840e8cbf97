/* SPDX-License-Identifier: Apache-2.0 */
/* resident.c - see resident.h. */
#include "resident.h"

#include <stdlib.h>
#include <string.h>

#include "harness/base/half.h"
#include "harness/device/maker.h"

static size_t bytes_of(const struct engine *engine, const struct view *view)
{
    return (size_t)(view->batch_stride * engine->trial->batch) * half_bytes(view->dtype);
}

int resident_open(struct engine *engine)
{
    const char *device = engine->trial->device, *why = NULL;
    engine->maker = maker_open(device);
    if (!engine->maker)
        return refuse("%s: no module that puts tensors there is beside the plug-in of the device "
                      "(libringattn_cuda_maker.so for cuda)",
                      device);
    why = engine->maker->use(maker_number(device));
    for (int i = 0; i < engine->ranks * TENSOR_COUNT && !why; i++) {
        struct engine_rank *r = &engine->rank[i / TENSOR_COUNT];
        const struct view *view = &r->views[i % TENSOR_COUNT];
        if (view->data)
            why = engine->maker->alloc(bytes_of(engine, view), &r->twins[i % TENSOR_COUNT]);
    }
    return why ? fault("tensors on the device %s: %s", device, why) : EXIT_PASS;
}

void resident_close(struct engine *engine)
{
    for (int i = 0; engine->maker && engine->rank && i < engine->ranks * TENSOR_COUNT; i++)
        engine->maker->free(engine->rank[i / TENSOR_COUNT].twins[i % TENSOR_COUNT]);
}

ra_status resident_fill(const struct engine *engine, int rank)
{
    const struct engine_rank *r = &engine->rank[rank];
    const char *why = engine->maker->use(maker_number(engine->trial->device));
    for (int i = 0; i < TENSOR_COUNT && !why; i++)
        if (r->twins[i] && !tensor_is_result(i))
            why = engine->maker->put(r->twins[i], r->views[i].data, bytes_of(engine, &r->views[i]));
    return why ? ra_transport_error(RA_ERR_SYSTEM, why) : RA_OK;
}

/* Four bytes are copied, after all that comes before them. */
ra_status resident_wait(const struct engine *engine, int rank, void *queue)
{
    float first;
    const char *why = engine->maker->use(maker_number(engine->trial->device));
    if (!why)
        why = engine->maker->fetch(&first, engine->rank[rank].twins[TENSOR_LSE], sizeof first,
                                   queue);
    return why ? ra_transport_error(RA_ERR_SYSTEM, why) : RA_OK;
}

int resident_fetch(const struct engine *engine, bool backward)
{
    const char *why = NULL;
    for (int i = 0; i < engine->ranks * TENSOR_COUNT && !why; i++) {
        const struct engine_rank *r = &engine->rank[i / TENSOR_COUNT];
        const int tensor = i % TENSOR_COUNT;
        if (r->twins[tensor] && tensor_is_result(tensor) && tensor_is_backward(tensor) == backward)
            why = engine->maker->fetch(r->views[tensor].data, r->twins[tensor],
                                       bytes_of(engine, &r->views[tensor]), NULL);
    }
    return why ? fault("results on the device: %s", why) : EXIT_PASS;
}
