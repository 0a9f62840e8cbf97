/* SPDX-License-Identifier: Apache-2.0 */
/* rings.h - `plan --rings 1,2,4,8`: memory per rank over several rank counts, beside the
 * formula. */
#ifndef HARNESS_RINGS_H
#define HARNESS_RINGS_H

#include "harness/options/flags.h"

int rings_print(const struct options *options);

#endif
