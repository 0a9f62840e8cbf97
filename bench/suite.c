/* SPDX-License-Identifier: Apache-2.0 */
/* suite.c - the table of suites, and lists of configurations. */
#include "suite.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "harness/base/half.h"
#include "harness/problem/devices.h"
#include "harness/run/forecast.h"

#define SUITE(name) extern const struct suite suite_##name;
#include "suite.list"
#undef SUITE

#define SUITE(name) &suite_##name,
static const struct suite *const suites[] = {
#include "suite.list"
};
#undef SUITE

const struct suite *suite_at(int index)
{
    return index >= 0 && index < COUNT(suites) ? suites[index] : NULL;
}

const struct suite *suite_find(const char *name)
{
    for (int i = 0; i < COUNT(suites); i++)
        if (!strcmp(suites[i]->name, name)) return suites[i];
    return NULL;
}

bool suite_serves(const struct configurations *list, const char *device, const char *problem)
{
    const char *wanted = suite_device(list);
    struct trial trial;
    bool serves = false;
    if (!wanted) wanted = "cpu";
    if (device &&
        (strlen(device) != strcspn(wanted, ":") || strncmp(wanted, device, strlen(device))))
        return false;
    if (!trial_parse(&trial, problem) && !trial_set(&trial, "device", "--device", wanted))
        forecast_serves(&trial, &serves);
    trial_clear(&trial);
    return serves;
}

const char *suite_device(const struct configurations *list)
{
    const char *device = list->wishes->trial.device;
    return *device && strcmp(device, "cpu") ? device : NULL;
}

const char *suite_dtype(const struct configurations *list)
{
    return half_name(devices_dtype(list->wishes->trial.device));
}

int suite_tokens(const struct configurations *list, int tokens)
{
    enum { TIMES = 8 };
    return suite_device(list) ? TIMES * tokens : tokens;
}

/* Is it for CPUs only? */
static bool is_for_cpus(const struct configuration *c)
{
    static const char *const options[] = { "--standard", "--limit", "--link" };
    for (int i = 0; i < COUNT(options); i++)
        if (strstr(c->options, options[i])) return true;
    return strstr(c->problem, " mpi") || strstr(c->problem, "system=Standard");
}

static bool put(char *to, size_t bytes, const char *from)
{
    return snprintf(to, bytes, "%s", from) < (int)bytes;
}

static bool is_listed(const struct configurations *list, const struct configuration *c)
{
    for (int i = 0; i < list->count; i++)
        if (!strcmp(list->at[i].section, c->section) && !strcmp(list->at[i].name, c->name) &&
            !strcmp(list->at[i].problem, c->problem) && !strcmp(list->at[i].options, c->options))
            return true;
    return false;
}

static void append(struct configurations *list, const struct configuration *c)
{
    if (list->count == list->capacity) {
        int capacity = list->capacity ? 2 * list->capacity : 64;
        struct configuration *at = realloc(list->at, (size_t)capacity * sizeof *at);
        if (!at) {
            list->lost = true;
            return;
        }
        list->at = at;
        list->capacity = capacity;
    }
    list->at[list->count++] = *c;
}

void suite_add(struct configurations *list, const char *section, const char *name,
               const char *options, const char *problem, ...)
{
    struct configuration c;
    va_list values;
    va_start(values, problem);
    int length = vsnprintf(c.problem, sizeof c.problem, problem, values);
    va_end(values);
    const char *device = suite_device(list);
    if (device && length < (int)sizeof c.problem)
        length += snprintf(c.problem + length, sizeof c.problem - (size_t)length, " device=%s",
                           device);
    if (length >= (int)sizeof c.problem || !put(c.section, sizeof c.section, section) ||
        !put(c.name, sizeof c.name, name) || !put(c.options, sizeof c.options, options)) {
        list->lost = true;
        return;
    }
    if (device && is_for_cpus(&c)) return;
    if (!is_listed(list, &c)) append(list, &c);
}
