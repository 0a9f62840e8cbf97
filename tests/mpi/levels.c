/* SPDX-License-Identifier: Apache-2.0 */
/* levels.c - what the mpi transport asks of a program that initialised MPI itself: enough of MPI's
 * threads, the right one of the program's, and a communicator; and that it ends nothing it did not
 * begin. */
#include "support/test.h"

#include <pthread.h>
#include <stdlib.h>

#include "ringattn_mpi.h"

static int level; /* that MPI gave */

static void *join_elsewhere(void *context)
{
    ra_group *group = NULL;
    ra_status status = ra_mpi_group_create(MPI_COMM_WORLD, NULL, &group);
    if (level == MPI_THREAD_FUNNELED) {
        test_status(RA_ERR_UNSUPPORTED, status, "join", __FILE__, __LINE__);
        test_sentence("the thread that initialised MPI makes the group", "join", __FILE__,
                      __LINE__);
    } else {
        test_status(RA_OK, status, "join", __FILE__, __LINE__);
    }
    ra_group_destroy(group);
    return context;
}

static void threads_are_as_mpi_allows(void **state)
{
    pthread_t thread;
    ra_group *group;
    (void)state;
    if (level < MPI_THREAD_FUNNELED) {
        assert_fails(RA_ERR_UNSUPPORTED, "needs MPI_THREAD_FUNNELED",
                     ra_mpi_group_create(MPI_COMM_WORLD, NULL, &group));
        return;
    }
    assert_int_equal(pthread_create(&thread, NULL, join_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
}

static void any_communicator_will_do(void **state)
{
    int rank;
    ra_group *group;
    MPI_Comm half;
    (void)state;
    if (level < MPI_THREAD_FUNNELED) return;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    assert_fails(RA_ERR_ARGUMENT, "MPI_COMM_NULL",
                 ra_mpi_group_create(MPI_COMM_NULL, NULL, &group));
    assert_ok(ra_mpi_group_create(half, NULL, &group));
    int own, size, mine = rank, all[8];
    MPI_Comm_rank(half, &own);
    MPI_Comm_size(half, &size);
    assert_int_equal(ra_group_rank(group), own);
    assert_int_equal(ra_group_ranks(group), size);
    assert_ok(ra_group_share(group, &mine, all, sizeof mine));
    for (int i = 1; i < size; i++) assert_int_equal(all[i - 1], all[i] + 2); /* the split's order */
    ra_group_destroy(group);
    MPI_Comm_free(&half);
}

static void another_family_is_refused(void **state)
{
    ra_group *group;
    ra_mpi_where where = { sizeof where, "Some MPI", MPI_COMM_WORLD };
    (void)state;
    assert_fails(RA_ERR_UNSUPPORTED, "the program was built with Some MPI, the plug-in with",
                 ra_group_join("mpi", &where, NULL, &group));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_are_as_mpi_allows),
        cmocka_unit_test(any_communicator_will_do),
        cmocka_unit_test(another_family_is_refused),
    };
    static const int levels[] = { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_MULTIPLE };
    int ended = 1, wanted = argc > 1 ? atoi(argv[1]) : 0;
    MPI_Init_thread(&argc, &argv, levels[wanted], &level);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    MPI_Finalized(&ended);
    if (ended) failed++;
    MPI_Finalize();
    return failed;
}
