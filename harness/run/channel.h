/* SPDX-License-Identifier: Apache-2.0 */
/* channel.h - one tensor of a run that streams. Rows of an input are read from a file or made by a
 * recipe; rows of a result go to a file, from which they can be read again, or only those that the
 * oracle will look at are kept. */
#ifndef HARNESS_CHANNEL_H
#define HARNESS_CHANNEL_H

#include <stdatomic.h>
#include <sys/types.h>

#include "harness/base/helpers.h"
#include "harness/data/data.h"
#include "harness/files/npy.h"
#include "harness/files/outfile.h"
#include "ringattn_stream.h"
#include "sample.h"

/* What all channels of a run have in common. */
struct channels {
    const struct trial *trial;
    const int64_t *origin;   /* of an order, or NULL */
    struct helpers *helpers; /* share the rows of a callback; NULL: none */
    float *scratch;          /* of each thread */
    bool digests;            /* of results, as they are written */
    bool kept;               /* a later run continues with what is done */
    char why[512];
};

/* `helpers`: threads that help. */
int channels_open(struct channels *channels, int helpers);
void channels_close(struct channels *channels);

/* RA_ERR_SYSTEM with a sentence. */
ra_status channels_fail(struct channels *channels, const char *why);

struct channel {
    struct channels *owner;
    enum tensor tensor;
    int64_t width, length; /* values of a position; positions */
    ra_dtype dtype;        /* of the library */
    struct npy_file *input;
    struct recipe recipe;    /* of an input without a file */
    _Atomic uint64_t digest; /* of what was written in this run */
    /* A result in a file, in the dtype `stored`, from `offset` on. */
    int descriptor; /* -1: none */
    ra_dtype stored;
    off_t offset;
    struct outfile file;  /* its name; a temporary file has none */
    bool named;           /* the user gave it */
    struct sample sample; /* a result of which only some rows are kept */
};

/* Callbacks of ra_rows, with the channel as their context. */
ra_status channel_read_input(void *channel, int64_t batch, int64_t first, int64_t count, void *to);
ra_status channel_read_result(void *channel, int64_t batch, int64_t first, int64_t count, void *to);
ra_status channel_write_result(void *channel, int64_t batch, int64_t first, int64_t count,
                               const void *from);

/* RA_ERR_SYSTEM with a sentence on the file of a result. */
ra_status channel_fail(const struct channel *channel, int error);

/* Where a position is in the file of a result; and bytes there. False with errno set. */
off_t channel_place(const struct channel *channel, int64_t batch, int64_t position);
bool channel_move(const struct channel *channel, bool write, void *data, size_t bytes, off_t at);

#endif
