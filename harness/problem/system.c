/* system.c - systems by name: what they stand for, filled into a trial. */
#include "system.h"

#include <stdlib.h>

#include "harness/text/json.h"
#include "harness/text/text.h"

const char *const system_keys[SYSTEM_FIELDS] = { "pattern", "order", "strategy", "partition",
                                                 "transport" };

static const char *value_of(const ra_system *system, int field)
{
    const char *const values[SYSTEM_FIELDS] = { system->pattern, system->order, system->strategy,
                                                system->partition, system->transport };
    return values[field];
}

int system_apply(struct trial *trial, const bool given[SYSTEM_FIELDS])
{
    ra_system system = ra_system_default();
    ra_status found = ra_system_find(trial->system, &system);
    int status = library_failed(found);
    for (int i = 0; i < SYSTEM_FIELDS && !status; i++)
        if (!given[i] && value_of(&system, i))
            status = trial_set(trial, system_keys[i], "--system", value_of(&system, i));
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
static char *flags_of(const ra_system *system, const struct trial *trial)
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
    ra_system system = ra_system_default();
    if (!trial->system || ra_system_find(trial->system, &system) != RA_OK) return;
    char *flags = flags_of(&system, trial);
    printf("system %s: %s\n", system.name, flags ? flags : "every default");
    free(flags);
}

void system_json(struct json *json, const struct trial *trial)
{
    ra_system system = ra_system_default();
    bool known = trial->system && ra_system_find(trial->system, &system) == RA_OK;
    char *flags = known ? flags_of(&system, trial) : NULL;
    json_text(json, "system", known ? system.name : NULL);
    json_text(json, "system_flags", flags);
    free(flags);
}

/* ---- All of them ----------------------------------------------------------------------------- */

void system_print_all(void)
{
    ra_system system = ra_system_default();
    printf("%-34s %s\n", "system", "what it stands for here");
    for (int i = 0; ra_system_at(i, &system) == RA_OK; i++) {
        char *flags = flags_of(&system, NULL);
        printf("%-34s %s\n", system.name, flags ? flags : "every default");
        if (system.summary) printf("%-34s %s\n", "", system.summary);
        if (system.missing) printf("%-34s not in this version: it needs %s\n", "", system.missing);
        free(flags);
    }
}

void system_json_all(struct json *json)
{
    ra_system system = ra_system_default();
    json_open(json, "systems", '[');
    for (int i = 0; ra_system_at(i, &system) == RA_OK; i++) {
        json_open(json, NULL, '{');
        json_text(json, "name", system.name);
        json_text(json, "summary", system.summary);
        for (int f = 0; f < SYSTEM_FIELDS; f++)
            json_text(json, system_keys[f], value_of(&system, f));
        json_text(json, "missing", system.missing);
        json_close(json, '}');
    }
    json_close(json, ']');
}
