/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c - patterns as text: NAME[:ARGS][;WORD]..., read and written. Words that a kind does not
 * know are modifiers: causal, docs=0,...,n. */
#include <inttypes.h>
#include <string.h>

#include "pattern/pattern.h"

static ra_status read_numbers(ra_pattern *pattern, struct ra__text args)
{
    const struct ra__pattern_kind *kind = pattern->kind;
    while (args.length > 0) {
        struct ra__text rest = args, number = ra__text_take(&args, ',');
        bool comma_at_end = args.length == 0 && rest.length > number.length;
        if (pattern->arg_count == kind->max_args || comma_at_end ||
            !ra__text_number(number, &pattern->args[pattern->arg_count]))
            return ra__fail(RA_ERR_ARGUMENT, "pattern %s: \"%.*s\" is not understood; write %s",
                            kind->name, ra__text_shown(rest), rest.start, kind->syntax);
        pattern->arg_count++;
    }
    if (pattern->arg_count < kind->min_args)
        return ra__fail(RA_ERR_ARGUMENT, "pattern %s: a number is missing; write %s", kind->name,
                        kind->syntax);
    return RA_OK;
}

static ra_status read_documents(ra_pattern *pattern, struct ra__text list)
{
    int64_t count = 1;
    for (size_t i = 0; i < list.length; i++) count += list.start[i] == ',';
    int64_t *bounds = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)count, sizeof *bounds);
    if (!bounds) return ra__fail(RA_ERR_MEMORY, "documents: %" PRId64 " bounds", count);
    ra_status status = RA_OK;
    for (int64_t i = 0; i < count && status == RA_OK; i++)
        if (!ra__text_number(ra__text_take(&list, ','), &bounds[i]))
            status = ra__fail(RA_ERR_ARGUMENT,
                              "documents: bound %" PRId64 " is not a number; write docs=0,...,n",
                              i + 1);
    if (status == RA_OK) status = ra__pattern_set_bounds(pattern, bounds, count);
    ra__free(bounds);
    return status;
}

ra_status ra__pattern_add(ra_pattern *pattern, struct ra__text word)
{
    bool known = false;
    if (pattern->kind->add) RA__TRY(pattern->kind->add(pattern, word, &known));
    if (known) return RA_OK;
    if (ra__text_is(word, "causal")) {
        pattern->causal = true;
        return RA_OK;
    }
    struct ra__text list = word;
    if (ra__text_starts(&list, "docs=")) {
        if (pattern->bounds) return ra__fail(RA_ERR_ARGUMENT, "pattern: docs= is given twice");
        return read_documents(pattern, list);
    }
    return ra__fail(RA_ERR_ARGUMENT,
                    "pattern %s: \"%.*s\" is not understood; write %s, followed by ;causal or "
                    ";docs=0,...,n",
                    pattern->kind->name, ra__text_shown(word), word.start, pattern->kind->syntax);
}

static const char *syntax_at(int index)
{
    const struct ra__pattern_kind *kind = ra__pattern_kind_at(index);
    return kind ? kind->syntax : NULL;
}

static ra_status read_kind(struct ra__text name, const struct ra__pattern_kind **out)
{
    for (int i = 0; ra__pattern_kind_at(i); i++) {
        if (!ra__text_is(name, ra__pattern_kind_at(i)->name)) continue;
        *out = ra__pattern_kind_at(i);
        return RA_OK;
    }
    return ra__fail_unknown("pattern", name.start, name.length, syntax_at);
}

static ra_status fill(ra_pattern *pattern, bool colon, struct ra__text args, struct ra__text words,
                      bool more)
{
    const struct ra__pattern_kind *kind = pattern->kind;
    if (colon && args.length == 0)
        return ra__fail(RA_ERR_ARGUMENT, "pattern %s: nothing follows the colon; write %s",
                        kind->name, kind->syntax);
    RA__TRY(kind->read ? kind->read(pattern, args) : read_numbers(pattern, args));
    while (more) {
        struct ra__text rest = words, word = ra__text_take(&words, ';');
        more = rest.length > word.length;
        RA__TRY(ra__pattern_add(pattern, word));
    }
    return RA_OK;
}

ra_status ra__pattern_parse(const char *text, ra_pattern **out)
{
    struct ra__text words = ra__text_of(text), first = ra__text_take(&words, ';');
    struct ra__text args = first, name = ra__text_take(&args, ':');
    const struct ra__pattern_kind *kind;
    RA__TRY(read_kind(name, &kind));
    ra_pattern *pattern;
    RA__TRY(ra__pattern_create(kind, &pattern));
    ra_status status = fill(pattern, name.length < first.length, args, words,
                            text[first.length] == ';');
    if (status != RA_OK) {
        ra_pattern_destroy(pattern);
        return status;
    }
    *out = pattern;
    return RA_OK;
}

ra_status ra_pattern_format(const ra_pattern *pattern, char *text, size_t capacity, size_t *length)
{
    if (!pattern || (capacity && !text)) return ra__fail(RA_ERR_ARGUMENT, "pattern: NULL argument");
    struct ra__writer w = { text, capacity, 0 };
    ra__write(&w, "%s", pattern->kind->name);
    for (int i = 0; i < pattern->arg_count; i++)
        ra__write(&w, "%c%" PRId64, i ? ',' : ':', pattern->args[i]);
    if (pattern->kind->write) pattern->kind->write(pattern, &w);
    if (pattern->causal) ra__write(&w, ";causal");
    for (int64_t i = 0; i < pattern->bound_count; i++)
        ra__write(&w, "%s%" PRId64, i ? "," : ";docs=", pattern->bounds[i]);
    if (length) *length = w.used;
    return RA_OK;
}
