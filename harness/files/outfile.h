/* SPDX-License-Identifier: Apache-2.0 */
/* outfile.h - files that appear only when complete: written beside their place under another name,
 * flushed to disk, then renamed. */
#ifndef HARNESS_OUTFILE_H
#define HARNESS_OUTFILE_H

#include "harness/base/complain.h"

struct outfile {
    const char *path; /* borrowed */
    char *temporary;
    FILE *stream;
    bool placed; /* it has its name */
    char *old;   /* what had that name before, kept until all is well; NULL: nothing had it */
};

/* Before work starts: can a file of that name be made? A sentence and EXIT_USAGE if not. */
int outfile_check(const char *flag, const char *path);

/* Do two paths name one file, in whatever spelling? It need not exist yet. */
bool outfile_same(const char *a, const char *b);

/* Several processes may write one file: the first of them opens it, the others name it by that
 * one's process id. Any process may discard and remove it, because the first may be gone. So a
 * process claims its files before it commits them: under a third name that no other process
 * touches, or it fails if one has been removed. */
int outfile_open(struct outfile *file, const char *path);
int outfile_name(struct outfile *file, const char *path, long process);
int outfile_finish(struct outfile *file); /* all bytes on disk, still under the other name */
int outfile_claim(struct outfile *file);
int outfile_commit(struct outfile *file); /* rename */
void outfile_discard(
    struct outfile *file); /* removes what has no name, or lost it; accepts a zeroed one */
void outfile_undo(struct outfile *file); /* takes back the name, for what had it before */

#endif
