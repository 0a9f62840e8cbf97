/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory_core.c - every allocation counted, by purpose and in all; the allocator of the
 * process; arrays that grow; sizes that overflow. */
#include "support/counter.h"

#include "core/memory.h"

static void memory_is_aligned_and_counted(void **state)
{
    (void)state;
    struct ra__account account = { { 0 } };
    size_t before = ra_allocated_bytes();
    void *a = ra__alloc(&account, RA__FOR_TRAVEL, 100), *b = ra__alloc(&account, RA__FOR_TRAVEL, 1);
    void *c = ra__alloc(&account, RA__FOR_STATE, 7), *d = ra__alloc(NULL, RA__FOR_STATE, 50);
    assert_true(a && b && c && d);
    assert_int_equal((uintptr_t)a % 64 + (uintptr_t)b % 64 + (uintptr_t)c % 64 + (uintptr_t)d % 64,
                     0);
    assert_int_equal(account.bytes[RA__FOR_TRAVEL], 101);
    assert_int_equal(account.bytes[RA__FOR_STATE], 7);
    assert_int_equal(account.bytes[RA__FOR_GRADIENT], 0);
    assert_true(ra_allocated_bytes() >= before + 158);
    ra__free(a);
    assert_int_equal(account.bytes[RA__FOR_TRAVEL], 1);
    ra__free(b);
    ra__free(c);
    ra__free(d);
    ra__free(NULL);
    for (int i = 0; i < RA__PURPOSES; i++) assert_int_equal(account.bytes[i], 0);
    assert_int_equal(ra_allocated_bytes(), before);
}

/* What the kernel says of the mapping at an address: 1 if it was asked for huge pages, 0 if not, -1
 * if it does not say. */
static int asked_for_huge_pages(const void *memory)
{
    char line[512];
    unsigned long long from, to, at = (uintptr_t)memory;
    bool inside = false;
    int result = -1;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file && result < 0 && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%llx-%llx ", &from, &to) == 2) inside = at >= from && at < to;
        if (inside && !strncmp(line, "VmFlags:", 8)) result = strstr(line, " hg") != NULL;
    }
    if (file) fclose(file);
    return result;
}

/* Only where the C library gives the memory, and a machine that has huge pages. */
static void large_memory_asks_for_huge_pages(void **state)
{
    (void)state;
    enum { LARGE = 20 << 20, SMALL = 1 << 20 };
    FILE *known = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (!known) skip();
    fclose(known);
    char *large = ra__alloc(NULL, RA__FOR_STATE, LARGE),
         *small = ra__alloc(NULL, RA__FOR_STATE, SMALL);
    assert_true(large && small);
    assert_int_equal((uintptr_t)large % 64, 0);
    memset(large, 1, LARGE);
    memset(small, 1, SMALL);
    if (asked_for_huge_pages(large) >= 0 && !test_slow()) {
        assert_int_equal(asked_for_huge_pages(large + LARGE / 2), 1);
        assert_int_equal(asked_for_huge_pages(small), 0);
    }
    ra__free(large);
    ra__free(small);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void no_bytes_are_still_memory(void **state)
{
    (void)state;
    void *empty = ra__alloc(NULL, RA__FOR_STATE, 0);
    assert_non_null(empty);
    ra__free(empty);
}

static void arrays_are_cleared_and_checked(void **state)
{
    (void)state;
    unsigned char *array = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 33, 7);
    assert_non_null(array);
    for (int i = 0; i < 33 * 7; i++) assert_int_equal(array[i], 0);
    ra__free(array);
    assert_null(ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, SIZE_MAX / 2, 3));
    assert_null(ra__alloc(NULL, RA__FOR_BOOKKEEPING, SIZE_MAX));
    assert_null(ra__alloc(NULL, RA__FOR_BOOKKEEPING, SIZE_MAX - 63));
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void arrays_grow_and_keep_their_elements(void **state)
{
    (void)state;
    struct ra__account account = { { 0 } };
    struct element {
        int number;
        char padding[9];
    } *array = NULL;
    for (int i = 0; i < 1000; i++) {
        array = ra__grow(&account, array, (size_t)i, sizeof *array);
        assert_non_null(array);
        array[i].number = i;
    }
    for (int i = 0; i < 1000; i++) assert_int_equal(array[i].number, i);
    assert_true(account.bytes[RA__FOR_BOOKKEEPING] >= 1000 * sizeof *array);
    assert_true(account.bytes[RA__FOR_BOOKKEEPING] <= 2048 * sizeof *array);
    ra__free(array);
    assert_int_equal(account.bytes[RA__FOR_BOOKKEEPING], 0);
}

/* When there is no memory to grow, the old array stays. */
static void growing_can_fail_without_loss(void **state)
{
    (void)state;
    static struct counter counter;
    counter_install(&counter);
    int *array = NULL;
    for (int i = 0; i < 64; i++) {
        array = ra__grow(NULL, array, (size_t)i, sizeof *array);
        array[i] = i;
    }
    atomic_store(&counter.left, 0);
    assert_null(ra__grow(NULL, array, 64, sizeof *array));
    for (int i = 0; i < 64; i++) assert_int_equal(array[i], i);
    ra__free(array);
    counter_remove(&counter);
}

static void products_are_checked(void **state)
{
    (void)state;
    size_t product = 6;
    assert_true(ra__size_mul(&product, 7));
    assert_int_equal(product, 42);
    assert_true(ra__size_mul(&product, 0));
    assert_int_equal(product, 0);
    product = 1;
    assert_false(ra__size_mul(&product, -1));
    product = SIZE_MAX / 2;
    assert_false(ra__size_mul(&product, 3));
}

/* ---- The allocator of the process ------------------------------------------------------------ */

static void every_byte_comes_from_the_allocator(void **state)
{
    (void)state;
    static struct counter counter;
    ra_pattern *pattern;
    counter_install(&counter);
    assert_ok(ra_pattern_parse("full;docs=0,4,9", &pattern));
    assert_true(atomic_load(&counter.calls) > 0);
    assert_int_equal(atomic_load(&counter.held), ra_allocated_bytes());
    ra_pattern_destroy(pattern);
    assert_int_equal(atomic_load(&counter.held), 0);
    counter_remove(&counter);
    size_t calls = atomic_load(&counter.calls);
    assert_ok(ra_pattern_parse("full;docs=0,4,9", &pattern));
    ra_pattern_destroy(pattern);
    assert_int_equal(atomic_load(&counter.calls), calls); /* no longer asked */
}

static void the_allocator_stays_while_memory_is_held(void **state)
{
    (void)state;
    static struct counter counter;
    ra_pattern *pattern;
    ra_allocator other = ra_allocator_default();
    counter_install(&counter);
    assert_ok(ra_pattern_full(&pattern));
    assert_fails(RA_ERR_ARGUMENT, "bytes are still allocated", ra_allocator_set(NULL));
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%zu", ra_allocated_bytes());
    assert_non_null(strstr(ra_last_error(), bytes));
    ra_pattern *second;
    size_t calls = atomic_load(&counter.calls);
    assert_ok(ra_pattern_full(&second));
    assert_int_equal(atomic_load(&counter.calls), calls + 1); /* still the same allocator */
    ra_pattern_destroy(second);
    ra_pattern_destroy(pattern);
    assert_fails(RA_ERR_ARGUMENT, "alloc and free must both be given", ra_allocator_set(&other));
    counter_remove(&counter);
}

/* A struct whose size was never set is refused, as everywhere. */
static void an_allocator_needs_its_size(void **state)
{
    (void)state;
    static struct counter counter;
    counter_install(&counter);
    ra_allocator unset;
    memset(&unset, 0, sizeof unset);
    unset.alloc = (void *(*)(void *, size_t, size_t))(void (*)(void))ra_version;
    unset.free = (void (*)(void *, void *, size_t))(void (*)(void))ra_version;
    ra_status status = ra_allocator_set(&unset);
    counter_remove(&counter);
    assert_int_equal(status, RA_ERR_ARGUMENT);
}

static void running_dry_is_an_error_with_a_sentence(void **state)
{
    (void)state;
    static struct counter counter;
    counter_install(&counter);
    ra_pattern *pattern = NULL;
    ra_layout *layout = NULL;
    for (int allowed = 0; allowed < 2; allowed++) {
        atomic_store(&counter.left, allowed);
        assert_fails(RA_ERR_MEMORY, "", ra_pattern_parse("full;docs=0,4,9", &pattern));
        assert_null(pattern);
        atomic_store(&counter.left, allowed);
        assert_fails(RA_ERR_MEMORY, "layout", ra_layout_create("zigzag", 40, 3, NULL, &layout));
        assert_null(layout);
        assert_int_equal(atomic_load(&counter.held), 0);
    }
    counter_remove(&counter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_aligned_and_counted),
        cmocka_unit_test(large_memory_asks_for_huge_pages),
        cmocka_unit_test(no_bytes_are_still_memory),
        cmocka_unit_test(arrays_are_cleared_and_checked),
        cmocka_unit_test(arrays_grow_and_keep_their_elements),
        cmocka_unit_test(growing_can_fail_without_loss),
        cmocka_unit_test(products_are_checked),
        cmocka_unit_test(every_byte_comes_from_the_allocator),
        cmocka_unit_test(the_allocator_stays_while_memory_is_held),
        cmocka_unit_test(an_allocator_needs_its_size),
        cmocka_unit_test(running_dry_is_an_error_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
