/* SPDX-License-Identifier: Apache-2.0 */
/* runner.h - runs suites: each configuration in a process of its own, row after row. */
#ifndef BENCH_RUNNER_H
#define BENCH_RUNNER_H

#include "row.h"
#include "suite.h"

/* One suite, or all (NULL). Returns an exit status: EXIT_CHECK where a result was wrong or faster
 * than its ceiling. */
int runner_run(const struct suite *suite, const struct options *options);

/* What to type to measure a row again; to be freed, NULL if memory ran out. */
char *runner_command(const struct row *row);

#endif
