/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c - the table of backends. */
#include "backend/backend.h"

#include <string.h>

#define RA__BACKEND(name) extern const struct ra__backend ra__backend_##name;
#include "backend/backend.list"
#undef RA__BACKEND

static const struct ra__backend *const backends[] = {
#define RA__BACKEND(name) &ra__backend_##name,
#include "backend/backend.list"
#undef RA__BACKEND
};

const struct ra__backend *ra__backend_at(int index)
{
    return index >= 0 && index < RA__COUNT(backends) ? backends[index] : NULL;
}

static const char *name_at(int index)
{
    return ra__backend_at(index) ? backends[index]->name : NULL;
}

ra_status ra__backend_find(const char *name, const struct ra__backend **out)
{
    for (int i = 0; i < RA__COUNT(backends); i++) {
        if (name && strcmp(backends[i]->name, name)) continue;
        *out = backends[i];
        return RA_OK;
    }
    return ra__fail_unknown("device", name, strlen(name), name_at);
}
