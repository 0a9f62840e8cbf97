/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - see text.h. */
#include "pattern/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/shape.h"

struct ra__text ra__text_of(const char *text) { return (struct ra__text){ text, strlen(text) }; }

int ra__text_shown(struct ra__text text) { return (int)ra__min((int64_t)text.length, 80); }

struct ra__text ra__text_take(struct ra__text *from, char stop)
{
    const char *end = from->length ? memchr(from->start, stop, from->length) : NULL;
    struct ra__text taken = { from->start, end ? (size_t)(end - from->start) : from->length };
    size_t used = taken.length + (end ? 1 : 0);
    from->start += used;
    from->length -= used;
    return taken;
}

bool ra__text_is(struct ra__text text, const char *word)
{
    return strlen(word) == text.length && !memcmp(text.start, word, text.length);
}

bool ra__text_starts(struct ra__text *text, const char *word)
{
    size_t length = strlen(word);
    if (text->length < length || memcmp(text->start, word, length)) return false;
    text->start += length;
    text->length -= length;
    return true;
}

bool ra__text_number(struct ra__text text, int64_t *number)
{
    int64_t value = 0;
    for (size_t i = 0; i < text.length; i++) {
        int digit = text.start[i] - '0';
        if (digit < 0 || digit > 9 || value > (RA__UNBOUNDED - digit) / 10) return false;
        value = value * 10 + digit;
    }
    if (text.length == 0) return false;
    *number = value;
    return true;
}

bool ra__text_seed(struct ra__text text, uint64_t *seed)
{
    uint64_t value = 0;
    for (size_t i = 0; i < text.length; i++) {
        unsigned digit = (unsigned)(text.start[i] - '0');
        if (digit > 9 || value > (UINT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    if (text.length == 0) return false;
    *seed = value;
    return true;
}

/* Powers of ten up to this one are exact in double. So are up to 15 digits, so one division of the
 * two rounds correctly; a long double is enough for the 17 digits that distinguish any two
 * doubles. */
enum { MOST_PLACES = 22 };
#define LEAST 1e-22 /* its 17 digits end within 2 MOST_PLACES places, as far as they are written */
#define MOST_DIGITS INT64_C(100000000000000000) /* 18 of them */

static long double power_of_ten(int exponent)
{
    long double power = 1.0L;
    for (int i = 0; i < exponent; i++) power *= 10.0L;
    return power;
}

/* Digits with at most one point; the number of digits after it is written to *places. Digits beyond
 * the precision of a double are skipped. */
static bool read_decimal(struct ra__text text, int64_t *digits, int *places)
{
    bool point = false, any = false;
    *digits = *places = 0;
    for (size_t i = 0; i < text.length; i++) {
        int digit = text.start[i] - '0';
        if (text.start[i] == '.' && !point) {
            point = true;
            continue;
        }
        if (digit < 0 || digit > 9) return false;
        any = true;
        if (*digits >= MOST_DIGITS && !point) return false;
        if (*digits >= MOST_DIGITS) continue;
        *digits = *digits * 10 + digit;
        *places += point;
    }
    return any;
}

bool ra__text_fraction(struct ra__text text, double *fraction)
{
    int64_t digits, exponent = 0;
    int places;
    struct ra__text after = text, before = ra__text_take(&after, 'e');
    bool has_exponent = before.length < text.length;
    if (!read_decimal(before, &digits, &places)) return false;
    /* a fraction needs no other */
    if (has_exponent && !ra__text_starts(&after, "-")) return false;
    if (has_exponent && (!ra__text_number(after, &exponent) || exponent > MOST_PLACES))
        return false;
    double value = (double)((long double)digits / power_of_ten(places + (int)exponent));
    if (value > 1.0 || (digits && value < LEAST)) return false;
    *fraction = value;
    return true;
}

void ra__write_fraction(struct ra__writer *w, double fraction)
{
    int places = 0;
    long double digits = fraction;
    while (places < 2 * MOST_PLACES && digits < MOST_DIGITS &&
           (double)(nearbyintl(digits) / power_of_ten(places)) != fraction)
        digits = fraction * power_of_ten(++places);
    int64_t whole = (int64_t)nearbyintl(digits);
    if (places == 0) ra__write(w, "%" PRId64, whole);
    else ra__write(w, "0.%0*" PRId64, places, whole);
}

void ra__write(struct ra__writer *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t room = w->used < w->capacity ? w->capacity - w->used : 0;
    w->used += (size_t)vsnprintf(room ? w->text + w->used : NULL, room, format, args);
    va_end(args);
}
