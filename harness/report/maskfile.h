/* SPDX-License-Identifier: Apache-2.0 */
/* maskfile.h - the mask of a pattern as a file: numbers (.npy, .safetensors) or a picture (.png,
 * .pgm), in original positions, as the library sees it. */
#ifndef HARNESS_MASKFILE_H
#define HARNESS_MASKFILE_H

#include "harness/base/complain.h"
#include "harness/options/flags.h"

/* Before anything is written: name, sizes and head. */
int maskfile_check(const struct options *options);
int maskfile_write(const struct options *options);

#endif
