/* pattern.c - the table of kinds, and patterns as values: made, copied, compared, checked. */
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

ra_status ra__pattern_create(const struct ra__pattern_kind *kind, ra_pattern **out)
{
    ra_pattern *pattern = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *pattern);
    if (!pattern) return ra__fail(RA_ERR_MEMORY, "pattern: %zu bytes", sizeof *pattern);
    pattern->kind = kind;
    *out = pattern;
    return RA_OK;
}

void ra_pattern_destroy(ra_pattern *pattern)
{
    if (!pattern) return;
    ra__free(pattern->bounds);
    ra__free(pattern->ratios);
    ra__free(pattern->bitmap);
    ra__free(pattern->bitmap_file);
    ra__free(pattern->drawn);
    ra__free(pattern);
}

ra_status ra__pattern_set_bounds(ra_pattern *pattern, const int64_t *bounds, int64_t count)
{
    if (count < 2 || bounds[0] != 0)
        return ra__fail(RA_ERR_ARGUMENT, "documents: the bounds start at 0 and end at n");
    for (int64_t i = 1; i < count; i++)
        if (bounds[i] < bounds[i - 1])
            return ra__fail(RA_ERR_ARGUMENT,
                            "documents: bound %" PRId64 " comes behind %" PRId64
                            "; bounds must not fall",
                            bounds[i], bounds[i - 1]);
    int64_t *copy = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)count, sizeof *copy);
    if (!copy) return ra__fail(RA_ERR_MEMORY, "documents: %" PRId64 " bounds", count);
    memcpy(copy, bounds, (size_t)count * sizeof *copy);
    ra__free(pattern->bounds);
    pattern->bounds = copy;
    pattern->bound_count = count;
    return RA_OK;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static size_t bitmap_bytes(const ra_pattern *p)
{
    return (size_t)p->bitmap_heads * (size_t)p->bitmap_blocks * (size_t)p->bitmap_blocks;
}

/* A copy of `bytes` bytes; *failed where there is no memory for it. NULL copies to NULL. */
static void *duplicate(const void *from, size_t bytes, bool *failed)
{
    if (!from) return NULL;
    void *copy = ra__alloc(NULL, RA__FOR_BOOKKEEPING, bytes);
    if (copy) memcpy(copy, from, bytes);
    else *failed = true;
    return copy;
}

ra_status ra__pattern_copy(const ra_pattern *pattern, ra_pattern **out)
{
    ra_pattern *copy;
    RA__TRY(ra__pattern_create(pattern ? pattern->kind : &ra__pattern_full, &copy));
    if (!pattern) {
        *out = copy;
        return RA_OK;
    }
    bool failed = false;
    size_t name = pattern->bitmap_file ? strlen(pattern->bitmap_file) + 1 : 0;
    *copy = *pattern;
    copy->drawn = NULL;
    copy->bounds = duplicate(pattern->bounds, (size_t)pattern->bound_count * sizeof(int64_t),
                             &failed);
    copy->ratios = duplicate(pattern->ratios, (size_t)pattern->ratio_count * sizeof *copy->ratios,
                             &failed);
    copy->bitmap = duplicate(pattern->bitmap, bitmap_bytes(pattern), &failed);
    copy->bitmap_file = duplicate(pattern->bitmap_file, name, &failed);
    if (failed) {
        ra_pattern_destroy(copy);
        return ra__fail(RA_ERR_MEMORY, "pattern: no memory for a copy");
    }
    *out = copy;
    return RA_OK;
}

uint64_t ra__pattern_hash(const ra_pattern *p)
{
    uint64_t hash = ra__hash(RA__HASH_START, p->kind->name, strlen(p->kind->name));
    int64_t terms = (int64_t)p->terms & ~RA__OPTION_CYCLIC;
    int64_t numbers[] = { p->args[0],   p->args[1],       p->causal,       terms,
                          p->local,     p->global,        p->strided,      p->dilated.a,
                          p->dilated.b, (int64_t)p->seed, p->bitmap_heads, p->bitmap_blocks };
    hash = ra__hash(hash, numbers, sizeof numbers);
    hash = ra__hash(hash, &p->density, sizeof p->density);
    hash = ra__hash(hash, p->ratios, (size_t)p->ratio_count * sizeof *p->ratios);
    hash = ra__hash(hash, p->bitmap, bitmap_bytes(p));
    return ra__hash(hash, p->bounds, (size_t)p->bound_count * sizeof(int64_t));
}

/* ---- Checks ---------------------------------------------------------------------------------- */

/* Documents, orders and bitmaps belong to positions that queries and keys share. */
static ra_status check_same(const char *what, int64_t q_len, int64_t k_len)
{
    if (q_len == k_len) return RA_OK;
    return ra__fail(RA_ERR_UNSUPPORTED,
                    "%s: as many queries (%" PRId64 ") as keys (%" PRId64 ") are needed", what,
                    q_len, k_len);
}

ra_status ra__pattern_check_documents(const ra_pattern *pattern, int64_t q_len, int64_t k_len)
{
    RA__TRY(check_same("documents", q_len, k_len));
    int64_t end = pattern->bounds[pattern->bound_count - 1];
    if (end == k_len) return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT,
                    "documents: the last bound is %" PRId64 ", but there are %" PRId64 " positions",
                    end, k_len);
}

static ra_status check_bitmap(const ra_pattern *pattern, const struct ra__shape *shape)
{
    int64_t blocks = ra__ceil_div(shape->k_len, pattern->args[0]);
    RA__TRY(check_same("bitmap", shape->q_len, shape->k_len));
    if (pattern->bitmap_blocks != blocks)
        return ra__fail(RA_ERR_ARGUMENT,
                        "bitmap: it has %" PRId64 " blocks, but %" PRId64
                        " positions in blocks of %" PRId64 " are %" PRId64,
                        pattern->bitmap_blocks, shape->k_len, pattern->args[0], blocks);
    if (pattern->bitmap_heads == 1 || pattern->bitmap_heads == shape->q_heads) return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT, "bitmap: it has %d heads, but there are %d query heads",
                    pattern->bitmap_heads, shape->q_heads);
}

static ra_status check_order(const ra_order *order, const struct ra__shape *shape)
{
    RA__TRY(check_same("order", shape->q_len, shape->k_len));
    if (order->length == shape->k_len) return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT,
                    "order: it is for %" PRId64 " positions, but there are %" PRId64, order->length,
                    shape->k_len);
}

ra_status ra__pattern_check(const ra_pattern *pattern, const struct ra__shape *shape,
                            const ra_order *order)
{
    if (shape->q_len > shape->k_len && !pattern->kind->more_queries)
        return ra__fail(RA_ERR_UNSUPPORTED,
                        "pattern %s: more queries (%" PRId64 ") than keys (%" PRId64
                        ") make sense only with full, causal and window",
                        pattern->kind->name, shape->q_len, shape->k_len);
    if (pattern->kind->check) RA__TRY(pattern->kind->check(pattern, shape));
    if (pattern->bounds) RA__TRY(ra__pattern_check_documents(pattern, shape->q_len, shape->k_len));
    if (pattern->bitmap) RA__TRY(check_bitmap(pattern, shape));
    return order ? check_order(order, shape) : RA_OK;
}
