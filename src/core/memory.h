/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - every allocation of the library, counted by purpose. An account belongs to one rank;
 * exec never allocates, so accounts change only while handles are made and destroyed. */
#ifndef RA__CORE_MEMORY_H
#define RA__CORE_MEMORY_H

#include <stdbool.h>

#include "core/status.h"

enum ra__purpose {
    RA__FOR_TRAVEL,
    RA__FOR_STATE,
    RA__FOR_GRADIENT,
    RA__FOR_WORKSPACE,
    RA__FOR_BOOKKEEPING,
    RA__PURPOSES
};

struct ra__account {
    size_t bytes[RA__PURPOSES];
};

/* Replaces the allocator, NULL = the C library; false while any memory is allocated. */
bool ra__allocator_replace(const ra_allocator *replacement);
size_t ra__allocated_bytes(void);

/* Memory at a multiple of 64 bytes, not cleared; NULL if it runs out. `account` may be NULL. */
void *ra__alloc(struct ra__account *account, enum ra__purpose purpose, size_t bytes);

/* The same for count x bytes, cleared; NULL also if the product overflows. */
void *ra__alloc_array(struct ra__account *account, enum ra__purpose purpose, size_t count,
                      size_t bytes);

/* Charges memory that was allocated without an account to one. Accepts NULL memory. */
void ra__charge(struct ra__account *account, void *memory);

/* Accepts NULL. The account is the one the allocation was charged to. */
void ra__free(void *memory);

enum { RA__FIRST_ROOM = 32 }; /* elements: most lists of a plan are shorter */

/* Is an array that grows by doubling full with `count` elements? */
static inline bool ra__is_full(size_t count)
{
    return count == 0 || (count >= RA__FIRST_ROOM && (count & (count - 1)) == 0);
}

/* Makes room for one more element after `count` in such an array: returns the array, perhaps moved,
 * or NULL with the old one untouched. New elements are not cleared. */
void *ra__grow_full(struct ra__account *account, void *array, size_t count, size_t bytes);
static inline void *ra__grow(struct ra__account *account, void *array, size_t count, size_t bytes)
{
    return ra__is_full(count) ? ra__grow_full(account, array, count, bytes) : array;
}

/* *product *= factor; false if it overflows or factor is negative. */
bool ra__size_mul(size_t *product, int64_t factor);

#endif
