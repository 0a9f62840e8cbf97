/* SPDX-License-Identifier: Apache-2.0 */
/* info.c - the verb `info`: what is available on this machine, what is chosen, and why. */
#include "verbs.h"

#include <string.h>

#include "harness/run/machines.h"
#include "harness/run/planner.h"
#include "harness/base/half.h"
#include "harness/base/machine.h"
#include "harness/text/json.h"
#include "harness/problem/devices.h"
#include "harness/problem/system.h"
#include "harness/text/text.h"

static const char *const kinds[] = { "transport", "strategy", "partition", "pattern", "order" };

enum { NAME_WIDTH = 13, DEVICES_MOST = 64 };

static ra_device devices[DEVICES_MOST];
static int device_count;

static void find_devices(void)
{
    ra_device device = ra_device_default();
    while (device_count < DEVICES_MOST && ra_device_at(device_count, &device) == RA_OK)
        devices[device_count++] = device;
}

/* Has no device before this one the same kernels? */
static bool is_new_kind(int index)
{
    for (int i = 0; i < index; i++)
        if (devices[i].capability == devices[index].capability) return false;
    return true;
}

/* It has no device here, or does not tell. */
static bool is_without_devices(const ra_part *part)
{
    for (int i = 0; i < device_count; i++)
        if (devices_are_alike(devices[i].device, part->name)) return false;
    return true;
}

static const char *device_name(const ra_device *device)
{
    if (*device->name) return device->name;
    return strcmp(device->device, "cpu") ? device->device : machine_cpu();
}

static size_t device_memory(const ra_device *device)
{
    return device->capability ? device->memory : machine_memory();
}

/* ---- For people ------------------------------------------------------------------------------ */

static void print_part(const ra_part *part)
{
    const char mark = part->chosen ? '*' : part->usable ? '+' : '-';
    const bool wide = strlen(part->name) > NAME_WIDTH; /* a long syntax stands alone */
    if (wide) printf("  %c %s\n", mark, part->name);
    printf("  %c %-*s %s\n", wide ? ' ' : mark, NAME_WIDTH, wide ? "" : part->name,
           part->summary ? part->summary : "");
    if (part->why && *part->why) printf("    %-*s %s\n", NAME_WIDTH, "", part->why);
}

static void print_parts(const char *kind)
{
    ra_part part = ra_part_default();
    printf("\n%s\n", kind);
    for (int i = 0; ra_part_at(kind, i, &part) == RA_OK; i++) print_part(&part);
}

static void print_kernels(const ra_device *device)
{
    ra_part part = ra_part_default();
    printf("\nkernel on %s\n", device->device);
    for (int i = 0; ra_device_kernel_at(device->device, i, &part) == RA_OK; i++) print_part(&part);
}

/* "NVIDIA H200: Hopper, compute capability 9.0, 139.8 GiB" */
static void print_hardware(const ra_device *device)
{
    printf("%s: ", device_name(device));
    if (!device->capability) {
        printf("cores: %d, %s\n", machine_cores(), text_bytes((double)machine_memory()).s);
        return;
    }
    printf("%s, compute capability %d.%d, %s\n", device->architecture, device->capability / 10,
           device->capability % 10, text_bytes((double)device->memory).s);
}

static void print_devices(void)
{
    printf("\ndevice\n");
    for (int i = 0; i < device_count; i++) {
        const ra_device *device = &devices[i];
        printf("  %c %-*s ", i ? device->kernel ? '+' : '-' : '*', NAME_WIDTH, device->device);
        print_hardware(device);
        printf("    %-*s dtype %s: %s\n", NAME_WIDTH, "", half_name(device->dtype),
               device->dtype_why);
        if (device->kernel)
            printf("    %-*s kernel %s for most problems of that dtype\n", NAME_WIDTH, "",
                   device->kernel);
    }
    ra_part part = ra_part_default();
    for (int i = 0; ra_part_at("device", i, &part) == RA_OK; i++)
        if (is_without_devices(&part)) print_part(&part);
}

static void print_people(int threads)
{
    printf("ringattn %s\n\n", ra_version());
    printf("threads      %d for a rank alone; RINGATTN_THREADS or --threads changes it\n", threads);
    printf("dtype auto   that of the files; synthetic data has that of its device\n");
    printf("\n* the default, + usable, - not usable here\n");
    print_devices();
    for (int i = 0; i < device_count; i++)
        if (is_new_kind(i)) print_kernels(&devices[i]);
    for (int i = 0; i < COUNT(kinds); i++) print_parts(kinds[i]);
    printf("\nsystems by name: ringattn info --systems\n");
}

/* ---- For programs ---------------------------------------------------------------------------- */

static void print_part_json(struct json *json, const ra_part *part)
{
    json_open(json, NULL, '{');
    json_text(json, "name", part->name);
    json_text(json, "summary", part->summary);
    json_bool(json, "usable", part->usable != 0);
    json_bool(json, "chosen", part->chosen != 0);
    json_text(json, "why", part->why);
    json_close(json, '}');
}

static void print_parts_json(struct json *json, const char *kind)
{
    ra_part part = ra_part_default();
    json_open(json, kind, '[');
    for (int i = 0; ra_part_at(kind, i, &part) == RA_OK; i++) print_part_json(json, &part);
    json_close(json, ']');
}

static void print_device_json(struct json *json, const ra_device *device)
{
    ra_part part = ra_part_default();
    json_open(json, NULL, '{');
    json_text(json, "device", device->device);
    json_bool(json, "usable", device->kernel != NULL);
    json_text(json, "name", device_name(device));
    json_text(json, "architecture", device->architecture);
    json_whole(json, "compute_capability", device->capability);
    json_whole(json, "memory_bytes", (int64_t)device_memory(device));
    json_text(json, "dtype_auto", half_name(device->dtype));
    json_text(json, "dtype_why", device->dtype_why);
    json_text(json, "kernel_auto", device->kernel);
    json_open(json, "kernel", '[');
    for (int i = 0; ra_device_kernel_at(device->device, i, &part) == RA_OK; i++)
        print_part_json(json, &part);
    json_close(json, ']');
    json_close(json, '}');
}

static void print_devices_json(struct json *json)
{
    ra_part part = ra_part_default();
    json_open(json, "devices", '[');
    for (int i = 0; i < device_count; i++) print_device_json(json, &devices[i]);
    for (int i = 0; ra_part_at("device", i, &part) == RA_OK; i++) {
        if (!is_without_devices(&part)) continue;
        json_open(json, NULL, '{');
        json_text(json, "device", part.name);
        json_bool(json, "usable", part.usable != 0);
        json_text(json, "why", part.why);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void print_machine_json(struct json *json, int threads)
{
    json_text(json, "device", devices[0].device);
    json_whole(json, "cores", machine_cores());
    json_whole(json, "memory_bytes", (int64_t)machine_memory());
    json_whole(json, "threads", threads);
    json_text(json, "dtype_auto", half_name(devices[0].dtype));
    json_text(json, "dtype_why", devices[0].dtype_why);
    print_devices_json(json);
    print_parts_json(json, "kernel");
    for (int i = 0; i < COUNT(kinds); i++) print_parts_json(json, kinds[i]);
}

static void print_json(int threads, bool only_systems)
{
    struct json json = { .stream = stdout };
    json_open(&json, NULL, '{');
    json_text(&json, "version", ra_version());
    if (!only_systems) print_machine_json(&json, threads);
    system_json_all(&json);
    json_close(&json, '}');
}

int verb_info(struct options *options)
{
    struct trial alone = { .ranks = 1 };
    int threads, status = planner_threads(&alone, &threads);
    if (status) return status;
    if (options->list_machines && options->json)
        return refuse("--machines prints a table; leave out --json");
    if (!options->list_machines && !options->systems) find_devices();
    if (options->list_machines) machines_print();
    else if (options->json) print_json(threads, options->systems);
    else if (options->systems) system_print_all();
    else print_people(threads);
    return EXIT_PASS;
}
