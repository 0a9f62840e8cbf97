/* SPDX-License-Identifier: Apache-2.0 */
/* buffers.c - see buffers.h. A plan has few buffers, so lists are searched linearly. */
#include "core/buffers.h"

/* A plan that uses a buffer, and the bytes it asked for. */
struct lease {
    struct lease *next;
    struct ra__account *account;
    enum ra__purpose purpose;
    size_t bytes;
};

struct buffer {
    struct buffer *next;
    void *memory;
    size_t bytes;
    struct lease *leases; /* NULL: the buffer is idle */
    bool shared;          /* several plans may hold it; others go back when given */
};

struct ra__buffers {
    size_t threshold;
    struct ra__buffer_source source;
    struct buffer *first;
    int64_t hits, misses;
};

/* A buffer that is more than this many times too large is not used. Refusing it costs at most a
 * quarter of its size, for a buffer that fits; using it for a small request may cost its whole size
 * again, when the same plan then asks for that much. */
enum { LOOSEST_FIT = 4 };

ra_status ra__buffers_create(size_t threshold, struct ra__buffer_source source,
                             struct ra__buffers **out)
{
    struct ra__buffers *buffers = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *buffers);
    if (!buffers) return ra__fail(RA_ERR_MEMORY, "pool: %zu bytes", sizeof *buffers);
    buffers->threshold = threshold;
    buffers->source = source;
    *out = buffers;
    return RA_OK;
}

void ra__buffers_destroy(struct ra__buffers *buffers)
{
    if (!buffers) return;
    ra__buffers_trim(buffers);
    ra__free(buffers);
}

/* The link to the lease of this holder, or the end of the list. */
static struct lease **find_lease(struct buffer *buffer, const struct ra__account *account)
{
    struct lease **at = &buffer->leases;
    while (*at && (*at)->account != account) at = &(*at)->next;
    return at;
}

/* The smallest buffer that is large enough and not used by this holder; NULL if there is none. */
static struct buffer *best_fit(struct ra__buffers *buffers, const struct ra__account *account,
                               size_t bytes)
{
    struct buffer *best = NULL;
    for (struct buffer *buffer = buffers->first; buffer; buffer = buffer->next) {
        bool fits = buffer->bytes >= bytes && buffer->bytes / LOOSEST_FIT <= bytes;
        bool better = !best || buffer->bytes < best->bytes;
        if (buffer->shared && fits && better && !*find_lease(buffer, account)) best = buffer;
    }
    return best;
}

/* If memory runs out, idle buffers are freed to make room. */
static void *get_memory(struct ra__buffers *buffers, size_t bytes)
{
    const struct ra__buffer_source *source = &buffers->source;
    void *memory = source->alloc(source->device, bytes);
    if (memory || !ra__buffers_trim(buffers)) return memory;
    return source->alloc(source->device, bytes);
}

static struct buffer *add_buffer(struct ra__buffers *buffers, size_t bytes, bool shared)
{
    struct buffer *buffer = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *buffer);
    void *memory = buffer ? get_memory(buffers, bytes) : NULL;
    if (!memory) {
        ra__free(buffer);
        return NULL;
    }
    *buffer = (struct buffer){
        .next = buffers->first, .memory = memory, .bytes = bytes, .shared = shared
    };
    return buffers->first = buffer;
}

static void *take(struct ra__buffers *buffers, struct ra__account *account,
                  enum ra__purpose purpose, size_t bytes, bool shared)
{
    struct lease *lease = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *lease);
    if (!lease) return NULL;
    struct buffer *buffer = shared ? best_fit(buffers, account, bytes) : NULL;
    bool hit = buffer != NULL;
    if (!hit) buffer = add_buffer(buffers, bytes, shared);
    if (!buffer) {
        ra__free(lease);
        return NULL;
    }
    if (shared) *(hit ? &buffers->hits : &buffers->misses) += 1;
    *lease = (struct lease){ buffer->leases, account, purpose, bytes };
    buffer->leases = lease;
    account->bytes[purpose] += bytes;
    return buffer->memory;
}

void *ra__buffers_take(struct ra__buffers *buffers, struct ra__account *account,
                       enum ra__purpose purpose, size_t bytes)
{
    return take(buffers, account, purpose, bytes, bytes >= buffers->threshold);
}

void *ra__buffers_take_own(struct ra__buffers *buffers, struct ra__account *account,
                           enum ra__purpose purpose, size_t bytes)
{
    return take(buffers, account, purpose, bytes, false);
}

/* Takes a buffer off the list and frees it. */
static void remove_buffer(struct ra__buffers *buffers, struct buffer **at)
{
    struct buffer *buffer = *at;
    *at = buffer->next;
    buffers->source.free(buffers->source.device, buffer->memory, buffer->bytes);
    ra__free(buffer);
}

void ra__buffers_give(struct ra__buffers *buffers, const struct ra__account *account, void *memory)
{
    struct buffer **place = &buffers->first;
    if (!memory) return;
    while (*place && (*place)->memory != memory) place = &(*place)->next;
    struct buffer *buffer = *place;
    if (!buffer) return; /* given back already */
    struct lease **at = find_lease(buffer, account), *lease = *at;
    if (!lease) return; /* given back already */
    lease->account->bytes[lease->purpose] -= lease->bytes;
    *at = lease->next;
    ra__free(lease);
    if (!buffer->shared) remove_buffer(buffers, place);
}

bool ra__buffers_trim(struct ra__buffers *buffers)
{
    bool any = false;
    struct buffer **at = &buffers->first;
    while (*at) {
        if ((*at)->leases) {
            at = &(*at)->next;
            continue;
        }
        remove_buffer(buffers, at);
        any = true;
    }
    return any;
}

void ra__buffers_count(const struct ra__buffers *buffers, ra_pool *out)
{
    ra_pool pool = ra_pool_default();
    pool.threshold = buffers->threshold;
    pool.hits = buffers->hits;
    pool.misses = buffers->misses;
    for (const struct buffer *buffer = buffers->first; buffer; buffer = buffer->next) {
        if (!buffer->shared) continue;
        pool.buffers++;
        pool.bytes += buffer->bytes;
        if (!buffer->leases) pool.bytes_idle += buffer->bytes;
    }
    *out = pool;
}
