/* SPDX-License-Identifier: Apache-2.0 */
/* suite.c - the table of suites, and lists of configurations. */
#include "suite.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

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

bool suite_serves(const char *problem)
{
    struct trial trial;
    bool serves = false;
    if (!trial_parse(&trial, problem)) forecast_serves(&trial, &serves);
    trial_clear(&trial);
    return serves;
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
    if (length >= (int)sizeof c.problem || !put(c.section, sizeof c.section, section) ||
        !put(c.name, sizeof c.name, name) || !put(c.options, sizeof c.options, options)) {
        list->lost = true;
        return;
    }
    if (!is_listed(list, &c)) append(list, &c);
}
