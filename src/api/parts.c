/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c - what is available in this library on this machine, table by table. */
#include <stdio.h>
#include <string.h>

#include "api/handles.h"
#include "core/version.h"
#include "pattern/order.h"

const char *ra_version(void) { return RA__VERSION; }

/* An entry that works everywhere; the first of its table is the default. */
static ra_part plain(const char *name, const char *summary, bool chosen)
{
    ra_part part = ra_part_default();
    part.name = part.samples = name;
    part.summary = summary;
    part.usable = 1;
    part.chosen = chosen;
    part.why = chosen ? "the default" : "always available";
    return part;
}

static bool kernel_of(const struct ra__backend *backend, int number, int index, ra_part *part)
{
    struct ra__kernel_facts facts;
    if (index < 0 || !backend->kernel_at || !backend->kernel_at(number, index, &facts))
        return false;
    *part = plain(facts.name, facts.summary, facts.chosen);
    part->device = backend->name;
    part->usable = facts.usable;
    part->dtypes = facts.dtypes;
    part->why = facts.why;
    return true;
}

/* The kernels of the first backend, then those of the next. */
static bool kernel_at(int index, ra_part *part)
{
    const struct ra__backend *backend;
    if (index < 0) return false;
    for (int b = 0; (backend = ra__backend_at(b)); b++) {
        int count = 0;
        while (kernel_of(backend, 0, count, part))
            if (count++ == index) return true;
        index -= count;
    }
    return false;
}

static bool transport_at(int index, ra_part *part)
{
    struct ra__transport_part row;
    if (!ra__transport_part(index, &row)) return false;
    *part = plain(row.name, row.summary, index == 0);
    part->usable = row.transport != NULL;
    part->joins = row.transport && row.transport->join;
    if (row.why) part->why = row.why;
    else if (!row.transport->open) part->why = "available in C, one rank at a time";
    return true;
}

static bool pattern_at(int index, ra_part *part)
{
    const struct ra__pattern_kind *row = ra__pattern_kind_at(index);
    if (!row) return false;
    *part = plain(row->syntax, row->summary, index == 0);
    part->samples = row->samples;
    return true;
}

static bool order_at(int index, ra_part *part)
{
    const struct ra__order_kind *row = ra__order_kind_at(index);
    if (!row) return false;
    *part = plain(row->syntax, row->summary, index == 0);
    part->samples = row->samples;
    return true;
}

static bool partition_at(int index, ra_part *part)
{
    const struct ra__partition *row = ra__partition_at(index);
    if (row) *part = plain(row->name, row->summary, index == 0);
    return row != NULL;
}

static bool strategy_at(int index, ra_part *part)
{
    const struct ra__strategy *row = ra__strategy_at(index);
    if (row) *part = plain(row->name, row->summary, index == 0);
    return row != NULL;
}

static bool device_at(int index, ra_part *part)
{
    struct ra__backend_part row;
    if (!ra__backend_part(index, &row)) return false;
    *part = plain(row.name, row.summary, index == 0);
    part->usable = row.backend != NULL;
    if (row.why) part->why = row.why;
    return true;
}

static const struct {
    const char *kind;
    bool (*at)(int index, ra_part *part);
} tables[] = {
    { "kernel", kernel_at },     { "device", device_at }, { "transport", transport_at },
    { "pattern", pattern_at },   { "order", order_at },   { "partition", partition_at },
    { "strategy", strategy_at },
};

ra_status ra_part_at(const char *kind, int index, ra_part *out)
{
    ra_part part;
    for (int i = 0; kind && i < RA__COUNT(tables); i++) {
        if (strcmp(tables[i].kind, kind)) continue;
        if (tables[i].at(index, &part)) return ra__give_struct("ra_part", out, &part, sizeof part);
        return ra__fail(RA_ERR_ARGUMENT, "%s: there is no row %d", kind, index);
    }
    return ra__fail(RA_ERR_ARGUMENT, "parts: \"%.40s\" is not a kind of part",
                    kind ? kind : "NULL");
}

/* ---- Devices --------------------------------------------------------------------------------- */

/* The devices of the first backend, then those of the next; NULL after the last. */
static const struct ra__backend *device_facts(int index, int *number,
                                              struct ra__device_facts *facts)
{
    const struct ra__backend *backend;
    for (int b = 0; (backend = ra__backend_at(b)); b++)
        for (*number = 0; backend->device_at && backend->device_at(*number, facts); ++*number)
            if (index-- == 0) return backend;
    return NULL;
}

/* The kernel of many queries with this dtype; dim 64 stands for all. */
static const char *usual_kernel(const struct ra__backend *backend, int number, ra_dtype dtype)
{
    const struct ra__shape shape = { .dtype = dtype,
                                     .batch = 1,
                                     .q_len = 4096,
                                     .k_len = 4096,
                                     .q_heads = 8,
                                     .kv_heads = 8,
                                     .dim = 64,
                                     .value_dim = 64 };
    const struct ra__kernel *kernel;
    return backend->choose(NULL, number, NULL, &shape, true, &kernel) == RA_OK
               ? backend->kernel_name(kernel)
               : NULL;
}

ra_status ra_device_at(int index, ra_device *out)
{
    struct ra__device_facts facts;
    int number;
    const struct ra__backend *backend = index < 0 ? NULL : device_facts(index, &number, &facts);
    if (!backend) return ra__fail(RA_ERR_ARGUMENT, "device: there is no row %d", index);
    ra_device device = ra_device_default();
    device.architecture = facts.architecture;
    device.kernel = usual_kernel(backend, number, facts.dtype);
    device.dtype_why = facts.dtype_why;
    device.memory = facts.memory;
    device.capability = facts.capability;
    device.dtype = facts.dtype;
    memcpy(device.name, facts.name, sizeof device.name);
    if (backend->host) snprintf(device.device, sizeof device.device, "%s", backend->name);
    else snprintf(device.device, sizeof device.device, "%s:%d", backend->name, number);
    return ra__give_struct("ra_device", out, &device, sizeof device);
}

ra_status ra_device_kernel_at(const char *device, int index, ra_part *out)
{
    const struct ra__backend *backend;
    struct ra__device_facts facts;
    ra_part part;
    int number;
    RA__TRY(ra__backend_find(device, &backend, &number));
    if (backend->device_at && !backend->device_at(number, &facts))
        return ra__fail(RA_ERR_ARGUMENT, "device: there is no %s", device);
    if (!kernel_of(backend, number, index, &part))
        return ra__fail(RA_ERR_ARGUMENT, "device %s: there is no kernel %d", backend->name, index);
    return ra__give_struct("ra_part", out, &part, sizeof part);
}
