/* text.c - see text.h. */
#include "pattern/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/shape.h"

struct ra__text ra__text_of(const char *text) { return (struct ra__text){ text, strlen(text) }; }

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
        if (digit < 0 || digit > 9 || value > (RA__FAR - digit) / 10) return false;
        value = value * 10 + digit;
    }
    if (text.length == 0) return false;
    *number = value;
    return true;
}

/* strtod needs an end, and takes words and signs that are no shares. */
bool ra__text_share(struct ra__text text, double *share)
{
    char copy[40], *end;
    if (text.length == 0 || text.length >= sizeof copy) return false;
    memcpy(copy, text.start, text.length);
    copy[text.length] = 0;
    if (strspn(copy, "0123456789.eE+-") != text.length || copy[0] == '-') return false;
    double value = strtod(copy, &end);
    if (*end || !(value >= 0.0 && value <= 1.0)) return false;
    *share = value;
    return true;
}

void ra__write(struct ra__writer *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t room = w->used < w->capacity ? w->capacity - w->used : 0;
    w->used += (size_t)vsnprintf(room ? w->text + w->used : NULL, room, format, args);
    va_end(args);
}
