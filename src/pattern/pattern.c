/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.c - the table of kinds, and patterns as values: creating, copying, comparing,
 * checking. */
#include "pattern/pattern.h"

#include <inttypes.h>
#include <string.h>

#include "core/hash.h"

#define RA__PATTERN(name) extern const struct ra__pattern_kind ra__pattern_##name;
#include "pattern/pattern.list"
#undef RA__PATTERN

static const struct ra__pattern_kind *const kinds[] = {
#define RA__PATTERN(name) &ra__pattern_##name,
#include "pattern/pattern.list"
#undef RA__PATTERN
};

const struct ra__pattern_kind *ra__pattern_kind_at(int index)
{
    return index >= 0 && index < RA__COUNT(kinds) ? kinds[index] : NULL;
}

const struct ra__pattern_kind *ra__pattern_kind_find(const char *name)
{
    for (int i = 0; i < RA__COUNT(kinds); i++)
        if (!strcmp(kinds[i]->name, name)) return kinds[i];
    return NULL;
}

static ra_status create(const struct ra__pattern_kind *kind, struct ra__account *account,
                        ra_pattern **out)
{
    ra_pattern *pattern = ra__alloc_array(account, RA__FOR_BOOKKEEPING, 1, sizeof *pattern);
    if (!pattern) return ra__fail(RA_ERR_MEMORY, "pattern: %zu bytes", sizeof *pattern);
    pattern->kind = kind;
    if (kind->state_bytes) {
        pattern->state = ra__alloc_array(account, RA__FOR_BOOKKEEPING, 1, kind->state_bytes);
        if (!pattern->state) {
            ra__free(pattern);
            return ra__fail(RA_ERR_MEMORY, "pattern: %zu bytes", kind->state_bytes);
        }
    }
    *out = pattern;
    return RA_OK;
}

ra_status ra__pattern_create(const struct ra__pattern_kind *kind, ra_pattern **out)
{
    return create(kind, NULL, out);
}

void ra_pattern_destroy(ra_pattern *pattern)
{
    if (!pattern) return;
    if (pattern->state && pattern->kind->destroy) pattern->kind->destroy(pattern->state);
    ra__free(pattern->state);
    ra__free(pattern->bounds);
    ra__free(pattern);
}

ra_status ra__check_bounds(const char *what, const int64_t *bounds, int64_t count)
{
    if (count < 2 || bounds[0] != 0)
        return ra__fail(RA_ERR_ARGUMENT, "%s: the bounds start at 0 and end at n", what);
    for (int64_t i = 1; i < count; i++)
        if (bounds[i] < bounds[i - 1])
            return ra__fail(RA_ERR_ARGUMENT,
                            "%s: bound %" PRId64 " comes after %" PRId64 "; bounds must not fall",
                            what, bounds[i], bounds[i - 1]);
    return RA_OK;
}

ra_status ra__pattern_set_bounds(ra_pattern *pattern, const int64_t *bounds, int64_t count)
{
    RA__TRY(ra__check_bounds("documents", bounds, count));
    int64_t *copy = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)count, sizeof *copy);
    if (!copy) return ra__fail(RA_ERR_MEMORY, "documents: %" PRId64 " bounds", count);
    memcpy(copy, bounds, (size_t)count * sizeof *copy);
    ra__free(pattern->bounds);
    pattern->bounds = copy;
    pattern->bound_count = count;
    return RA_OK;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

void *ra__duplicate(struct ra__account *account, const void *from, size_t bytes, ra_status *status)
{
    if (!from) return NULL;
    void *copy = ra__alloc(account, RA__FOR_BOOKKEEPING, bytes);
    if (copy) memcpy(copy, from, bytes);
    else *status = ra__fail(RA_ERR_MEMORY, "pattern: no memory for a copy");
    return copy;
}

/* Everything of a pattern but its kind, into one that is new. */
static ra_status fill_copy(const ra_pattern *from, struct ra__account *account, ra_pattern *to)
{
    memcpy(to->args, from->args, sizeof to->args);
    to->arg_count = from->arg_count;
    to->causal = from->causal;
    ra_status status = RA_OK;
    to->bounds = ra__duplicate(account, from->bounds, (size_t)from->bound_count * sizeof(int64_t),
                               &status);
    to->bound_count = from->bound_count;
    if (status != RA_OK) return status;
    if (from->kind->clone) return from->kind->clone(account, from->state, to->state);
    if (from->state) memcpy(to->state, from->state, from->kind->state_bytes);
    return RA_OK;
}

ra_status ra__pattern_copy(const ra_pattern *pattern, struct ra__account *account, ra_pattern **out)
{
    ra_pattern *copy;
    RA__TRY(create(pattern ? pattern->kind : &ra__pattern_full, account, &copy));
    ra_status status = pattern ? fill_copy(pattern, account, copy) : RA_OK;
    if (status != RA_OK) {
        ra_pattern_destroy(copy);
        return status;
    }
    *out = copy;
    return RA_OK;
}

uint64_t ra__pattern_hash(const ra_pattern *p)
{
    uint64_t hash = ra__hash(RA__HASH_START, p->kind->name, strlen(p->kind->name));
    int64_t numbers[] = { p->args[0], p->args[1], p->causal };
    hash = ra__hash(hash, numbers, sizeof numbers);
    if (p->state) hash = p->kind->hash(p->state, hash);
    return ra__hash(hash, p->bounds, (size_t)p->bound_count * sizeof(int64_t));
}

/* For the longest sequence: the others ask for a part of what it asks for. */
ra_status ra__pattern_prepare(ra_pattern *pattern, struct ra__account *account,
                              const struct ra__shape *shape, const struct ra__sequences *sequences)
{
    struct ra__shape longest = *shape;
    if (sequences->count > 0) longest.k_len = 0;
    for (int64_t i = 0; i < sequences->count; i++)
        longest.k_len = ra__max(longest.k_len, sequences->at[i].k_count);
    if (!pattern->kind->prepare || longest.k_len == 0) return RA_OK;
    return pattern->kind->prepare(pattern, account, &longest);
}

/* ---- Checks ---------------------------------------------------------------------------------- */

ra_status ra__pattern_check_same(const char *what, int64_t q_len, int64_t k_len)
{
    if (q_len == k_len) return RA_OK;
    return ra__fail(RA_ERR_UNSUPPORTED,
                    "%s: as many queries (%" PRId64 ") as keys (%" PRId64 ") are needed", what,
                    q_len, k_len);
}

ra_status ra__pattern_check_documents(const ra_pattern *pattern, int64_t q_len, int64_t k_len)
{
    RA__TRY(ra__pattern_check_same("documents", q_len, k_len));
    int64_t end = pattern->bounds[pattern->bound_count - 1];
    if (end == k_len) return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT,
                    "documents: the last bound is %" PRId64 ", but there are %" PRId64 " positions",
                    end, k_len);
}

/* Refuses `what` where queries are moved against the keys. */
static ra_status check_no_offset(const char *what, const struct ra__shape *shape)
{
    if (shape->query_offset == 0) return RA_OK;
    return ra__fail(RA_ERR_UNSUPPORTED, "%s: query_offset must be 0, but is %" PRId64, what,
                    shape->query_offset);
}

static ra_status check_order(const ra_order *order, const struct ra__shape *shape)
{
    RA__TRY(ra__pattern_check_same("order", shape->q_len, shape->k_len));
    RA__TRY(check_no_offset("order", shape));
    if (order->length == shape->k_len) return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT,
                    "order: it is for %" PRId64 " positions, but there are %" PRId64, order->length,
                    shape->k_len);
}

/* Pairs over heads and batch are counted in an int64_t. */
static ra_status check_pairs(const ra_pattern *pattern, const struct ra__shape *s)
{
    int64_t pairs = s->k_len;
    if (pattern->kind->most_keys) pairs = ra__min(pairs, pattern->kind->most_keys(pattern));
    if (!__builtin_mul_overflow(pairs, s->q_len, &pairs) &&
        !__builtin_mul_overflow(pairs, s->q_heads, &pairs) &&
        !__builtin_mul_overflow(pairs, s->batch, &pairs))
        return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT,
                    "pattern %s: batch x heads x queries x the keys that each may see exceeds 2^63",
                    pattern->kind->name);
}

static ra_status check_positions(const ra_pattern *pattern, const struct ra__shape *shape)
{
    const int64_t first = shape->k_len - shape->q_len + shape->query_offset;
    if (pattern->kind->any_position || (first >= 0 && shape->query_offset <= 0)) return RA_OK;
    if (shape->query_offset == 0)
        return ra__fail(RA_ERR_UNSUPPORTED,
                        "pattern %s: more queries (%" PRId64 ") than keys (%" PRId64
                        ") make sense only with full, causal and window",
                        pattern->kind->name, shape->q_len, shape->k_len);
    return ra__fail(RA_ERR_UNSUPPORTED,
                    "pattern %s: queries at positions %" PRId64 " to %" PRId64
                    ", where the keys are at 0 to %" PRId64
                    ", make sense only with full, causal and window",
                    pattern->kind->name, first, first + shape->q_len - 1, shape->k_len - 1);
}

/* A problem, or one sequence of it. */
static ra_status check_sequence(const ra_pattern *pattern, const struct ra__shape *shape)
{
    RA__TRY(check_positions(pattern, shape));
    if (pattern->kind->check_lengths) RA__TRY(pattern->kind->check_lengths(pattern, shape));
    if (!pattern->bounds) return RA_OK;
    RA__TRY(check_no_offset("documents", shape));
    return ra__pattern_check_documents(pattern, shape->q_len, shape->k_len);
}

ra_status ra__pattern_check(const ra_pattern *pattern, const struct ra__shape *shape,
                            const struct ra__sequences *sequences, const ra_order *order)
{
    if (pattern->kind->check) RA__TRY(pattern->kind->check(pattern));
    if (sequences->count == 0) RA__TRY(check_sequence(pattern, shape));
    for (int64_t i = 0; i < sequences->count; i++) {
        struct ra__shape one = *shape;
        one.q_len = sequences->at[i].q_count;
        one.k_len = sequences->at[i].k_count;
        if (one.q_len > 0 && one.k_len > 0) RA__TRY(check_sequence(pattern, &one));
    }
    RA__TRY(check_pairs(pattern, shape));
    if (!order) return RA_OK;
    if (sequences->count > 0)
        return ra__fail(RA_ERR_UNSUPPORTED, "order: it is for one sequence, but there are %" PRId64,
                        sequences->count);
    return check_order(order, shape);
}
