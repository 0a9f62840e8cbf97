/* SPDX-License-Identifier: Apache-2.0 */
/* fold.h - folding a range of keys into a state that the caller holds: a program of one step, or of
 * two where few jobs would have long keys, and these are split. */
#ifndef RA__EXEC_FOLD_H
#define RA__EXEC_FOLD_H

#include "exec/rank.h"
#include "pattern/pattern.h"

/* What computes the folds of a state, and memory it keeps from one to the next. */
struct ra__folder {
    const struct ra__rank *rank; /* the group whose threads fold; NULL: the calling thread alone */
    const struct ra__backend *backend;
    void *device; /* without a group */
    const struct ra__kernel *kernel;
    struct ra__program program;
    int row_room, key_room;
    char *block; /* of the arena */
    size_t block_room;
    void *workspace;
    size_t workspace_room;
    void *split_state; /* of the ranges of split keys, f32 */
    size_t split_room; /* numbers */
};

/* One fold: tensors with strides filled in, k and v starting at first_key. */
struct ra__fold {
    const struct ra__shape *shape;
    const ra_pattern *pattern;
    const struct ra__sequences *sequences;
    const struct ra__terms *terms; /* NULL = none */
    float *m, *l, *acc;            /* [batch, query, head(, value_dim)] */
    ra_tensor q, k, v;
    int64_t first_key, keys;
};

ra_status ra__folder_open(struct ra__folder *folder, const struct ra__kernel *kernel);
void ra__folder_close(struct ra__folder *folder); /* accepts a zeroed or half-made one */

ra_status ra__fold_run(struct ra__folder *folder, const struct ra__fold *fold);

#endif
