/* SPDX-License-Identifier: Apache-2.0 */
/* serial.c - the CPU backend on one thread, however many a group asks for. */
#include "backend/backend.h"

extern const struct ra__backend ra__backend_cpu; /* an entry of backend.list, by its name */

static const struct ra__backend *const cpu = &ra__backend_cpu;

static ra_status serial_open(const struct ra__device_options *options, void **device)
{
    struct ra__device_options one = *options;
    one.threads = 1;
    return cpu->open(&one, device);
}

static ra_status serial_issue(void *device, void *prepared, const struct ra__launch *launch,
                              struct ra__event *done)
{
    return cpu->issue(device, prepared, launch, done); /* done at once: no event is left */
}

static void serial_close(void *device) { cpu->close(device); }
static int serial_threads(const void *device) { return cpu->threads(device); }
static void *serial_alloc(void *device, size_t bytes) { return cpu->alloc(device, bytes); }

static void serial_free(void *device, void *memory, size_t bytes)
{
    cpu->free(device, memory, bytes);
}

static ra_status serial_choose(const void *device, int number, const char *name,
                               const struct ra__shape *shape, bool backward,
                               const struct ra__kernel **out)
{
    return cpu->choose(device, number, name, shape, backward, out);
}

static const char *serial_kernel_name(const struct ra__kernel *kernel)
{
    return cpu->kernel_name(kernel);
}

static ra_status serial_prepare(const struct ra__setup *setup, struct ra__arena *arena,
                                void **prepared)
{
    return cpu->prepare(setup, arena, prepared);
}

static void serial_release(void *prepared, struct ra__buffers *pool,
                           const struct ra__account *account)
{
    cpu->release(prepared, pool, account);
}

static ra_status serial_wait(void *device, const struct ra__event *event,
                             const struct ra__heartbeat *heartbeat)
{
    return cpu->wait(device, event, heartbeat);
}

static void serial_drain(void *device) { cpu->drain(device); }
static int64_t serial_pairs(const void *prepared) { return cpu->pairs(prepared); }

const struct ra__backend ra__backend_serial = {
    .name = "serial",
    .summary = "as cpu, on one thread",
    .host = true,
    .open = serial_open,
    .close = serial_close,
    .threads = serial_threads,
    .alloc = serial_alloc,
    .free = serial_free,
    .choose = serial_choose,
    .kernel_name = serial_kernel_name,
    .prepare = serial_prepare,
    .release = serial_release,
    .issue = serial_issue,
    .wait = serial_wait,
    .drain = serial_drain,
    .pairs = serial_pairs,
};
