/* trial.c - problem strings, read and written. */
#include "trial.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"
#include "number.h"
#include "parts.h"
#include "text.h"

/* Large enough for anything a machine can hold; small enough that products of two fit. */
#define TOKENS_MOST ((int64_t)1 << 40)
#define HEADS_MOST 65536
#define DIM_MOST 576
#define SEED_MOST INT64_MAX

static const int64_t default_tokens = 4096, default_heads = 8, default_dim = 64;

void trial_default(struct trial *trial) { *trial = (struct trial){ .dtype = DTYPE_AUTO }; }

void trial_clear(struct trial *trial)
{
    free(trial->pattern);
    trial_default(trial);
}

int trial_copy(const struct trial *from, struct trial *to)
{
    *to = *from;
    if (!from->pattern) return EXIT_PASS;
    to->pattern = strdup(from->pattern);
    return to->pattern ? EXIT_PASS : fault("out of memory: %zu bytes", strlen(from->pattern));
}

/* ---- Fields, one by one ---------------------------------------------------------------------- */

static int set_pattern(struct trial *trial, const char *what, const char *value)
{
    ra_pattern *pattern;
    if (parts_is_later("pattern", value) &&
        !parts_find("pattern", value, strcspn(value, ":;"), &(ra_part){ .size = sizeof(ra_part) }))
        return refuse("%s: the pattern %.60s is not in this version", what, value);
    ra_status status = ra_pattern_parse(value, &pattern);
    if (status != RA_OK) return library_failed(status);
    ra_pattern_destroy(pattern);
    free(trial->pattern);
    trial->pattern = strdup(value);
    return trial->pattern ? EXIT_PASS : fault("out of memory: %zu bytes", strlen(value));
}

/* "8" or "8/2": query heads over KV heads. */
static int set_heads(struct trial *trial, const char *what, const char *value)
{
    char first[24];
    const char *slash = strchr(value, '/');
    size_t length = slash ? (size_t)(slash - value) : strlen(value);
    snprintf(first, sizeof first, "%.*s", (int)(length < 23 ? length : 23), value);
    int status = number_whole(what, first, 1, HEADS_MOST, &trial->q_heads);
    if (status || !slash) return status;
    return number_whole(what, slash + 1, 1, HEADS_MOST, &trial->kv_heads);
}

static int set_dtype(struct trial *trial, const char *what, const char *value)
{
    static const ra_dtype dtypes[] = { RA_F32, RA_BF16, RA_F16 };
    if (!strcmp(value, "auto")) {
        trial->dtype = DTYPE_AUTO;
        return EXIT_PASS;
    }
    for (int i = 0; i < COUNT(dtypes); i++) {
        if (strcmp(value, half_name(dtypes[i]))) continue;
        trial->dtype = (int)dtypes[i];
        return EXIT_PASS;
    }
    return refuse("%s: there is no dtype \"%.40s\"; there is auto, f32, bf16, f16", what, value);
}

static int set_name(char *field, const char *kind, const char *what, const char *value)
{
    int status = parts_check(kind, what, value);
    if (status) return status;
    if (strlen(value) >= sizeof((struct trial *)0)->partition)
        return refuse("%s: \"%.40s\" is not understood", what, value);
    strcpy(field, value);
    return EXIT_PASS;
}

static int set_partition(struct trial *trial, const char *what, const char *value)
{
    const char *rest = value + strcspn(value, ";");
    if (*rest && strcmp(rest, ";perdoc"))
        return refuse("%s: \"%.40s\" is not understood; behind the partition stands ;perdoc or "
                      "nothing",
                      what, rest);
    return set_name(trial->partition, "partition", what, value);
}

static int set_strategy(struct trial *trial, const char *what, const char *value)
{
    return set_name(trial->strategy, "strategy", what, value);
}

static int set_transport(struct trial *trial, const char *what, const char *value)
{
    if (!strcmp(value, "custom"))
        return refuse("%s: the transport custom is for programs that carry messages themselves",
                      what);
    return set_name(trial->transport, "transport", what, value);
}

static int set_kernel(struct trial *trial, const char *what, const char *value)
{
    return set_name(trial->kernel, "kernel", what, value);
}

static int set_order(struct trial *trial, const char *what, const char *value)
{
    (void)trial;
    if (!strcmp(value, "sequential")) return EXIT_PASS;
    if (parts_is_later("order", value))
        return refuse("%s: the order %.40s is not in this version", what, value);
    return refuse("%s: there is no order \"%.40s\"; there is sequential", what, value);
}

static int set_device(struct trial *trial, const char *what, const char *value)
{
    (void)trial;
    if (!strcmp(value, "auto") || !strcmp(value, "cpu")) return EXIT_PASS;
    if (parts_is_later("device", value))
        return refuse("%s: the device %.40s is not in this version", what, value);
    return refuse("%s: there is no device \"%.40s\"; there is auto, cpu", what, value);
}

static const char *const stride_names[] = { "packed", "padded", "heads" };

static int set_strides(struct trial *trial, const char *what, const char *value)
{
    for (int i = 0; i < COUNT(stride_names); i++) {
        if (strcmp(value, stride_names[i])) continue;
        trial->strides = (enum trial_strides)i;
        return EXIT_PASS;
    }
    return refuse("%s: \"%.40s\" is not understood; there is packed, padded, heads", what, value);
}

/* ---- Tables: what stands before "=", and the words that stand alone -------------------------- */

#define WHOLE(key_, field_, least_, most_)                                                         \
    {                                                                                              \
        .key = key_, .offset = offsetof(struct trial, field_), .least = least_, .most = most_      \
    }
#define REAL(key_, field_, most_)                                                                  \
    {                                                                                              \
        .key = key_, .offset = offsetof(struct trial, field_), .real_most = most_                  \
    }
#define OTHER(key_, set_)                                                                          \
    {                                                                                              \
        .key = key_, .set = set_                                                                   \
    }

static const struct field {
    const char *key;
    size_t offset;
    int64_t least, most; /* of an int64_t at offset */
    double real_most;    /* not 0: a double at offset, from 0 */
    int (*set)(struct trial *trial, const char *what, const char *value); /* not NULL: otherwise */
} fields[] = {
    WHOLE("n", q_len, 1, TOKENS_MOST),
    WHOLE("nk", k_len, 1, TOKENS_MOST),
    WHOLE("b", batch, 1, INT32_MAX),
    OTHER("h", set_heads),
    WHOLE("hk", kv_heads, 1, HEADS_MOST),
    WHOLE("d", dim, 1, DIM_MOST),
    WHOLE("dv", value_dim, 1, DIM_MOST),
    WHOLE("ring", ranks, 1, TRIAL_RANKS_MOST),
    WHOLE("threads", threads, 1, TRIAL_THREADS_MOST),
    WHOLE("seed", seed, 0, SEED_MOST),
    REAL("scale", scale, 1e30),
    REAL("amp", amp, 1e4),
    REAL("gap", gap, 1e4),
    OTHER("kernel", set_kernel),
    OTHER("order", set_order),
    OTHER("strides", set_strides),
    OTHER("dtype", set_dtype),
    OTHER("device", set_device),
    OTHER("pattern", set_pattern),
    OTHER("partition", set_partition),
    OTHER("strategy", set_strategy),
    OTHER("transport", set_transport),
};

/* Things of later versions, so that they are refused by name. */
static const char *const later_keys[] = {
    "softcap", "alibi", "sinks", "bias", "dropout", "system"
};

static const struct field *find_field(const char *key, size_t length)
{
    for (int i = 0; i < COUNT(fields); i++)
        if (strlen(fields[i].key) == length && !memcmp(fields[i].key, key, length))
            return &fields[i];
    return NULL;
}

static int set_field(struct trial *trial, const struct field *field, const char *what,
                     const char *value)
{
    char *place = (char *)trial + field->offset;
    if (field->set) return field->set(trial, what, value);
    if (field->real_most == 0.0)
        return number_whole(what, value, field->least, field->most, (int64_t *)(void *)place);
    return number_real(what, value, 1e-30, field->real_most, (double *)(void *)place);
}

int trial_set(struct trial *trial, const char *key, const char *what, const char *value)
{
    const struct field *field = find_field(key, strlen(key));
    if (!field) return refuse("%s is not understood", what);
    return set_field(trial, field, what, value);
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* What was read so far, so that nothing is said twice. */
struct reader {
    struct trial *trial;
    uint32_t seen; /* a bit per row of `fields` */
};

static int read_field(struct reader *reader, const char *key, const char *word, const char *value)
{
    const struct field *field = find_field(key, strlen(key));
    uint32_t bit = (uint32_t)1 << (field - fields);
    if (reader->seen & bit)
        return refuse("problem: \"%.60s\" comes after another word that says %s", word, key);
    reader->seen |= bit;
    return set_field(reader->trial, field, word, value);
}

static int read_key(struct reader *reader, char *word, size_t length)
{
    char *value = word + length + 1;
    for (int i = 0; i < COUNT(later_keys); i++)
        if (strlen(later_keys[i]) == length && !memcmp(later_keys[i], word, length))
            return refuse("problem: %s is not in this version", later_keys[i]);
    const struct field *field = find_field(word, length);
    if (!field) return refuse("problem: \"%.60s\" is not understood", word);
    return read_field(reader, field->key, word, value);
}

/* Words without "=": a kind of part by its name, a dtype, or a switch. */
static int read_bare(struct reader *reader, const char *word, size_t length)
{
    static const char *const kinds[] = { "pattern", "partition", "strategy", "transport" };
    ra_part part;
    if (!strcmp(word, "backward")) {
        reader->trial->backward = true;
        return EXIT_PASS;
    }
    if (!strcmp(word, "ones")) {
        reader->trial->ones = true;
        return EXIT_PASS;
    }
    if (!strcmp(word, "f32") || !strcmp(word, "bf16") || !strcmp(word, "f16"))
        return read_field(reader, "dtype", word, word);
    for (int i = 0; i < COUNT(kinds); i++)
        if (parts_find(kinds[i], word, length, &part) || parts_is_later(kinds[i], word))
            return read_field(reader, kinds[i], word, word);
    return refuse("problem: \"%.60s\" is not understood", word);
}

int trial_parse(struct trial *trial, const char *text)
{
    trial_default(trial);
    struct reader reader = { .trial = trial };
    char *copy = strdup(text), *rest = copy;
    if (!copy) return fault("out of memory: %zu bytes", strlen(text));
    int status = EXIT_PASS;
    for (char *word; !status && (word = strtok_r(rest, " \t\r\n", &rest));) {
        size_t length = strcspn(word, ":;=");
        status = word[length] == '=' ? read_key(&reader, word, length)
                                     : read_bare(&reader, word, length);
    }
    free(copy);
    if (status) return status;
    trial_settle(trial);
    return EXIT_PASS;
}

void trial_settle(struct trial *trial)
{
    if (!trial->q_len) trial->q_len = default_tokens;
    if (!trial->k_len) trial->k_len = trial->q_len;
    if (!trial->batch) trial->batch = 1;
    if (!trial->q_heads) trial->q_heads = default_heads;
    if (!trial->kv_heads) trial->kv_heads = trial->q_heads;
    if (!trial->dim) trial->dim = default_dim;
    if (!trial->value_dim) trial->value_dim = trial->dim;
    if (!trial->ranks) trial->ranks = 1;
    if (trial->dtype == DTYPE_AUTO) trial->dtype = (int)RA_F32;
    if (!*trial->partition) strcpy(trial->partition, "contiguous");
    if (!*trial->strategy) strcpy(trial->strategy, "ring");
    if (!*trial->transport) strcpy(trial->transport, "local");
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void add_real(struct string *string, const char *key, double value)
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) { /* the shortest text that reads back the same */
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    if (value != 0.0) string_add(string, " %s=%s", key, text);
}

static void add_shape(struct string *s, const struct trial *t)
{
    string_add(s, "%s n=%" PRId64, t->pattern ? t->pattern : "full", t->q_len);
    if (t->k_len != t->q_len) string_add(s, " nk=%" PRId64, t->k_len);
    string_add(s, " h=%" PRId64, t->q_heads);
    if (t->kv_heads != t->q_heads) string_add(s, "/%" PRId64, t->kv_heads);
    string_add(s, " d=%" PRId64, t->dim);
    if (t->value_dim != t->dim) string_add(s, " dv=%" PRId64, t->value_dim);
    if (t->batch != 1) string_add(s, " b=%" PRId64, t->batch);
    if (t->dtype != (int)RA_F32) string_add(s, " %s", half_name((ra_dtype)t->dtype));
}

char *trial_format(const struct trial *t)
{
    struct string s = { .lost = false };
    add_shape(&s, t);
    if (t->ranks != 1) string_add(&s, " ring=%" PRId64, t->ranks);
    if (strcmp(t->partition, "contiguous")) string_add(&s, " %s", t->partition);
    if (strcmp(t->strategy, "ring")) string_add(&s, " %s", t->strategy);
    if (strcmp(t->transport, "local")) string_add(&s, " %s", t->transport);
    if (t->backward) string_add(&s, " backward");
    if (t->ones) string_add(&s, " ones");
    if (t->seed) string_add(&s, " seed=%" PRId64, t->seed);
    add_real(&s, "scale", t->scale);
    if (t->threads) string_add(&s, " threads=%" PRId64, t->threads);
    if (*t->kernel) string_add(&s, " kernel=%s", t->kernel);
    add_real(&s, "amp", t->amp);
    add_real(&s, "gap", t->gap);
    if (t->strides) string_add(&s, " strides=%s", stride_names[t->strides]);
    return s.s;
}

ra_problem trial_problem(const struct trial *t)
{
    ra_problem problem = ra_problem_default();
    problem.dtype = (ra_dtype)t->dtype;
    problem.batch = t->batch;
    problem.q_len = t->q_len;
    problem.k_len = t->k_len;
    problem.q_heads = (int)t->q_heads;
    problem.kv_heads = (int)t->kv_heads;
    problem.dim = (int)t->dim;
    problem.value_dim = (int)t->value_dim;
    problem.scale = (float)t->scale;
    return problem;
}
