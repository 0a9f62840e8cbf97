/* SPDX-License-Identifier: Apache-2.0 */
/* truth.h - nothing is faster than the machine. */
#ifndef BENCH_TRUTH_H
#define BENCH_TRUTH_H

#include "record.h"

/* Compares every line with the best that its ceiling ever showed with as many threads: a time below
 * work / peak means that less work was done than counted. Prints each such line to stderr and
 * returns EXIT_CHECK if there is one. */
int truth_check(const struct records *records);

#endif
