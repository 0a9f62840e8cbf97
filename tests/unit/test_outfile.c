/* SPDX-License-Identifier: Apache-2.0 */
/* test_outfile.c - a file that takes a name and loses it again gives it back to what had it
 * before. */
#include "support/test.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "harness/files/outfile.h"

static char folder[] = "/tmp/outfile-XXXXXX", path[64];

static void put(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void expect_file(const char *text)
{
    char found[32] = "";
    FILE *file = fopen(path, "r");
    if (file) {
        found[fread(found, 1, sizeof found - 1, file)] = '\0';
        fclose(file);
    }
    assert_string_equal(found, text);
}

/* Everything in the folder, besides itself and its parent. */
static int count_files(void)
{
    int count = -2;
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    while (readdir(entries)) count++;
    closedir(entries);
    return count;
}

static struct outfile commit(const char *text)
{
    struct outfile file;
    assert_int_equal(outfile_open(&file, path), EXIT_PASS);
    fputs(text, file.stream);
    assert_int_equal(outfile_finish(&file), EXIT_PASS);
    assert_int_equal(outfile_commit(&file), EXIT_PASS);
    expect_file(text);
    return file;
}

static void what_was_there_comes_back(void **state)
{
    (void)state;
    put("old");
    struct outfile file = commit("new");
    outfile_undo(&file);
    expect_file("old");
    assert_int_equal(count_files(), 1);
    unlink(path);
}

static void nothing_is_left_where_nothing_was(void **state)
{
    (void)state;
    struct outfile file = commit("new");
    outfile_undo(&file);
    assert_int_equal(count_files(), 0);
}

static void what_was_there_goes_when_all_is_well(void **state)
{
    (void)state;
    put("old");
    struct outfile file = commit("new");
    outfile_discard(&file);
    expect_file("new");
    assert_int_equal(count_files(), 1);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_there_comes_back),
        cmocka_unit_test(nothing_is_left_where_nothing_was),
        cmocka_unit_test(what_was_there_goes_when_all_is_well),
    };
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/file", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
