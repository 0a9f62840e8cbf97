/* SPDX-License-Identifier: Apache-2.0 */
/* tensorfile.c - a tensor in a file: .safetensors or .npy. */
#include "tensorfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/half.h"
#include "harness/base/interrupt.h"
#include "safetensors.h"

int tensorfile_open(const char *flag, const char *path, struct npy *out, struct npy_file **file)
{
    return (safetensors_is(path) ? safetensors_open : npy_open)(flag, path, out, file);
}

int tensorfile_read(const char *flag, const char *path, struct npy *out)
{
    return (safetensors_is(path) ? safetensors_read : npy_read)(flag, path, out);
}

/* ---- Writing --------------------------------------------------------------------------------- */

int tensorfile_name(struct tensorfile *to, const char *path)
{
    *to = (struct tensorfile){ .path = path, .file = path ? safetensors_path(path) : NULL };
    return path && !to->file ? fault("out of memory") : EXIT_PASS;
}

void tensorfile_free(struct tensorfile *to)
{
    free(to->file);
    *to = (struct tensorfile){ .path = NULL };
}

char *tensorfile_path_with(const char *path, const char *after)
{
    char *alone = safetensors_path(path);
    size_t room = alone ? strlen(alone) + strlen(after) + 1 : 0;
    char *whole = alone ? malloc(room) : NULL;
    if (whole) snprintf(whole, room, "%s%s", alone, after);
    free(alone);
    return whole;
}

ra_dtype tensorfile_dtype(const struct tensorfile *to, const struct npy_output *output)
{
    return safetensors_is(to->path) ? output->dtype : RA_F32;
}

char *tensorfile_header(const struct tensorfile *to, const struct npy_output *output, size_t *bytes)
{
    return safetensors_is(to->path) ? safetensors_header(to->path, output, bytes)
                                    : npy_header(output, bytes);
}

static size_t count_values(const struct npy_output *output)
{
    size_t values = 1;
    for (int i = 0; i < output->axes; i++) values *= (size_t)output->shape[i];
    return values;
}

static size_t value_bytes(const struct tensorfile *to, const struct npy_output *output)
{
    return output->bytes ? 1 : half_bytes(tensorfile_dtype(to, output));
}

static int write_header(FILE *stream, const struct tensorfile *to, const struct npy_output *output)
{
    size_t bytes;
    char *header = tensorfile_header(to, output, &bytes);
    if (!header) return fault("out of memory");
    fwrite(header, 1, bytes, stream);
    free(header);
    return EXIT_PASS;
}

/* Some at a time, as they are in the file. */
static int write_values(FILE *stream, const struct tensorfile *to, const struct npy_output *output)
{
    enum { CHUNK = 16384 };
    float chunk[CHUNK];
    const size_t values = count_values(output), theirs = value_bytes(to, output);
    const size_t ours = output->bytes ? 1 : half_bytes(output->dtype);
    for (size_t i = 0; i < values; i += CHUNK) {
        const size_t count = values - i < CHUNK ? values - i : CHUNK;
        const char *from = (const char *)output->data + i * ours;
        if (ours != theirs) half_to_float(output->dtype, from, (int64_t)count, chunk);
        fwrite(ours != theirs ? (const char *)chunk : from, theirs, count, stream);
        int status = interrupt_check();
        if (status) return status;
    }
    return EXIT_PASS;
}

int tensorfile_write_room(struct outfile *file, const struct tensorfile *to,
                          const struct npy_output *output, size_t *offset)
{
    int status = outfile_open(file, to->file);
    if (!status) status = write_header(file->stream, to, output);
    if (status) return status;
    fflush(file->stream);
    const off_t bytes = (off_t)(count_values(output) * value_bytes(to, output));
    const long at = ftell(file->stream);
    if (at < 0 || ftruncate(fileno(file->stream), at + bytes))
        return fault("%s: writing failed: %s", to->file, strerror(errno));
    *offset = (size_t)at;
    return outfile_finish(file);
}

int tensorfile_write(struct outfile *file, const struct tensorfile *to,
                     const struct npy_output *output)
{
    int status = outfile_open(file, to->file);
    if (!status) status = write_header(file->stream, to, output);
    if (!status) status = write_values(file->stream, to, output);
    return status ? status : outfile_finish(file);
}
