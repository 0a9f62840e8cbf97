/* SPDX-License-Identifier: Apache-2.0 */
/* number.c - numbers from text, strictly. */
#include "number.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int number_whole(const char *what, const char *text, int64_t least, int64_t most, int64_t *out)
{
    const char *digits = *text == '-' ? text + 1 : text;
    if (!*digits || strspn(digits, "0123456789") != strlen(digits))
        return refuse("%s: \"%.40s\" is not a whole number", what, text);
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno == ERANGE || value < least || value > most)
        return refuse("%s: %.40s is out of range; from %" PRId64 " to %" PRId64, what, text, least,
                      most);
    *out = value;
    return EXIT_PASS;
}

int number_real(const char *what, const char *text, double least, double most, double *out)
{
    char *end;
    bool plain = *text && strspn(text, "0123456789.eE+-") == strlen(text);
    double value = plain ? strtod(text, &end) : 0.0;
    if (!plain || *end) return refuse("%s: \"%.40s\" is not a number", what, text);
    if (!isfinite(value) || value < least || value > most)
        return refuse("%s: %.40s is out of range; from %g to %g", what, text, least, most);
    *out = value;
    return EXIT_PASS;
}

/* "", "K", "MB", "GiB", ... as a power of 1024; -1 for other endings. */
static int unit_power(const char *unit)
{
    static const char letters[] = "BKMGT";
    if (!*unit) return 0;
    const char *letter = strchr(letters, toupper((unsigned char)*unit));
    if (!letter) return -1;
    bool bare = !unit[1] || !strcasecmp(unit + 1, "B") || !strcasecmp(unit + 1, "iB");
    if (!bare || (letter == letters && unit[1])) return -1;
    return (int)(letter - letters);
}

int number_bytes(const char *what, const char *text, int64_t *out)
{
    size_t length = strspn(text, "0123456789.");
    int power = unit_power(text + length);
    char *end;
    double value = strtod(text, &end);
    if (!length || end != text + length || power < 0)
        return refuse("%s: \"%.40s\" is not a size; write 4096, 512M or 2G", what, text);
    double bytes = value * pow(1024.0, power);
    if (!(bytes >= 1.0 && bytes <= 0x1p60))
        return refuse("%s: %.40s is out of range; from 1 byte to 2^60", what, text);
    *out = (int64_t)bytes;
    return EXIT_PASS;
}

bool number_multiply(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}
