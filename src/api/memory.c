/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - the allocator of the process. */
#include "api/handles.h"

ra_status ra_allocator_set(const ra_allocator *given)
{
    ra_allocator allocator = ra_allocator_default();
    RA__TRY(ra__take_struct("ra_allocator", &allocator, sizeof allocator, given));
    if (given && (!allocator.alloc || !allocator.free))
        return ra__fail(RA_ERR_ARGUMENT, "allocator: alloc and free must both be given");
    if (ra__allocator_replace(given ? &allocator : NULL)) return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT,
                    "allocator: %zu bytes are still allocated; destroy every handle first",
                    ra__allocated_bytes());
}

size_t ra_allocated_bytes(void) { return ra__allocated_bytes(); }
