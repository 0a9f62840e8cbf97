/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h - a fuzz target: what is done with bytes that nobody has checked. It returns 0, or aborts
 * where something does not hold. libFuzzer calls it with bytes of its own making, replay.c with the
 * files of a corpus. */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Like assert(), in every build. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (condition) break;                                                                      \
        fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);              \
        abort();                                                                                   \
    } while (0)

/* The bytes as a text, to be freed. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    MUST(text);
    if (size) memcpy(text, data, size);
    text[size] = 0;
    return text;
}

#endif
