/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c - names the library knows, by kind, and the errors for other names. */
#include "parts.h"

#include <string.h>

#include "harness/text/text.h"

/* Names that users meet in the documentation and that this version may not have yet. */
static const struct {
    const char *kind, *name;
} later[] = {
    { "transport", "stream" },
    { "partition", "custom" },
};

/* Up to the colon of "2d:2x4" or the semicolon of "zigzag;perdoc". */
static size_t stem(const char *name) { return strcspn(name, ":;"); }

bool parts_find(const char *kind, const char *name, size_t length, ra_part *out)
{
    ra_part part = ra_part_default();
    for (int i = 0; ra_part_at(kind, i, &part) == RA_OK; i++) {
        size_t own = strcspn(part.name,
                             ":"); /* patterns are listed with their syntax: "prefix:N" */
        if (own != length || memcmp(part.name, name, length)) continue;
        *out = part;
        return true;
    }
    return false;
}

bool parts_is_later(const char *kind, const char *name)
{
    for (int i = 0; i < COUNT(later); i++) {
        bool same = strlen(later[i].name) == stem(name) && !memcmp(later[i].name, name, stem(name));
        if (same && !strcmp(later[i].kind, kind)) return true;
    }
    return false;
}

static int refuse_unknown(const char *kind, const char *what, const char *name)
{
    struct string names = { .lost = false };
    ra_part part = ra_part_default();
    for (int i = 0; ra_part_at(kind, i, &part) == RA_OK; i++)
        string_add(&names, "%s%s", i ? ", " : "", part.name);
    refuse("%s: there is no %s \"%.40s\"; there is %s", what, kind, name,
           names.s ? names.s : "none");
    string_free(&names);
    return EXIT_USAGE;
}

int parts_check(const char *kind, const char *what, const char *name)
{
    ra_part part;
    if (!parts_find(kind, name, stem(name), &part)) {
        if (parts_is_later(kind, name))
            return refuse("%s: the %s %.40s is not in this version", what, kind, name);
        return refuse_unknown(kind, what, name);
    }
    if (!part.usable)
        return refuse("%s: the %s %s cannot be used here: %s", what, kind, part.name,
                      part.why ? part.why : "");
    return EXIT_PASS;
}
