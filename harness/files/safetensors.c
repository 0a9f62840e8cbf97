/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - a file is the length of its header in 8 bytes, the header in JSON, then the
 * values: {"NAME": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...} */
#include "safetensors.h"

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

#define HEADER_MOST ((size_t)64 << 20)
static const char ending[] = ".safetensors";
static const char metadata[] = "__metadata__"; /* a member of the header that is no tensor */

/* ---- Names ----------------------------------------------------------------------------------- */

/* The first character after ".safetensors" where the path ends or goes on with a colon. */
static const char *find_end(const char *path)
{
    for (const char *at = path; (at = strstr(at, ending)); at++)
        if (!at[strlen(ending)] || at[strlen(ending)] == ':') return at + strlen(ending);
    return NULL;
}

bool safetensors_is(const char *path) { return find_end(path) != NULL; }

char *safetensors_path(const char *path)
{
    const char *end = find_end(path);
    return strndup(path, end ? (size_t)(end - path) : strlen(path));
}

static const char *name_of(const char *path)
{
    const char *end = find_end(path);
    return end && *end == ':' && end[1] ? end + 1 : NULL;
}

/* ---- The header ------------------------------------------------------------------------------ */

/* A place in the header; NULL once something is not understood. */
struct scan {
    const char *at, *end;
};

/* Is there a character, and is it one of these? The end of a text is a character of strchr(), but
 * a header may hold a 0 that is not its end. */
static bool at_one_of(const struct scan *s, const char *these)
{
    return s->at && s->at < s->end && *s->at && strchr(these, *s->at);
}

static void skip_space(struct scan *s)
{
    while (at_one_of(s, " \t\r\n")) s->at++;
}

/* Moves past a character, or fails. */
static bool take(struct scan *s, char wanted)
{
    skip_space(s);
    if (s->at && s->at < s->end && *s->at == wanted) {
        s->at++;
        return true;
    }
    return false;
}

static void need(struct scan *s, char wanted)
{
    if (!take(s, wanted)) s->at = NULL;
}

/* A string without its quotes, as it stands there. */
static void take_string(struct scan *s, const char **text, size_t *length)
{
    need(s, '"');
    *text = s->at;
    *length = 0;
    while (s->at && s->at < s->end && *s->at != '"') s->at += *s->at == '\\' ? 2 : 1;
    if (!s->at || s->at >= s->end) {
        s->at = NULL;
        return;
    }
    *length = (size_t)(s->at - *text);
    s->at++;
}

static int64_t take_number(struct scan *s)
{
    int64_t number = 0;
    skip_space(s);
    if (!s->at || s->at >= s->end || *s->at < '0' || *s->at > '9') s->at = NULL;
    while (s->at && s->at < s->end && *s->at >= '0' && *s->at <= '9') {
        if (number > (INT64_MAX - 9) / 10) {
            s->at = NULL;
            return 0;
        }
        number = number * 10 + (*s->at++ - '0');
    }
    return number;
}

/* A number or a word that is not looked at, up to what ends it. */
static void skip_word(struct scan *s)
{
    const char *start = s->at;
    while (s->at < s->end && !at_one_of(s, ",:{}[]\" \t\r\n")) s->at++;
    if (s->at == start) s->at = NULL;
}

/* A value that is not looked at, with all that is nested in it. */
static void skip_value(struct scan *s)
{
    const char *text;
    size_t length;
    int depth = 0;
    do {
        skip_space(s);
        if (at_one_of(s, "\"")) take_string(s, &text, &length);
        else if (take(s, '{') || take(s, '[')) depth++;
        else if (depth > 0 && (take(s, '}') || take(s, ']'))) depth--;
        else if (depth > 0 && (take(s, ',') || take(s, ':'))) continue;
        else if (s->at) skip_word(s);
    } while (s->at && depth > 0);
}

struct entry {
    const char *dtype;
    size_t dtype_length;
    int axes;
    int64_t shape[NPY_MOST_AXES], from, to;
    bool deep;     /* more axes than can be kept */
    unsigned seen; /* bits of the members */
};

static bool is(const char *text, size_t length, const char *word)
{
    return length == strlen(word) && !memcmp(text, word, length);
}

static void take_shape(struct scan *s, struct entry *e)
{
    need(s, '[');
    if (take(s, ']')) return;
    do {
        int64_t extent = take_number(s);
        if (e->axes < NPY_MOST_AXES) e->shape[e->axes++] = extent;
        else e->deep = true;
    } while (s->at && take(s, ','));
    need(s, ']');
}

static void take_offsets(struct scan *s, struct entry *e)
{
    need(s, '[');
    e->from = take_number(s);
    need(s, ',');
    e->to = take_number(s);
    need(s, ']');
}

static void take_dtype(struct scan *s, struct entry *e)
{
    take_string(s, &e->dtype, &e->dtype_length);
}

/* The members that an entry must have, each once. */
static const struct {
    const char *name;
    void (*take)(struct scan *s, struct entry *e);
} members[] = { { "dtype", take_dtype },
                { "shape", take_shape },
                { "data_offsets", take_offsets } };

static void take_member(struct scan *s, struct entry *e)
{
    const char *key;
    size_t length;
    take_string(s, &key, &length);
    need(s, ':');
    if (!s->at) return;
    for (int i = 0; i < COUNT(members); i++) {
        if (!is(key, length, members[i].name)) continue;
        if (e->seen & 1u << i) s->at = NULL;
        else members[i].take(s, e);
        e->seen |= 1u << i;
        return;
    }
    skip_value(s);
}

static void take_entry(struct scan *s, struct entry *e)
{
    *e = (struct entry){ .from = -1, .to = -1 };
    need(s, '{');
    if (!take(s, '}')) {
        do take_member(s, e);
        while (s->at && take(s, ','));
        need(s, '}');
    }
    if (e->seen != (1u << COUNT(members)) - 1) s->at = NULL;
}

/* The file being read, for the sentences. */
struct reading {
    const char *flag, *path, *name; /* of the tensor; NULL: the only one */
    int descriptor;
    char *header;
    size_t header_bytes, data_bytes;
};

/* Finds the entry of a tensor; *count is how many there are. False: not understood. */
static bool find_entry(const struct reading *r, struct entry *found, int *matches, int *count)
{
    struct scan s = { r->header, r->header + r->header_bytes };
    *matches = *count = 0;
    need(&s, '{');
    if (take(&s, '}')) return true;
    do {
        const char *key;
        size_t length;
        struct entry entry;
        take_string(&s, &key, &length);
        need(&s, ':');
        if (!s.at) return false;
        if (is(key, length, metadata)) {
            skip_value(&s);
            continue;
        }
        take_entry(&s, &entry);
        (*count)++;
        if (r->name && !is(key, length, r->name)) continue;
        (*matches)++;
        *found = entry;
    } while (s.at && take(&s, ','));
    need(&s, '}');
    skip_space(&s);
    return s.at == s.end;
}

static bool find_dtype(const struct entry *e, ra_dtype *out)
{
    static const struct {
        const char *name;
        ra_dtype dtype;
    } known[] = { { "F32", RA_F32 }, { "BF16", RA_BF16 }, { "F16", RA_F16 } };
    for (int i = 0; i < COUNT(known); i++)
        if (is(e->dtype, e->dtype_length, known[i].name)) {
            *out = known[i].dtype;
            return true;
        }
    return false;
}

static int take_tensor(const struct reading *r, struct npy *out, size_t *offset)
{
    struct entry e = { .axes = 0 };
    int matches, count;
    size_t values = 1, bytes = 0;
    if (!find_entry(r, &e, &matches, &count))
        return refuse("%s: the header of %s is not understood", r->flag, r->path);
    if (!r->name && count != 1)
        return refuse("%s: %s has %d tensors; name one: %s:NAME", r->flag, r->path, count, r->path);
    if (matches != 1)
        return refuse("%s: %s has %s tensor \"%.80s\"", r->flag, r->path,
                      matches ? "more than one" : "no", r->name ? r->name : "");
    if (!find_dtype(&e, &out->dtype))
        return refuse("%s: %s holds %.*s; F32, BF16 or F16 is needed", r->flag, r->path,
                      (int)(e.dtype_length < 20 ? e.dtype_length : 20), e.dtype);
    if (e.deep) return refuse("%s: %s has more than %d axes", r->flag, r->path, NPY_MOST_AXES);
    bool fits = true;
    for (int i = 0; i < e.axes; i++) {
        fits = fits && number_multiply(values, (size_t)e.shape[i], &values);
        out->shape[i] = e.shape[i];
    }
    fits = fits && number_multiply(values, half_bytes(out->dtype), &bytes);
    if (!fits || e.from < 0 || e.to < e.from || (size_t)(e.to - e.from) != bytes ||
        (size_t)e.to > r->data_bytes)
        return refuse("%s: the shape of %s does not agree with its bytes", r->flag, r->path);
    out->axes = e.axes;
    out->values = (int64_t)values;
    *offset = 8 + r->header_bytes + (size_t)e.from;
    return EXIT_PASS;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static bool read_exactly(int descriptor, void *to, size_t bytes, off_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(descriptor, (char *)to + done, bytes - done, at + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

static int read_header(struct reading *r)
{
    struct stat info;
    unsigned char head[8];
    uint64_t length = 0;
    r->descriptor = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (r->descriptor < 0 || fstat(r->descriptor, &info))
        return refuse("%s: cannot open %s: %s", r->flag, r->path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return refuse("%s: %s is not a regular file", r->flag, r->path);
    if (!read_exactly(r->descriptor, head, sizeof head, 0))
        return refuse("%s: %s is not a .safetensors file", r->flag, r->path);
    for (int i = 0; i < 8; i++) length |= (uint64_t)head[i] << 8 * i;
    if (length > HEADER_MOST || length + 8 > (uint64_t)info.st_size)
        return refuse("%s: %s is not a .safetensors file, or is cut short", r->flag, r->path);
    r->header_bytes = (size_t)length;
    r->data_bytes = (size_t)info.st_size - 8 - r->header_bytes;
    r->header = calloc(r->header_bytes + 1, 1);
    if (!r->header) return fault("%s: out of memory", r->flag);
    if (!read_exactly(r->descriptor, r->header, r->header_bytes, 8))
        return refuse("%s: %s is cut short", r->flag, r->path);
    return EXIT_PASS;
}

int safetensors_open(const char *flag, const char *path, struct npy *out, struct npy_file **file)
{
    char *alone = safetensors_path(path);
    struct reading r = { .flag = flag, .path = alone, .name = name_of(path), .descriptor = -1 };
    struct npy npy = { .axes = 0 };
    size_t offset = 0;
    int status = alone ? read_header(&r) : fault("%s: out of memory", flag);
    if (!status) status = take_tensor(&r, &npy, &offset);
    if (!status) status = npy_adopt(flag, path, r.descriptor, offset, npy.dtype, file);
    if (status && r.descriptor >= 0) close(r.descriptor);
    free(r.header);
    free(alone);
    if (!status) *out = npy;
    return status;
}

int safetensors_read(const char *flag, const char *path, struct npy *out)
{
    struct npy npy;
    struct npy_file *file;
    int status = safetensors_open(flag, path, &npy, &file);
    if (status) return status;
    size_t bytes = (size_t)npy.values * half_bytes(npy.dtype);
    npy.data = bytes <= machine_memory() ? malloc(bytes ? bytes : 1) : NULL;
    if (!npy.data) status = fault("%s: out of memory: %zu bytes", flag, bytes);
    const char *why = status ? NULL : npy_read_at(file, 0, npy.values, npy.dtype, npy.data);
    if (why) status = refuse("%s", why);
    npy_close(file);
    if (status) free(npy.data);
    else *out = npy;
    return status;
}

/* ---- Writing --------------------------------------------------------------------------------- */

int safetensors_check(const char *flag, const char *path)
{
    const char *name = name_of(path);
    if (!name) return EXIT_PASS;
    for (const char *at = name; *at; at++)
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ')
            return refuse("%s: the name of a tensor is written without quotes, backslashes and "
                          "control characters",
                          flag);
    if (!strcmp(name, metadata))
        return refuse("%s: %s is not the name of a tensor", flag, metadata);
    return EXIT_PASS;
}

char *safetensors_header(const char *path, const struct npy_output *output, size_t *bytes)
{
    static const char *const names[] = { [RA_F32] = "F32", [RA_BF16] = "BF16", [RA_F16] = "F16" };
    const char *dtype = output->bytes ? "U8" : names[output->dtype];
    const int64_t value_bytes = output->bytes ? 1 : (int64_t)half_bytes(output->dtype);
    const char *name = name_of(path) ? name_of(path) : "tensor";
    size_t room = strlen(name) + 256, used;
    char *text = calloc(room + 8, 1), shape[128] = "";
    int64_t values = 1;
    if (!text) return NULL;
    for (int i = 0, at = 0; i < output->axes; i++) {
        values *= output->shape[i];
        at += snprintf(shape + at, sizeof shape - (size_t)at, "%s%" PRId64, i ? "," : "",
                       output->shape[i]);
    }
    used = (size_t)snprintf(text + 8, room,
                            "{\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[0,%" PRId64
                            "]}}",
                            name, dtype, shape, values * value_bytes);
    while (used % 8) text[8 + used++] = ' '; /* values are aligned */
    for (int i = 0; i < 8; i++) text[i] = (char)(used >> 8 * i & 255);
    *bytes = 8 + used;
    return text;
}
