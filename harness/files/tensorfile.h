/* SPDX-License-Identifier: Apache-2.0 */
/* tensorfile.h - a tensor in a file, by its path: FILE.safetensors:NAME, or else .npy. The first
 * keeps the dtype of what is written, the second has f32 in any case. */
#ifndef HARNESS_TENSORFILE_H
#define HARNESS_TENSORFILE_H

#include "npy.h"

/* As npy_open() and npy_read(). */
int tensorfile_open(const char *flag, const char *path, struct npy *out, struct npy_file **file);
int tensorfile_read(const char *flag, const char *path, struct npy *out);

/* Where a tensor is written. */
struct tensorfile {
    const char *path; /* as the user gave it; borrowed */
    char *file;       /* without the name of a tensor; owned */
};
int tensorfile_name(struct tensorfile *to, const char *path); /* NULL: no file */
void tensorfile_free(struct tensorfile *to);

/* The file of a path, with something after its name; to be freed. NULL if memory ran out. */
char *tensorfile_path_with(const char *path, const char *after);

/* The dtype of values in the file. What comes before them, to be freed; NULL if memory ran out. */
ra_dtype tensorfile_dtype(const struct tensorfile *to, const struct npy_output *output);
char *tensorfile_header(const struct tensorfile *to, const struct npy_output *output,
                        size_t *bytes);

/* Writes header and values, but leaves the file uncommitted. */
int tensorfile_write(struct outfile *file, const struct tensorfile *to,
                     const struct npy_output *output);

/* The same with all values 0, to be written by others: *offset is where they begin. */
int tensorfile_write_room(struct outfile *file, const struct tensorfile *to,
                          const struct npy_output *output, size_t *offset);

#endif
