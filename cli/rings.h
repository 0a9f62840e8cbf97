/* rings.h - `plan --rings 1,2,4,8`: memory per rank over several rank counts, beside the
 * formula. */
#ifndef CLI_RINGS_H
#define CLI_RINGS_H

#include "flags.h"

int rings_print(const struct options *options);

#endif
