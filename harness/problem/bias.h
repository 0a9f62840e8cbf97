/* SPDX-License-Identifier: Apache-2.0 */
/* bias.h - what a trial may name as its bias: a kind of synthetic one, or a file. */
#ifndef HARNESS_BIAS_H
#define HARNESS_BIAS_H

#include "harness/base/complain.h"

/* A synthetic kind: which axes it has besides queries and keys, and whether it is a mask. */
struct bias_kind {
    const char *name;
    bool batches, heads, mask;
};

/* NULL where the text is none. */
const struct bias_kind *bias_kind(const char *text);

/* Is this a kind of synthetic bias ("add", ...) or the name of a .npy file? */
int bias_check(const char *what, const char *text);

#endif
