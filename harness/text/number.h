/* SPDX-License-Identifier: Apache-2.0 */
/* number.h - numbers from text, strictly: no sign where none makes sense, no junk, no overflow.
 *
 * `what` is how the user wrote it ("--tokens", "n="), for the sentence. */
#ifndef HARNESS_NUMBER_H
#define HARNESS_NUMBER_H

#include "harness/base/complain.h"

int number_whole(const char *what, const char *text, int64_t least, int64_t most, int64_t *out);
int number_real(const char *what, const char *text, double least, double most, double *out);

/* 512M, 2G, 1.5GiB, 4096: bytes, in powers of 1024. */
int number_bytes(const char *what, const char *text, int64_t *out);

/* a * b into *product; false where that does not fit. */
bool number_multiply(size_t a, size_t b, size_t *product);

#endif
