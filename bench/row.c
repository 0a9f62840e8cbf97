/* SPDX-License-Identifier: Apache-2.0 */
/* row.c - results as lines of JSON and of CSV, and back. */
#include "row.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "commit.h"
#include "harness/base/machine.h"
#include "harness/problem/devices.h"
#include "harness/problem/parts.h"
#include "harness/text/json.h"

/* ---- Members --------------------------------------------------------------------------------- */

enum type { TYPE_TEXT, TYPE_WHOLE, TYPE_REAL };

static const struct member {
    const char *name, *meaning;
    enum type type;
    size_t offset, bytes;
} members[] = {
#define TEXT(name, bytes, meaning) { #name, meaning, TYPE_TEXT, offsetof(struct row, name), bytes },
#define WHOLE(name, meaning) { #name, meaning, TYPE_WHOLE, offsetof(struct row, name), 0 },
#define REAL(name, meaning) { #name, meaning, TYPE_REAL, offsetof(struct row, name), 0 },
#include "row.list"
#undef TEXT
#undef WHOLE
#undef REAL
};

const char *row_member(int index, const char **meaning)
{
    if (index < 0 || index >= COUNT(members)) return NULL;
    *meaning = members[index].meaning;
    return members[index].name;
}

static const char *text_of(const struct row *row, const struct member *m)
{
    return (const char *)row + m->offset;
}

static int64_t whole_of(const struct row *row, const struct member *m)
{
    int64_t value;
    memcpy(&value, (const char *)row + m->offset, sizeof value);
    return value;
}

static double real_of(const struct row *row, const struct member *m)
{
    double value;
    memcpy(&value, (const char *)row + m->offset, sizeof value);
    return value;
}

void row_default(struct row *row)
{
    double none = NAN;
    memset(row, 0, sizeof *row);
    for (int i = 0; i < COUNT(members); i++)
        if (members[i].type == TYPE_REAL)
            memcpy((char *)row + members[i].offset, &none, sizeof none);
    row->schema = ROW_SCHEMA;
}

int row_check_device(const char *device)
{
    ra_part part;
    const size_t letters = strcspn(device, ":");
    if (!parts_find("device", device, letters, &part) || part.usable) return EXIT_PASS;
    return refuse("--device %s: %s", device, part.why);
}

void row_machine(struct row *row, const char *device)
{
    struct utsname system;
    time_t now = time(NULL);
    struct tm utc;
    ra_device known;
    const bool has_name = devices_find(device, &known) && *known.name;
    const bool cpu = !*device || !strcmp(device, "cpu");
    snprintf(row->device, sizeof row->device, "%s", *device ? device : "cpu");
    snprintf(row->device_name, sizeof row->device_name, "%s",
             has_name ? known.name
             : cpu    ? machine_cpu()
                      : device);
    row->cores = machine_cores();
    row->memory_bytes = (double)machine_memory();
    if (uname(&system) == 0)
        snprintf(row->os, sizeof row->os, "%.30s %.40s", system.sysname, system.release);
    snprintf(row->version, sizeof row->version, "%s", ra_version());
    snprintf(row->commit, sizeof row->commit, "%s", bench_commit);
    if (gmtime_r(&now, &utc)) strftime(row->started, sizeof row->started, "%FT%TZ", &utc);
}

bool row_is_cpu(const struct row *row) { return !*row->device || !strcmp(row->device, "cpu"); }

struct device_text row_device_text(const struct row *row)
{
    struct device_text text;
    if (row_is_cpu(row))
        snprintf(text.s, sizeof text.s, "%s, %lld cores", row->device_name, (long long)row->cores);
    else snprintf(text.s, sizeof text.s, "%s", row->device_name);
    return text;
}

void row_seconds(struct row *row, struct spread spread)
{
    row->seconds = spread.median;
    row->seconds_least = spread.least;
    row->seconds_most = spread.most;
}

void row_rate(struct row *row, struct spread spread)
{
    row->rate = spread.median;
    row->rate_least = spread.least;
    row->rate_most = spread.most;
}

void row_share(struct row *row, struct spread spread)
{
    row->share = spread.median;
    row->share_least = spread.least;
    row->share_most = spread.most;
}

void row_ratio(struct row *row, struct spread spread)
{
    row->ratio = spread.median;
    row->ratio_least = spread.least;
    row->ratio_most = spread.most;
}

/* ---- Lists ----------------------------------------------------------------------------------- */

int rows_add(struct rows *rows, const struct row *row)
{
    if (rows->count == rows->capacity) {
        int capacity = rows->capacity ? 2 * rows->capacity : 64;
        struct row *at = realloc(rows->at, (size_t)capacity * sizeof *at);
        if (!at) return fault("out of memory: %d rows", capacity);
        rows->at = at;
        rows->capacity = capacity;
    }
    rows->at[rows->count++] = *row;
    return EXIT_PASS;
}

void rows_free(struct rows *rows)
{
    free(rows->at);
    *rows = (struct rows){ .at = NULL };
}

bool row_same(const struct row *a, const struct row *b)
{
    return !strcmp(a->suite, b->suite) && !strcmp(a->section, b->section) &&
           !strcmp(a->name, b->name) && !strcmp(a->problem, b->problem) &&
           !strcmp(a->options, b->options) && !strcmp(a->pass, b->pass);
}

bool row_has_spread(const struct row *row) { return row->runs >= ROW_RUNS_FEWEST; }

const struct row *rows_find(const struct rows *rows, const struct row *like)
{
    for (int i = 0; i < rows->count; i++)
        if (row_same(&rows->at[i], like)) return &rows->at[i];
    return NULL;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

void row_write(FILE *stream, const struct row *row)
{
    struct json json = { .stream = stream, .one_line = true };
    json_open(&json, NULL, '{');
    for (const struct member *m = members; m < members + COUNT(members); m++) {
        const char *text = text_of(row, m);
        if (m->type == TYPE_TEXT) json_text(&json, m->name, *text ? text : NULL);
        else if (m->type == TYPE_WHOLE) json_whole(&json, m->name, whole_of(row, m));
        else json_real(&json, m->name, real_of(row, m));
    }
    json_close(&json, '}');
}

/* Reads a string after its first quote into `to`, as far as that has room. Returns what follows the
 * last quote; NULL where there is none. */
static const char *read_string(const char *at, char *to, size_t bytes)
{
    size_t length = 0;
    for (; *at && *at != '"'; at++) {
        char letter = *at;
        if (letter == '\\' && at[1] == 'u') {
            letter = '?'; /* control characters, which no member has */
            for (int i = 0; i < 5 && at[1]; i++) at++;
        } else if (letter == '\\' && at[1]) letter = *++at;
        if (length + 1 < bytes) to[length++] = letter;
    }
    if (bytes) to[length] = 0;
    return *at ? at + 1 : NULL;
}

/* Skips a value that nobody knows: a number, a word, a string, or a flat list. */
static const char *skip_value(const char *at)
{
    if (*at == '"') return read_string(at + 1, NULL, 0);
    if (*at == '[') {
        at = strchr(at, ']');
        return at ? at + 1 : NULL;
    }
    return at + strcspn(at, ",}");
}

static const char *read_value(const char *at, const struct member *m, struct row *row)
{
    char *place = (char *)row + m->offset, *end;
    if (!strncmp(at, "null", 4)) return at + 4;
    if (m->type == TYPE_TEXT) return *at == '"' ? read_string(at + 1, place, m->bytes) : NULL;
    double real = strtod(at, &end);
    int64_t whole = (int64_t)strtoll(at, NULL, 10);
    if (end == at) return NULL;
    if (m->type == TYPE_WHOLE) memcpy(place, &whole, sizeof whole);
    else memcpy(place, &real, sizeof real);
    return end;
}

static const char *skip_space(const char *at)
{
    while (isspace((unsigned char)*at)) at++;
    return at;
}

bool row_read(const char *line, struct row *row)
{
    const char *at = skip_space(line);
    row_default(row);
    row->schema = 0;
    if (*at++ != '{') return false;
    while (at && *(at = skip_space(at)) == '"') {
        char name[32];
        at = read_string(at + 1, name, sizeof name);
        if (!at || *(at = skip_space(at)) != ':') return false;
        at = skip_space(at + 1);
        const struct member *m = members;
        while (m < members + COUNT(members) && strcmp(m->name, name)) m++;
        at = m < members + COUNT(members) ? read_value(at, m, row) : skip_value(at);
        if (at && *(at = skip_space(at)) == ',') at++;
    }
    return at && *at == '}' && row->schema > 0;
}

/* ---- CSV ------------------------------------------------------------------------------------- */

static void csv_text(FILE *stream, const char *text)
{
    if (!*text) return;
    fputc('"', stream);
    for (; *text; text++) {
        if (*text == '"') fputc('"', stream);
        fputc(*text, stream);
    }
    fputc('"', stream);
}

static void csv_row(FILE *stream, const struct row *row)
{
    for (const struct member *m = members; m < members + COUNT(members); m++) {
        if (m > members) fputc(',', stream);
        if (m->type == TYPE_TEXT) csv_text(stream, text_of(row, m));
        else if (m->type == TYPE_WHOLE) fprintf(stream, "%" PRId64, whole_of(row, m));
        else if (isfinite(real_of(row, m))) fprintf(stream, "%.9g", real_of(row, m));
    }
    fputc('\n', stream);
}

void rows_csv(FILE *stream, const struct rows *rows)
{
    for (int i = 0; i < COUNT(members); i++) fprintf(stream, "%s%s", i ? "," : "", members[i].name);
    fputc('\n', stream);
    for (int i = 0; i < rows->count; i++) csv_row(stream, &rows->at[i]);
}
