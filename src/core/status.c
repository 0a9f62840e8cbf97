/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - the sentence of the last failure, per thread. */
#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char sentence[1024];

void ra__set_error(const char *format, ...)
{
    /* Written to a copy first: an argument may be the old sentence itself. */
    char text[sizeof sentence];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(sentence, sizeof sentence, "%s", text);
}

void ra__set_unknown(const char *what, const char *name, size_t length,
                     const char *(*name_at)(int index))
{
    char known[800] = "";
    size_t used = 0;
    for (int i = 0; name_at(i) && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 name_at(i));
    ra__set_error("%s: \"%.*s\" is not known; there are %s", what, (int)(length < 80 ? length : 80),
                  name, known);
}

const char *ra_last_error(void) { return sentence; }

static const struct {
    const char *name, *text;
} statuses[] = {
#define RA__STATUS_ROW(name, value, text) [value] = { #name, text },
    RA_STATUS_LIST(RA__STATUS_ROW)
#undef RA__STATUS_ROW
};

const char *ra_status_name(ra_status status)
{
    int i = (int)status;
    return i >= 0 && i < RA__COUNT(statuses) ? statuses[i].name : "unknown status";
}

const char *ra_status_text(ra_status status)
{
    int i = (int)status;
    return i >= 0 && i < RA__COUNT(statuses) ? statuses[i].text : "unknown status";
}
