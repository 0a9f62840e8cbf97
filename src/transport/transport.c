/* transport.c - the table of transports. */
#include "transport/transport.h"

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

static const char *name_at(int index)
{
    return ra__transport_at(index) ? transports[index]->name : NULL;
}

ra_status ra__transport_find(const char *name, const struct ra__transport **out)
{
    for (int i = 0; i < RA__COUNT(transports); i++) {
        *out = transports[i];
        if (!strcmp(transports[i]->name, name)) return RA_OK;
    }
    return ra__fail_unknown("transport", name, strlen(name), name_at);
}
