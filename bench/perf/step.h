/* SPDX-License-Identifier: Apache-2.0 */
/* step.h - counts instructions by single-stepping, for what no simulator can run. */
#ifndef BENCH_PERF_STEP_H
#define BENCH_PERF_STEP_H

#include <stdbool.h>
#include <stdint.h>

/* Can this machine do it? */
bool step_possible(void);

/* Calls body(context) and returns how many instructions of this program it took on this thread;
 * those of the C library are not counted, because it picks its own by the CPU. A repeated string
 * instruction counts once. Some hundred thousand a second. */
int64_t step_count(void (*body)(void *context), void *context);

#endif
