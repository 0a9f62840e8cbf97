/* SPDX-License-Identifier: Apache-2.0 */
/* npy.h - .npy files, read and written without trust.
 *
 * Read: versions 1 and 2, little-endian, C order, of a type that makes sense for the flag, and a
 * file exactly as long as its header says. Everything else is refused by name. Written: f32 or
 * uint8, version 1. */
#ifndef HARNESS_NPY_H
#define HARNESS_NPY_H

#include "harness/base/complain.h"
#include "outfile.h"

#define NPY_MOST_AXES 4

enum npy_type { NPY_F32, NPY_F16, NPY_BOOL, NPY_U8, NPY_I32, NPY_I64, NPY_TYPES };

/* What a file is for, and so which types it may hold. */
enum npy_kind {
    NPY_OF_NUMBERS,   /* f32 or f16; the only kind whose axes may have length 0 */
    NPY_OF_F32,       /* f32 */
    NPY_OF_BIAS,      /* f32, bool or uint8 */
    NPY_OF_MASK,      /* bool or uint8 */
    NPY_OF_POSITIONS, /* int64 or int32 */
    NPY_KINDS
};

struct npy {
    enum npy_type type;
    ra_dtype dtype; /* of numbers */
    int axes;
    int64_t shape[NPY_MOST_AXES];
    int64_t values;
    void *data; /* to be freed */
};

/* `flag` names the file in sentences. *out is written only on success. */
int npy_read_kind(const char *flag, const char *path, enum npy_kind kind, struct npy *out);
int npy_read(const char *flag, const char *path, struct npy *out); /* NPY_OF_NUMBERS */

/* A file of numbers that stays open, for its values to be read in parts; *out has no data. */
struct npy_file;
int npy_open(const char *flag, const char *path, struct npy *out, struct npy_file **file);
void npy_close(struct npy_file *file); /* accepts NULL */

/* The same for a descriptor of another kind of file, whose values start at `offset`; takes it over
 * on success. */
int npy_adopt(const char *flag, const char *path, int descriptor, size_t offset, ra_dtype dtype,
              struct npy_file **file);

/* NULL, or a sentence: the file is not what it was when it was opened. And a text that changes when
 * the file does. */
const char *npy_changed(struct npy_file *file);
const char *npy_identity(struct npy_file *file);

/* So many values from the first-th on, converted to `dtype`; NULL, or a sentence that says what
 * went wrong and stays as long as the file is open. */
const char *npy_read_at(struct npy_file *file, int64_t first, int64_t count, ra_dtype dtype,
                        void *to);

/* The same for several threads at a time: 0, or a number that the sentence is made of. */
int npy_fetch_at(const struct npy_file *file, int64_t first, int64_t count, ra_dtype dtype,
                 void *to);
const char *npy_why(struct npy_file *file, int error);

/* A tensor to be written. */
struct npy_output {
    ra_dtype dtype;
    bool bytes; /* uint8 values instead; dtype is not looked at */
    int axes;
    int64_t shape[NPY_MOST_AXES];
    const void *data;
};

/* What comes before the values, which are f32 or uint8; to be freed. tensorfile.h writes both. */
char *npy_header(const struct npy_output *output, size_t *bytes);

#endif
