/* SPDX-License-Identifier: Apache-2.0 */
/* info.c - the verb `info`: what is available on this machine, what is chosen, and why. */
#include "verbs.h"

#include <string.h>

#include "harness/run/machines.h"
#include "harness/run/planner.h"
#include "harness/text/json.h"
#include "harness/base/machine.h"
#include "harness/problem/system.h"
#include "harness/text/text.h"

static const char *const kinds[] = { "kernel",    "transport", "strategy",
                                     "partition", "pattern",   "order" };

static const char dtype_why[] =
    "synthetic data is f32 unless --dtype says otherwise: 16 bits are faster and smaller, not "
    "more exact";

enum { NAME_WIDTH = 13 };

static void print_parts(const char *kind)
{
    ra_part part = ra_part_default();
    printf("\n%s\n", kind);
    for (int i = 0; ra_part_at(kind, i, &part) == RA_OK; i++) {
        char mark = part.chosen ? '*' : part.usable ? '+' : '-';
        bool wide = strlen(part.name) > NAME_WIDTH; /* a long syntax stands alone */
        if (wide) printf("  %c %s\n", mark, part.name);
        printf("  %c %-*s %s\n", wide ? ' ' : mark, NAME_WIDTH, wide ? "" : part.name,
               part.summary ? part.summary : "");
        if (part.why && *part.why) printf("    %-*s %s\n", NAME_WIDTH, "", part.why);
    }
}

static void print_people(int threads)
{
    printf("ringattn %s\n\n", ra_version());
    printf("device       cpu: %d cores, %s\n", machine_cores(),
           text_bytes((double)machine_memory()).s);
    printf("threads      %d for a rank alone; RINGATTN_THREADS or --threads changes it\n", threads);
    printf("dtype auto   the files' dtype; %s\n", dtype_why);
    printf("\n* the default, + usable, - not usable here\n");
    print_parts("device");
    for (int i = 0; i < COUNT(kinds); i++) print_parts(kinds[i]);
    printf("\nsystems by name: ringattn info --systems\n");
}

static void print_parts_json(struct json *json, const char *kind)
{
    ra_part part = ra_part_default();
    json_open(json, kind, '[');
    for (int i = 0; ra_part_at(kind, i, &part) == RA_OK; i++) {
        json_open(json, NULL, '{');
        json_text(json, "name", part.name);
        json_text(json, "summary", part.summary);
        json_bool(json, "usable", part.usable != 0);
        json_bool(json, "chosen", part.chosen != 0);
        json_text(json, "why", part.why);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void print_machine_json(struct json *json, int threads)
{
    json_text(json, "device", "cpu");
    json_whole(json, "cores", machine_cores());
    json_whole(json, "memory_bytes", (int64_t)machine_memory());
    json_whole(json, "threads", threads);
    json_text(json, "dtype_auto", "f32");
    json_text(json, "dtype_why", dtype_why);
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
    if (options->list_machines) machines_print();
    else if (options->json) print_json(threads, options->systems);
    else if (options->systems) system_print_all();
    else print_people(threads);
    return EXIT_PASS;
}
