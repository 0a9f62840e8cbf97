/* SPDX-License-Identifier: Apache-2.0 */
/* journal.c - which units of a streamed run are done. */
#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char end_of_header[] = "units\n";
static const char end_of_units[] = "complete\n";

/* Makes the names in a folder permanent. */
static void sync_folder(const char *path)
{
    char *copy = strdup(path);
    int folder = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (folder >= 0) {
        fsync(folder);
        close(folder);
    }
    free(copy);
}

/* The whole file as text; NULL with errno. */
static char *read_text(int descriptor)
{
    struct stat info;
    if (fstat(descriptor, &info)) return NULL;
    char *text = calloc((size_t)info.st_size + 1, 1);
    ssize_t got = text ? pread(descriptor, text, (size_t)info.st_size, 0) : -1;
    if (got == info.st_size) return text;
    free(text);
    return NULL;
}

/* The first line that differs. */
static int refuse_other(const struct journal *journal, const char *text, const char *header)
{
    while (*text && *header) {
        size_t theirs = strcspn(text, "\n"), ours = strcspn(header, "\n");
        if (theirs != ours || memcmp(text, header, ours))
            return refuse(
                "%s belongs to another run: it has \"%.*s\", this run \"%.*s\"; remove it "
                "to start from the beginning",
                journal->path, (int)(theirs < 200 ? theirs : 200), text,
                (int)(ours < 200 ? ours : 200), header);
        text += theirs + (text[theirs] != 0);
        header += ours + (header[ours] != 0);
    }
    return refuse("%s is not a journal of this run; remove it to start from the beginning",
                  journal->path);
}

/* Takes the whole lines; returns where the next one goes. */
static size_t take_units(struct journal *journal, const char *text, size_t at)
{
    const char *line = text + at;
    for (const char *end; (end = strchr(line, '\n')); line = end + 1) {
        journal->complete = !strncmp(line, end_of_units, strlen(end_of_units));
        if (journal->complete) continue;
        int backward = *line == 'b';
        int64_t unit;
        if (sscanf(line, backward ? "backward %" SCNd64 : "forward %" SCNd64, &unit) != 1) break;
        if (unit < 0 || unit >= journal->units[backward]) break;
        journal->found += !journal->done[backward][unit];
        journal->done[backward][unit] = true;
    }
    return (size_t)(line - text);
}

static int take_text(struct journal *journal, const char *text, const char *header)
{
    size_t length = strlen(header);
    if (strncmp(text, header, length) ||
        strncmp(text + length, end_of_header, strlen(end_of_header)))
        return refuse_other(journal, text, header);
    size_t end = take_units(journal, text, length + strlen(end_of_header));
    const bool cut_off = lseek(journal->descriptor, 0, SEEK_END) != (off_t)end;
    if (cut_off &&
        (ftruncate(journal->descriptor, (off_t)end) || lseek(journal->descriptor, 0, SEEK_END) < 0))
        return fault("%s: %s", journal->path, strerror(errno));
    return EXIT_PASS;
}

int journal_open(struct journal *journal, const char *path, const char *header,
                 const int64_t units[2], bool *resumed)
{
    *journal = (struct journal){ .path = strdup(path), .descriptor = -1 };
    for (int i = 0; i < 2; i++) {
        journal->units[i] = units[i];
        journal->done[i] = calloc((size_t)units[i] + 1, sizeof *journal->done[i]);
    }
    if (!journal->path || !journal->done[0] || !journal->done[1])
        return fault("out of memory: %" PRId64 " units", units[0] + units[1]);
    *resumed = false;
    journal->descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (journal->descriptor < 0)
        return errno == ENOENT ? EXIT_PASS : refuse("%s: %s", path, strerror(errno));
    char *text = read_text(journal->descriptor);
    int status = text ? take_text(journal, text, header)
                      : fault("%s: cannot be read: %s", path, strerror(errno));
    free(text);
    *resumed = !status;
    return status;
}

static bool write_text(int descriptor, const char *text)
{
    size_t length = strlen(text);
    return write(descriptor, text, length) == (ssize_t)length;
}

int journal_create(struct journal *journal, const char *header)
{
    size_t room = strlen(journal->path) + 8;
    char *temporary = malloc(room);
    if (!temporary) return fault("out of memory");
    snprintf(temporary, room, "%s.new", journal->path);
    journal->descriptor = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool good = journal->descriptor >= 0 && write_text(journal->descriptor, header) &&
                write_text(journal->descriptor, end_of_header) && !fsync(journal->descriptor) &&
                !rename(temporary, journal->path);
    int status = good ? EXIT_PASS : fault("%s: cannot be made: %s", temporary, strerror(errno));
    if (!good) unlink(temporary);
    free(temporary);
    if (good) sync_folder(journal->path);
    return status;
}

static const char *add_line(const struct journal *journal, const char *line)
{
    errno = ENOSPC; /* where only a part was written */
    return write_text(journal->descriptor, line) && !fdatasync(journal->descriptor)
               ? NULL
               : strerror(errno);
}

const char *journal_add(struct journal *journal, int backward, int64_t unit)
{
    char line[64];
    snprintf(line, sizeof line, "%s %" PRId64 "\n", backward ? "backward" : "forward", unit);
    const char *why = add_line(journal, line);
    if (!why) journal->done[backward][unit] = true;
    return why;
}

const char *journal_complete(struct journal *journal)
{
    const char *why = journal->complete ? NULL : add_line(journal, end_of_units);
    if (!why) journal->complete = true;
    return why;
}

void journal_remove(struct journal *journal)
{
    if (journal->path) unlink(journal->path);
}

void journal_close(struct journal *journal)
{
    if (journal->path && journal->descriptor >= 0) close(journal->descriptor);
    free(journal->path);
    free(journal->done[0]);
    free(journal->done[1]);
    *journal = (struct journal){ .path = NULL };
}
