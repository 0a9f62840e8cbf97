/* SPDX-License-Identifier: Apache-2.0 */
/* gridfiles.h - files that cases of the conformance grid read: bitmaps of blocks and a custom
 * order. They are temporary; after a failure they stay, so that its problem string can be tried
 * again. */
#ifndef HARNESS_GRIDFILES_H
#define HARNESS_GRIDFILES_H

#include "harness/base/complain.h"

enum gridfile {
    GRIDFILE_BITMAP,       /* [GRIDFILE_BLOCKS, GRIDFILE_BLOCKS] booleans */
    GRIDFILE_BITMAP_HEADS, /* [GRIDFILE_HEADS, ...]: one per head */
    GRIDFILE_ORDER,        /* a permutation of GRIDFILE_LENGTH positions */
    GRIDFILE_COUNT
};
enum { GRIDFILE_LENGTH = 61, GRIDFILE_BLOCK = 7, GRIDFILE_BLOCKS = 9, GRIDFILE_HEADS = 6 };

struct gridfiles {
    char *path[GRIDFILE_COUNT]; /* NULL: not made */
};

int gridfiles_make(
    struct gridfiles *files); /* EXIT_FAULT, with a sentence, if they cannot be made */
void gridfiles_close(struct gridfiles *files, bool keep);

#endif
