/* SPDX-License-Identifier: Apache-2.0 */
/* values.h - the synthetic values of a row, made fast: a run that streams synthetic data makes them
 * while it computes. */
#ifndef HARNESS_VALUES_H
#define HARNESS_VALUES_H

#include "harness/data/recipe.h"

/* recipe_value() of each number of a row, not rounded to a dtype. */
void values_make(const struct recipe *recipe, int64_t batch, int64_t position, int64_t head,
                 float *to);

#endif
