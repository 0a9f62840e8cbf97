/* SPDX-License-Identifier: Apache-2.0 */
/* diff.h - compares two sets of results: `ringattn bench diff A B`. */
#ifndef BENCH_DIFF_H
#define BENCH_DIFF_H

#include "harness/options/flags.h"

/* Folders or files after the word "diff". A difference is one only where the spreads of both sides
 * have nothing in common. EXIT_PASS also where there are differences. */
int diff_run(const struct options *options);

#endif
