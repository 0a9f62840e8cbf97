/* outfile.h - files that appear only when complete: written beside their place under another name,
 * flushed to disk, then renamed. */
#ifndef CLI_OUTFILE_H
#define CLI_OUTFILE_H

#include "cli.h"

struct outfile {
    const char *path; /* borrowed */
    char *temporary;
    FILE *stream;
};

/* Before work starts: can a file of that name be made? A sentence and EXIT_USAGE if not. */
int outfile_check(const char *flag, const char *path);

/* Do two paths name one file, in whatever spelling? It need not exist yet. */
bool outfile_same(const char *a, const char *b);

/* Several processes may write one file: the first of them opens it, the others then name it by that
 * one's process id. Whoever discards it removes it. */
int outfile_open(struct outfile *file, const char *path);
int outfile_name(struct outfile *file, const char *path, long process);
int outfile_finish(struct outfile *file); /* all bytes on disk, still under the other name */
int outfile_commit(struct outfile *file); /* rename */
void outfile_discard(
    struct outfile *file); /* removes what is not committed; accepts a zeroed one */

#endif
