/* SPDX-License-Identifier: Apache-2.0 */
/* test_arena.c - the two walks over the memory of a plan: what is counted is what is taken, and too
 * much is said to be. */
#include "support/test.h"

#include <stdlib.h>

#include "core/arena.h"

static void *source_alloc(void *device, size_t bytes)
{
    (void)device;
    return bytes < 1 << 20 ? malloc(bytes) : NULL;
}

static void source_free(void *device, void *memory, size_t bytes)
{
    (void)device, (void)bytes;
    free(memory);
}

static struct ra__buffers *make_pool(void)
{
    struct ra__buffers *pool;
    assert_ok(ra__buffers_create(
        1 << 20, (struct ra__buffer_source){ source_alloc, source_free, NULL }, &pool));
    return pool;
}

static const struct {
    int64_t count;
    size_t bytes;
} arrays[] = { { 1, 8 }, { 3, 100 }, { 0, 16 }, { 64, 1 }, { 1, 1 }, { 7, 65 } };

enum { ARRAYS = TEST_COUNT(arrays) };

/* Arrays, a buffer of the device and one of the host. */
struct memory {
    char *arrays[ARRAYS];
    void *device, *host, *none;
};

static void walk(struct ra__arena *arena, struct memory *memory)
{
    for (int i = 0; i < ARRAYS; i++)
        assert_ok(
            ra__arena_array(arena, arrays[i].count, arrays[i].bytes, (void **)&memory->arrays[i]));
    assert_ok(ra__arena_buffer(arena, RA__FOR_STATE, 1000, &memory->device));
    assert_ok(ra__arena_host(arena, RA__FOR_TRAVEL, 500, &memory->host));
    assert_ok(ra__arena_buffer(arena, RA__FOR_TRAVEL, 0, &memory->none));
    assert_null(memory->none);
}

static void what_is_counted_is_taken(void **state)
{
    (void)state;
    struct memory memory;
    struct ra__arena counted = { .counting = true };
    walk(&counted, &memory);
    assert_null(memory.device);
    assert_null(memory.host);
    for (int i = 0; i < ARRAYS; i++) assert_null(memory.arrays[i]);
    assert_false(counted.overflow);
    assert_int_equal(counted.bytes[RA__FOR_STATE], 1000);
    assert_int_equal(counted.bytes[RA__FOR_TRAVEL], 500);

    struct ra__account account = { { 0 } };
    const size_t room = counted.bytes[RA__FOR_BOOKKEEPING];
    struct ra__arena real = { .account = &account, .pool = make_pool(), .room = room };
    real.block = ra__alloc(&account, RA__FOR_BOOKKEEPING, room);
    assert_non_null(real.block);
    memset(real.block, 0xa5, room);
    walk(&real, &memory);
    assert_int_equal(real.used, room);
    for (int i = 0; i < ARRAYS; i++) {
        const size_t bytes = (size_t)arrays[i].count * arrays[i].bytes;
        assert_int_equal((uintptr_t)memory.arrays[i] % 64, 0);
        assert_true(memory.arrays[i] >= real.block &&
                    memory.arrays[i] + bytes <= real.block + room);
        for (size_t k = 0; k < bytes; k++) assert_int_equal(memory.arrays[i][k], 0);
        memset(memory.arrays[i], i + 1, bytes); /* those after it are cleared, and its own */
    }
    for (int p = 0; p < RA__PURPOSES; p++) assert_int_equal(account.bytes[p], counted.bytes[p]);
    ra__free(memory.host);
    ra__buffers_give(real.pool, &account, memory.device);
    ra__buffers_destroy(real.pool);
    ra__free(real.block);
    for (int p = 0; p < RA__PURPOSES; p++) assert_int_equal(account.bytes[p], 0);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void too_much_is_seen(void **state)
{
    (void)state;
    void *memory;
    struct ra__arena arena = { .counting = true };
    assert_ok(ra__arena_array(&arena, INT64_MAX, 16, &memory));
    assert_true(arena.overflow);
    arena = (struct ra__arena){ .counting = true };
    assert_ok(ra__arena_buffer(&arena, RA__FOR_STATE, SIZE_MAX, &memory));
    assert_true(arena.overflow);
    arena = (struct ra__arena){ .counting = true };
    assert_ok(ra__arena_host(&arena, RA__FOR_TRAVEL, SIZE_MAX - 1, &memory));
    assert_false(arena.overflow);
    assert_ok(ra__arena_host(&arena, RA__FOR_TRAVEL, 2, &memory));
    assert_true(arena.overflow);
}

static void without_memory(void **state)
{
    (void)state;
    void *memory;
    struct ra__account account = { { 0 } };
    struct ra__arena arena = { .account = &account, .pool = make_pool(), .rank = 3 };
    assert_fails(RA_ERR_MEMORY, "rank 3",
                 ra__arena_buffer(&arena, RA__FOR_STATE, (size_t)1 << 30, &memory));
    assert_null(memory);
    ra__buffers_destroy(arena.pool);
    assert_int_equal(ra_allocated_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_counted_is_taken),
        cmocka_unit_test(too_much_is_seen),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
