/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - writes JSON, indented, one member per line unless all is to be on one; lists of numbers
 * on one line. */
#include "json.h"

#include <inttypes.h>
#include <math.h>

static void put_string(FILE *stream, const char *text)
{
    fputc('"', stream);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\') fprintf(stream, "\\%c", *c);
        else if (*c < 0x20) fprintf(stream, "\\u%04x", *c);
        else fputc(*c, stream);
    }
    fputc('"', stream);
}

/* The text before every value: comma, line, key. List members of one number stay on the line. */
static void begin(struct json *json, const char *key, bool inline_member)
{
    inline_member |= json->one_line;
    if (json->started) fputs(inline_member ? ", " : ",", json->stream);
    if (!inline_member && json->depth > 0) fprintf(json->stream, "\n%*s", 2 * json->depth, "");
    if (key) {
        put_string(json->stream, key);
        fputs(": ", json->stream);
    }
    json->started = true;
}

void json_open(struct json *json, const char *key, char bracket)
{
    begin(json, key, false);
    fputc(bracket, json->stream);
    json->depth++;
    json->started = false;
}

void json_close(struct json *json, char bracket)
{
    json->depth--;
    if (bracket == '}' && json->started && !json->one_line)
        fprintf(json->stream, "\n%*s", 2 * json->depth, "");
    fputc(bracket, json->stream);
    json->started = true;
    if (json->depth == 0) fputc('\n', json->stream);
}

void json_text(struct json *json, const char *key, const char *value)
{
    begin(json, key, !key);
    if (value) put_string(json->stream, value);
    else fputs("null", json->stream);
}

void json_whole(struct json *json, const char *key, int64_t value)
{
    begin(json, key, !key);
    fprintf(json->stream, "%" PRId64, value);
}

void json_count(struct json *json, const char *key, double value)
{
    begin(json, key, !key);
    fprintf(json->stream, "%.0f", trunc(value));
}

void json_real(struct json *json, const char *key, double value)
{
    begin(json, key, !key);
    if (isfinite(value)) fprintf(json->stream, "%.12g", value);
    else fputs("null", json->stream);
}

void json_bool(struct json *json, const char *key, bool value)
{
    begin(json, key, !key);
    fputs(value ? "true" : "false", json->stream);
}
