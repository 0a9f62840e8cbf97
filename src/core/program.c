/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - names and facts about buffers and steps, and where keys are split. */
#include "core/program.h"

const struct ra__buffer_facts *ra__buffer_facts(enum ra__buffer buffer)
{
    static const struct ra__buffer_facts facts[] = {
#define RA__BUFFER_FACTS(name, text, provider, purpose)                                            \
    { text, RA__BY_##provider, RA__FOR_##purpose },
        RA__BUFFER_LIST(RA__BUFFER_FACTS)
#undef RA__BUFFER_FACTS
    };
    return &facts[buffer];
}

const char *ra__step_name(const struct ra__step *step)
{
    static const char *const names[] = {
#define RA__OP_NAME(name, text) text,
        RA__OP_LIST(RA__OP_NAME)
#undef RA__OP_NAME
    };
    static const char *const gathers[] = {
#define RA__GATHER_NAME(name, text) text,
        RA__GATHER_LIST(RA__GATHER_NAME)
#undef RA__GATHER_NAME
    };
    return step->op == RA__OP_GATHER ? gathers[step->gather] : names[step->op];
}

struct ra__key_split ra__key_split_into(int64_t positions, int64_t ranges)
{
    enum { BLOCK = 256 }; /* the key block of kernels, or two of them */
    if (ranges < 2) return (struct ra__key_split){ 1, positions, false };
    const int64_t keys = ra__ceil_div(ra__ceil_div(positions, ranges), BLOCK) * BLOCK;
    return (struct ra__key_split){ (int)ra__ceil_div(positions, keys), keys, false };
}

struct ra__key_split ra__key_split_for(const struct ra__shape *shape, int64_t many)
{
    enum {
        LEAST_KEYS = 16384, /* of a range: its first keys are not prefetched */
        MANY_KEYS = 1024,   /* the same where jobs are to be many */
        MANY_JOBS = 2048    /* enough for every GPU */
    };
    int64_t rows = shape->q_len * (shape->q_heads / shape->kv_heads);
    int64_t ranges = ra__min(shape->k_len / (many ? MANY_KEYS : LEAST_KEYS), RA__MOST_RANGES);
    if (many) ranges = ra__min(ranges, ra__ceil_div(MANY_JOBS, many));
    return ra__key_split_into(shape->k_len, rows > RA__MOST_SPLIT_ROWS ? 1 : ranges);
}
