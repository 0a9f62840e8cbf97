/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c - the table of backends: the built-in ones, then those of plug-ins. */
#include "backend/backend.h"

#include <stdlib.h>
#include <string.h>

#include "core/plugin.h"

#define RA__BACKEND(name) extern const struct ra__backend ra__backend_##name;
#include "backend/backend.list"
#undef RA__BACKEND

static const struct ra__backend *const backends[] = {
#define RA__BACKEND(name) &ra__backend_##name,
#include "backend/backend.list"
#undef RA__BACKEND
};

static struct ra__backend_part part_of(const struct ra__backend *backend, const char *why)
{
    return (struct ra__backend_part){ backend->name, backend->summary, backend, why };
}

/* The index-th plug-in: a module has one backend, or cannot be used. */
static bool plugged_at(int index, struct ra__backend_part *out)
{
    const int i = ra__plugin_find("device", index);
    if (i < 0) return false;
    const struct ra__plugin *plugin = ra__plugin_at(i);
    const struct ra__backend *backend = plugin && plugin->backends ? plugin->backends[0] : NULL;
    if (backend && (!backend->present || backend->present()))
        *out = part_of(backend, ra__plugin_why(i));
    else
        *out = (struct ra__backend_part){ ra__plugin_name(i), ra__plugin_summary(i), NULL,
                                          ra__plugin_why(i) };
    return true;
}

bool ra__backend_part(int index, struct ra__backend_part *out)
{
    if (index < 0) return false;
    if (index >= RA__COUNT(backends)) return plugged_at(index - RA__COUNT(backends), out);
    *out = part_of(backends[index], NULL);
    return true;
}

const struct ra__backend *ra__backend_at(int index)
{
    struct ra__backend_part part;
    for (int i = 0; ra__backend_part(i, &part); i++)
        if (part.backend && index-- == 0) return part.backend;
    return NULL;
}

static const char *name_at(int index)
{
    struct ra__backend_part part;
    return ra__backend_part(index, &part) ? part.name : NULL;
}

/* The number after the colon of "cuda:1"; 0 without one. */
static ra_status take_number(const char *name, size_t stem, int *number)
{
    char *end;
    *number = 0;
    if (!name[stem]) return RA_OK;
    const long given = strtol(name + stem + 1, &end, 10);
    if (end == name + stem + 1 || *end || given < 0 || given > 1023)
        return ra__fail(RA_ERR_ARGUMENT,
                        "device: \"%.40s\" must end with the number of a device, as in "
                        "\"cuda:0\"",
                        name);
    *number = (int)given;
    return RA_OK;
}

ra_status ra__backend_find(const char *name, const struct ra__backend **out, int *number)
{
    struct ra__backend_part part;
    *number = 0;
    if (!name) {
        *out = backends[0];
        return RA_OK;
    }
    const size_t stem = strcspn(name, ":");
    for (int i = 0; ra__backend_part(i, &part); i++) {
        if (strlen(part.name) != stem || memcmp(part.name, name, stem)) continue;
        if (!part.backend)
            return ra__fail(RA_ERR_UNSUPPORTED, "device %s cannot be used here: %s", name,
                            part.why);
        RA__TRY(take_number(name, stem, number));
        *out = part.backend;
        return RA_OK;
    }
    return ra__fail_unknown("device", name, strlen(name), name_at);
}
