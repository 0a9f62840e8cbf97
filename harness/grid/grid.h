/* SPDX-License-Identifier: Apache-2.0 */
/* grid.h - the built-in conformance grid: problem strings in groups, made by walking the lists
 * of what the library has, so that a new kernel, pattern, partition or strategy is tested
 * without an edit. */
#ifndef HARNESS_GRID_H
#define HARNESS_GRID_H

#include "harness/base/complain.h"
#include "gridfiles.h"

struct grid_case {
    const char *group; /* static */
    char *text;        /* a problem string */
};

struct grid {
    struct grid_case *cases;
    int count, capacity;
    bool lost; /* memory ran out */
    struct gridfiles files;
};

/* `device` is what the cases will run on; NULL or "" = the default. `kernel` limits the grid to one
 * kernel; NULL or "" = every usable one of the device. Without `files` it has no cases that read
 * some. */
int grid_open(struct grid *grid, const char *device, const char *kernel, bool files);
void grid_close(struct grid *grid, bool keep_files);

#endif
