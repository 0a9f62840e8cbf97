/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - the verb `report`: a page from a set of results. */
#ifndef BENCH_REPORT_REPORT_H
#define BENCH_REPORT_REPORT_H

#include "harness/options/flags.h"

/* Writes options->out, the same as Markdown beside it, and its plots as pictures in a folder. */
int report_write(const struct options *options);

#endif
