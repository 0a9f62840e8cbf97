/* SPDX-License-Identifier: Apache-2.0 */
/* handshake.c - see handshake.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "core/hash.h"
#include "core/philox.h"
#include "exec/handshake.h"
#include "pattern/text.h"

/* ---- What differs, in words ------------------------------------------------------------------ */

/* A field that differs, as it travels, and where the words about it go. */
struct contrast {
    const struct ra__plan_input *input; /* what this rank was given */
    uint64_t mine, theirs;
    struct ra__writer *words;
};

static void show_number(const struct contrast *c)
{
    ra__write(c->words, " (%" PRId64 " here, %" PRId64 " there)", (int64_t)c->mine,
              (int64_t)c->theirs);
}

static void show_dtype(const struct contrast *c)
{
    ra__write(c->words, " (%s here, %s there)", ra__dtype_name((ra_dtype)c->mine),
              ra__dtype_name((ra_dtype)c->theirs));
}

static void show_version(const struct contrast *c)
{
    const uint64_t m = c->mine, t = c->theirs;
    ra__write(c->words,
              " (%" PRIu64 ".%" PRIu64 ".%" PRIu64 " here, %" PRIu64 ".%" PRIu64 ".%" PRIu64
              " there)",
              m / 1000000, m / 1000 % 1000, m % 1000, t / 1000000, t / 1000 % 1000, t % 1000);
}

/* With as many digits as needed to distinguish them; 17 are always enough. */
static void show_two(struct ra__writer *words, double mine, double theirs)
{
    char here[32], there[32];
    int digits = 6;
    do {
        snprintf(here, sizeof here, "%.*g", digits, mine);
        snprintf(there, sizeof there, "%.*g", digits, theirs);
    } while (!strcmp(here, there) && ++digits <= 17);
    ra__write(words, " (%s here, %s there)", here, there);
}

static void show_real(const struct contrast *c)
{
    show_two(c->words, ra__f32_from_bits((uint32_t)c->mine),
             ra__f32_from_bits((uint32_t)c->theirs));
}

/* Of 2^32, as ra__philox_limit() says. */
static void show_fraction(const struct contrast *c)
{
    show_two(c->words, (double)c->mine / 0x1p32, (double)c->theirs / 0x1p32);
}

/* A hash, which says nothing to a reader but that there is something. */
static void show_digest(const struct contrast *c)
{
    if (!c->mine || !c->theirs) ra__write(c->words, " (none %s)", c->mine ? "there" : "here");
}

/* Hashes too, but of something that has a text on this side. */
static void show_pattern(const struct contrast *c)
{
    char text[80];
    size_t length = 0;
    if (ra_pattern_format(c->input->pattern, text, sizeof text, &length) != RA_OK) return;
    ra__write(c->words, " (%s%s here)", text, length < sizeof text ? "" : "...");
}

static void show_strategy(const struct contrast *c)
{
    char text[RA__STRATEGY_TEXT];
    ra__strategy_format(c->input, text);
    ra__write(c->words, " (%s here)", text);
}

static const struct {
    const char *name;
    void (*show)(const struct contrast *c);
} fields[] = {
#define RA__HANDSHAKE_ROW(name, text, show) { text, show_##show },
    RA__HANDSHAKE_LIST(RA__HANDSHAKE_ROW)
#undef RA__HANDSHAKE_ROW
};

/* ---- Comparing ------------------------------------------------------------------------------- */

static uint64_t hash_name(const char *name) { return ra__hash(RA__HASH_START, name, strlen(name)); }

static struct ra__handshake_data make_data(const struct ra__plan_input *input,
                                           const struct ra__problem_terms *terms)
{
    const struct ra__shape *s = &input->shape;
    char strategy[RA__STRATEGY_TEXT];
    ra__strategy_format(input, strategy);
    return (struct ra__handshake_data){
        .version = RA_VERSION_MAJOR * 1000000 + RA_VERSION_MINOR * 1000 + RA_VERSION_PATCH,
        .ranks = (uint64_t)input->ranks,
        .dtype = s->dtype,
        .batch = (uint64_t)s->batch,
        .q_len = (uint64_t)s->q_len,
        .k_len = (uint64_t)s->k_len,
        .query_offset = (uint64_t)s->query_offset,
        .sequences = ra__sequences_hash(&input->sequences),
        .q_heads = (uint64_t)s->q_heads,
        .kv_heads = (uint64_t)s->kv_heads,
        .dim = (uint64_t)s->dim,
        .value_dim = (uint64_t)s->value_dim,
        .scale = ra__f32_bits(s->scale),
        .softcap = ra__f32_bits(terms->softcap),
        .alibi = terms->alibi
                     ? ra__hash(RA__HASH_START, terms->alibi, (size_t)s->q_heads * sizeof(float))
                     : 0,
        .dropout = ra__philox_limit(terms->dropout),
        .order = ra__order_hash(input->order),
        .pattern = ra__pattern_hash(input->pattern),
        .partition = ra__layout_hash(input->q_layout) * 31 + ra__layout_hash(input->k_layout),
        .strategy = hash_name(strategy),
    };
}

ra_status ra__handshake_take(struct ra__handshake *handshake, const struct ra__plan_input *input,
                             const struct ra__problem_terms *terms, struct ra__arena *arena)
{
    handshake->input = input;
    if (!arena->counting) handshake->mine = make_data(input, terms);
    RA__TRY(ra__arena_array(arena, input->ranks, sizeof *handshake->theirs,
                            (void **)&handshake->theirs));
    return ra__arena_array(arena, 2 * (int64_t)(input->ranks - 1), sizeof *handshake->messages,
                           (void **)&handshake->messages);
}

static ra_status compare(const struct ra__handshake *handshake, const struct ra__rank *rank,
                         int other)
{
    int peer = other < rank->rank ? other : other + 1;
    const uint64_t *mine = (const uint64_t *)&handshake->mine,
                   *theirs = (const uint64_t *)&handshake->theirs[other];
    for (int i = 0; i < RA__COUNT(fields); i++) {
        if (mine[i] == theirs[i]) continue;
        char text[160] = "";
        struct ra__writer words = { text, sizeof text, 0 };
        fields[i].show(&(struct contrast){ handshake->input, mine[i], theirs[i], &words });
        return ra__fail(RA_ERR_MISMATCH, "rank %d, hop 0: rank %d was given another %s%s",
                        rank->rank, peer, fields[i].name, text);
    }
    return RA_OK;
}

ra_status ra__handshake(struct ra__handshake *handshake, const struct ra__rank *rank)
{
    if (handshake->done || rank->ranks == 1) return RA_OK;
    /* Sent from memory that stays where a transport retains it. */
    struct ra__handshake_data *mine = &handshake->theirs[rank->ranks - 1];
    *mine = handshake->mine;
    RA__TRY(ra__control_share(rank, handshake->messages, ra__reserved_tag(RA__RESERVED_HANDSHAKE),
                              mine, handshake->theirs, sizeof *mine));
    for (int i = 0; i < rank->ranks - 1; i++) RA__TRY(compare(handshake, rank, i));
    handshake->done = true;
    return RA_OK;
}
