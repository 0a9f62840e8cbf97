/* fold.h - folding a stretch of keys into a state the caller keeps: the state API's way in. */
#ifndef RA__EXEC_FOLD_H
#define RA__EXEC_FOLD_H

#include "exec/job.h"
#include "pattern/pattern.h"

struct ra__fold {
    const struct ra__shape *shape;
    const ra_pattern *pattern;
    const struct ra__kernel *kernel;
    float *m, *l, *acc; /* [batch, query, head(, value_dim)] */
    void *workspace;
    const struct ra__terms *terms; /* NULL = none */
    ra_tensor q, k, v;             /* strides filled in; k and v start at first_key */
    int64_t first_key, keys;
};

ra_status ra__fold_run(const struct ra__fold *fold);

#endif
