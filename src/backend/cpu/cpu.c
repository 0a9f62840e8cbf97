/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - the CPU backend: host memory, steps that the calling thread and the workers of its rank
 * run at once, and copies that a thread of their own makes meanwhile. */
#include "backend/cpu/cpu.h"

static ra_status cpu_open(const struct ra__device_options *options, void **device)
{
    struct ra__cpu *cpu = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *cpu);
    if (!cpu) return ra__fail(RA_ERR_MEMORY, "device: %zu bytes", sizeof *cpu);
    const struct ra__workers_options workers = { .threads = options->threads,
                                                 .spin = options->spin,
                                                 .pin = options->pin,
                                                 .first_core = options->first_core };
    cpu->smt = options->smt;
    ra_status status = ra__workers_create(&workers, &cpu->workers);
    if (status == RA_OK) *device = cpu;
    else ra__free(cpu);
    return status;
}

static void cpu_close(void *device)
{
    struct ra__cpu *cpu = device;
    if (!cpu) return;
    ra__copier_destroy(cpu->copier);
    ra__workers_destroy(cpu->workers);
    ra__free(cpu);
}

static int cpu_threads(const void *device)
{
    return ra__workers_threads(((const struct ra__cpu *)device)->workers);
}

static void *cpu_alloc(void *device, size_t bytes)
{
    (void)device;
    return ra__alloc(NULL, RA__FOR_TRAVEL, bytes);
}

static void cpu_free(void *device, void *memory, size_t bytes)
{
    (void)device, (void)bytes;
    ra__free(memory);
}

static ra_status cpu_choose(const void *device, int number, const char *name,
                            const struct ra__shape *shape, bool backward,
                            const struct ra__kernel **out)
{
    (void)device, (void)number;
    const enum ra__query_rows rows = backward ? RA__MANY_ROWS : ra__query_rows_of(shape);
    return ra__kernel_choose(name, shape->dtype, rows, out);
}

static const char *cpu_kernel_name(const struct ra__kernel *kernel) { return kernel->name; }

static bool cpu_device_at(int number, struct ra__device_facts *out)
{
    if (number) return false;
    *out = (struct ra__device_facts){
        .dtype = RA_F32, .dtype_why = "it is the most exact; 16 bits are smaller and faster"
    };
    return true;
}

static bool cpu_kernel_at(int number, int index, struct ra__kernel_facts *out)
{
    const struct ra__kernel *kernel = ra__kernel_at(index);
    if (number || !kernel) return false;
    *out = (struct ra__kernel_facts){ .name = kernel->name,
                                      .summary = kernel->summary,
                                      .dtypes = kernel->dtypes,
                                      .usable = kernel->usable(),
                                      .chosen = ra__kernel_chosen(kernel),
                                      .why = ra__kernel_why(kernel) };
    return true;
}

/* Events are the copier's. What computes is done when it is issued. */
static ra_status cpu_wait(void *device, const struct ra__event *event,
                          const struct ra__heartbeat *heartbeat)
{
    const struct ra__cpu *cpu = device;
    return event->source ? ra__copier_wait(cpu->copier, event, heartbeat) : RA_OK;
}

static ra_status queue_copy(struct ra__cpu *cpu, const struct ra__running *run,
                            struct ra__event *done)
{
    if (!cpu->copier) RA__TRY(ra__copier_create(&cpu->copier));
    return ra__copier_issue(cpu->copier, run, done);
}

static ra_status cpu_issue(void *device, void *prepared, const struct ra__launch *launch,
                           struct ra__event *done)
{
    struct ra__cpu_plan *plan = prepared;
    const struct ra__running run = { device, plan, &plan->programs[launch->direction], launch };
    const bool copies = launch->step->op == RA__OP_LOAD || launch->step->op == RA__OP_STORE;
    *done = (struct ra__event){ NULL, 0 };
    if (copies) return queue_copy(device, &run, done); /* after all copies before it */
    for (int i = 0; i < launch->after_count; i++)
        RA__TRY(cpu_wait(device, &launch->after[i], launch->heartbeat));
    switch (launch->step->op) {
    case RA__OP_GATHER: return ra__cpu_gather(&run);
    case RA__OP_DELTA: return ra__cpu_delta(&run);
    case RA__OP_SINKS: return ra__cpu_sinks(&run);
    case RA__OP_MERGE: return ra__cpu_merge(&run);
    case RA__OP_ATTEND: return ra__cpu_attend(&run);
    case RA__OP_GRADIENT: {
        const ra_status status = ra__cpu_gradient(&run);
        return status == RA_OK ? ra__cpu_bias(&run) : status;
    }
    default: break;
    }
    return ra__fail(RA_ERR_UNSUPPORTED, "cpu: a step %s", ra__step_name(launch->step));
}

static void cpu_drain(void *device) { ra__copier_drain(((struct ra__cpu *)device)->copier); }

static int64_t cpu_pairs(const void *prepared)
{
    return atomic_load(&((const struct ra__cpu_plan *)prepared)->pairs);
}

const struct ra__backend ra__backend_cpu = {
    .name = "cpu",
    .summary = "this machine's processors and memory",
    .host = true,
    .open = cpu_open,
    .close = cpu_close,
    .threads = cpu_threads,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .choose = cpu_choose,
    .kernel_name = cpu_kernel_name,
    .device_at = cpu_device_at,
    .kernel_at = cpu_kernel_at,
    .prepare = ra__cpu_prepare,
    .release = ra__cpu_release,
    .issue = cpu_issue,
    .wait = cpu_wait,
    .drain = cpu_drain,
    .pairs = cpu_pairs,
};
