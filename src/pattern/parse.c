/* parse.c - patterns as text: NAME[:NUMBER,...][;causal][;docs=0,...,n], read and written. */
#include "pattern/pattern.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A piece of the text: no copies, so that long document lists cost nothing. */
struct piece {
    const char *start;
    size_t length;
};

static struct piece take_until(const char **cursor, char stop)
{
    const char *start = *cursor, *end = strchr(start, stop);
    size_t length = end ? (size_t)(end - start) : strlen(start);
    *cursor = end ? end + 1 : start + length;
    return (struct piece){ start, length };
}

static bool piece_is(struct piece piece, const char *word)
{
    return strlen(word) == piece.length && !memcmp(piece.start, word, piece.length);
}

/* Digits up to a comma or the end; false for anything else or for numbers beyond RA__FAR. */
static bool take_number(struct piece *piece, int64_t *number)
{
    int64_t value = 0;
    size_t i = 0;
    for (; i < piece->length && piece->start[i] != ','; i++) {
        int digit = piece->start[i] - '0';
        if (digit < 0 || digit > 9 || value > (RA__FAR - digit) / 10) return false;
        value = value * 10 + digit;
    }
    if (i == 0) return false;
    if (i < piece->length && i + 1 == piece->length) return false; /* a comma at the end */
    size_t used = i < piece->length ? i + 1 : i;
    piece->start += used;
    piece->length -= used;
    *number = value;
    return true;
}

static ra_status parse_args(struct piece args, ra_pattern *pattern)
{
    const struct ra__pattern_kind *kind = pattern->kind;
    while (args.length > 0) {
        if (pattern->arg_count == kind->max_args ||
            !take_number(&args, &pattern->args[pattern->arg_count]))
            return ra__fail(RA_ERR_ARGUMENT, "pattern %s: \"%.*s\" is not understood; write %s",
                            kind->name, (int)args.length, args.start, kind->syntax);
        pattern->arg_count++;
    }
    if (pattern->arg_count < kind->min_args)
        return ra__fail(RA_ERR_ARGUMENT, "pattern %s: a number is missing; write %s", kind->name,
                        kind->syntax);
    return RA_OK;
}

static ra_status parse_documents(struct piece list, ra_pattern *pattern)
{
    int64_t count = 1;
    for (size_t i = 0; i < list.length; i++) count += list.start[i] == ',';
    int64_t *bounds = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)count, sizeof *bounds);
    if (!bounds) return ra__fail(RA_ERR_MEMORY, "documents: %" PRId64 " bounds", count);
    ra_status status = RA_OK;
    for (int64_t i = 0; i < count && status == RA_OK; i++)
        if (!take_number(&list, &bounds[i]))
            status = ra__fail(RA_ERR_ARGUMENT,
                              "documents: bound %" PRId64 " is not a number; write docs=0,...,n",
                              i + 1);
    if (status == RA_OK) status = ra__pattern_set_bounds(pattern, bounds, count);
    ra__free(bounds);
    return status;
}

static ra_status parse_modifier(struct piece word, ra_pattern *pattern)
{
    static const char docs[] = "docs=";
    if (piece_is(word, "causal")) {
        pattern->causal = true;
        return RA_OK;
    }
    if (word.length >= strlen(docs) && !memcmp(word.start, docs, strlen(docs))) {
        if (pattern->bounds) return ra__fail(RA_ERR_ARGUMENT, "pattern: docs= is given twice");
        word.start += strlen(docs);
        word.length -= strlen(docs);
        return parse_documents(word, pattern);
    }
    return ra__fail(RA_ERR_ARGUMENT,
                    "pattern %s: \"%.*s\" is not understood; behind a semicolon stands causal or "
                    "docs=0,...,n",
                    pattern->kind->name, (int)ra__min((int64_t)word.length, 80), word.start);
}

static const char *syntax_at(int index)
{
    const struct ra__pattern_kind *kind = ra__pattern_kind_at(index);
    return kind ? kind->syntax : NULL;
}

static ra_status parse_kind(struct piece head, const struct ra__pattern_kind **out)
{
    for (int i = 0; ra__pattern_kind_at(i); i++) {
        if (!piece_is(head, ra__pattern_kind_at(i)->name)) continue;
        *out = ra__pattern_kind_at(i);
        return RA_OK;
    }
    return ra__fail_unknown("pattern", head.start, head.length, syntax_at);
}

ra_status ra__pattern_parse(const char *text, ra_pattern **out)
{
    const char *cursor = text;
    struct piece first = take_until(&cursor, ';');
    const char *colon = memchr(first.start, ':', first.length);
    struct piece name = { first.start, colon ? (size_t)(colon - first.start) : first.length };
    struct piece args = { colon ? colon + 1 : "", colon ? first.length - name.length - 1 : 0 };
    const struct ra__pattern_kind *kind;
    RA__TRY(parse_kind(name, &kind));
    if (colon && args.length == 0)
        return ra__fail(RA_ERR_ARGUMENT, "pattern %s: nothing stands behind the colon; write %s",
                        kind->name, kind->syntax);
    ra_pattern *pattern;
    RA__TRY(ra__pattern_create(kind, &pattern));
    ra_status status = parse_args(args, pattern);
    bool more = text[first.length] == ';';
    while (status == RA_OK && more) {
        struct piece word = take_until(&cursor, ';');
        more = word.start[word.length] == ';';
        status = parse_modifier(word, pattern);
    }
    if (status != RA_OK) {
        ra_pattern_destroy(pattern);
        return status;
    }
    *out = pattern;
    return RA_OK;
}

/* snprintf that goes on where the last call ended. */
struct writer {
    char *text;
    size_t capacity, used;
};

__attribute__((format(printf, 2, 3))) static void write_text(struct writer *w, const char *format,
                                                             ...)
{
    va_list args;
    va_start(args, format);
    size_t room = w->used < w->capacity ? w->capacity - w->used : 0;
    w->used += (size_t)vsnprintf(room ? w->text + w->used : NULL, room, format, args);
    va_end(args);
}

ra_status ra_pattern_format(const ra_pattern *pattern, char *text, size_t capacity, size_t *length)
{
    if (!pattern || (capacity && !text)) return ra__fail(RA_ERR_ARGUMENT, "pattern: NULL argument");
    struct writer w = { text, capacity, 0 };
    write_text(&w, "%s", pattern->kind->name);
    for (int i = 0; i < pattern->arg_count; i++)
        write_text(&w, "%c%" PRId64, i ? ',' : ':', pattern->args[i]);
    if (pattern->causal) write_text(&w, ";causal");
    for (int64_t i = 0; i < pattern->bound_count; i++)
        write_text(&w, "%s%" PRId64, i ? "," : ";docs=", pattern->bounds[i]);
    if (length) *length = w.used;
    return RA_OK;
}
