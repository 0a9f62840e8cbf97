/* SPDX-License-Identifier: Apache-2.0 */
/* journal.h - which units of a streamed run are done, in a file that survives the process.
 *
 * Its first lines say what the run is; a journal with other lines belongs to another run and is
 * refused. Then comes a line for each finished unit, on disk after the unit's results are, and last
 * a line that all are complete, before the first file gets its name. A line that was cut off in the
 * middle does not count. */
#ifndef HARNESS_JOURNAL_H
#define HARNESS_JOURNAL_H

#include "harness/base/complain.h"

struct journal {
    char *path;
    int descriptor;
    bool *done[2]; /* by direction: [unit] */
    int64_t units[2];
    int64_t found; /* units that an earlier run did */
    bool complete; /* all of them, and files may have their names */
};

/* Opens the journal of the run that `header` describes, some lines of text. *resumed is false if
 * there is none; journal_create() makes it, once the files it speaks of are there. */
int journal_open(struct journal *journal, const char *path, const char *header,
                 const int64_t units[2], bool *resumed);
int journal_create(struct journal *journal, const char *header);

/* Adds a finished unit, or that all results are on disk; NULL, or a sentence. */
const char *journal_add(struct journal *journal, int backward, int64_t unit);
const char *journal_complete(struct journal *journal);

void journal_remove(struct journal *journal); /* the run is complete */
void journal_close(struct journal *journal);  /* accepts a zeroed one */

#endif
