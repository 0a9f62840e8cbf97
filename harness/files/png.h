/* SPDX-License-Identifier: Apache-2.0 */
/* png.h - grey pictures as .png and .pgm, without a library: nothing is compressed, so the file is
 * a little larger than its pixels. */
#ifndef HARNESS_PNG_H
#define HARNESS_PNG_H

#include "harness/base/complain.h"

struct picture {
    uint32_t width, height;
    unsigned char *pixels; /* [height, width], 0 = black */
};

void png_write(FILE *stream, const struct picture *picture);
void pgm_write(FILE *stream, const struct picture *picture);

#endif
