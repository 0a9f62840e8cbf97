/* SPDX-License-Identifier: Apache-2.0 */
/* trial.c - one case, field by field. */
#include "trial.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "alibi.h"
#include "bias.h"
#include "devices.h"
#include "harness/base/half.h"
#include "harness/text/number.h"
#include "parts.h"
#include "places.h"
#include "sequences.h"
#include "system.h"

/* Large enough for anything a machine can hold; small enough that products of two fit. */
#define TOKENS_MOST ((int64_t)1 << 40)
#define HEADS_MOST 65536
#define DIM_MOST 576
#define SEED_MOST INT64_MAX

static const int64_t default_tokens = 4096, default_heads = 8, default_dim = 64;

void trial_default(struct trial *trial)
{
    *trial = (struct trial){ .k_len = KEYS_AUTO, .dtype = DTYPE_AUTO };
}

/* The texts a trial owns. */
enum { OWNED_TEXTS = 6 };

static void owned_texts(struct trial *trial, char **texts[OWNED_TEXTS])
{
    char **all[OWNED_TEXTS] = { &trial->pattern, &trial->order, &trial->alibi,
                                &trial->bias,    &trial->sinks, &trial->seqs };
    memcpy(texts, all, sizeof all);
}

static int keep_text(char **field, const char *value)
{
    char *copy = strdup(value);
    if (!copy) return fault("out of memory: %zu bytes", strlen(value));
    free(*field);
    *field = copy;
    return EXIT_PASS;
}

void trial_clear(struct trial *trial)
{
    char **texts[OWNED_TEXTS];
    owned_texts(trial, texts);
    for (int i = 0; i < OWNED_TEXTS; i++) free(*texts[i]);
    free(trial->slopes);
    free(trial->sequences);
    trial_default(trial);
}

/* ---- Fields, one by one ---------------------------------------------------------------------- */

/* The library's sentence after the flag or word that caused it, without the library's own name for
 * that: not "--order: order: ...". */
static int refuse_named(const char *what, const char *kind, const char *more)
{
    const char *sentence = ra_last_error();
    size_t length = strlen(kind);
    if (!strncmp(sentence, kind, length) && !strncmp(sentence + length, ": ", 2))
        sentence += length + 2;
    return refuse("%s: %s%s", what, sentence, more);
}

static int set_pattern(struct trial *trial, const char *what, const char *value)
{
    ra_pattern *pattern;
    ra_status status = ra_pattern_parse(value, &pattern);
    if (status == RA_ERR_SYSTEM) /* a bitmap that cannot be read is a wrong input */
        return refuse_named(what, "pattern", "");
    if (status != RA_OK) return library_failed(status);
    ra_pattern_destroy(pattern);
    return keep_text(&trial->pattern, value);
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
        return refuse("%s: \"%.40s\" is not understood; only ;perdoc may follow a partition", what,
                      rest);
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
    trial->kernel[0] = 0;
    return strcmp(value, "auto") ? set_name(trial->kernel, "kernel", what, value) : EXIT_PASS;
}

/* A name, or a file of positions; files are read when the number of tokens is known. One token is
 * valid for every order, so the library can check the name. */
static int set_order(struct trial *trial, const char *what, const char *value)
{
    ra_order *order;
    if (!places_is_file(value)) {
        if (ra_order_parse(value, 1, &order) != RA_OK)
            return refuse_named(what, "order", ", or a file of positions, FILE.npy");
        ra_order_destroy(order);
    }
    return keep_text(&trial->order, value);
}

static int set_dropout(struct trial *trial, const char *what, const char *value)
{
    double rate;
    int status = number_real(what, value, 0.0, 1.0, &rate);
    if (!status && rate == 1.0) return refuse("%s: 1 would drop every weight; stay below it", what);
    if (!status) trial->dropout = rate;
    return status;
}

/* "" is the standard slopes. */
static int set_alibi(struct trial *trial, const char *what, const char *value)
{
    int status = alibi_check(what, value);
    return status ? status : keep_text(&trial->alibi, value);
}

static int set_bias(struct trial *trial, const char *what, const char *value)
{
    int status = bias_check(what, value);
    return status ? status : keep_text(&trial->bias, value);
}

/* "" is synthetic ones. */
static int set_sinks(struct trial *trial, const char *what, const char *value)
{
    if (*value && !places_is_file(value))
        return refuse("%s: %.60s is not a .npy file", what, value);
    return keep_text(&trial->sinks, value);
}

static int set_sequences(struct trial *trial, const char *what, const char *value)
{
    int status = sequences_check(what, value);
    return status ? status : keep_text(&trial->seqs, value);
}

static int set_system(struct trial *trial, const char *what, const char *value)
{
    int status = system_check(what, value);
    if (!status) trial->system = system_find(value)->name;
    return status;
}

static int set_device(struct trial *trial, const char *what, const char *value)
{
    trial->device[0] = 0;
    if (!strcmp(value, "auto")) return EXIT_PASS;
    const int status = set_name(trial->device, "device", what, value);
    return status || !*value ? status : devices_check(what, value);
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
    WHOLE("nk", k_len, 0, TOKENS_MOST),
    WHOLE("offset", query_offset, -TOKENS_MOST, TOKENS_MOST),
    OTHER("seqs", set_sequences),
    WHOLE("b", batch, 1, INT32_MAX),
    OTHER("h", set_heads),
    WHOLE("hk", kv_heads, 1, HEADS_MOST),
    WHOLE("d", dim, 1, DIM_MOST),
    WHOLE("dv", value_dim, 1, DIM_MOST),
    WHOLE("ring", ranks, 1, TRIAL_RANKS_MOST),
    WHOLE("threads", threads, 1, TRIAL_THREADS_MOST),
    WHOLE("seed", seed, 0, SEED_MOST),
    REAL("scale", scale, 1e30),
    REAL("softcap", softcap, 1e30),
    REAL("amp", amp, 1e4),
    REAL("gap", gap, 1e4),
    REAL("latency", latency, 1e6),
    REAL("bandwidth", bandwidth, 1e18),
    REAL("flops", flops, 1e18),
    REAL("load", load, 1e18),
    OTHER("kernel", set_kernel),
    OTHER("order", set_order),
    OTHER("alibi", set_alibi),
    OTHER("bias", set_bias),
    OTHER("sinks", set_sinks),
    OTHER("dropout", set_dropout),
    OTHER("system", set_system),
    OTHER("strides", set_strides),
    OTHER("dtype", set_dtype),
    OTHER("device", set_device),
    OTHER("pattern", set_pattern),
    OTHER("partition", set_partition),
    OTHER("strategy", set_strategy),
    OTHER("transport", set_transport),
};

int trial_field(const char *key, size_t length)
{
    for (int i = 0; i < COUNT(fields); i++)
        if (strlen(fields[i].key) == length && !memcmp(fields[i].key, key, length)) return i;
    return -1;
}

const char *trial_stride_name(enum trial_strides strides) { return stride_names[strides]; }

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
    int row = trial_field(key, strlen(key));
    return row < 0 ? refuse("%s is not understood", what)
                   : set_field(trial, &fields[row], what, value);
}

/* ---- Resolved ------------------------------------------------------------------------------ */

bool trial_pairs_fit(const struct trial *t)
{
    int64_t pairs = t->batch;
    return !__builtin_mul_overflow(pairs, t->q_heads, &pairs) &&
           !__builtin_mul_overflow(pairs, t->q_len, &pairs) &&
           !__builtin_mul_overflow(pairs, t->k_len, &pairs);
}

int trial_resolve(struct trial *trial)
{
    int status = trial->seqs ? sequences_resolve(trial) : EXIT_PASS;
    if (status) return status;
    if (!trial->q_len) trial->q_len = default_tokens;
    if (trial->k_len == KEYS_AUTO) trial->k_len = trial->q_len;
    if (!trial->batch) trial->batch = 1;
    if (!trial->q_heads) trial->q_heads = default_heads;
    if (!trial->kv_heads) trial->kv_heads = trial->q_heads;
    if (!trial->dim) trial->dim = default_dim;
    if (!trial->value_dim) trial->value_dim = trial->dim;
    if (!trial->ranks) trial->ranks = 1;
    if (trial->dtype == DTYPE_AUTO) trial->dtype = (int)devices_dtype(trial->device);
    if (!*trial->partition) strcpy(trial->partition, "contiguous");
    if (!*trial->strategy) strcpy(trial->strategy, "ring");
    if (!*trial->transport) strcpy(trial->transport, "local");
    int64_t pairs;
    if (__builtin_mul_overflow(trial->q_len, trial->k_len, &pairs))
        return refuse("%" PRId64 " queries x %" PRId64 " keys are more than 2^63 pairs",
                      trial->q_len, trial->k_len);
    if (!trial->alibi) return EXIT_PASS;
    free(trial->slopes);
    trial->slopes = NULL;
    return alibi_slopes(trial->alibi, trial->q_heads, &trial->slopes);
}

ra_problem trial_problem(const struct trial *t)
{
    ra_problem problem = ra_problem_default();
    problem.dtype = (ra_dtype)t->dtype;
    problem.batch = t->batch;
    problem.q_len = t->q_len;
    problem.k_len = t->k_len ? t->k_len : RA_NO_KEYS;
    problem.query_offset = t->query_offset;
    problem.sequences = t->sequences;
    problem.sequence_count = t->sequence_count;
    problem.q_heads = (int)t->q_heads;
    problem.kv_heads = (int)t->kv_heads;
    problem.dim = (int)t->dim;
    problem.value_dim = (int)t->value_dim;
    problem.scale = (float)t->scale;
    problem.softcap = (float)t->softcap;
    problem.alibi = t->slopes;
    problem.dropout = t->dropout;
    return problem;
}

ra_machine trial_machine(const struct trial *t)
{
    ra_machine machine = ra_machine_default();
    machine.latency = t->latency;
    machine.bandwidth = t->bandwidth;
    machine.flops = t->flops;
    machine.copy = t->copy;
    machine.load = t->load;
    return machine;
}

const char *trial_device(const struct trial *t) { return *t->device ? t->device : NULL; }

bool trial_on_cpu(const struct trial *t) { return !*t->device || !strcmp(t->device, "cpu"); }

char *trial_bitmap(const struct trial *trial)
{
    const char *at = trial->pattern ? strstr(trial->pattern, ";bitmap=") : NULL;
    if (!at) return NULL;
    at += strlen(";bitmap=");
    return strndup(at, strcspn(at, ";"));
}
