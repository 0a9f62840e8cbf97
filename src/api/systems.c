/* systems.c - systems by the names they are known by: each is a choice of pattern, order, strategy,
 * partition and transport here. */
#include <string.h>
#include <strings.h>

#include "api/handles.h"

static const ra_system systems[] = {
#define RA__SYSTEM(system, ...) { .size = sizeof(ra_system), .name = #system, __VA_ARGS__ },
#include "api/system.list"
#undef RA__SYSTEM
};

static const char *name_at(int index)
{
    return index < RA__COUNT(systems) ? systems[index].name : NULL;
}

static bool has_transport(const char *name)
{
    for (int i = 0; ra__transport_at(i); i++)
        if (!strcmp(ra__transport_at(i)->name, name)) return true;
    return false;
}

/* A row as it is on this machine: nothing is missing once its transport is there. */
static ra_status give(const ra_system *row, ra_system *out)
{
    ra_system system = *row;
    if (!system.transport || has_transport(system.transport)) system.missing = NULL;
    return ra__give_struct("ra_system", out, &system, sizeof system);
}

ra_status ra_system_at(int index, ra_system *out)
{
    if (index < 0 || index >= RA__COUNT(systems))
        return ra__fail(RA_ERR_ARGUMENT, "system: there is no entry %d", index);
    return give(&systems[index], out);
}

ra_status ra_system_find(const char *name, ra_system *out)
{
    if (!name) return ra__fail(RA_ERR_ARGUMENT, "system: NULL argument");
    for (int i = 0; i < RA__COUNT(systems); i++)
        if (!strcasecmp(systems[i].name, name)) return give(&systems[i], out);
    return ra__fail_unknown("system", name, strlen(name), name_at);
}
