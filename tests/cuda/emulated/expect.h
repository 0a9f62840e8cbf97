/* SPDX-License-Identifier: Apache-2.0 */
/* expect.h - what a test of the emulation expects; `failures` counts what did not hold. */
#ifndef EMULATED_EXPECT_H
#define EMULATED_EXPECT_H

#include <stdio.h>

static int failures;

#define EXPECT(CONDITION)                                                                          \
    do {                                                                                           \
        if (!(CONDITION)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #CONDITION);                        \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)
#define OK(CALL) EXPECT((CALL) == cudaSuccess)

#endif
