/* SPDX-License-Identifier: Apache-2.0 */
/* counter.c - an allocator that counts what the library takes from it, and can run dry. */
#include "support/counter.h"

#include <stdlib.h>

static void raise_to(atomic_size_t *most, size_t value)
{
    size_t old = atomic_load(most);
    while (old < value && !atomic_compare_exchange_weak(most, &old, value)) {
    }
}

static void *count_alloc(void *context, size_t bytes, size_t alignment)
{
    struct counter *counter = context;
    void *memory = NULL;
    atomic_fetch_add(&counter->calls, 1);
    if (atomic_load(&counter->left) == 0) return NULL;
    if (atomic_load(&counter->left) > 0) atomic_fetch_sub(&counter->left, 1);
    if (posix_memalign(&memory, alignment, bytes)) return NULL;
    raise_to(&counter->largest, bytes);
    raise_to(&counter->peak, atomic_fetch_add(&counter->held, bytes) + bytes);
    return memory;
}

static void count_free(void *context, void *memory, size_t bytes)
{
    struct counter *counter = context;
    atomic_fetch_sub(&counter->held, bytes);
    free(memory);
}

void counter_install(struct counter *counter)
{
    memset(counter, 0, sizeof *counter);
    atomic_store(&counter->left, -1);
    ra_allocator allocator = ra_allocator_default();
    allocator.alloc = count_alloc;
    allocator.free = count_free;
    allocator.context = counter;
    assert_ok(ra_allocator_set(&allocator));
}

void counter_remove(struct counter *counter)
{
    assert_int_equal(atomic_load(&counter->held), 0);
    assert_int_equal(ra_allocated_bytes(), 0);
    assert_ok(ra_allocator_set(NULL));
}

void counter_reset(struct counter *counter)
{
    atomic_store(&counter->calls, 0);
    atomic_store(&counter->largest, 0);
    atomic_store(&counter->peak, atomic_load(&counter->held));
}
