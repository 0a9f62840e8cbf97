/* SPDX-License-Identifier: Apache-2.0 */
/* ceilings.c - the table of ceilings. */
#include "ceiling.h"

#include <stdio.h>
#include <string.h>

#define CEILING_ABSENT(name, summary, unit)
#define CEILING(name) extern const struct ceiling ceiling_##name;
#include "ceiling.list"
#undef CEILING
#undef CEILING_ABSENT

#define CEILING_ABSENT(name_, summary_, unit_)                                                     \
    &(const struct ceiling){ .name = name_, .summary = summary_, .unit = unit_ },
#define CEILING(name) &ceiling_##name,
static const struct ceiling *const ceilings[] = {
#include "ceiling.list"
};
#undef CEILING
#undef CEILING_ABSENT

const struct ceiling *ceiling_at(int index)
{
    int count = (int)(sizeof ceilings / sizeof ceilings[0]);
    return index >= 0 && index < count ? ceilings[index] : NULL;
}

const struct ceiling *ceiling_find(const char *name)
{
    for (int i = 0; ceiling_at(i); i++)
        if (!strcmp(ceiling_at(i)->name, name)) return ceiling_at(i);
    return NULL;
}

const char *ceiling_absent(const struct ceiling *ceiling)
{
    static char sentence[128];
    if (!ceiling->usable) return "the compiler of this program does not know it";
    if (ceiling->usable()) return NULL;
    snprintf(sentence, sizeof sentence, "it needs %s, which this CPU does not have",
             ceiling->needs);
    return sentence;
}

/* The callee of another file could do anything with them. */
void ceiling_use(const void *numbers) { __asm__ volatile("" : : "r"(numbers) : "memory"); }
