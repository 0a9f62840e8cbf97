/* SPDX-License-Identifier: Apache-2.0 */
/* half.h - the 16-bit formats, rounded to nearest even. Shares no code with the library, because
 * the oracle rounds with it. */
#ifndef HARNESS_HALF_H
#define HARNESS_HALF_H

#include "complain.h"

float half_round(ra_dtype dtype, float value); /* to the nearest value of that dtype */
size_t half_bytes(ra_dtype dtype);             /* 4 or 2 */

/* `count` numbers of a dtype to f32 and back. */
void half_to_float(ra_dtype dtype, const void *from, int64_t count, float *to);
void half_from_float(ra_dtype dtype, const float *from, int64_t count, void *to);

/* Largest relative error of one rounding (2^-24, 2^-8, 2^-11), and of the smallest numbers,
 * absolute. */
double half_unit(ra_dtype dtype);
double half_tiny(ra_dtype dtype);

const char *half_name(ra_dtype dtype); /* "f32", "bf16", "f16" */

#endif
