/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h - what the verb `bench` can do. Each function returns an exit status. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "case.h"
#include "diff.h"
#include "runner.h"

#endif
