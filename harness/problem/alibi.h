/* SPDX-License-Identifier: Apache-2.0 */
/* alibi.h - the slopes of ALiBi: standard ones, or a list. */
#ifndef HARNESS_ALIBI_H
#define HARNESS_ALIBI_H

#include "harness/base/complain.h"

/* Is this "" (the standard slopes) or a list of numbers separated by commas? */
int alibi_check(const char *what, const char *text);

/* One slope per head, to be freed. */
int alibi_slopes(const char *text, int64_t heads, float **out);

#endif
