/* SPDX-License-Identifier: Apache-2.0 */
/* transport.c - the table of transports: the built-in ones, then those of plug-ins. */
#include "transport/transport.h"

#include <string.h>

#include "core/plugin.h"

static const struct ra__transport *const transports[] = {
#define RA__TRANSPORT(name) &ra__transport_##name,
#include "transport/transport.list"
#undef RA__TRANSPORT
};

static struct ra__transport_part part_of(const struct ra__transport *row, const char *why)
{
    return (struct ra__transport_part){ row->name, row->summary, row, why };
}

/* The index-th entry of all plug-ins. */
static bool plugged_at(int index, struct ra__transport_part *out)
{
    for (int n = 0, i; (i = ra__plugin_find("transport", n)) >= 0; n++) {
        const struct ra__plugin *plugin = ra__plugin_at(i);
        for (int j = 0; plugin && plugin->transports && plugin->transports[j]; j++) {
            *out = part_of(plugin->transports[j], ra__plugin_why(i));
            if (index-- == 0) return true;
        }
    }
    return false;
}

/* The index-th plug-in that cannot be used. */
static bool absent_at(int index, struct ra__transport_part *out)
{
    for (int n = 0, i; (i = ra__plugin_find("transport", n)) >= 0; n++) {
        if (ra__plugin_at(i) || index-- > 0) continue;
        *out = (struct ra__transport_part){ ra__plugin_name(i), ra__plugin_summary(i), NULL,
                                            ra__plugin_why(i) };
        return true;
    }
    return false;
}

static int plugged_count(void)
{
    struct ra__transport_part ignored;
    int count = 0;
    while (plugged_at(count, &ignored)) count++;
    return count;
}

bool ra__transport_part(int index, struct ra__transport_part *out)
{
    if (index < 0) return false;
    if (index < RA__COUNT(transports)) {
        *out = part_of(transports[index], NULL);
        return true;
    }
    index -= RA__COUNT(transports);
    return plugged_at(index, out) || absent_at(index - plugged_count(), out);
}

const struct ra__transport *ra__transport_at(int index)
{
    struct ra__transport_part part;
    return ra__transport_part(index, &part) ? part.transport : NULL;
}

static const char *name_at(int index)
{
    struct ra__transport_part part;
    return ra__transport_part(index, &part) ? part.name : NULL;
}

ra_status ra__transport_find(const char *name, const struct ra__transport **out)
{
    struct ra__transport_part part;
    for (int i = 0; ra__transport_part(i, &part); i++) {
        if (strcmp(part.name, name)) continue;
        if (!part.transport)
            return ra__fail(RA_ERR_UNSUPPORTED, "transport %s cannot be used here: %s", name,
                            part.why);
        *out = part.transport;
        return RA_OK;
    }
    return ra__fail_unknown("transport", name, strlen(name), name_at);
}
