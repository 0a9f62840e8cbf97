/* SPDX-License-Identifier: Apache-2.0 */
/* digest.h - one number for all bits of a result (harness/data/recipe.h), to compare runs. */
#ifndef HARNESS_DIGEST_H
#define HARNESS_DIGEST_H

#include "harness/run/engine.h"
#include "harness/text/text.h"

struct digests {
    uint64_t of[TENSOR_COUNT]; /* 0: this run does not write it */
    uint64_t dsinks;           /* of every rank; 0 without sinks or backward */
};

/* Everything a run wrote, so that it can be compared between ring sizes; of the positions that
 * belong to the ranks of `owner`. */
struct digests digest_all(const struct engine *engine, const struct engine *owner);

/* Of out and LSE, as the last forward pass wrote them, over all ranks; also of a run that streams.
 * Where ranks are processes, all call it. */
int digest_forward(const struct engine *engine, struct digests *digests);

struct text digest_text(uint64_t digest); /* 16 hexadecimal digits */

#endif
