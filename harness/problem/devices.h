/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h - the devices of this machine, by the names that --device takes. */
#ifndef HARNESS_DEVICES_H
#define HARNESS_DEVICES_H

#include "harness/base/complain.h"

/* The device with that name; "cuda" is "cuda:0", and "" the default. False: it is not here. */
bool devices_find(const char *name, ra_device *out);

/* Are both of one kind, as "cuda:0" is of "cuda"? */
bool devices_are_alike(const char *device, const char *kind);

/* EXIT_PASS, or a sentence: devices of that kind are here, but none of that name. */
int devices_check(const char *what, const char *name);

/* EXIT_PASS, or a sentence: the device ("" for the default) has no such kernel ("" for any). */
int devices_check_kernel(const char *device, const char *kernel);

/* The dtype of synthetic data on that device where nobody names one. f32 if it is not here. */
ra_dtype devices_dtype(const char *name);

#endif
