/* SPDX-License-Identifier: Apache-2.0 */
/* shardfile.h - the part of a rank in the file of a whole tensor: read and written by offset, so
 * that no process has the whole tensor. */
#ifndef HARNESS_SHARDFILE_H
#define HARNESS_SHARDFILE_H

#include "harness/base/complain.h"
#include "harness/data/data.h"
#include "harness/files/npy.h"

/* Fills a packed view with the positions of a shard. The sentence of a failure is the library's
 * (ra_last_error), for it is called inside a rank. */
ra_status shardfile_read(struct npy_file *file, const struct trial *trial, enum tensor tensor,
                         const struct shard *shard, const struct view *view);

/* A file that has its full length, with values of this dtype from byte `offset` on. */
struct shardfile {
    const char *path;
    size_t offset;
    ra_dtype dtype; /* f32, or that of the tensor */
};

/* Writes the positions of a shard. */
int shardfile_write(const struct shardfile *to, const struct trial *trial, enum tensor tensor,
                    const struct shard *shard, const struct view *view);

#endif
