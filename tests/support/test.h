/* SPDX-License-Identifier: Apache-2.0 */
/* test.h - what every test program includes: cmocka, its own headers in the right order, and checks
 * that show the library's sentence. */
#ifndef TESTS_SUPPORT_TEST_H
#define TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ringattn.h"

#define TEST_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* RINGATTN_LONG=1 in the environment: larger grids, minutes instead of seconds. */
bool test_long(void);

/* Built with the thread sanitizer, which takes ten times as long: grids take fewer points. */
bool test_slow(void);

/* The call must succeed. */
#define assert_ok(call) test_status(RA_OK, (call), #call, __FILE__, __LINE__)

/* The call must fail with this status and leave a sentence that contains `part`. */
#define assert_fails(expected, part, call)                                                         \
    (test_forget(), test_status((expected), (call), #call, __FILE__, __LINE__),                    \
     test_sentence((part), #call, __FILE__, __LINE__))

void test_status(ra_status expected, ra_status got, const char *call, const char *file, int line);
void test_sentence(const char *part, const char *call, const char *file, int line);
void test_forget(void); /* so that an old sentence cannot pass for a new one */

#endif
