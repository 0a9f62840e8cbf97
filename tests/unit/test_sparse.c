/* SPDX-License-Identifier: Apache-2.0 */
/* test_sparse.c - dilated and blocks against the formulas of the design, written down once more
 * here, pair by pair and from numbers, not from text: how often a query of a head sees a key. And
 * bitmaps from files and from memory. */
#include "support/test.h"

#include <locale.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/philox.h"
#include "pattern/pattern.h"

enum { MOST_N = 60, MOST_HEADS = 12, MOST_RATIOS = 5, ABSENT = -1 };

/* ---- The formulas ---------------------------------------------------------------------------- */

struct ratio {
    int64_t a, b;
};

/* A pattern as numbers; terms of blocks that are not given are ABSENT. */
struct spec {
    int64_t n, nk;
    int heads;
    struct ratio branches[MOST_RATIOS]; /* segment / rate */
    int branch_count;                   /* 0: blocks */
    bool dedup, groups, block_offsets;
    int64_t block, local, global, strided;
    struct ratio dilated, levels[MOST_RATIOS];
    int level_count;
    double density; /* below 0: absent */
    uint32_t seed;
    const uint8_t *bitmap; /* [bitmap_heads][blocks][blocks] */
    int bitmap_heads;
    bool causal;
    int64_t bounds[4];
    int bound_count;
    const int64_t *index; /* of an original position; NULL: the same */
};

static struct spec empty_spec(int64_t n, int64_t nk, int heads)
{
    return (struct spec){ .n = n,
                          .nk = nk,
                          .heads = heads,
                          .local = ABSENT,
                          .global = ABSENT,
                          .strided = ABSENT,
                          .dilated = { ABSENT, ABSENT },
                          .density = -1 };
}

/* Philox4x32-10 as its authors define it, apart from core/philox.h; unit/terms has its known
 * answers. */
static uint32_t philox_word(uint32_t k0, uint32_t k1, uint32_t c[4])
{
    for (int round = 0; round < 10; round++) {
        uint64_t a = UINT64_C(0xD2511F53) * c[0], b = UINT64_C(0xCD9E8D57) * c[2];
        uint32_t next[4] = { (uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b,
                             (uint32_t)(a >> 32) ^ c[3] ^ k1, (uint32_t)a };
        memcpy(c, next, sizeof next);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c[0];
}

/* { a w + s + t r } inside segment a. */
static bool selected(struct ratio branch, int64_t offset, int64_t position)
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
        struct ratio branch = s->branches[i];
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
    bool sees = s->local != ABSENT && away <= s->local;
    sees |= s->global != ABSENT && (i < s->global || j < s->global);
    sees |= s->strided != ABSENT && (j % s->strided == 0 || i == j);
    if (s->dilated.a != ABSENT)
        sees |= away % s->dilated.a == 0 && away <= s->dilated.a * s->dilated.b;
    for (int l = 0; l < s->level_count; l++)
        sees |= i == j || (i % s->levels[l].a == 0 && away <= s->levels[l].b);
    if (s->density >= 0) {
        uint32_t counter[4] = { (uint32_t)j, (uint32_t)i, (uint32_t)head, UINT32_MAX };
        sees |= i == j || (double)philox_word(s->seed, 0, counter) < s->density * 4294967296.0;
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
static int expected(const struct spec *s, int head, int64_t p, int64_t j)
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
    if (s->local != ABSENT) append(text, ";local=%d", (int)s->local);
    if (s->global != ABSENT) append(text, ";global=%d", (int)s->global);
    if (s->strided != ABSENT) append(text, ";strided=%d", (int)s->strided);
    if (s->dilated.a != ABSENT)
        append(text, ";dilated=%d/%d", (int)s->dilated.a, (int)s->dilated.b);
    for (int i = 0; i < s->level_count; i++)
        append(text, "%s%d/%d", i ? "," : ";levels=", (int)s->levels[i].a, (int)s->levels[i].b);
    if (s->density >= 0) append(text, ";random=%.17g;seed=%u", s->density, s->seed);
    if (s->causal) append(text, ";causal");
    for (int i = 0; i < s->bound_count; i++)
        append(text, "%s%d", i ? "," : ";docs=", (int)s->bounds[i]);
}

static void compare(const struct spec *s, const ra_pattern *pattern, const ra_order *order,
                    const char *text)
{
    uint8_t seen[MOST_N];
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
                int want = expected(s, head, query + s->nk - s->n, key);
                if (seen[key] != want)
                    fail_msg("%s n=%d nk=%d h=%d%s: head %d, query %d, key %d: %d times, not %d",
                             text, (int)s->n, (int)s->nk, s->heads, order ? " under an order" : "",
                             head, (int)query, (int)key, seen[key], want);
            }
        }
}

static void check(const struct spec *s, const ra_order *order)
{
    char text[400];
    ra_pattern *pattern;
    write_text(s, text);
    assert_ok(ra_pattern_parse(text, &pattern));
    if (s->bitmap)
        assert_ok(ra_pattern_add_bitmap(pattern, s->bitmap_heads, (s->nk + s->block - 1) / s->block,
                                        s->bitmap));
    compare(s, pattern, order, text);
    ra_pattern_destroy(pattern);
}

/* ---- Cases by hand --------------------------------------------------------------------------- */

static void dilated_follows_its_formula(void **state)
{
    (void)state;
    static const struct {
        int count;
        struct ratio branches[MOST_RATIOS];
    } cases[] = {
        { 1, { { 8, 1 } } },
        { 1, { { 7, 3 } } },   /* the rate does not divide the segment */
        { 1, { { 100, 4 } } }, /* longer than everything */
        { 1, { { 3, 5 } } },   /* a rate beyond the segment: heads that select nothing */
        { 1, { { 1, 1 } } },
        { 2, { { 16, 2 }, { 16, 2 } } }, /* every key twice */
        { 3, { { 8, 1 }, { 16, 2 }, { 32, 4 } } },
        { 3, { { 32, 4 }, { 8, 1 }, { 16, 2 } } },
        { 3, { { 5, 2 }, { 12, 3 }, { 64, 7 } } },
        { 4, { { 10, 6 }, { 15, 10 }, { 21, 15 }, { 9, 4 } } },
        { 5, { { 4, 1 }, { 10, 2 }, { 16, 3 }, { 20, 4 }, { 300, 5 } } },
    };
    static const int heads[] = { 1, 4, 8, 12 };
    static const int64_t lengths[] = { 1, 7, 16, 37, 60 };
    for (int c = 0; c < TEST_COUNT(cases); c++)
        for (int h = 0; h < TEST_COUNT(heads); h++)
            for (int l = 0; l < TEST_COUNT(lengths); l++)
                for (int option = 0; option < 12; option++) {
                    struct spec s = empty_spec(lengths[l], lengths[l], heads[h]);
                    s.branch_count = cases[c].count;
                    memcpy(s.branches, cases[c].branches, sizeof s.branches);
                    s.dedup = option & 1;
                    s.groups = option & 2;
                    s.causal = option & 4;
                    s.block_offsets = option >= 8; /* which groups do not have */
                    if (s.block_offsets) s.causal = option & 2, s.groups = false;
                    check(&s, NULL);
                }
}

static void every_term_follows_its_formula(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= MOST_N; n += 7)
        for (int64_t block = 1; block <= 9; block += 2)
            for (int64_t x = 0; x < 5; x++) {
                struct spec s = empty_spec(n, n, 3);
                s.block = block;
                s.local = x;
                check(&s, NULL);
                s.local = ABSENT;
                s.global = x;
                check(&s, NULL);
                s.global = ABSENT;
                s.strided = x + 1;
                check(&s, NULL);
                s.strided = ABSENT;
                s.dilated = (struct ratio){ x + 1, 5 - x };
                check(&s, NULL);
                s.dilated.a = ABSENT;
                s.level_count = 2;
                s.levels[0] = (struct ratio){ x + 1, x };
                s.levels[1] = (struct ratio){ 2 * x + 3, 9 };
                check(&s, NULL);
                s.level_count = 0;
                s.density = 0.25 * (double)x;
                s.seed = (uint32_t)(n * x);
                check(&s, NULL);
            }
}

/* ---- Cases by chance ------------------------------------------------------------------------- */

static uint32_t chance_state = 12345;

/* 0 to below `limit`. */
static int64_t chance(int64_t limit)
{
    chance_state = chance_state * 1664525u + 1013904223u;
    return (int64_t)(chance_state >> 8) % limit;
}

static struct spec chance_spec(void)
{
    static const int heads[] = { 1, 2, 3, 5, 8, 12 };
    int64_t nk = 1 + chance(MOST_N), n = chance(3) ? nk : 1 + chance(nk);
    struct spec s = empty_spec(n, nk, heads[chance(TEST_COUNT(heads))]);
    s.causal = chance(3) == 0;
    if (n == nk && chance(3) == 0) {
        int64_t a = chance(n + 1), b = chance(n + 1);
        s.bound_count = 4;
        s.bounds[1] = a < b ? a : b;
        s.bounds[2] = a < b ? b : a;
        s.bounds[3] = n;
    }
    return s;
}

static struct spec chance_dilated(void)
{
    struct spec s = chance_spec();
    s.branch_count = 1 + (int)chance(MOST_RATIOS);
    for (int i = 0; i < s.branch_count; i++)
        s.branches[i] = (struct ratio){ 1 + chance(chance(2) ? 12 : 80), 1 + chance(9) };
    s.dedup = chance(3) == 0;
    s.groups = chance(3) == 0;
    s.block_offsets = !s.groups && chance(3) == 0;
    return s;
}

static struct spec chance_blocks(uint8_t *bitmap)
{
    struct spec s = chance_spec();
    s.block = 1 + chance(9);
    if (chance(3) == 0) s.local = chance(4);
    if (chance(4) == 0) s.global = chance(4);
    if (chance(3) == 0) s.strided = 1 + chance(6);
    if (chance(3) == 0) s.dilated = (struct ratio){ 1 + chance(5), chance(5) };
    if (chance(3) == 0) s.level_count = 1 + (int)chance(3);
    for (int i = 0; i < s.level_count; i++)
        s.levels[i] = (struct ratio){ 1 + chance(6), chance(9) };
    if (chance(4) == 0) {
        s.density = (double)chance(101) / 100;
        s.seed = (uint32_t)chance(1000);
    }
    bool none = s.local == ABSENT && s.global == ABSENT && s.strided == ABSENT &&
                s.dilated.a == ABSENT && !s.level_count && s.density < 0;
    if (s.n == s.nk && (none || chance(4) == 0)) {
        s.bitmap = bitmap;
        s.bitmap_heads = chance(2) ? 1 : s.heads;
        for (int i = 0; i < MOST_HEADS * MOST_N * MOST_N; i++)
            bitmap[i] = (uint8_t)(chance(4) == 0);
    } else if (none) {
        s.local = 1;
    }
    return s;
}

/* A permutation, and where each position went. */
static ra_order *chance_order(int64_t n, int64_t index[MOST_N])
{
    int64_t positions[MOST_N];
    ra_order *order;
    for (int64_t i = 0; i < n; i++) positions[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t other = chance(i + 1), kept = positions[i];
        positions[i] = positions[other];
        positions[other] = kept;
    }
    for (int64_t i = 0; i < n; i++) index[positions[i]] = i;
    assert_ok(ra_order_custom(positions, n, &order));
    return order;
}

static void any_pattern_follows_its_formula(void **state)
{
    (void)state;
    static uint8_t bitmap[MOST_HEADS * MOST_N * MOST_N];
    int rounds = test_long() ? 20000 : 1000;
    for (int round = 0; round < rounds; round++) {
        struct spec s = round % 2 ? chance_dilated() : chance_blocks(bitmap);
        int64_t index[MOST_N];
        check(&s, NULL);
        if (s.n != s.nk) continue;
        ra_order *order = chance_order(s.n, index);
        s.index = index;
        check(&s, order);
        ra_order_destroy(order);
    }
}

/* ---- Philox ---------------------------------------------------------------------------------- */

/* Words below fraction x 2^32 are hit: as many integers as that, rounded up. */
static void philox_limits_are_exact(void **state)
{
    (void)state;
    assert_true(ra__philox_limit(0.0) == 0);
    assert_true(ra__philox_limit(1.0) == UINT64_C(1) << 32);
    assert_true(ra__philox_limit(0.5) == UINT64_C(1) << 31);
    assert_true(ra__philox_limit(0x1p-32) == 1);
    assert_true(ra__philox_limit(0x1p-40) == 1);
    assert_true(ra__philox_limit(0x3p-33) == 2);
}

/* ---- Bitmaps --------------------------------------------------------------------------------- */

struct npy {
    const char *header;
    const char *data;
    size_t bytes;
    char version;
};

/* A file of this kind; its path goes to `path`. */
static void write_npy(const struct npy *npy, char path[64])
{
    snprintf(path, 64, "/tmp/ringattn-bitmap-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "wb");
    assert_non_null(file);
    size_t length = strlen(npy->header);
    fwrite("\x93NUMPY", 1, 6, file);
    fputc(npy->version ? npy->version : 1, file);
    fputc(0, file);
    fputc((int)(length % 256), file);
    fputc((int)(length / 256), file);
    for (int i = 0; i < 2 && npy->version > 1; i++) fputc(0, file);
    fwrite(npy->header, 1, length, file);
    fwrite(npy->data, 1, npy->bytes, file);
    assert_int_equal(fclose(file), 0);
}

static const char maps[] = { 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 1, 1, 1 };

static void bitmaps_are_read_from_files(void **state)
{
    (void)state;
    static const struct {
        struct npy npy;
        int heads; /* of the bitmap */
    } cases[] = {
        { { "{'descr': '|b1', 'fortran_order': False, 'shape': (2, 3, 3), }\n", maps, 18, 1 }, 2 },
        { { "{'descr': '|b1', 'fortran_order': False, 'shape': (1, 3, 3), }\n", maps, 9, 1 }, 1 },
        { { "{'descr': '|b1', 'fortran_order': False, 'shape': (3, 3), }\n", maps, 9, 1 }, 1 },
        { { "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 3), }\n", maps, 9, 2 }, 1 },
        { { "{'shape': (2,3,3), 'fortran_order': False, 'descr': '|b1'}\n", maps, 18, 3 }, 2 },
    };
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        char path[64], text[128], back[128];
        ra_pattern *pattern, *copy;
        struct spec s = empty_spec(11, 11, 2);
        write_npy(&cases[i].npy, path);
        snprintf(text, sizeof text, "blocks:4;bitmap=%s", path);
        assert_ok(ra_pattern_parse(text, &pattern));
        s.block = 4;
        s.bitmap = (const uint8_t *)maps;
        s.bitmap_heads = cases[i].heads;
        compare(&s, pattern, NULL, text);
        assert_ok(ra_pattern_format(pattern, back, sizeof back, NULL));
        assert_string_equal(back, text);
        assert_int_equal(unlink(path), 0); /* it is read once */
        assert_ok(ra__pattern_copy(pattern, NULL, &copy));
        compare(&s, copy, NULL, text);
        assert_true(ra__pattern_hash(copy) == ra__pattern_hash(pattern));
        assert_fails(RA_ERR_ARGUMENT, "bitmap is given twice", ra_pattern_add(pattern, text + 9));
        assert_fails(RA_ERR_ARGUMENT, "bitmap is given twice",
                     ra_pattern_add_bitmap(pattern, 1, 3, (const uint8_t *)maps));
        compare(&s, pattern, NULL, text);
        ra_pattern_destroy(copy);
        ra_pattern_destroy(pattern);
    }
}

static void wrong_bitmap_files_are_refused(void **state)
{
    (void)state;
#define HEADER(type, order, shape)                                                                 \
    "{'descr': '" type "', 'fortran_order': " order ", 'shape': " shape ", }\n"
    static const struct {
        struct npy npy;
        const char *sentence;
    } cases[] = {
        { { HEADER("<f4", "False", "(3, 3)"), maps, 18, 1 },
          "does not hold booleans or uint8 in C order" },
        { { HEADER("<i8", "False", "(3, 3)"), maps, 18, 1 }, "does not hold booleans" },
        { { HEADER("|b1", "True", "(3, 3)"), maps, 9, 1 },
          "does not hold booleans or uint8 in C order" },
        { { "{'fortran_order': False, 'shape': (3, 3)}", maps, 9, 1 }, "does not hold booleans" },
        { { "{'descr': '|b1', 'shape': (3, 3)}", maps, 9, 1 }, "does not hold booleans" },
        { { "{'descr': '|b1', 'fortran_order': False}", maps, 9, 1 }, "the shape of" },
        { { HEADER("|b1", "False", "(9,)"), maps, 9, 1 }, "is not [heads, blocks, blocks]" },
        { { HEADER("|b1", "False", "()"), maps, 9, 1 }, "is not [heads, blocks, blocks]" },
        { { HEADER("|b1", "False", "(2, 9)"), maps, 18, 1 }, "is not [heads, blocks, blocks]" },
        { { HEADER("|b1", "False", "(1, 2, 9)"), maps, 18, 1 }, "is not [heads, blocks, blocks]" },
        { { HEADER("|b1", "False", "(1, 2, 3, 3)"), maps, 18, 1 },
          "is not [heads, blocks, blocks]" },
        { { HEADER("|b1", "False", "(0, 3, 3)"), maps, 0, 1 }, "is not [heads, blocks, blocks]" },
        { { HEADER("|b1", "False", "(-1, 3, 3)"), maps, 9, 1 }, "is not [heads, blocks, blocks]" },
        { { HEADER("|b1", "False", "(3, 3"), maps, 9, 1 }, "is not [heads, blocks, blocks]" },
        { { HEADER("|b1", "False", "(2000000000, 2000000000, 2000000000)"), maps, 9, 1 },
          "is not [heads, blocks, blocks]" },
        { { HEADER("|b1", "False", "(2, 3, 3)"), maps, 17, 1 }, "ends too early" },
        { { HEADER("|b1", "False", "(3, 3)"), maps, 0, 1 }, "ends too early" },
    };
#undef HEADER
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        char path[64], text[128];
        ra_pattern *pattern;
        size_t held = ra_allocated_bytes();
        write_npy(&cases[i].npy, path);
        snprintf(text, sizeof text, "blocks:4;bitmap=%s", path);
        assert_fails(RA_ERR_ARGUMENT, cases[i].sentence, ra_pattern_parse(text, &pattern));
        test_sentence(path, "parse", __FILE__, __LINE__); /* and it names the file */
        assert_int_equal(ra_allocated_bytes(), held);
        assert_int_equal(unlink(path), 0);
    }
}

static void files_that_are_no_bitmaps_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *data;
        size_t bytes;
    } cases[] = { { "", 0 },
                  { "\x93NUMP", 5 },
                  { "hello, this is no array", 23 },
                  { "\x93NUMPY\1\0\x80\0 too short", 20 },
                  { "\x93NUMPY\2\0\x10\0", 10 },
                  { "\x93NUMPY\1\0\xff\xff and so on", 20 },
                  { "\x93NUMPY\2\0\x10\0\1\0 and so on", 22 } };
    ra_pattern *pattern;
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        char path[] = "/tmp/ringattn-bitmap-XXXXXX", text[64];
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, cases[i].data, cases[i].bytes), (int)cases[i].bytes);
        close(fd);
        snprintf(text, sizeof text, "blocks:4;bitmap=%s", path);
        assert_fails(RA_ERR_ARGUMENT, "is not a .npy file", ra_pattern_parse(text, &pattern));
        unlink(path);
    }
    assert_fails(RA_ERR_SYSTEM, "bitmap: /nowhere/map.npy: No such file",
                 ra_pattern_parse("blocks:4;bitmap=/nowhere/map.npy", &pattern));
    assert_fails(RA_ERR_SYSTEM, "bitmap: : No such file",
                 ra_pattern_parse("blocks:4;bitmap=", &pattern));
    assert_fails(RA_ERR_ARGUMENT, "is not a .npy file",
                 ra_pattern_parse("blocks:4;bitmap=/tmp", &pattern));
}

static void bitmaps_must_fit_the_problem(void **state)
{
    (void)state;
    uint8_t seen[16];
    ra_pattern *pattern;
    ra_problem problem = ra_problem_default();
    assert_ok(ra_pattern_blocks(4, &pattern));
    assert_ok(ra_pattern_add_bitmap(pattern, 2, 3, (const uint8_t *)maps));
    problem.pattern = pattern;
    problem.q_len = 12;
    problem.q_heads = 2;
    problem.dim = 8;
    assert_ok(ra_problem_row(&problem, 1, 11, seen));
    problem.q_heads = 3;
    assert_fails(RA_ERR_ARGUMENT, "bitmap: it has 2 heads, but there are 3 query heads",
                 ra_problem_row(&problem, 0, 0, seen));
    problem.q_heads = 2;
    problem.q_len = 13;
    assert_fails(RA_ERR_ARGUMENT, "bitmap: it has 3 blocks, but 13 positions in blocks of 4 are 4",
                 ra_problem_row(&problem, 0, 0, seen));
    problem.q_len = 8;
    assert_fails(RA_ERR_ARGUMENT, "8 positions in blocks of 4 are 2",
                 ra_problem_row(&problem, 0, 0, seen));
    problem.k_len = 12;
    assert_fails(RA_ERR_UNSUPPORTED, "bitmap: as many queries (8) as keys (12) are needed",
                 ra_problem_row(&problem, 0, 0, seen));
    ra_pattern_destroy(pattern);
}

/* ---- Made term by term ----------------------------------------------------------------------- */

static void constructors_refuse_wrong_numbers(void **state)
{
    (void)state;
    static const ra_branch short_one[] = { { 4, 1 }, { 0, 1 } }, slow[] = { { 4, 0 } },
                           far[] = { { INT64_MAX, 1 } };
    ra_pattern *pattern = NULL;
    assert_fails(RA_ERR_ARGUMENT, "pattern dilated: 0 branches",
                 ra_pattern_dilated(short_one, 0, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "-3 branches", ra_pattern_dilated(short_one, -3, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "branch 1 has segment 0 and rate 1; both are at least 1",
                 ra_pattern_dilated(short_one, 2, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "branch 0 has segment 4 and rate 0",
                 ra_pattern_dilated(slow, 1, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "branch 0 has segment", ra_pattern_dilated(far, 1, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "a block of 0 positions", ra_pattern_blocks(0, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "a block of -4 positions", ra_pattern_blocks(-4, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "out of range", ra_pattern_blocks(INT64_MAX, &pattern));
    assert_null(pattern);
    assert_ok(ra_pattern_full(&pattern));
    assert_fails(RA_ERR_ARGUMENT, "pattern full: a bitmap is a term of blocks",
                 ra_pattern_add_bitmap(pattern, 1, 3, (const uint8_t *)maps));
    assert_fails(RA_ERR_ARGUMENT, "\"local=1\" is not understood",
                 ra_pattern_add(pattern, "local=1"));
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_blocks(4, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "bitmap: 0 heads of 3 blocks",
                 ra_pattern_add_bitmap(pattern, 0, 3, (const uint8_t *)maps));
    assert_fails(RA_ERR_ARGUMENT, "bitmap: 1 heads of -1 blocks",
                 ra_pattern_add_bitmap(pattern, 1, -1, (const uint8_t *)maps));
    assert_fails(RA_ERR_ARGUMENT, "bitmap: 1 heads of",
                 ra_pattern_add_bitmap(pattern, 1, INT64_MAX, (const uint8_t *)maps));
    ra_pattern_destroy(pattern);
}

/* A term that is refused leaves nothing behind. */
static void refused_terms_change_nothing(void **state)
{
    (void)state;
    static const char *const wrong[] = { "levels=1/5,x", "dilated=3/x", "local=-1",
                                         "random=2",     "seed=x",      "bitmap=/nowhere/map.npy" };
    ra_pattern *pattern, *clean;
    char text[128];
    assert_ok(ra_pattern_parse("blocks:4;levels=2/0;local=1;random=0.5;seed=1", &clean));
    assert_ok(ra_pattern_blocks(4, &pattern));
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < TEST_COUNT(wrong); i++)
            assert_int_not_equal(ra_pattern_add(pattern, wrong[i]), RA_OK);
    assert_ok(ra_pattern_format(pattern, text, sizeof text, NULL));
    assert_string_equal(text, "blocks:4");
    assert_ok(ra_pattern_add(pattern, "levels=2/0"));
    assert_ok(ra_pattern_add(pattern, "local=1"));
    assert_ok(ra_pattern_add(pattern, "random=0.5"));
    assert_ok(ra_pattern_add(pattern, "seed=1"));
    assert_ok(ra_pattern_format(pattern, text, sizeof text, NULL));
    assert_string_equal(text, "blocks:4;local=1;levels=2/0;random=0.5;seed=1");
    assert_true(ra__pattern_hash(pattern) == ra__pattern_hash(clean));
    ra_pattern_destroy(pattern);
    ra_pattern_destroy(clean);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void a_bitmap_from_memory_is_copied(void **state)
{
    (void)state;
    uint8_t copy[sizeof maps];
    ra_pattern *pattern;
    struct spec s = empty_spec(12, 12, 2);
    memcpy(copy, maps, sizeof maps);
    assert_ok(ra_pattern_blocks(4, &pattern));
    assert_ok(ra_pattern_add_bitmap(pattern, 2, 3, copy));
    memset(copy, 0xff, sizeof copy);
    s.block = 4;
    s.bitmap = (const uint8_t *)maps;
    s.bitmap_heads = 2;
    compare(&s, pattern, NULL, "from memory");
    ra_pattern_destroy(pattern);
}

/* A host program may have set a locale that writes numbers with a comma. */
static void numbers_do_not_follow_the_locale(void **state)
{
    (void)state;
    static const char *const locales[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "C.UTF-8" };
    static const char *const texts[] = { "blocks:4;random=0.25", "blocks:4;random=0.001;seed=7",
                                         "blocks:4;random=0", "blocks:4;random=1",
                                         "blocks:4;random=0.1;seed=18446744073709551615" };
    for (int l = 0; l < TEST_COUNT(locales); l++) {
        if (!setlocale(LC_ALL, locales[l])) continue;
        for (int i = 0; i < TEST_COUNT(texts); i++) {
            ra_pattern *pattern;
            char text[80];
            assert_ok(ra_pattern_parse(texts[i], &pattern));
            assert_ok(ra_pattern_format(pattern, text, sizeof text, NULL));
            assert_string_equal(text, texts[i]);
            ra_pattern_destroy(pattern);
        }
    }
    setlocale(LC_ALL, "C");
}

/* Written and read back, any density is the same number. */
static void densities_come_back(void **state)
{
    (void)state;
    static const double given[] = { 0.26, 1.0 / 3.0, 0.1 + 0.2, 1e-9, 0x1p-30, 0.9999999999999999 };
    for (int i = 0; i < TEST_COUNT(given); i++) {
        char text[80], again[80];
        ra_pattern *pattern, *back;
        snprintf(text, sizeof text, "blocks:4;random=%.17g", given[i]);
        assert_ok(ra_pattern_parse(text, &pattern));
        assert_ok(ra_pattern_format(pattern, again, sizeof again, NULL));
        assert_ok(ra_pattern_parse(again, &back));
        double density;
        assert_true(ra__text_fraction(ra__text_of(strstr(again, "random=") + 7), &density));
        assert_true(density == given[i]);
        assert_true(ra__pattern_hash(back) == ra__pattern_hash(pattern));
        ra_pattern_destroy(pattern);
        ra_pattern_destroy(back);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_do_not_follow_the_locale),
        cmocka_unit_test(densities_come_back),
        cmocka_unit_test(dilated_follows_its_formula),
        cmocka_unit_test(every_term_follows_its_formula),
        cmocka_unit_test(any_pattern_follows_its_formula),
        cmocka_unit_test(philox_limits_are_exact),
        cmocka_unit_test(bitmaps_are_read_from_files),
        cmocka_unit_test(wrong_bitmap_files_are_refused),
        cmocka_unit_test(files_that_are_no_bitmaps_are_refused),
        cmocka_unit_test(bitmaps_must_fit_the_problem),
        cmocka_unit_test(constructors_refuse_wrong_numbers),
        cmocka_unit_test(refused_terms_change_nothing),
        cmocka_unit_test(a_bitmap_from_memory_is_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
