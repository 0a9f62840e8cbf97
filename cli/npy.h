/* npy.h - .npy files, read and written without trust.
 *
 * Read: versions 1 and 2, little-endian f32 and f16, C order, and a file exactly as long as its
 * header says. Everything else is refused by name. Written: f32 or uint8, version 1. */
#ifndef CLI_NPY_H
#define CLI_NPY_H

#include "cli.h"
#include "outfile.h"

#define NPY_MOST_AXES 4

struct npy {
    ra_dtype dtype; /* RA_F32 or RA_F16 */
    int axes;
    int64_t shape[NPY_MOST_AXES];
    int64_t values;
    void *data; /* to be freed */
};

/* `flag` names the file in sentences. *out is written only on success. */
int npy_read(const char *flag, const char *path, struct npy *out);

/* Writes header and values, converted to f32, but leaves the file uncommitted. */
struct npy_output {
    ra_dtype dtype;
    bool bytes; /* uint8 values instead; dtype is not looked at */
    int axes;
    int64_t shape[NPY_MOST_AXES];
    const void *data;
};
int npy_write(struct outfile *file, const char *path, const struct npy_output *output);

#endif
