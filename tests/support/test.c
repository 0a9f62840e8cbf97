/* SPDX-License-Identifier: Apache-2.0 */
/* test.c - checks that show the library's sentence. */
#include "support/test.h"

#include <stdlib.h>

bool test_long(void)
{
    const char *text = getenv("RINGATTN_LONG");
    return text && !strcmp(text, "1");
}

#if !defined(__has_feature)
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
enum { SLOW = 1 };
#else
enum { SLOW = 0 };
#endif

bool test_slow(void) { return SLOW; }

void test_status(ra_status expected, ra_status got, const char *call, const char *file, int line)
{
    if (got == expected) return;
    print_error("%s gives %s, not %s\n  \"%s\"\n", call, ra_status_name(got),
                ra_status_name(expected), ra_last_error());
    _fail(file, line);
}

void test_sentence(const char *part, const char *call, const char *file, int line)
{
    const char *sentence = ra_last_error();
    if (*sentence && strstr(sentence, part)) return;
    print_error("%s says \"%s\", not \"...%s...\"\n", call, sentence, part);
    _fail(file, line);
}

void test_forget(void) { ra_transport_error(RA_OK, ""); }
