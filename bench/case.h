/* SPDX-License-Identifier: Apache-2.0 */
/* case.h - one configuration, measured in this process: `ringattn bench case PROBLEM`. Suites start
 * such a process for each configuration, and anybody can repeat one by hand. */
#ifndef BENCH_CASE_H
#define BENCH_CASE_H

#include "harness/options/flags.h"

enum { CASE_RUNS = 11, CASE_RUNS_MOST = 1000 };

/* A name after this word stands for a ceiling, in the place of a problem. */
#define CASE_CEILING "ceiling:"

/* Measures what the words after "case" say and prints its rows as lines of JSON: forward, and
 * backward where the problem has gradients. Returns an exit status. */
int case_run(const struct options *options);

#endif
