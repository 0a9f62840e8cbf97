/* truth.h - nothing is faster than the machine. */
#ifndef BENCH_TRUTH_H
#define BENCH_TRUTH_H

#include "record.h"

/* Holds every row against the best that its ceiling ever showed with as many threads: a time below
 * work / peak means that less was done than was said. Prints each such row to stderr and returns
 * EXIT_CHECK if there is one. */
int truth_check(const struct records *records);

#endif
