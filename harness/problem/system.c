/* SPDX-License-Identifier: Apache-2.0 */
/* system.c - systems by name: what they stand for, filled into a trial. */
#include "system.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "harness/text/json.h"
#include "harness/text/text.h"
#include "parts.h"

const char *const system_keys[SYSTEM_FIELDS] = { "pattern", "order", "strategy", "partition",
                                                 "transport" };

static const char *value_of(const struct system *system, int field)
{
    const char *const values[SYSTEM_FIELDS] = { system->pattern, system->order, system->strategy,
                                                system->partition, system->transport };
    return values[field];
}

static const struct system systems[] = {
#define SYSTEM(system, ...) { .name = #system, __VA_ARGS__ },
#include "system.list"
#undef SYSTEM
};

const struct system *system_find(const char *name)
{
    for (int i = 0; i < COUNT(systems); i++)
        if (!strcasecmp(systems[i].name, name)) return &systems[i];
    return NULL;
}

const struct system *system_at(int index)
{
    return index < COUNT(systems) ? &systems[index] : NULL;
}

const char *system_missing(const struct system *system)
{
    ra_part part = ra_part_default();
    const char *transport = system->transport;
    bool there = !transport ||
                 (parts_find("transport", transport, strlen(transport), &part) && part.usable);
    return there ? NULL : system->missing;
}

int system_check(const char *what, const char *name)
{
    const struct system *system = system_find(name);
    if (system) {
        const char *missing = system_missing(system);
        return missing ? refuse("%s: %s is not available here: it needs %s", what, system->name,
                                missing)
                       : EXIT_PASS;
    }
    struct string names = { .lost = false };
    for (int i = 0; i < COUNT(systems); i++)
        string_add(&names, "%s%s", i ? ", " : "", systems[i].name);
    int status = refuse("%s: \"%.60s\" is not known; there are %s", what, name,
                        names.s ? names.s : "others");
    string_free(&names);
    return status;
}

int system_apply(struct trial *trial, const bool given[SYSTEM_FIELDS])
{
    const struct system *system = system_find(trial->system);
    int status = EXIT_PASS;
    for (int i = 0; i < SYSTEM_FIELDS && !status; i++)
        if (!given[i] && value_of(system, i))
            status = trial_set(trial, system_keys[i], "--system", value_of(system, i));
    return status;
}

/* What the trial has in the place of a field: the system's own, or what was given beside it. */
static const char *in_force(const struct trial *trial, int field)
{
    const char *const values[SYSTEM_FIELDS] = { trial->pattern ? trial->pattern : "full",
                                                trial->order ? trial->order : "sequential",
                                                trial->strategy, trial->partition,
                                                trial->transport };
    return values[field];
}

/* "--pattern full --order hilbert ...": the flags of a system as it has them, or, with a trial, as
 * they are in force there; to be freed, NULL if memory ran out. */
static char *flags_of(const struct system *system, const struct trial *trial)
{
    struct string flags = { .lost = false };
    for (int i = 0; i < SYSTEM_FIELDS; i++)
        if (value_of(system, i))
            string_add(&flags, "%s--%s %s", flags.s ? " " : "", system_keys[i],
                       trial ? in_force(trial, i) : value_of(system, i));
    return flags.s;
}

void system_print(const struct trial *trial)
{
    if (!trial->system) return;
    char *flags = flags_of(system_find(trial->system), trial);
    printf("system %s: %s\n", trial->system, flags ? flags : "every default");
    free(flags);
}

void system_json(struct json *json, const struct trial *trial)
{
    char *flags = trial->system ? flags_of(system_find(trial->system), trial) : NULL;
    json_text(json, "system", trial->system);
    json_text(json, "system_flags", flags);
    free(flags);
}

/* ---- All of them ----------------------------------------------------------------------------- */

void system_print_all(void)
{
    printf("%-34s %s\n", "system", "what it stands for here");
    for (const struct system *system = systems; system < systems + COUNT(systems); system++) {
        char *flags = flags_of(system, NULL);
        const char *missing = system_missing(system);
        printf("%-34s %s\n", system->name, flags ? flags : "every default");
        printf("%-34s %s\n", "", system->summary);
        if (missing) printf("%-34s not in this version: it needs %s\n", "", missing);
        free(flags);
    }
}

void system_json_all(struct json *json)
{
    json_open(json, "systems", '[');
    for (const struct system *system = systems; system < systems + COUNT(systems); system++) {
        json_open(json, NULL, '{');
        json_text(json, "name", system->name);
        json_text(json, "summary", system->summary);
        for (int f = 0; f < SYSTEM_FIELDS; f++)
            json_text(json, system_keys[f], value_of(system, f));
        json_text(json, "missing", system_missing(system));
        json_close(json, '}');
    }
    json_close(json, ']');
}
