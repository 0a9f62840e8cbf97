/* SPDX-License-Identifier: Apache-2.0 */
/* problem.c - problem strings, read into trials and written back. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/half.h"
#include "parts.h"
#include "system.h"
#include "harness/text/text.h"
#include "trial.h"

/* ---- Reading --------------------------------------------------------------------------------- */

/* What was read so far, so that nothing is said twice. */
struct reader {
    struct trial *trial;
    uint64_t seen; /* a bit per field of trial_field() */
};

static int read_field(struct reader *reader, const char *key, const char *word, const char *value)
{
    uint64_t bit = (uint64_t)1 << trial_field(key, strlen(key));
    if (reader->seen & bit)
        return refuse("problem: \"%.60s\" comes after another word that says %s", word, key);
    reader->seen |= bit;
    return trial_set(reader->trial, key, word, value);
}

static int read_key(struct reader *reader, const char *word, size_t length)
{
    char key[16];
    if (length >= sizeof key || trial_field(word, length) < 0)
        return refuse("problem: \"%.60s\" is not understood", word);
    snprintf(key, sizeof key, "%.*s", (int)length, word);
    return read_field(reader, key, word, word + length + 1);
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
    if (!strcmp(word, "any-order")) {
        reader->trial->any_order = true;
        return EXIT_PASS;
    }
    if (!strcmp(word, "ones")) {
        reader->trial->ones = true;
        return EXIT_PASS;
    }
    if (!strcmp(word, "alibi") || !strcmp(word, "sinks")) return read_field(reader, word, word, "");
    if (!strcmp(word, "f32") || !strcmp(word, "bf16") || !strcmp(word, "f16"))
        return read_field(reader, "dtype", word, word);
    for (int i = 0; i < COUNT(kinds); i++)
        if (parts_find(kinds[i], word, length, &part) || parts_is_later(kinds[i], word))
            return read_field(reader, kinds[i], word, word);
    return refuse("problem: \"%.60s\" is not understood", word);
}

/* A system fills in what the other words leave open. */
static int apply_system(struct reader *reader)
{
    bool given[SYSTEM_FIELDS];
    if (!reader->trial->system) return EXIT_PASS;
    for (int i = 0; i < SYSTEM_FIELDS; i++)
        given[i] = reader->seen >> trial_field(system_keys[i], strlen(system_keys[i])) & 1;
    return system_apply(reader->trial, given);
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
    if (!status) status = apply_system(&reader);
    if (trial->dtype == DTYPE_AUTO) trial->dtype = (int)RA_F32; /* on every device the same */
    return status ? status : trial_resolve(trial);
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
    string_add(s, "%s", t->pattern ? t->pattern : "full");
    if (t->seqs) string_add(s, " seqs=%s", t->seqs);
    else string_add(s, " n=%" PRId64, t->q_len);
    if (t->k_len != t->q_len && !t->seqs) string_add(s, " nk=%" PRId64, t->k_len);
    if (t->query_offset) string_add(s, " offset=%" PRId64, t->query_offset);
    string_add(s, " h=%" PRId64, t->q_heads);
    if (t->kv_heads != t->q_heads) string_add(s, "/%" PRId64, t->kv_heads);
    string_add(s, " d=%" PRId64, t->dim);
    if (t->value_dim != t->dim) string_add(s, " dv=%" PRId64, t->value_dim);
    if (t->batch != 1) string_add(s, " b=%" PRId64, t->batch);
    if (t->dtype != (int)RA_F32) string_add(s, " %s", half_name((ra_dtype)t->dtype));
}

/* A word without a value. */
static void add_word(struct string *s, const char *key, const char *value)
{
    if (value) string_add(s, " %s%s%s", key, *value ? "=" : "", value);
}

static void add_terms(struct string *s, const struct trial *t)
{
    add_real(s, "softcap", t->softcap);
    add_word(s, "alibi", t->alibi);
    add_word(s, "bias", t->bias);
    add_word(s, "sinks", t->sinks);
    add_real(s, "dropout", t->dropout);
}

char *trial_format(const struct trial *t)
{
    struct string s = { .lost = false };
    add_shape(&s, t);
    if (t->order && strcmp(t->order, "sequential")) string_add(&s, " order=%s", t->order);
    add_terms(&s, t);
    if (t->ranks != 1) string_add(&s, " ring=%" PRId64, t->ranks);
    if (strcmp(t->partition, "contiguous")) string_add(&s, " %s", t->partition);
    if (strcmp(t->strategy, "ring")) string_add(&s, " %s", t->strategy);
    add_real(&s, "latency", t->latency);
    add_real(&s, "bandwidth", t->bandwidth);
    add_real(&s, "flops", t->flops);
    add_real(&s, "load", t->load);
    if (strcmp(t->transport, "local")) string_add(&s, " %s", t->transport);
    if (t->backward) string_add(&s, " backward");
    if (t->any_order) string_add(&s, " any-order");
    if (t->ones) string_add(&s, " ones");
    if (t->seed) string_add(&s, " seed=%" PRId64, t->seed);
    add_real(&s, "scale", t->scale);
    if (t->threads) string_add(&s, " threads=%" PRId64, t->threads);
    if (*t->kernel) string_add(&s, " kernel=%s", t->kernel);
    if (*t->device) string_add(&s, " device=%s", t->device);
    add_real(&s, "amp", t->amp);
    add_real(&s, "gap", t->gap);
    if (t->strides) string_add(&s, " strides=%s", trial_stride_name(t->strides));
    return s.s;
}
