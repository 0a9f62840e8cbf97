/* SPDX-License-Identifier: Apache-2.0 */
/* results.h - the results of suites in a folder: SUITE.jsonl, which grows row by row, and
 * SUITE.csv. What is there already is not measured again, so an interrupted suite goes on. */
#ifndef BENCH_RESULTS_H
#define BENCH_RESULTS_H

#include "harness/options/flags.h"
#include "row.h"

struct results {
    struct rows rows;
    const char *folder; /* borrowed; NULL: nothing is written */
    const char *suite;  /* borrowed */
    FILE *stream;       /* SUITE.jsonl, at its end; NULL without a folder */
    int stale;          /* rows of another version, machine or mode, which were dropped */
};

/* Before work starts: could files of this suite be made in that folder? */
int results_check(const char *folder, const char *suite);

/* Makes the folder, unless it is there. */
int results_make_folder(const char *folder);

/* Reads the rows of that suite that this program on this machine and device measured, and drops
 * others. */
int results_open(struct results *results, const char *suite, const struct options *options);

/* On disk when this returns. */
int results_add(struct results *results, const struct row *row);

/* Writes the CSV. */
int results_finish(struct results *results);
void results_close(struct results *results);

/* All rows of a folder's *.jsonl, in the order of the suites, or of one file. `what` names it in
 * sentences. A line that is no row is refused with its number. */
int results_read(const char *what, const char *path, struct rows *rows);

#endif
