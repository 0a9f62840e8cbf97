/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - the process-wide allocator, with accounting of every byte. A header of one cache line
 * precedes each allocation, so ra__free needs nothing but the pointer and alignment is kept. */
#include "core/memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef MADV_HUGEPAGE
enum { ADVICE = MADV_HUGEPAGE };
#else
enum { ADVICE = MADV_NORMAL };
#endif

enum { ALIGNMENT = 64 };

/* Large buffers ask for huge pages: filling them takes few page faults, and reading them few TLB
 * misses. Smaller buffers would waste much of a page. */
enum { HUGE_PAGE = 2 << 20, WORTH_IT = 2 * HUGE_PAGE };

struct header {
    size_t bytes; /* without this header */
    struct ra__account *account;
    enum ra__purpose purpose;
};
_Static_assert(sizeof(struct header) <= ALIGNMENT, "the header fits before the memory");

/* Plans make many small arrays, and malloc takes a third of the instructions of posix_memalign.
 * What malloc returned stands in front of the aligned memory. */
static void *small_alloc(size_t bytes, size_t alignment)
{
    char *start = malloc(bytes + alignment); /* aligned to 16: there is room for a pointer */
    if (!start) return NULL;
    void **memory = (void **)(start + alignment - (uintptr_t)start % alignment);
    memory[-1] = start;
    return memory;
}

static void *c_alloc(void *context, size_t bytes, size_t alignment)
{
    (void)context;
    if (bytes < WORTH_IT) return small_alloc(bytes, alignment);
    void *memory = NULL;
    if (posix_memalign(&memory, HUGE_PAGE, bytes)) return NULL;
    madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, ADVICE); /* whole pages; harmless if refused */
    return memory;
}

static void c_free(void *context, void *memory, size_t bytes)
{
    (void)context;
    free(bytes < WORTH_IT ? ((void **)memory)[-1] : memory);
}

static ra_allocator allocator = { sizeof(ra_allocator), c_alloc, c_free, NULL };
static pthread_mutex_t allocator_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_size_t total;

bool ra__allocator_replace(const ra_allocator *replacement)
{
    pthread_mutex_lock(&allocator_lock);
    bool free_to_go = atomic_load(&total) == 0;
    if (free_to_go) {
        allocator.alloc = replacement ? replacement->alloc : c_alloc;
        allocator.free = replacement ? replacement->free : c_free;
        allocator.context = replacement ? replacement->context : NULL;
    }
    pthread_mutex_unlock(&allocator_lock);
    return free_to_go;
}

size_t ra__allocated_bytes(void) { return atomic_load(&total); }

void *ra__alloc(struct ra__account *account, enum ra__purpose purpose, size_t bytes)
{
    if (bytes > SIZE_MAX - ALIGNMENT) return NULL;
    char *memory = allocator.alloc(allocator.context, bytes + ALIGNMENT, ALIGNMENT);
    if (!memory) return NULL;
    *(struct header *)memory = (struct header){ bytes, account, purpose };
    if (account) account->bytes[purpose] += bytes;
    atomic_fetch_add(&total, bytes + ALIGNMENT);
    return memory + ALIGNMENT;
}

void *ra__alloc_array(struct ra__account *account, enum ra__purpose purpose, size_t count,
                      size_t bytes)
{
    size_t product;
    if (__builtin_mul_overflow(count, bytes, &product)) return NULL;
    void *memory = ra__alloc(account, purpose, product);
    return memory ? memset(memory, 0, product) : NULL;
}

void ra__charge(struct ra__account *account, void *memory)
{
    if (!memory) return;
    struct header *header = (struct header *)((char *)memory - ALIGNMENT);
    header->account = account;
    account->bytes[header->purpose] += header->bytes;
}

void ra__free(void *memory)
{
    if (!memory) return;
    char *start = (char *)memory - ALIGNMENT;
    struct header header = *(struct header *)start;
    if (header.account) header.account->bytes[header.purpose] -= header.bytes;
    allocator.free(allocator.context, start, header.bytes + ALIGNMENT);
    atomic_fetch_sub(&total, header.bytes + ALIGNMENT);
}

void *ra__grow_full(struct ra__account *account, void *array, size_t count, size_t bytes)
{
    size_t size;
    if (__builtin_mul_overflow(count ? 2 * count : RA__FIRST_ROOM, bytes, &size)) return NULL;
    char *larger = ra__alloc(account, RA__FOR_BOOKKEEPING, size);
    if (!larger) return NULL;
    if (array) memcpy(larger, array, count * bytes);
    ra__free(array);
    return larger;
}

bool ra__size_mul(size_t *product, int64_t factor)
{
    return factor >= 0 && !__builtin_mul_overflow(*product, (size_t)factor, product);
}
