/* SPDX-License-Identifier: Apache-2.0 */
/* gridfiles.c - see gridfiles.h. */
#include "gridfiles.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/interrupt.h"

/* The header of a .npy file, padded so that the numbers start at a multiple of 64. */
static bool write_header(FILE *file, const char *type, const char *shape)
{
    char text[118];
    int used = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                        type, shape);
    memset(text + used, ' ', sizeof text - (size_t)used);
    text[sizeof text - 1] = '\n';
    return fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file) == 10 &&
           fwrite(text, 1, sizeof text, file) == sizeof text;
}

/* About a third of the blocks, the own one among them for most; a few see nothing at all. */
static bool write_bitmap(FILE *file, int heads)
{
    char shape[40];
    if (heads > 1)
        snprintf(shape, sizeof shape, "(%d, %d, %d)", heads, GRIDFILE_BLOCKS, GRIDFILE_BLOCKS);
    else snprintf(shape, sizeof shape, "(%d, %d)", GRIDFILE_BLOCKS, GRIDFILE_BLOCKS);
    bool good = write_header(file, "|b1", shape);
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < GRIDFILE_BLOCKS; i++)
            for (int j = 0; j < GRIDFILE_BLOCKS; j++) {
                bool blind = (i + h) % 8 == 5, own = i == j && i % 4 != 2;
                bool active = !blind && (own || (i * 7 + j * 5 + h * 3 + i * j) % 10 < 3);
                good = good && fputc(active, file) != EOF;
            }
    return good;
}

/* Steps of 22 through 61 positions, a prime: every position once, neighbours far apart. */
static bool write_order(FILE *file)
{
    bool good = write_header(file, "<i8", "(61,)");
    for (int i = 0; i < GRIDFILE_LENGTH; i++) {
        unsigned char number[8] = { (unsigned char)((i * 22 + 5) % GRIDFILE_LENGTH) };
        good = good && fwrite(number, 1, sizeof number, file) == sizeof number;
    }
    return good;
}

static bool write_file(FILE *file, enum gridfile which)
{
    if (which == GRIDFILE_ORDER) return write_order(file);
    return write_bitmap(file, which == GRIDFILE_BITMAP ? 1 : GRIDFILE_HEADS);
}

/* Problem strings have no quotes, so a folder with a space or a semicolon in its name will not
 * do. */
static const char *folder(void)
{
    const char *given = getenv("TMPDIR");
    return given && *given && !strpbrk(given, " \t;,") ? given : "/tmp";
}

static char *make(enum gridfile which)
{
    static const char *const names[] = { "bitmap", "bitmaps", "order" };
    char path[512];
    int used = snprintf(path, sizeof path, "%s/ringattn-%s-XXXXXX.npy", folder(), names[which]);
    int handle = used < (int)sizeof path ? mkstemps(path, 4) : -1;
    if (handle < 0) return NULL;
    FILE *file = fdopen(handle, "wb");
    bool good = file && write_file(file, which);
    if (file) good = fclose(file) == 0 && good;
    else close(handle);
    char *kept = good ? strdup(path) : NULL;
    if (kept) interrupt_guard(kept);
    else unlink(path);
    return kept;
}

int gridfiles_make(struct gridfiles *files)
{
    for (int i = 0; i < GRIDFILE_COUNT; i++) {
        files->path[i] = make((enum gridfile)i);
        if (!files->path[i])
            return fault("verify: no temporary file could be written in %s; set TMPDIR to another "
                         "place",
                         folder());
    }
    return EXIT_PASS;
}

void gridfiles_close(struct gridfiles *files, bool keep)
{
    for (int i = 0; i < GRIDFILE_COUNT; i++) {
        if (files->path[i] && !keep) unlink(files->path[i]);
        interrupt_release(files->path[i]);
        free(files->path[i]);
        files->path[i] = NULL;
    }
}
