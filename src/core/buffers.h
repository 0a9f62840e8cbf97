/* SPDX-License-Identifier: Apache-2.0 */
/* buffers.h - the buffer pool of one rank: memory of its device. Plans of a rank run one at a time
 * and keep nothing in their buffers between runs, so a large buffer may be held by many plans at
 * once, though never twice by one. Used by the thread of the rank only: there are no locks. */
#ifndef RA__CORE_BUFFERS_H
#define RA__CORE_BUFFERS_H

#include "core/memory.h"

struct ra__buffers;

/* Where a pool allocates: memory of a device. */
struct ra__buffer_source {
    void *(*alloc)(void *device, size_t bytes); /* NULL when there is none */
    void (*free)(void *device, void *memory, size_t bytes);
    void *device;
};

ra_status ra__buffers_create(size_t threshold, struct ra__buffer_source source,
                             struct ra__buffers **out);
void ra__buffers_destroy(struct ra__buffers *buffers); /* accepts NULL */

/* At least `bytes` bytes, not cleared, that the holder of `account` does not hold yet; NULL when
 * there is no memory. The account is charged with what was asked for, whatever the buffer's
 * size, so that a plan's figures do not depend on the plans beside it. Less than the threshold
 * is not shared. */
void *ra__buffers_take(struct ra__buffers *buffers, struct ra__account *account,
                       enum ra__purpose purpose, size_t bytes);

/* The same for memory whose contents stay between runs: it is never shared. */
void *ra__buffers_take_own(struct ra__buffers *buffers, struct ra__account *account,
                           enum ra__purpose purpose, size_t bytes);

/* What the holder of `account` took; accepts NULL memory. A large buffer that has no holder stays,
 * idle. */
void ra__buffers_give(struct ra__buffers *buffers, const struct ra__account *account, void *memory);

/* Frees idle buffers; false if there were none. */
bool ra__buffers_trim(struct ra__buffers *buffers);

void ra__buffers_count(const struct ra__buffers *buffers, ra_pool *out);

#endif
