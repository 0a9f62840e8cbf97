/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - human-readable numbers: sizes, times, counts, bars; lines of words; and a string that
 * grows. */
#include "text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define CELLS_MOST 48

struct text text_bytes(double bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    struct text text;
    int unit = 0;
    while (bytes >= 1024.0 && unit < COUNT(units) - 1) {
        bytes /= 1024.0;
        unit++;
    }
    int digits = unit == 0 ? 0 : bytes < 10.0 ? 2 : bytes < 100.0 ? 1 : 0;
    snprintf(text.s, sizeof text.s, "%.*f %s", digits, bytes, units[unit]);
    return text;
}

struct text text_seconds(double seconds)
{
    struct text text;
    if (seconds < 0.0) seconds = 0.0;
    if (seconds < 1e-3) snprintf(text.s, sizeof text.s, "%.0f us", seconds * 1e6);
    else if (seconds < 1.0)
        snprintf(text.s, sizeof text.s, "%.*f ms", seconds < 0.1 ? 1 : 0, seconds * 1e3);
    else if (seconds < 120.0)
        snprintf(text.s, sizeof text.s, "%.*f s", seconds < 10.0 ? 2 : 1, seconds);
    else if (seconds < 7200.0)
        snprintf(text.s, sizeof text.s, "%d min %02d s", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(text.s, sizeof text.s, "%.0f h %02d min", floor(seconds / 3600.0),
                 (int)fmod(seconds / 60.0, 60.0));
    return text;
}

struct text text_count(int64_t count)
{
    char digits[24];
    struct text text;
    int length = snprintf(digits, sizeof digits, "%lld", (long long)count), used = 0;
    for (int i = 0; i < length; i++) {
        text.s[used++] = digits[i];
        int left = length - 1 - i;
        if (left > 0 && left % 3 == 0 && digits[i] != '-') text.s[used++] = ',';
    }
    text.s[used] = 0;
    return text;
}

struct text text_real(double value)
{
    struct text text;
    double size = fabs(value);
    if (size >= 1e4 && size < 1e15) return text_count((int64_t)llround(value));
    int digits = size >= 100.0 ? 0 : size >= 10.0 ? 1 : 2;
    snprintf(text.s, sizeof text.s, "%.*f", digits, value);
    return text;
}

struct bar text_bar(double fraction, int width)
{
    static const char *const blocks[] = { " ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█" };
    struct bar bar = { "" };
    size_t used = 0;
    if (!(fraction > 0.0)) fraction = 0.0;
    if (fraction > 1.0) fraction = 1.0;
    if (width > CELLS_MOST) width = CELLS_MOST;
    int eighths = (int)lround(fraction * width * 8);
    if (eighths == 0 && fraction > 0.0) eighths = 1;
    for (int i = 0; i < width; i++) {
        int fill = eighths - 8 * i;
        const char *block = blocks[fill <= 0 ? 0 : fill >= 8 ? 8 : fill];
        size_t length = strlen(block);
        memcpy(bar.s + used, block, length);
        used += length;
    }
    bar.s[used] = 0;
    return bar;
}

void text_wrap(const char *text, int column, int indent)
{
    bool first = true;
    for (const char *word = text; *word; word += strspn(word, " ")) {
        int length = (int)strcspn(word, " ");
        if (!first && column + 1 + length > 96) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            putchar(' ');
            column++;
        }
        printf("%.*s", length, word);
        column += length;
        word += length;
        first = false;
    }
    putchar('\n');
}

static bool string_reserve(struct string *string, size_t more)
{
    size_t needed = string->length + more + 1;
    if (needed <= string->capacity) return true;
    size_t capacity = 2 * needed;
    char *s = realloc(string->s, capacity);
    if (!s) {
        string_free(string);
        string->lost = true;
        return false;
    }
    string->s = s;
    string->capacity = capacity;
    return true;
}

void string_add(struct string *string, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0 || string->lost || !string_reserve(string, (size_t)length)) return;
    va_start(args, format);
    vsnprintf(string->s + string->length, (size_t)length + 1, format, args);
    va_end(args);
    string->length += (size_t)length;
}

void string_free(struct string *string)
{
    free(string->s);
    *string = (struct string){ .lost = false };
}

int text_distance(const char *a, const char *b)
{
    enum { MOST = 40 };
    int row[MOST + 1], length = (int)strlen(b);
    if (length > MOST || strlen(a) > MOST) return MOST;
    for (int j = 0; j <= length; j++) row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= length; j++) {
            int swap = corner + (a[i - 1] != b[j - 1]);
            int step = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            corner = row[j];
            row[j] = swap < step ? swap : step;
        }
    }
    return row[length];
}
