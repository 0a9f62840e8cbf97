/* SPDX-License-Identifier: Apache-2.0 */
/* test_meet.c - how ranks of the transport nccl meet: what launchers say, and the file. */
#include "support/test.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/nccl/meet.h"

static const char *const names[] = { "OMPI_COMM_WORLD_RANK",
                                     "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK",
                                     "PMIX_NAMESPACE",
                                     "RANK",
                                     "WORLD_SIZE",
                                     "LOCAL_RANK",
                                     "TORCHELASTIC_RUN_ID",
                                     "PMI_RANK",
                                     "PMI_SIZE",
                                     "MPI_LOCALRANKID",
                                     "SLURM_STEP_ID",
                                     "SLURM_PROCID",
                                     "SLURM_STEP_NUM_TASKS",
                                     "SLURM_LOCALID",
                                     "SLURM_JOB_ID",
                                     "RINGATTN_NCCL_FILE" };

static int without_launcher(void **state)
{
    (void)state;
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++) unsetenv(names[i]);
    return 0;
}

static void set(const char *rank, const char *ranks, const char *local, const char *const *words)
{
    setenv(rank, words[0], 1);
    setenv(ranks, words[1], 1);
    if (words[2]) setenv(local, words[2], 1);
}

static void alone_without_a_launcher(void **state)
{
    (void)state;
    struct place place;
    setenv("RANK", "1", 1); /* a size is missing */
    assert_null(meet_launched(&place));
    assert_int_equal(place.rank, 0);
    assert_int_equal(place.ranks, 1);
    assert_int_equal(place.device, -1);
}

static void launchers_are_understood(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i += 4) {
        const char *const words[] = { "5", "8", "1" };
        struct place place;
        without_launcher(NULL);
        set(names[i], names[i + 1], names[i + 2], words);
        assert_null(meet_launched(&place));
        assert_int_equal(place.rank, 5);
        assert_int_equal(place.ranks, 8);
        assert_int_equal(place.device, 1);
    }
}

static void a_rank_that_cannot_be_is_refused(void **state)
{
    (void)state;
    struct place place;
    const char *const words[] = { "8", "8", NULL };
    set("RANK", "WORLD_SIZE", "LOCAL_RANK", words);
    const char *why = meet_launched(&place);
    assert_non_null(why);
    assert_non_null(strstr(why, "WORLD_SIZE is 8"));
}

static void groups_and_jobs_have_files_of_their_own(void **state)
{
    (void)state;
    char a[PATH_MAX], b[PATH_MAX], c[PATH_MAX];
    assert_true(meet_path(a, sizeof a, 0));
    assert_true(meet_path(b, sizeof b, 1));
    assert_string_not_equal(a, b);
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_JOB_ID", "4711", 1);
    assert_true(meet_path(c, sizeof c, 0));
    assert_non_null(strstr(c, "-4711."));
    setenv("SLURM_STEP_ID", "2", 1);
    assert_true(meet_path(c, sizeof c, 0));
    assert_non_null(strstr(c, "-4711-2."));
    without_launcher(NULL);
    setenv("RANK", "0", 1);
    setenv("TORCHELASTIC_RUN_ID", "none", 1); /* what torchrun calls every job without a name */
    assert_true(meet_path(c, sizeof c, 0));
    assert_string_equal(c, a);
    setenv("RINGATTN_NCCL_FILE", "/shared/x", 1);
    assert_true(meet_path(c, sizeof c, 3));
    assert_string_equal(c, "/shared/x.3");
    assert_false(meet_path(c, 5, 3));
}

struct reader {
    const char *path;
    char id[128];
    const char *why;
};

static void *read_id(void *context)
{
    struct reader *r = context;
    r->why = meet_read(r->path, r->id, sizeof r->id, 20.0);
    return NULL;
}

static void an_id_reaches_the_others(void **state)
{
    (void)state;
    char folder[] = "/tmp/ringattn-meet-XXXXXX", path[64], id[128];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/id", folder);
    for (int i = 0; i < 128; i++) id[i] = (char)(i * 7);
    struct reader reader = { .path = path };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_id, &reader), 0);
    usleep(20000); /* it is there first, and waits */
    assert_null(meet_write(path, id, sizeof id));
    pthread_join(thread, NULL);
    assert_null(reader.why);
    assert_memory_equal(reader.id, id, sizeof id);
    meet_forget(path);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left there */
}

static void what_cannot_be_is_said(void **state)
{
    (void)state;
    char id[128] = { 0 };
    const char *why = meet_write("/there/is/no/folder", id, sizeof id);
    assert_non_null(why);
    assert_non_null(strstr(why, "No such file"));
    why = meet_read("/there/is/no/file", id, sizeof id, 0.05);
    assert_non_null(why);
    assert_non_null(strstr(why, "rank 0 did not write it within 0.05 seconds"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(alone_without_a_launcher, without_launcher),
        cmocka_unit_test_setup(launchers_are_understood, without_launcher),
        cmocka_unit_test_setup(a_rank_that_cannot_be_is_refused, without_launcher),
        cmocka_unit_test_setup(groups_and_jobs_have_files_of_their_own, without_launcher),
        cmocka_unit_test_setup(an_id_reaches_the_others, without_launcher),
        cmocka_unit_test_setup(what_cannot_be_is_said, without_launcher),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
