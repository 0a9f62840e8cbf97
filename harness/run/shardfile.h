/* SPDX-License-Identifier: Apache-2.0 */
/* shardfile.h - the part of a rank in a .npy file of a whole tensor: read and written by offset, so
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

/* Writes the positions of a shard into a file that has its full length, as f32 from byte `offset`
 * on. */
int shardfile_write(const char *path, size_t offset, const struct trial *trial, enum tensor tensor,
                    const struct shard *shard, const struct view *view);

#endif
