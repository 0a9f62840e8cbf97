/* SPDX-License-Identifier: Apache-2.0 */
/* test_bitmap.c - bitmaps of blocks patterns, from files and from memory: which blocks they show,
 * and every file that is refused. */
#include "support/spec.h"

#include <stdlib.h>
#include <unistd.h>

#include "pattern/pattern.h"

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
        struct spec s = spec_empty(11, 11, 2);
        write_npy(&cases[i].npy, path);
        snprintf(text, sizeof text, "blocks:4;bitmap=%s", path);
        assert_ok(ra_pattern_parse(text, &pattern));
        s.block = 4;
        s.bitmap = (const uint8_t *)maps;
        s.bitmap_heads = cases[i].heads;
        spec_compare(&s, pattern, NULL, text);
        assert_ok(ra_pattern_format(pattern, back, sizeof back, NULL));
        assert_string_equal(back, text);
        assert_int_equal(unlink(path), 0); /* it is read once */
        assert_ok(ra__pattern_copy(pattern, NULL, &copy));
        spec_compare(&s, copy, NULL, text);
        assert_true(ra__pattern_hash(copy) == ra__pattern_hash(pattern));
        assert_fails(RA_ERR_ARGUMENT, "bitmap is given twice", ra_pattern_add(pattern, text + 9));
        assert_fails(RA_ERR_ARGUMENT, "bitmap is given twice",
                     ra_pattern_add_bitmap(pattern, 1, 3, (const uint8_t *)maps));
        spec_compare(&s, pattern, NULL, text);
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

static void a_bitmap_from_memory_is_copied(void **state)
{
    (void)state;
    uint8_t copy[sizeof maps];
    ra_pattern *pattern;
    struct spec s = spec_empty(12, 12, 2);
    memcpy(copy, maps, sizeof maps);
    assert_ok(ra_pattern_blocks(4, &pattern));
    assert_ok(ra_pattern_add_bitmap(pattern, 2, 3, copy));
    memset(copy, 0xff, sizeof copy);
    s.block = 4;
    s.bitmap = (const uint8_t *)maps;
    s.bitmap_heads = 2;
    spec_compare(&s, pattern, NULL, "from memory");
    ra_pattern_destroy(pattern);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bitmaps_are_read_from_files),
        cmocka_unit_test(wrong_bitmap_files_are_refused),
        cmocka_unit_test(files_that_are_no_bitmaps_are_refused),
        cmocka_unit_test(bitmaps_must_fit_the_problem),
        cmocka_unit_test(a_bitmap_from_memory_is_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
