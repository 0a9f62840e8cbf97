/* SPDX-License-Identifier: Apache-2.0 */
/* bitmap.c - see bitmap.h. */
#include "pattern/bitmap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/hash.h"
#include "pattern/pattern.h"

ra_status ra__bitmap_set(struct ra__bitmap *bitmap, int heads, int64_t blocks,
                         const uint8_t *active)
{
    size_t bytes = 1;
    bool fits = heads > 0 && blocks > 0 && ra__size_mul(&bytes, heads) &&
                ra__size_mul(&bytes, blocks) && ra__size_mul(&bytes, blocks);
    if (!fits)
        return ra__fail(RA_ERR_ARGUMENT, "bitmap: %d heads of %" PRId64 " blocks", heads, blocks);
    uint8_t *copy = ra__alloc(NULL, RA__FOR_BOOKKEEPING, bytes);
    if (!copy) return ra__fail(RA_ERR_MEMORY, "bitmap: %zu bytes", bytes);
    memcpy(copy, active, bytes);
    ra__free(bitmap->active);
    bitmap->active = copy;
    bitmap->heads = heads;
    bitmap->blocks = blocks;
    return RA_OK;
}

/* ---- .npy: a magic word, the length of a header, a header like
 *     {'descr': '|b1', 'fortran_order': False, 'shape': (8, 64, 64), }
 * and the numbers. ---- */

/* The text after 'key': in a header; NULL if it is not there. */
static const char *value_of(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    return at + strspn(at, " :");
}

/* (heads, blocks, blocks) or (blocks, blocks). */
static bool read_shape(const char *text, int64_t extents[3], int *count)
{
    *count = 0;
    if (!text || *text++ != '(') return false;
    for (; *text && *text != ')'; text += strspn(text, " ,")) {
        size_t digits = strspn(text, "0123456789");
        struct ra__text number = { text, digits };
        if (*count == 3 || !ra__text_number(number, &extents[*count])) return false;
        (*count)++;
        text += digits;
    }
    return *text == ')' && *count >= 2;
}

static ra_status read_header(FILE *file, const char *path, int64_t extents[3])
{
    unsigned char start[12];
    char header[1024] = "";
    size_t length = 0, lead = 10;
    bool good = fread(start, 1, 10, file) == 10 && !memcmp(start, "\x93NUMPY", 6);
    if (good && start[6] >= 2) {
        good = fread(start + 10, 1, 2, file) == 2;
        lead = 12;
    }
    if (good) length = start[8] + 256u * start[9];
    if (good && lead == 12 && (start[10] || start[11])) good = false;
    good = good && length < sizeof header && fread(header, 1, length, file) == length;
    if (!good) return ra__fail(RA_ERR_ARGUMENT, "bitmap: %s is not a .npy file", path);
    const char *type = value_of(header, "'descr'"), *order = value_of(header, "'fortran_order'");
    bool bytes = type && (!strncmp(type, "'|b1'", 5) || !strncmp(type, "'|u1'", 5));
    int count;
    if (!bytes || !order || strncmp(order, "False", 5))
        return ra__fail(RA_ERR_ARGUMENT, "bitmap: %s does not hold booleans or uint8 in C order",
                        path);
    if (!read_shape(value_of(header, "'shape'"), extents, &count))
        return ra__fail(RA_ERR_ARGUMENT, "bitmap: the shape of %s is not [heads, blocks, blocks]",
                        path);
    if (count == 2) {
        extents[2] = extents[1];
        extents[1] = extents[0];
        extents[0] = 1;
    }
    return RA_OK;
}

static ra_status read_file(struct ra__bitmap *bitmap, FILE *file, const char *path)
{
    int64_t extents[3];
    RA__TRY(read_header(file, path, extents));
    size_t bytes = 1;
    bool fits = extents[1] == extents[2] && extents[0] <= INT32_MAX;
    for (int i = 0; i < 3 && fits; i++) fits = extents[i] > 0 && ra__size_mul(&bytes, extents[i]);
    if (!fits)
        return ra__fail(RA_ERR_ARGUMENT, "bitmap: the shape of %s is not [heads, blocks, blocks]",
                        path);
    uint8_t *active = ra__alloc(NULL, RA__FOR_BOOKKEEPING, bytes);
    if (!active) return ra__fail(RA_ERR_MEMORY, "bitmap: %zu bytes", bytes);
    ra_status status = RA_OK;
    if (fread(active, 1, bytes, file) != bytes)
        status = ra__fail(RA_ERR_ARGUMENT, "bitmap: %s ends too early", path);
    else status = ra__bitmap_set(bitmap, (int)extents[0], extents[1], active);
    ra__free(active);
    return status;
}

ra_status ra__bitmap_read(struct ra__bitmap *bitmap, struct ra__text name)
{
    char *path = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, name.length + 1, 1);
    if (!path) return ra__fail(RA_ERR_MEMORY, "bitmap: %zu bytes", name.length);
    memcpy(path, name.start, name.length);
    bitmap->file = path; /* the bitmap's from here on, whatever happens */
    FILE *file = fopen(path, "rb");
    if (!file) return ra__fail(RA_ERR_SYSTEM, "bitmap: %s: %s", path, strerror(errno));
    ra_status status = read_file(bitmap, file, path);
    fclose(file);
    return status;
}

/* ---- As a value ------------------------------------------------------------------------------ */

static size_t bytes_of(const struct ra__bitmap *b)
{
    return (size_t)b->heads * (size_t)b->blocks * (size_t)b->blocks;
}

ra_status ra__bitmap_copy(struct ra__account *account, const struct ra__bitmap *from,
                          struct ra__bitmap *to)
{
    size_t name = from->file ? strlen(from->file) + 1 : 0;
    ra_status status = RA_OK;
    to->active = ra__duplicate(account, from->active, bytes_of(from), &status);
    to->heads = from->heads;
    to->blocks = from->blocks;
    to->file = ra__duplicate(account, from->file, name, &status);
    return status;
}

uint64_t ra__bitmap_hash(const struct ra__bitmap *bitmap, uint64_t hash)
{
    int64_t numbers[] = { bitmap->heads, bitmap->blocks };
    hash = ra__hash(hash, numbers, sizeof numbers);
    return ra__hash(hash, bitmap->active, bytes_of(bitmap));
}

ra_status ra__bitmap_check(const struct ra__bitmap *bitmap, int64_t block,
                           const struct ra__shape *shape)
{
    int64_t blocks = ra__ceil_div(shape->k_len, block);
    RA__TRY(ra__pattern_check_same("bitmap", shape->q_len, shape->k_len));
    if (bitmap->blocks != blocks)
        return ra__fail(RA_ERR_ARGUMENT,
                        "bitmap: it has %" PRId64 " blocks, but %" PRId64
                        " positions in blocks of %" PRId64 " are %" PRId64,
                        bitmap->blocks, shape->k_len, block, blocks);
    if (bitmap->heads == 1 || bitmap->heads == shape->q_heads) return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT, "bitmap: it has %d heads, but there are %d query heads",
                    bitmap->heads, shape->q_heads);
}

void ra__bitmap_free(struct ra__bitmap *bitmap)
{
    ra__free(bitmap->active);
    ra__free(bitmap->file);
    *bitmap = (struct ra__bitmap){ .active = NULL };
}
