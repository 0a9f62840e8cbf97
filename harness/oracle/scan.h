/* SPDX-License-Identifier: Apache-2.0 */
/* scan.h - reading a pattern's text for the oracle. The library has accepted the text already, so
 * nothing here reports errors: text that is not understood is left. */
#ifndef HARNESS_SCAN_H
#define HARNESS_SCAN_H

#include "harness/base/complain.h"

#define SCAN_FAR ((int64_t)1 << 60) /* further than any position, and safe to add to one */

/* Moves past `word` if the text starts with it. */
bool scan_word(const char **at, const char *word);

/* A whole number, SCAN_FAR at most; and one with a fraction. */
int64_t scan_whole(const char **at);
double scan_real(const char **at);

/* How many parts the text has up to ';' or its end, with commas between. */
size_t scan_parts(const char *at);

#endif
