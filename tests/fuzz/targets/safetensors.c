/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - .safetensors files: refused, or as many values as the shape says, all of them
 * inside the file. A tensor that was read has the same dtype, shape and values when it is written
 * and read again. An input is the name of a tensor, a line feed, and the file; without a name the
 * path has none either. */
#include "fuzz/fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include "harness/base/half.h"
#include "harness/files/safetensors.h"

/* Two files that all inputs share: in memory, with links to them that end as they must. */
static char folder[] = "/tmp/fuzz-safetensors-XXXXXX";
static char paths[2][64];
static int files[2];

static void remove_links(void)
{
    for (int i = 0; i < 2; i++) unlink(paths[i]);
    rmdir(folder);
}

static void make_links(void)
{
    char target[64];
    if (*paths[0]) return;
    MUST(mkdtemp(folder));
    atexit(remove_links);
    for (int i = 0; i < 2; i++) {
        files[i] = memfd_create("fuzz", 0);
        MUST(files[i] >= 0);
        snprintf(target, sizeof target, "/proc/self/fd/%d", files[i]);
        snprintf(paths[i], sizeof paths[i], "%s/%d.safetensors", folder, i);
        MUST(!symlink(target, paths[i]));
    }
}

/* Header and values, as the contents of a file. */
static void write_file(int which, const void *header, size_t header_bytes, const void *data,
                       size_t bytes)
{
    const int file = files[which];
    MUST(!ftruncate(file, 0));
    MUST(pwrite(file, header, header_bytes, 0) == (ssize_t)header_bytes);
    MUST(pwrite(file, data, bytes, (off_t)header_bytes) == (ssize_t)bytes);
}

/* PATH, or PATH:NAME; to be freed. */
static char *full_path(int which, const char *name)
{
    size_t room = sizeof paths[0] + strlen(name) + 2;
    char *path = malloc(room);
    MUST(path);
    snprintf(path, room, "%s%s%s", paths[which], *name ? ":" : "", name);
    return path;
}

static size_t bytes_of(const struct npy *npy)
{
    size_t bytes = half_bytes(npy->dtype);
    for (int i = 0; i < npy->axes; i++) bytes *= (size_t)npy->shape[i];
    return bytes;
}

static void write_and_read(const char *name, const struct npy *npy)
{
    struct npy_output output = { .dtype = npy->dtype, .axes = npy->axes };
    struct npy again = { .data = NULL };
    size_t header_bytes;
    char *path = full_path(1, name);
    memcpy(output.shape, npy->shape, sizeof output.shape);
    if (safetensors_check("--out", path) == EXIT_PASS) {
        char *header = safetensors_header(path, &output, &header_bytes);
        MUST(header);
        write_file(1, header, header_bytes, npy->data, bytes_of(npy));
        free(header);
        MUST(safetensors_read("--q", path, &again) == EXIT_PASS);
        MUST(again.dtype == npy->dtype && again.axes == npy->axes);
        MUST(!memcmp(again.shape, npy->shape, (size_t)npy->axes * sizeof npy->shape[0]));
        MUST(!memcmp(again.data, npy->data, bytes_of(npy)));
        free(again.data);
    }
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
    if (!line) return 0;
    const size_t rest = size - (size_t)(line + 1 - data);
    char *name = fuzz_text(data, (size_t)(line - data));
    make_links();
    write_file(0, line + 1, rest, "", 0);
    char *path = full_path(0, name);
    struct npy npy = { .data = NULL };
    if (safetensors_read("--q", path, &npy) == EXIT_PASS) {
        MUST((size_t)npy.values * half_bytes(npy.dtype) == bytes_of(&npy));
        MUST(bytes_of(&npy) <= rest);
        write_and_read(name, &npy);
    } else MUST(!npy.data);
    free(npy.data);
    free(path);
    free(name);
    return 0;
}
