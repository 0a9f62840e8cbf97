/* SPDX-License-Identifier: Apache-2.0 */
/* streaming.h - the tensors of a run that streams: none of them is in memory. Inputs are read from
 * files, or generated, block by block where they are needed. Results go to files that get their
 * names when all are complete; of results that no file is named for, only the rows that the oracle
 * will look at are kept, unless later steps read them.
 *
 * With `resume`, files and a journal of finished units stay after a run that did not end well, and
 * the same command continues it. */
#ifndef HARNESS_STREAMING_H
#define HARNESS_STREAMING_H

#include "harness/files/npy.h"
#include "harness/data/data.h"
#include "ringattn_stream.h"

/* Where synthetic rows are made: on the device if that is possible, or in host memory, or on the
 * device or not at all. */
enum data_place { DATA_ANYWHERE, DATA_ON_HOST, DATA_ON_DEVICE };

/* What a run may stream to: paths by tensor, NULL where none is wanted. */
struct stream_files {
    const char *paths[TENSOR_COUNT];
    bool resume;
    bool digests; /* of results, as they are written */
    enum data_place data;
};

struct streaming;

struct streaming_setup {
    const struct trial *trial;
    struct npy_file *const *inputs;  /* by tensor; NULL = synthetic data */
    const int64_t *origin, *indices; /* of an order, or NULL */
    const struct stream_files *files;
    const ra_plan *plan;
};

int streaming_open(struct streaming **out, const struct streaming_setup *setup);
const ra_stream *streaming_callbacks(const struct streaming *streaming);

/* Are rows made, and results reduced, on the device? */
bool streaming_on_device(const struct streaming *streaming);

void streaming_begin(struct streaming *streaming); /* before each run */

/* The digest of a result, as the last run wrote it: harness/data/recipe.h. */
int streaming_digest(const struct streaming *streaming, enum tensor tensor, uint64_t *sum);

/* Are only some rows of the results kept? */
bool streaming_is_sampled(const struct streaming *streaming);

/* Units that an earlier run had done; 0 without one. */
int64_t streaming_resumed(const struct streaming *streaming);

/* One row of a result as f32, by its original position; NaN where it was not kept. */
void streaming_read(const struct streaming *streaming, enum tensor tensor, int64_t batch,
                    int64_t position, int64_t head, float *to);

/* Gives the files their names. */
int streaming_commit(struct streaming *streaming);
void streaming_close(struct streaming *streaming); /* accepts NULL */

#endif
