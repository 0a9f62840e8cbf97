/* SPDX-License-Identifier: Apache-2.0 */
/* ondevice.h - the rows of a stream in memory of the device. Inputs are made there; of results only
 * digests and the rows that the oracle will look at come to the host. */
#ifndef HARNESS_ONDEVICE_H
#define HARNESS_ONDEVICE_H

#include "harness/data/data.h"
#include "ringattn_stream.h"

struct ondevice;

/* For a forward run of synthetic data. NULL stays in *out if the device cannot make rows. */
int ondevice_open(struct ondevice **out, const struct trial *trial, bool digests);
void ondevice_close(struct ondevice *device); /* accepts NULL */

/* Its callbacks, in place of those there are. */
void ondevice_set(struct ondevice *device, ra_stream *callbacks);

void ondevice_begin(struct ondevice *device); /* before each run */

/* One row of a result as f32; NaN where it was not kept. */
void ondevice_read(const struct ondevice *device, enum tensor tensor, int64_t batch,
                   int64_t position, int64_t head, float *to);

/* Of out or LSE, as the last run wrote them. */
int ondevice_digest(const struct ondevice *device, enum tensor tensor, uint64_t *sum);

#endif
