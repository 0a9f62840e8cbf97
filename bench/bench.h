/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h - what the suites of the verb `bench` share. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "harness/base/complain.h"
#include "harness/options/flags.h"

/* Of a full run and of --quick. */
enum { BENCH_RUNS = 11, BENCH_QUICK_RUNS = 3 };

/* The suites; each returns an exit status. */
int bench_kernels(const struct options *options);

#endif
