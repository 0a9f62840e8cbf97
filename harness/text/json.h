/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - writes JSON. Handles commas, quotes and numbers that JSON cannot express (written as
 * null); nesting is the caller's. `key` is NULL inside a list. */
#ifndef HARNESS_JSON_H
#define HARNESS_JSON_H

#include "harness/base/complain.h"

struct json {
    FILE *stream;
    int depth;
    bool started;  /* the current object or list has a member already */
    bool one_line; /* everything on one line */
};

void json_open(struct json *json, const char *key, char bracket);      /* '{' or '[' */
void json_close(struct json *json, char bracket);                      /* '}' or ']' */
void json_text(struct json *json, const char *key, const char *value); /* NULL = null */
void json_whole(struct json *json, const char *key, int64_t value);
void json_count(struct json *json, const char *key, double value); /* whole, of any size */
void json_real(struct json *json, const char *key, double value);
void json_bool(struct json *json, const char *key, bool value);

#endif
