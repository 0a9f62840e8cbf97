/* SPDX-License-Identifier: Apache-2.0 */
/* npy.c - .npy files, read and written without trust. */
#include "npy.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/base/half.h"
#include "harness/base/machine.h"
#include "harness/text/number.h"
#include "harness/text/text.h"

#define HEADER_MOST 65536 /* a plain array needs about 100 bytes */

static const char magic[6] = { '\x93', 'N', 'U', 'M', 'P', 'Y' };

/* The file being read, for the sentences. */
struct reading {
    const char *flag, *path;
    enum npy_kind kind;
    int descriptor;
    char *header;  /* the dictionary, ends with 0 */
    size_t offset; /* of the data */
};

/* ---- Header: a Python dictionary of three entries -------------------------------------------- */

static const char *skip_space(const char *at)
{
    while (isspace((unsigned char)*at)) at++;
    return at;
}

/* Moves past `word`; NULL if the text does not start with it. */
static const char *expect(const char *at, const char *word)
{
    if (!at) return NULL;
    at = skip_space(at);
    return strncmp(at, word, strlen(word)) ? NULL : at + strlen(word);
}

/* The types that are read, and how many bytes a value has. */
static const struct {
    const char *code;
    size_t bytes;
} types[NPY_TYPES] = {
    [NPY_F32] = { "<f4", 4 }, [NPY_F16] = { "<f2", 2 }, [NPY_BOOL] = { "|b1", 1 },
    [NPY_U8] = { "|u1", 1 },  [NPY_I32] = { "<i4", 4 }, [NPY_I64] = { "<i8", 8 },
};

/* Which of them a kind of file may hold, as bits. */
static const struct {
    unsigned types;
    const char *needed;
} kinds[NPY_KINDS] = {
    [NPY_OF_NUMBERS] = { 1u << NPY_F32 | 1u << NPY_F16, "f32 or f16 is needed" },
    [NPY_OF_F32] = { 1u << NPY_F32, "f32 is needed" },
    [NPY_OF_BIAS] = { 1u << NPY_F32 | 1u << NPY_BOOL | 1u << NPY_U8,
                      "f32, bool or uint8 is needed" },
    [NPY_OF_MASK] = { 1u << NPY_BOOL | 1u << NPY_U8, "bool or uint8 is needed" },
    [NPY_OF_POSITIONS] = { 1u << NPY_I64 | 1u << NPY_I32, "int64 or int32 is needed" },
};

/* Names for the sentence that refuses a type. */
static const struct {
    const char *code, *name;
} type_names[] = {
    { "f8", "float64" },     { "f16", "float128" }, { "f4", "float32" }, { "f2", "float16" },
    { "b1", "bool" },        { "i1", "int8" },      { "i2", "int16" },   { "i4", "int32" },
    { "i8", "int64" },       { "u1", "uint8" },     { "u2", "uint16" },  { "u4", "uint32" },
    { "u8", "uint64" },      { "c8", "complex64" }, { "O", "objects" },  { "V2", "raw bytes" },
    { "c16", "complex128" },
};

static int refuse_type(const struct reading *r, const char *code)
{
    const char *name = code, *needed = kinds[r->kind].needed;
    const char *letters = strchr("<>|=", *code) ? code + 1 : code;
    for (int i = 0; i < NPY_TYPES; i++)
        if (*code == '>' && kinds[r->kind].types & 1u << i && !strcmp(letters, types[i].code + 1))
            return refuse("%s: %s holds big-endian numbers (%s); little-endian %s", r->flag,
                          r->path, code, needed);
    for (int i = 0; i < COUNT(type_names); i++)
        if (!strcmp(letters, type_names[i].code)) name = type_names[i].name;
    return refuse("%s: %s holds %s; %s", r->flag, r->path, name, needed);
}

/* 'descr': '<f4' */
static int read_type(const struct reading *r, const char **at, struct npy *out)
{
    const char *text = skip_space(*at);
    char code[16];
    if (*text == '[')
        return refuse("%s: %s holds a structured type; %s", r->flag, r->path,
                      kinds[r->kind].needed);
    size_t length = *text == '\'' || *text == '"' ? strcspn(text + 1, "'\"") : 0;
    if (!length || length >= sizeof code || !text[1 + length])
        return refuse("%s: the type in the header of %s is not understood", r->flag, r->path);
    memcpy(code, text + 1, length);
    code[length] = 0;
    *at = text + length + 2;
    for (int i = 0; i < NPY_TYPES; i++) {
        if (!(kinds[r->kind].types & 1u << i) || strcmp(code, types[i].code)) continue;
        out->type = (enum npy_type)i;
        out->dtype = i == NPY_F16 ? RA_F16 : RA_F32;
        return EXIT_PASS;
    }
    return refuse_type(r, code);
}

/* 'fortran_order': False */
static int read_order(const struct reading *r, const char **at)
{
    const char *after = expect(*at, "False");
    if (after) {
        *at = after;
        return EXIT_PASS;
    }
    if (expect(*at, "True"))
        return refuse("%s: %s is in Fortran order; C order is needed", r->flag, r->path);
    return refuse("%s: the order in the header of %s is not understood", r->flag, r->path);
}

/* 'shape': (2, 3, 4) */
static int read_shape(const struct reading *r, const char **at, struct npy *out)
{
    const char *text = expect(*at, "(");
    while (text && *(text = skip_space(text)) != ')') {
        char *end;
        errno = 0;
        long long extent = isdigit((unsigned char)*text) ? strtoll(text, &end, 10) : -1;
        if (extent < 0) break;
        if (errno == ERANGE)
            return refuse("%s: a length in the shape of %s does not fit into 63 bits", r->flag,
                          r->path);
        if (out->axes == NPY_MOST_AXES)
            return refuse("%s: %s has more than %d axes", r->flag, r->path, NPY_MOST_AXES);
        out->shape[out->axes++] = extent;
        text = skip_space(end);
        if (*text == ',') text++;
    }
    if (!text || *text != ')')
        return refuse("%s: the shape in the header of %s is not understood", r->flag, r->path);
    *at = text + 1;
    return EXIT_PASS;
}

/* Entries in any order, each once. */
static int read_dictionary(const struct reading *r, struct npy *out)
{
    static const char *const keys[] = { "descr", "fortran_order", "shape" };
    unsigned seen = 0;
    int status = EXIT_PASS;
    const char *at = expect(r->header, "{");
    while (at && !status && *(at = skip_space(at)) != '}' && *at) {
        int key = 0;
        const char *colon = NULL;
        for (; key < COUNT(keys) && !colon; key++) {
            char quoted[2][32];
            snprintf(quoted[0], sizeof quoted[0], "'%s'", keys[key]);
            snprintf(quoted[1], sizeof quoted[1], "\"%s\"", keys[key]);
            colon = expect(at, quoted[0]);
            if (!colon) colon = expect(at, quoted[1]);
        }
        at = expect(colon, ":");
        key--;
        if (!at || seen & 1u << key) break;
        seen |= 1u << key;
        status = key == 0   ? read_type(r, &at, out)
                 : key == 1 ? read_order(r, &at)
                            : read_shape(r, &at, out);
        if (!status && *(at = skip_space(at)) == ',') at++;
    }
    if (status) return status;
    if (!at || *at != '}' || *skip_space(at + 1) || seen != 7)
        return refuse("%s: the header of %s is not understood", r->flag, r->path);
    return EXIT_PASS;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* All bytes or a sentence. */
static int read_all(const struct reading *r, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        size_t want = bytes - done < (size_t)1 << 30 ? bytes - done : (size_t)1 << 30;
        ssize_t got = read(r->descriptor, (char *)to + done, want);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return refuse("%s: reading %s failed: %s", r->flag, r->path, strerror(errno));
        if (got == 0) return refuse("%s: %s is no .npy file, or is cut short", r->flag, r->path);
        done += (size_t)got;
    }
    return EXIT_PASS;
}

static int read_header(struct reading *r)
{
    unsigned char head[12];
    int status = read_all(r, head, 10);
    if (status) return status;
    if (memcmp(head, magic, sizeof magic))
        return refuse("%s: %s is not a .npy file", r->flag, r->path);
    if (head[6] != 1 && head[6] != 2)
        return refuse("%s: %s is .npy version %d; 1 and 2 are read", r->flag, r->path, head[6]);
    size_t length = head[8] | (size_t)head[9] << 8;
    r->offset = 10;
    if (head[6] == 2) {
        status = read_all(r, head + 10, 2);
        if (status) return status;
        length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
        r->offset = 12;
    }
    if (length > HEADER_MOST)
        return refuse("%s: the header of %s claims %zu bytes; at most %d are read", r->flag,
                      r->path, length, HEADER_MOST);
    r->offset += length;
    r->header = calloc(length + 1, 1);
    if (!r->header) return fault("%s: out of memory: %zu bytes", r->flag, length + 1);
    return read_all(r, r->header, length);
}

/* The number of values, and that the file holds exactly these. */
static int check_length(const struct reading *r, off_t file_bytes, struct npy *out)
{
    size_t values = 1, bytes = 0;
    bool fits = true;
    for (int i = 0; i < out->axes; i++) {
        if (out->shape[i] == 0 && r->kind != NPY_OF_NUMBERS)
            return refuse("%s: %s is empty: axis %d has length 0", r->flag, r->path, i);
        fits = fits && number_multiply(values, (size_t)out->shape[i], &values);
    }
    fits = fits && number_multiply(values, types[out->type].bytes, &bytes);
    if (!fits || bytes > (size_t)INT64_MAX - r->offset)
        return refuse("%s: the shape of %s needs more than 2^63 bytes", r->flag, r->path);
    if ((size_t)file_bytes != bytes + r->offset)
        return refuse("%s: %s should have %zu bytes by its header but has %" PRId64, r->flag,
                      r->path, bytes + r->offset, (int64_t)file_bytes);
    out->values = (int64_t)values;
    return EXIT_PASS;
}

static int read_open(struct reading *r, struct npy *out)
{
    struct stat info;
    int status;
    /* Not blocking: a pipe without a writer is refused below like every irregular file. */
    r->descriptor = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (r->descriptor < 0 || fstat(r->descriptor, &info))
        return refuse("%s: cannot open %s: %s", r->flag, r->path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return refuse("%s: %s is not a regular file", r->flag, r->path);
    if (info.st_size == 0) return refuse("%s: %s is empty", r->flag, r->path);
    status = read_header(r);
    if (!status) status = read_dictionary(r, out);
    return status ? status : check_length(r, info.st_size, out);
}

static int read_data(const struct reading *r, struct npy *out)
{
    size_t bytes = (size_t)out->values * types[out->type].bytes;
    if (bytes > machine_memory())
        return refuse("%s: %s needs %s, more than this machine has (%s)", r->flag, r->path,
                      text_bytes((double)bytes).s, text_bytes((double)machine_memory()).s);
    out->data = malloc(bytes ? bytes : 1);
    if (!out->data) return fault("%s: out of memory: %zu bytes", r->flag, bytes);
    int status = read_all(r, out->data, bytes);
    if (status) free(out->data);
    return status;
}

struct npy_file {
    int descriptor;
    size_t offset;
    ra_dtype dtype;
    struct stat opened; /* what the system said of it then */
    char name[300], why[400];
};

int npy_adopt(const char *flag, const char *path, int descriptor, size_t offset, ra_dtype dtype,
              struct npy_file **file)
{
    struct npy_file *opened = calloc(1, sizeof *opened);
    if (!opened) return fault("%s: out of memory", flag);
    opened->descriptor = descriptor;
    opened->offset = offset;
    opened->dtype = dtype;
    snprintf(opened->name, sizeof opened->name, "%s: %s", flag, path);
    if (fstat(descriptor, &opened->opened)) {
        free(opened);
        return refuse("%s: cannot look at %s: %s", flag, path, strerror(errno));
    }
    *file = opened;
    return EXIT_PASS;
}

const char *npy_changed(struct npy_file *file)
{
    struct stat now;
    const struct stat *then = &file->opened;
    if (!fstat(file->descriptor, &now) && now.st_size == then->st_size &&
        now.st_mtim.tv_sec == then->st_mtim.tv_sec && now.st_mtim.tv_nsec == then->st_mtim.tv_nsec)
        return NULL;
    snprintf(file->why, sizeof file->why, "%s was changed while it was read", file->name);
    return file->why;
}

const char *npy_identity(struct npy_file *file)
{
    snprintf(file->why, sizeof file->why, "%s: %" PRId64 " bytes, written at %" PRId64 ".%09ld",
             file->name, (int64_t)file->opened.st_size, (int64_t)file->opened.st_mtim.tv_sec,
             file->opened.st_mtim.tv_nsec);
    return file->why;
}

int npy_open(const char *flag, const char *path, struct npy *out, struct npy_file **file)
{
    struct reading r = { .flag = flag, .path = path, .kind = NPY_OF_NUMBERS, .descriptor = -1 };
    struct npy npy = { .axes = 0 };
    int status = read_open(&r, &npy);
    if (!status) status = npy_adopt(flag, path, r.descriptor, r.offset, npy.dtype, file);
    free(r.header);
    if (status && r.descriptor >= 0) close(r.descriptor);
    if (!status) *out = npy;
    return status;
}

void npy_close(struct npy_file *file)
{
    if (file) close(file->descriptor);
    free(file);
}

enum { CUT_SHORT = -1 };

/* Bytes at an offset into `to`; 0, errno or CUT_SHORT. */
static int read_bytes_at(const struct npy_file *file, off_t at, size_t bytes, void *to)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(file->descriptor, (char *)to + done, bytes - done, at + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got < 0 ? errno : CUT_SHORT;
        done += (size_t)got;
    }
    return 0;
}

int npy_fetch_at(const struct npy_file *file, int64_t first, int64_t count, ra_dtype dtype,
                 void *to)
{
    enum { CHUNK = 4096 };
    size_t from_bytes = half_bytes(file->dtype), to_bytes = half_bytes(dtype);
    off_t at = (off_t)(file->offset + (size_t)first * from_bytes);
    char raw[CHUNK * sizeof(float)];
    float values[CHUNK];
    if (file->dtype == dtype) return read_bytes_at(file, at, (size_t)count * from_bytes, to);
    for (int64_t i = 0; i < count; i += CHUNK) {
        int64_t some = count - i < CHUNK ? count - i : CHUNK;
        const int error = read_bytes_at(file, at + (off_t)((size_t)i * from_bytes),
                                        (size_t)some * from_bytes, raw);
        if (error) return error;
        half_to_float(file->dtype, raw, some, values);
        half_from_float(dtype, values, some, (char *)to + (size_t)i * to_bytes);
    }
    return 0;
}

const char *npy_why(struct npy_file *file, int error)
{
    snprintf(file->why, sizeof file->why, "%s %s", file->name,
             error == CUT_SHORT ? "is cut short" : strerror(error));
    return file->why;
}

const char *npy_read_at(struct npy_file *file, int64_t first, int64_t count, ra_dtype dtype,
                        void *to)
{
    const int error = npy_fetch_at(file, first, count, dtype, to);
    return error ? npy_why(file, error) : NULL;
}

int npy_read_kind(const char *flag, const char *path, enum npy_kind kind, struct npy *out)
{
    struct reading r = { .flag = flag, .path = path, .kind = kind, .descriptor = -1 };
    struct npy npy = { .axes = 0 };
    int status = read_open(&r, &npy);
    if (!status) status = read_data(&r, &npy);
    if (r.descriptor >= 0) close(r.descriptor);
    free(r.header);
    if (!status) *out = npy;
    return status;
}

int npy_read(const char *flag, const char *path, struct npy *out)
{
    return npy_read_kind(flag, path, NPY_OF_NUMBERS, out);
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Version 1: the data starts at a multiple of 64. */
char *npy_header(const struct npy_output *o, size_t *bytes)
{
    char text[192], *header = malloc(512);
    int used = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                        o->bytes ? "|u1" : "<f4");
    for (int i = 0; i < o->axes; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%" PRId64 "%s", o->shape[i],
                         i + 1 < o->axes || o->axes == 1 ? ", " : "");
    snprintf(text + used, sizeof text - (size_t)used, "), }");
    int length = ((int)strlen(text) + 1 + 10 + 63) / 64 * 64 - 10;
    const unsigned char head[4] = { 1, 0, (unsigned char)(length & 255),
                                    (unsigned char)(length >> 8) };
    if (!header) return NULL;
    memcpy(header, magic, sizeof magic);
    memcpy(header + sizeof magic, head, sizeof head);
    snprintf(header + 10, 512 - 10, "%-*s\n", length - 1, text);
    *bytes = 10 + (size_t)length;
    return header;
}
