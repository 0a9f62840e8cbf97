/* SPDX-License-Identifier: Apache-2.0 */
/* outfile.c - files that appear only when complete. */
#include "outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/base/interrupt.h"

int outfile_check(const char *flag, const char *path)
{
    struct stat info;
    char copy[4096];
    if (strlen(path) >= sizeof copy) return refuse("%s: the file name is too long", flag);
    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
        return refuse("%s: %s is a link and stays as it is; name the file itself", flag, path);
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return refuse("%s: %s is not a regular file and stays as it is", flag, path);
    strcpy(copy, path);
    const char *folder = dirname(copy);
    if (access(folder, W_OK | X_OK))
        return refuse("%s: cannot write into %s: %s", flag, folder, strerror(errno));
    return EXIT_PASS;
}

/* The folder of a path, and its last name. */
static bool find_folder(const char *path, struct stat *info, char *name, size_t capacity)
{
    char copy[4096];
    if (strlen(path) >= sizeof copy) return false;
    strcpy(copy, path);
    snprintf(name, capacity, "%s", basename(copy));
    strcpy(copy, path);
    return stat(dirname(copy), info) == 0;
}

bool outfile_same(const char *a, const char *b)
{
    struct stat of_a, of_b;
    char name_a[4096], name_b[4096];
    if (stat(a, &of_a) == 0 && stat(b, &of_b) == 0)
        return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
    return find_folder(a, &of_a, name_a, sizeof name_a) &&
           find_folder(b, &of_b, name_b, sizeof name_b) && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino && !strcmp(name_a, name_b);
}

static char *temporary_name(const char *path, long process, const char *ending)
{
    size_t capacity = strlen(path) + 40;
    char *name = malloc(capacity);
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash + 1 - path) : 0;
    if (name)
        snprintf(name, capacity, "%.*s.%s.%ld.%s", folder, path, path + folder, process, ending);
    return name;
}

/* It has another name now, or none. */
static void forget_temporary(struct outfile *file)
{
    interrupt_release(file->temporary);
    free(file->temporary);
    file->temporary = NULL;
}

int outfile_name(struct outfile *file, const char *path, long process)
{
    *file = (struct outfile){ .path = path, .temporary = temporary_name(path, process, "part") };
    if (!file->temporary) return fault("%s: out of memory", path);
    interrupt_guard(file->temporary);
    return EXIT_PASS;
}

int outfile_open(struct outfile *file, const char *path)
{
    *file = (struct outfile){ .path = path,
                              .temporary = temporary_name(path, (long)getpid(), "part") };
    if (!file->temporary) return fault("%s: out of memory", path);
    interrupt_guard(file->temporary);
    int descriptor = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) file->stream = fdopen(descriptor, "wb");
    if (file->stream) return EXIT_PASS;
    int status = fault("%s: cannot be made: %s", file->temporary, strerror(errno));
    if (descriptor >= 0) {
        close(descriptor);
        unlink(file->temporary);
    }
    forget_temporary(file);
    *file = (struct outfile){ .path = path };
    return status;
}

int outfile_finish(struct outfile *file)
{
    bool good = fflush(file->stream) == 0 && !ferror(file->stream) &&
                fsync(fileno(file->stream)) == 0;
    int error = errno;
    if (fclose(file->stream) && good) {
        good = false;
        error = errno;
    }
    file->stream = NULL;
    return good ? EXIT_PASS : fault("%s: writing failed: %s", file->path, strerror(error));
}

int outfile_claim(struct outfile *file)
{
    char *claimed = temporary_name(file->path, (long)getpid(), "whole");
    if (!claimed) return fault("%s: out of memory", file->path);
    if (rename(file->temporary, claimed)) {
        int status = fault("%s: cannot be put in place: %s: %s", file->path, file->temporary,
                           strerror(errno));
        free(claimed);
        return status;
    }
    interrupt_guard(claimed);
    forget_temporary(file);
    file->temporary = claimed;
    return EXIT_PASS;
}

/* A second name for the existing file, so that it can be restored. If the file system has no hard
 * links, the file gives up its own name for a moment. */
static int keep_old(struct outfile *file)
{
    struct stat info;
    if (lstat(file->path, &info) || !S_ISREG(info.st_mode)) return EXIT_PASS;
    char *old = temporary_name(file->path, (long)getpid(), "old");
    if (!old) return fault("%s: out of memory", file->path);
    if (link(file->path, old) && rename(file->path, old)) {
        int status = fault("%s: cannot be kept aside: %s", file->path, strerror(errno));
        free(old);
        return status;
    }
    file->old = old;
    return EXIT_PASS;
}

static int put_in_place(struct outfile *file)
{
    int status = keep_old(file);
    if (status) return status;
    if (rename(file->temporary, file->path))
        return fault("%s: cannot be put in place: %s", file->path, strerror(errno));
    forget_temporary(file);
    file->placed = true;
    return EXIT_PASS;
}

int outfile_commit(struct outfile *file)
{
    interrupt_hold();
    int status = put_in_place(file);
    interrupt_resume();
    return status;
}

void outfile_discard(struct outfile *file)
{
    if (file->stream) fclose(file->stream);
    if (file->temporary) unlink(file->temporary);
    if (file->old) unlink(file->old);
    forget_temporary(file);
    free(file->old);
    *file = (struct outfile){ .path = NULL };
}

void outfile_undo(struct outfile *file)
{
    if (file->placed && !file->old) unlink(file->path);
    if (file->old && rename(file->old, file->path)) {
        fault("%s: the previous file is now %s: %s", file->path, file->old, strerror(errno));
        free(file->old);
        file->old = NULL;
    }
    outfile_discard(file); /* with old, if that is still a second name of the existing file */
}
