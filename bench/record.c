/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - the lines of a benchmark, in memory and in files. */
#include "record.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/text/json.h"
#include "harness/base/machine.h"
#include "harness/files/outfile.h"

int records_add(struct records *records, const struct record *record)
{
    if (records->count == records->capacity) {
        int capacity = records->capacity ? 2 * records->capacity : 64;
        struct record *rows = realloc(records->rows, (size_t)capacity * sizeof *rows);
        if (!rows) return fault("out of memory: %d rows", capacity);
        records->rows = rows;
        records->capacity = capacity;
    }
    records->rows[records->count++] = *record;
    return EXIT_PASS;
}

void records_free(struct records *records)
{
    free(records->rows);
    *records = (struct records){ .rows = NULL };
}

/* ---- Members, in one order for both formats -------------------------------------------------- */

/* One member goes to one of these; a figure there is not is NaN, a text there is not NULL, a count
 * 0. */
struct sink {
    void (*text)(void *to, const char *key, const char *value);
    void (*whole)(void *to, const char *key, int64_t value);
    void (*real)(void *to, const char *key, double value);
    void *to;
};

static void put_spread(const struct sink *sink, const char *const keys[3], bool there,
                       const struct spread *spread)
{
    sink->real(sink->to, keys[0], there ? spread->median : NAN);
    sink->real(sink->to, keys[1], there ? spread->least : NAN);
    sink->real(sink->to, keys[2], there ? spread->most : NAN);
}

static void put_record(const struct sink *sink, const char *suite, const struct record *r)
{
    static const char *const seconds[] = { "seconds", "seconds_least", "seconds_most" };
    static const char *const rate[] = { "rate", "rate_least", "rate_most" };
    static const char *const ceiling[] = { "ceiling_rate", "ceiling_least", "ceiling_most" };
    static const char *const share[] = { "share", "share_least", "share_most" };
    bool runs = r->dtype != NULL;
    sink->text(sink->to, "suite", suite);
    sink->text(sink->to, "version", ra_version());
    sink->text(sink->to, "machine", machine_cpu());
    sink->whole(sink->to, "cores", machine_cores());
    sink->text(sink->to, "kind", r->kind);
    sink->text(sink->to, "name", r->name);
    sink->text(sink->to, "absent", *r->absent ? r->absent : NULL);
    sink->whole(sink->to, "threads", r->threads);
    sink->whole(sink->to, "runs", r->runs);
    sink->text(sink->to, "dtype", r->dtype);
    sink->text(sink->to, "pass", r->pass);
    sink->text(sink->to, "pattern", r->pattern);
    sink->whole(sink->to, "dim", r->dim);
    sink->whole(sink->to, "heads", r->heads);
    sink->whole(sink->to, "queries", r->q_len);
    sink->whole(sink->to, "keys", r->k_len);
    sink->real(sink->to, "work", runs ? r->work : NAN);
    put_spread(sink, seconds, runs, &r->seconds);
    sink->text(sink->to, "unit", r->unit);
    put_spread(sink, rate, !*r->absent, &r->rate);
    sink->text(sink->to, "ceiling", r->ceiling);
    put_spread(sink, ceiling, r->ceiling != NULL, &r->ceiling_rate);
    sink->real(sink->to, "ceiling_peak", r->peak > 0.0 ? r->peak : NAN);
    put_spread(sink, share, r->ceiling != NULL, &r->share);
}

/* ---- JSON lines ------------------------------------------------------------------------------ */

static void json_put_text(void *to, const char *key, const char *value)
{
    json_text(to, key, value);
}

static void json_put_whole(void *to, const char *key, int64_t value)
{
    if (value) json_whole(to, key, value);
    else json_text(to, key, NULL);
}

static void json_put_real(void *to, const char *key, double value) { json_real(to, key, value); }

static void write_json(FILE *stream, const char *suite, const struct records *records)
{
    for (int i = 0; i < records->count; i++) {
        struct json json = { .stream = stream, .one_line = true };
        struct sink sink = { json_put_text, json_put_whole, json_put_real, &json };
        json_open(&json, NULL, '{');
        put_record(&sink, suite, &records->rows[i]);
        json_close(&json, '}');
    }
}

/* ---- CSV ------------------------------------------------------------------------------------- */

struct csv {
    FILE *stream;
    bool started; /* the line has a field already */
    bool names;   /* the first line: keys instead of values */
};

static bool csv_begin(struct csv *csv, const char *key)
{
    if (csv->started) fputc(',', csv->stream);
    csv->started = true;
    if (csv->names) fputs(key, csv->stream);
    return !csv->names;
}

static void csv_put_text(void *to, const char *key, const char *value)
{
    struct csv *csv = to;
    if (!csv_begin(csv, key) || !value) return;
    fputc('"', csv->stream);
    for (; *value; value++) {
        if (*value == '"') fputc('"', csv->stream);
        fputc(*value, csv->stream);
    }
    fputc('"', csv->stream);
}

static void csv_put_whole(void *to, const char *key, int64_t value)
{
    struct csv *csv = to;
    if (csv_begin(csv, key) && value) fprintf(csv->stream, "%" PRId64, value);
}

static void csv_put_real(void *to, const char *key, double value)
{
    struct csv *csv = to;
    if (csv_begin(csv, key) && isfinite(value)) fprintf(csv->stream, "%.9g", value);
}

static void write_csv(FILE *stream, const char *suite, const struct records *records)
{
    for (int i = -1; i < records->count; i++) {
        struct csv csv = { .stream = stream, .names = i < 0 };
        struct sink sink = { csv_put_text, csv_put_whole, csv_put_real, &csv };
        put_record(&sink, suite, &records->rows[i < 0 ? 0 : i]);
        fputc('\n', stream);
    }
}

/* ---- Files ----------------------------------------------------------------------------------- */

static const struct format {
    const char *ending;
    void (*write)(FILE *stream, const char *suite, const struct records *records);
} formats[] = { { "jsonl", write_json }, { "csv", write_csv } };

enum { PATH_MOST = 4096 };

static int make_path(char *path, const char *folder, const char *suite, const char *ending)
{
    int length = snprintf(path, PATH_MOST, "%s/%s.%s", folder, suite, ending);
    return length < PATH_MOST ? EXIT_PASS : refuse("--out: the folder's name is too long");
}

int records_check(const char *folder, const char *suite)
{
    struct stat info;
    char path[PATH_MOST];
    int status = EXIT_PASS;
    if (stat(folder, &info)) return outfile_check("--out", folder); /* to be made beside others */
    if (!S_ISDIR(info.st_mode)) return refuse("--out: %s is not a folder", folder);
    for (int i = 0; i < COUNT(formats) && !status; i++) {
        status = make_path(path, folder, suite, formats[i].ending);
        if (!status) status = outfile_check("--out", path);
    }
    return status;
}

int records_write(const struct records *records, const char *folder, const char *suite)
{
    struct outfile files[COUNT(formats)] = { { .path = NULL } };
    char paths[COUNT(formats)][PATH_MOST];
    int status = EXIT_PASS;
    if (mkdir(folder, 0777) && errno != EEXIST)
        return fault("%s: cannot be made: %s", folder, strerror(errno));
    for (int i = 0; i < COUNT(formats) && !status; i++) {
        status = make_path(paths[i], folder, suite, formats[i].ending);
        if (!status) status = outfile_open(&files[i], paths[i]);
        if (!status) formats[i].write(files[i].stream, suite, records);
        if (!status) status = outfile_finish(&files[i]);
    }
    for (int i = 0; i < COUNT(formats) && !status; i++) status = outfile_commit(&files[i]);
    for (int i = 0; i < COUNT(formats); i++) outfile_discard(&files[i]);
    return status;
}
