/* SPDX-License-Identifier: Apache-2.0 */
/* shorthand.h - flags that stand for others: --segment-lengths with --dilation-rates, and
 * --system. */
#ifndef HARNESS_SHORTHAND_H
#define HARNESS_SHORTHAND_H

#include "harness/base/complain.h"
#include "flags.h"

/* Writes them out into the trial; what was given by its own flag stays. */
int shorthand_expand(struct options *options);

#endif
