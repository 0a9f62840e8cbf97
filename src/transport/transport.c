/* transport.c - the table of transports. */
#include "transport/transport.h"

static const struct ra__transport *const transports[] = {
#define RA__TRANSPORT(name) &ra__transport_##name,
#include "transport/transport.list"
#undef RA__TRANSPORT
};

const struct ra__transport *ra__transport_at(int index)
{
    return index >= 0 && index < RA__COUNT(transports) ? transports[index] : NULL;
}
