/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - reading a pattern's text for the oracle. */
#include "scan.h"

#include <stdlib.h>
#include <string.h>

bool scan_word(const char **at, const char *word)
{
    if (strncmp(*at, word, strlen(word))) return false;
    *at += strlen(word);
    return true;
}

int64_t scan_whole(const char **at)
{
    int64_t value = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++)
        value = value < SCAN_FAR / 16 ? value * 10 + (**at - '0') : SCAN_FAR;
    return value;
}

double scan_real(const char **at)
{
    char *end;
    double value = strtod(*at, &end);
    *at = end;
    return value;
}

size_t scan_parts(const char *at)
{
    size_t count = 1;
    for (; *at && *at != ';'; at++) count += *at == ',';
    return count;
}
