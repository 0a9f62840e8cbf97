/* SPDX-License-Identifier: Apache-2.0 */
/* digest.h - hashes of the bits that a run wrote, to compare runs. */
#ifndef HARNESS_DIGEST_H
#define HARNESS_DIGEST_H

#include "harness/run/engine.h"

struct digests {
    uint64_t of[TENSOR_COUNT]; /* 0: this run does not write it */
    uint64_t dsinks;           /* of every rank; 0 without sinks or backward */
};

/* Everything a run wrote, in global order, so that it can be compared between ring sizes; of the
 * positions that belong to the ranks of `owner`. */
struct digests digest_all(const struct engine *engine, const struct engine *owner);

#endif
