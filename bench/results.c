/* SPDX-License-Identifier: Apache-2.0 */
/* results.c - the results of suites in a folder. */
#include "results.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/files/outfile.h"
#include "suite.h"

enum { PATH_MOST = 4096 };

static int make_path(char *path, const char *folder, const char *suite, const char *ending)
{
    int length = snprintf(path, PATH_MOST, "%s/%s.%s", folder, suite, ending);
    return length < PATH_MOST ? EXIT_PASS : refuse("--out: the folder's name is too long");
}

int results_check(const char *folder, const char *suite)
{
    static const char *const endings[] = { "jsonl", "csv" };
    struct stat info;
    char path[PATH_MOST];
    const bool there = stat(folder, &info) == 0;
    if (there && !S_ISDIR(info.st_mode)) return refuse("--out: %s is not a folder", folder);
    int status = there ? EXIT_PASS : outfile_check("--out", folder); /* to be made beside others */
    for (int i = 0; i < COUNT(endings) && !status; i++) {
        status = make_path(path, folder, suite, endings[i]);
        if (!status && there) status = outfile_check("--out", path);
    }
    return status;
}

int results_make_folder(const char *folder)
{
    if (!mkdir(folder, 0777) || errno == EEXIST) return EXIT_PASS;
    return refuse("--out: %s cannot be made: %s", folder, strerror(errno));
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Rows of one file. The last line of a file that was being written when its program was killed may
 * be in pieces: it is left out where `forgive`. */
static int read_rows(const char *path, bool forgive, struct rows *rows)
{
    FILE *stream = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    struct row row;
    int number = 0, status = EXIT_PASS;
    if (!stream) return EXIT_PASS;
    while (!status && getline(&line, &room, stream) > 0) {
        number++;
        if (row_read(line, &row) && row.schema <= ROW_SCHEMA) status = rows_add(rows, &row);
        else if (row.schema > ROW_SCHEMA)
            status = refuse("%s: line %d is of schema %lld; this version reads up to %d", path,
                            number, (long long)row.schema, ROW_SCHEMA);
        else if (!forgive) status = refuse("%s: line %d is no row of results", path, number);
    }
    free(line);
    fclose(stream);
    return status;
}

int results_read(const char *what, const char *path, struct rows *rows)
{
    struct stat info;
    char file[PATH_MOST];
    int status = EXIT_PASS;
    if (stat(path, &info)) return refuse("%s: %s: %s", what, path, strerror(errno));
    if (!S_ISDIR(info.st_mode)) return read_rows(path, false, rows);
    for (int i = 0; suite_at(i) && !status; i++) {
        status = make_path(file, path, suite_at(i)->name, "jsonl");
        if (!status) status = read_rows(file, false, rows);
    }
    if (!status && !rows->count) status = refuse("%s: %s has no results", what, path);
    return status;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static bool is_ours(const struct row *row, const struct row *mine, bool quick)
{
    return !strcmp(row->version, mine->version) && !strcmp(row->commit, mine->commit) &&
           !strcmp(row->device, mine->device) && !strcmp(row->device_name, mine->device_name) &&
           row->cores == mine->cores && row->quick == (int64_t)quick;
}

/* Rows of a device stay with those of the same: they would be lost otherwise. */
static int check_device(const struct results *results, const struct row *mine)
{
    for (int i = 0; i < results->rows.count; i++)
        if (strcmp(results->rows.at[i].device, mine->device) && *results->rows.at[i].device)
            return refuse("--out: %s has rows of the device %s; choose another folder for %s",
                          results->folder, results->rows.at[i].device, mine->device);
    return EXIT_PASS;
}

static void drop_stale(struct results *results, const struct row *mine, bool quick)
{
    int kept = 0;
    for (int i = 0; i < results->rows.count; i++)
        if (is_ours(&results->rows.at[i], mine, quick))
            results->rows.at[kept++] = results->rows.at[i];
    results->stale = results->rows.count - kept;
    results->rows.count = kept;
}

static void write_json(FILE *stream, const struct rows *rows)
{
    for (int i = 0; i < rows->count; i++) row_write(stream, &rows->at[i]);
}

static int write_file(const struct results *results, const char *ending,
                      void (*write)(FILE *stream, const struct rows *rows))
{
    struct outfile file = { .path = NULL };
    char path[PATH_MOST];
    int status = make_path(path, results->folder, results->suite, ending);
    if (!status) status = outfile_open(&file, path);
    if (!status) write(file.stream, &results->rows);
    if (!status) status = outfile_finish(&file);
    if (!status) status = outfile_commit(&file);
    outfile_discard(&file);
    return status;
}

int results_open(struct results *results, const char *suite, const struct options *options)
{
    const char *folder = options->out;
    char path[PATH_MOST];
    struct row mine;
    *results = (struct results){ .folder = folder, .suite = suite };
    if (!folder) return EXIT_PASS;
    int status = make_path(path, folder, suite, "jsonl");
    if (!status) status = read_rows(path, true, &results->rows);
    row_machine(&mine, options->trial.device);
    if (!status) status = check_device(results, &mine);
    if (status) return status;
    drop_stale(results, &mine, options->quick);
    status = write_file(results, "jsonl", write_json); /* whole lines of this program */
    if (status) return status;
    results->stream = fopen(path, "a");
    return results->stream ? EXIT_PASS : fault("%s: %s", path, strerror(errno));
}

int results_add(struct results *results, const struct row *row)
{
    int status = rows_add(&results->rows, row);
    if (status || !results->stream) return status;
    row_write(results->stream, row);
    if (fflush(results->stream) || fdatasync(fileno(results->stream)))
        return fault("%s/%s.jsonl: %s", results->folder, results->suite, strerror(errno));
    return EXIT_PASS;
}

int results_finish(struct results *results)
{
    return results->folder ? write_file(results, "csv", rows_csv) : EXIT_PASS;
}

void results_close(struct results *results)
{
    if (results->stream) fclose(results->stream);
    rows_free(&results->rows);
    *results = (struct results){ .folder = NULL };
}
