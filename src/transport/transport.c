/* transport.c - the table of transports. */
#include "transport/transport.h"

#include <stdio.h>
#include <string.h>

static const struct ra__transport *const transports[] = {
#define RA__TRANSPORT(name) &ra__transport_##name,
#include "transport/transport.list"
#undef RA__TRANSPORT
};

const struct ra__transport *ra__transport_at(int index)
{
    return index >= 0 && index < RA__COUNT(transports) ? transports[index] : NULL;
}

ra_status ra__transport_find(const char *name, const struct ra__transport **out)
{
    char known[128] = "";
    for (int i = 0; i < RA__COUNT(transports); i++) {
        *out = transports[i];
        if (!strcmp(transports[i]->name, name)) return RA_OK;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", transports[i]->name);
    }
    return ra__fail(RA_ERR_ARGUMENT, "transport: \"%.80s\" is not known; there are %s", name,
                    known);
}
