/* SPDX-License-Identifier: Apache-2.0 */
/* test_step.c - counting instructions one by one: exact, blind to the C library, and without traces
 * behind it. */
#include "support/test.h"

#include <signal.h>
#include <stdlib.h>

#include "bench/perf/step.h"

#if defined(__x86_64__)

static void nothing(void *context) { (void)context; }

static void thousand(void *context)
{
    (void)context;
    __asm__ volatile(".rept 1000\n nop\n .endr");
}

static void two_thousand(void *context)
{
    (void)context;
    __asm__ volatile(".rept 2000\n nop\n .endr");
}

static unsigned char room[500];

/* One instruction, 500 times over; a few set it up. */
static void repeated(void *context)
{
    void *to = context;
    size_t count = sizeof room;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(7) : "memory");
}

static int compare(const void *a, const void *b)
{
    return *(const unsigned char *)a - *(const unsigned char *)b;
}

/* Hundreds of instructions of the C library, some of ours. */
static void through_libc(void *context)
{
    unsigned char *numbers = context;
    qsort(numbers, 2, 1, compare);
}

static void counts_are_exact(void **state)
{
    (void)state;
    int64_t least = step_count(nothing, NULL);
    assert_in_range(least, 1, 50);
    assert_int_equal(step_count(two_thousand, NULL) - step_count(thousand, NULL), 1000);
    assert_in_range(step_count(thousand, NULL), 1000, 1000 + least);
    assert_int_equal(step_count(thousand, NULL), step_count(thousand, NULL));
}

static void a_repeated_instruction_counts_once(void **state)
{
    (void)state;
    assert_in_range(step_count(repeated, room), 1, 100);
    for (int i = 0; i < TEST_COUNT(room); i++) assert_int_equal(room[i], 7);
}

static void the_library_is_not_counted(void **state)
{
    (void)state;
    unsigned char numbers[] = { 9, 4 };
    assert_in_range(step_count(through_libc, numbers), 5, 100);
    assert_int_equal(numbers[0], 4);
}

static void the_handler_of_before_is_back(void **state)
{
    (void)state;
    struct sigaction action;
    step_count(nothing, NULL);
    assert_int_equal(sigaction(SIGTRAP, NULL, &action), 0);
    assert_true(action.sa_handler == SIG_DFL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_exact),
        cmocka_unit_test(a_repeated_instruction_counts_once),
        cmocka_unit_test(the_library_is_not_counted),
        cmocka_unit_test(the_handler_of_before_is_back),
    };
    return step_possible() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}

#else

int main(void) { return step_possible(); }

#endif
