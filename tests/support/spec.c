/* SPDX-License-Identifier: Apache-2.0 */
/* spec.c - see spec.h. */
#include "support/spec.h"

#include "harness/base/philox.h"

struct spec spec_empty(int64_t n, int64_t nk, int heads)
{
    return (struct spec){ .n = n,
                          .nk = nk,
                          .heads = heads,
                          .local = SPEC_ABSENT,
                          .global = SPEC_ABSENT,
                          .strided = SPEC_ABSENT,
                          .dilated = { SPEC_ABSENT, SPEC_ABSENT },
                          .density = -1 };
}

/* ---- The formulas ---------------------------------------------------------------------------- */

/* { a w + s + t r } inside segment a. */
static bool selected(struct spec_ratio branch, int64_t offset, int64_t position)
{
    int64_t inside = position % branch.a;
    return inside >= offset && (inside - offset) % branch.b == 0;
}

/* The first h mod k groups are one head larger. */
static int group_of(const struct spec *s, int head)
{
    int at = 0;
    for (int group = 0; group < s->branch_count; group++) {
        at += s->heads / s->branch_count + (group < s->heads % s->branch_count);
        if (head < at) return group;
    }
    fail();
    return -1;
}

static int count_dilated(const struct spec *s, int head, int64_t q, int64_t k)
{
    int count = 0;
    for (int i = 0; i < s->branch_count; i++) {
        struct spec_ratio branch = s->branches[i];
        int64_t offset = (s->groups ? i : head) % branch.b;
        if (s->block_offsets) offset = head / ((s->heads + branch.b - 1) / branch.b);
        if (s->groups && group_of(s, head) != i) continue;
        count += q / branch.a == k / branch.a && selected(branch, offset, q) &&
                 selected(branch, offset, k);
    }
    return s->dedup && count > 1 ? 1 : count;
}

static int sees_block(const struct spec *s, int head, int64_t i, int64_t j)
{
    int64_t away = i > j ? i - j : j - i;
    int64_t blocks = (s->nk + s->block - 1) / s->block;
    bool sees = s->local != SPEC_ABSENT && away <= s->local;
    sees |= s->global != SPEC_ABSENT && (i < s->global || j < s->global);
    sees |= s->strided != SPEC_ABSENT && (j % s->strided == 0 || i == j);
    if (s->dilated.a != SPEC_ABSENT)
        sees |= away % s->dilated.a == 0 && away <= s->dilated.a * s->dilated.b;
    for (int l = 0; l < s->level_count; l++)
        sees |= i == j || (i % s->levels[l].a == 0 && away <= s->levels[l].b);
    if (s->density >= 0) {
        uint32_t counter[4] = { (uint32_t)j, (uint32_t)i, (uint32_t)head, UINT32_MAX };
        sees |= i == j || (double)philox_word(s->seed, counter, 0) < s->density * 4294967296.0;
    }
    if (s->bitmap) {
        int64_t map = s->bitmap_heads == 1 ? 0 : head;
        sees |= s->bitmap[(map * blocks + i) * blocks + j] != 0;
    }
    return sees;
}

static int document_of(const struct spec *s, int64_t position)
{
    int document = 0;
    while (s->bounds[document + 1] <= position) document++;
    return document;
}

/* Query at position `p`, key at position `j`, both original. */
static int spec_count(const struct spec *s, int head, int64_t p, int64_t j)
{
    int64_t q = s->index ? s->index[p] : p, k = s->index ? s->index[j] : j;
    if (s->causal && j > p) return 0;
    if (s->bound_count && document_of(s, p) != document_of(s, j)) return 0;
    return s->branch_count ? count_dilated(s, head, q, k)
                           : sees_block(s, head, q / s->block, k / s->block);
}

/* ---- The library ----------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void append(char *text, const char *format, ...)
{
    va_list args;
    size_t used = strlen(text);
    va_start(args, format);
    vsnprintf(text + used, 400 - used, format, args);
    va_end(args);
}

static void write_text(const struct spec *s, char text[400])
{
    text[0] = 0;
    for (int i = 0; i < s->branch_count; i++)
        append(text, "%s%d/%d", i ? "," : "dilated:", (int)s->branches[i].a, (int)s->branches[i].b);
    if (s->dedup) append(text, ";dedup");
    if (s->groups) append(text, ";groups");
    if (s->block_offsets) append(text, ";offsets=block");
    if (!s->branch_count) append(text, "blocks:%d", (int)s->block);
    if (s->local != SPEC_ABSENT) append(text, ";local=%d", (int)s->local);
    if (s->global != SPEC_ABSENT) append(text, ";global=%d", (int)s->global);
    if (s->strided != SPEC_ABSENT) append(text, ";strided=%d", (int)s->strided);
    if (s->dilated.a != SPEC_ABSENT)
        append(text, ";dilated=%d/%d", (int)s->dilated.a, (int)s->dilated.b);
    for (int i = 0; i < s->level_count; i++)
        append(text, "%s%d/%d", i ? "," : ";levels=", (int)s->levels[i].a, (int)s->levels[i].b);
    if (s->density >= 0) append(text, ";random=%.17g;seed=%u", s->density, s->seed);
    if (s->causal) append(text, ";causal");
    for (int i = 0; i < s->bound_count; i++)
        append(text, "%s%d", i ? "," : ";docs=", (int)s->bounds[i]);
}

void spec_compare(const struct spec *s, const ra_pattern *pattern, const ra_order *order,
                  const char *text)
{
    uint8_t seen[SPEC_MOST_N];
    ra_problem problem = ra_problem_default();
    problem.pattern = pattern;
    problem.order = order;
    problem.q_len = s->n;
    problem.k_len = s->nk;
    problem.q_heads = s->heads;
    problem.kv_heads = s->heads % 2 ? 1 : s->heads / 2;
    problem.dim = 8;
    for (int head = 0; head < s->heads; head++)
        for (int64_t query = 0; query < s->n; query++) {
            assert_ok(ra_problem_row(&problem, head, query, seen));
            for (int64_t key = 0; key < s->nk; key++) {
                int want = spec_count(s, head, query + s->nk - s->n, key);
                if (seen[key] != want)
                    fail_msg("%s n=%d nk=%d h=%d%s: head %d, query %d, key %d: %d times, not %d",
                             text, (int)s->n, (int)s->nk, s->heads, order ? " under an order" : "",
                             head, (int)query, (int)key, seen[key], want);
            }
        }
}

void spec_check(const struct spec *s, const ra_order *order)
{
    char text[400];
    ra_pattern *pattern;
    write_text(s, text);
    assert_ok(ra_pattern_parse(text, &pattern));
    if (s->bitmap)
        assert_ok(ra_pattern_add_bitmap(pattern, s->bitmap_heads, (s->nk + s->block - 1) / s->block,
                                        s->bitmap));
    spec_compare(s, pattern, order, text);
    ra_pattern_destroy(pattern);
}
