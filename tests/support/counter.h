/* SPDX-License-Identifier: Apache-2.0 */
/* counter.h - an allocator that counts what the library takes from it, and can run dry. */
#ifndef TESTS_SUPPORT_COUNTER_H
#define TESTS_SUPPORT_COUNTER_H

#include <stdatomic.h>

#include "support/test.h"

struct counter {
    atomic_size_t calls, held, peak, largest; /* bytes, except calls */
    atomic_llong left; /* calls before it says that there is no memory; negative: any number */
};

/* Makes the library use it; zeroed but for `left` = -1. */
void counter_install(struct counter *counter);

/* Back to the C library; everything must have been given back. */
void counter_remove(struct counter *counter);

/* Resets calls and largest; peak starts again from what is allocated. */
void counter_reset(struct counter *counter);

#endif
