/* SPDX-License-Identifier: Apache-2.0 */
/* dice.h - random problems, the same in every run: combinations that no list contains. */
#ifndef TESTS_SUPPORT_DICE_H
#define TESTS_SUPPORT_DICE_H

#include "support/test.h"

/* Another problem string for each number: a dilated or blocks pattern of any shape, now and then a
 * dense one, with any modifiers, order, lengths, heads, ring, partition and strategy. */
struct dice_problem {
    char text[512];
};
struct dice_problem dice_problem(uint64_t number);

/* The same with score terms, dtypes, kernels, threads and strides. */
struct dice_problem dice_run(uint64_t number);

#endif
