/* SPDX-License-Identifier: Apache-2.0 */
/* roof.h - which ceiling bounds a kernel, and the rule that nothing is faster than it. */
#ifndef BENCH_ROOF_H
#define BENCH_ROOF_H

#include "ceilings/ceiling.h"
#include "row.h"

/* The ceiling of that name if it works here; NULL if not. */
const struct ceiling *roof_usable(const char *name);

/* The ceiling of a kernel, or of f32 where it has none of its own; NULL where this machine has none
 * of them. */
const struct ceiling *roof_of(const char *kernel);

/* The ceiling of a device that bounds a kernel of its plug-in; NULL where none is known. */
const char *roof_of_device(const char *kernel);

/* A time below work / peak means that less work was done than counted. Compares the row's fastest
 * run with the best that its ceiling ever showed with as many threads, in `rows` or beside the row.
 * Prints a sentence and returns EXIT_CHECK if it is faster. */
int roof_check(const struct row *row, const struct rows *rows);

#endif
