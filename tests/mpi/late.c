/* SPDX-License-Identifier: Apache-2.0 */
/* late.c - an MPI that is late: two processes, and calls of MPI that this program answers itself. A
 * receive that MPI does not give back after a failure keeps its memory, and neither a note nor a
 * message that is late keeps others from leaving. And what MPI was asked for when ranks do not come
 * together is given back. */
#include "support/test.h"

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <time.h>

#include "api/handles.h"
#include "core/clock.h"

enum { RANKS = 2, LARGE = 20000, TAG_CONTROL = 0x7fff, MOST = 64 };
#define TIMEOUT 0.8

static ra_group *meeting; /* patient: where tests begin and end together */
static int self;

/* ---- MPI, as the transport sees it ----------------------------------------------------------- */

static struct {
    bool receives; /* large ones are never done, and cannot be cancelled */
    bool sends;    /* those that leave from now on are not known to have left */
    bool notes;    /* likewise */
} late;

static MPI_Request
    *kept[MOST]; /* requests that are late, by their places: done ones are all alike */
static int kept_count;
static const char *held; /* where the late receive writes */
static int sent;         /* messages of MPI, notes aside */

static bool is_late(const MPI_Request *request)
{
    for (int i = 0; i < kept_count; i++)
        if (kept[i] == request) return true;
    return false;
}

static void keep(MPI_Request *request)
{
    assert_true(kept_count < MOST);
    kept[kept_count++] = request;
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    int result = PMPI_Irecv(data, count, type, from, tag, comm, request);
    if (!late.receives || count < LARGE) return result;
    held = data;
    keep(request);
    return result;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    int result = PMPI_Isend(data, count, type, to, tag, comm, request);
    if (tag == TAG_CONTROL ? late.notes : late.sends) keep(request);
    sent += tag != TAG_CONTROL;
    return result;
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
    if (!is_late(request)) return PMPI_Test(request, done, status);
    *done = 0;
    return MPI_SUCCESS;
}

int MPI_Cancel(MPI_Request *request)
{
    return is_late(request) ? MPI_SUCCESS : PMPI_Cancel(request);
}

static int comms; /* made and not freed */

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *made, MPI_Request *request)
{
    comms++;
    return PMPI_Comm_idup(comm, made, request);
}

int MPI_Comm_free(MPI_Comm *comm)
{
    comms--;
    return PMPI_Comm_free(comm);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static bool freed;         /* what MPI still writes to */
static int left = INT_MAX; /* times that there is memory */

static void *take(void *context, size_t bytes, size_t alignment)
{
    void *memory = NULL;
    (void)context;
    if (left-- <= 0) return NULL;
    return posix_memalign(&memory, alignment, bytes) ? NULL : memory;
}

static void give(void *context, void *memory, size_t bytes)
{
    (void)context;
    if (held && held >= (char *)memory && held < (char *)memory + bytes) freed = true;
    free(memory);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void nap(double seconds)
{
    nanosleep(&(struct timespec){ (time_t)seconds, (long)((seconds - (int)seconds) * 1e9) }, NULL);
}

static void meet(void)
{
    int mine = 0, all[RANKS];
    assert_ok(ra_group_share(meeting, &mine, all, sizeof mine));
}

static ra_group *join(void)
{
    ra_group *group;
    ra_group_options options = ra_group_options_default();
    options.timeout = TIMEOUT;
    options.threads = 1;
    meet();
    assert_ok(ra_group_join("mpi", NULL, &options, &group));
    kept_count = 0;
    held = NULL;
    freed = false;
    return group;
}

/* On rank 1 a large receive has been late: the group has failed, and all handles are gone. */
static void expect_kept(ra_status status)
{
    late.receives = false;
    if (self == 0) return;
    assert_true(status == RA_ERR_TIMEOUT || status == RA_ERR_PEER);
    assert_non_null(held);
    assert_false(freed);
    PMPI_Wait(kept[0], MPI_STATUS_IGNORE); /* MPI gets its way after all */
}

static void a_plan_leaves_what_mpi_holds(void **state)
{
    enum { TOKENS = 512, HEADS = 2, DIM = 16 };
    static float data[TOKENS * HEADS * DIM], out[TOKENS * HEADS * DIM];
    ra_problem problem = ra_problem_default();
    ra_plan *plan;
    ra_group *group = join();
    (void)state;
    problem.q_len = problem.k_len = TOKENS;
    problem.q_heads = HEADS;
    problem.dim = DIM;
    assert_ok(ra_plan_create(group, &problem, NULL, &plan));
    late.receives = self == 1;
    ra_attend_args args = ra_attend_args_default();
    args.q.data = args.k.data = args.v.data = data;
    args.out.data = out;
    ra_status status = ra_attend(plan, &args);
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    expect_kept(status);
}

static void a_state_leaves_what_mpi_holds(void **state)
{
    ra_problem problem = ra_problem_default();
    ra_state *sums;
    ra_group *group = join();
    (void)state;
    problem.q_len = problem.k_len = 256;
    problem.q_heads = 4;
    problem.dim = 16;
    assert_ok(ra_state_create(&problem, NULL, &sums));
    assert_ok(ra_state_init(sums));
    late.receives = self == 1;
    ra_status status = ra_state_reduce(sums, group);
    if (self == 1) assert_int_equal(ra_state_reduce(sums, group), status);
    ra_state_destroy(sums);
    ra_group_destroy(group);
    expect_kept(status);
}

/* Not even the caller's memory is safe, so it is none of MPI's business. */
static void a_share_leaves_what_mpi_holds(void **state)
{
    static char mine[2 * LARGE], all[RANKS][2 * LARGE];
    ra_group *group = join();
    (void)state;
    late.receives = self == 1;
    ra_status status = ra_group_share(group, mine, all, sizeof mine);
    ra_group_destroy(group);
    expect_kept(status);
    if (self == 1) assert_true(held < all[0] || held >= all[0] + sizeof all);
}

/* Rank 0 sends a heartbeat in a call and leaves it. That it is idle must be reported even while its
 * heartbeat is under way; otherwise rank 1, which works on, takes it for lost. */
static void idle_is_reported_after_a_late_heartbeat(void **state)
{
    int mine = 0, all[RANKS];
    ra_group *group = join();
    ra_status status = RA_OK;
    (void)state;
    nap(TIMEOUT / 3); /* a heartbeat is due */
    late.notes = self == 0;
    assert_ok(ra_group_share(group, &mine, all, sizeof mine));
    if (self == 0) nap(3 * TIMEOUT);
    for (double until = ra__now() + 2.5 * TIMEOUT; self == 1 && ra__now() < until; nap(1e-3))
        if (status == RA_OK) status = group->rank.transport->poll(group->rank.link);
    assert_ok(status);
    late.notes = false;
    kept_count = 0;
    ra_group_destroy(group);
}

/* Messages of one tag do not wait for one another, however long one of them takes. */
static void twins_leave_together(void **state)
{
    enum { TWINS = 3, BYTES = 100 };
    static char out[TWINS][BYTES], in[TWINS][BYTES];
    struct ra__message sends[TWINS], recvs[TWINS];
    ra_group *group = join();
    const struct ra__rank *rank = &group->rank;
    (void)state;
    for (int i = 0; i < TWINS; i++) {
        sends[i] = recvs[i] = (struct ra__message){ .peer = 1 - self, .tag = 5, .bytes = BYTES };
        sends[i].data = memset(out[i], 10 * self + i, BYTES);
        recvs[i].data = in[i];
    }
    struct ra__round round = {
        .sends = sends, .recvs = recvs, .send_count = TWINS, .recv_count = TWINS, .hop = 1
    };
    sent = 0;
    late.sends = true;
    assert_ok(rank->transport->post(rank->link, &round));
    assert_int_equal(sent, 2 * TWINS); /* a word and a piece for each */
    late.sends = false;
    kept_count = 0;
    assert_ok(rank->transport->wait(rank->link, &round));
    for (int i = 0; i < TWINS; i++) assert_int_equal(in[i][BYTES - 1], 10 * (1 - self) + i);
    ra_group_destroy(group);
}

static void a_measurement_leaves_what_mpi_holds(void **state)
{
    ra_problem problem = ra_problem_default();
    ra_machine machine = ra_machine_default();
    ra_group *group = join();
    (void)state;
    problem.q_len = 256;
    problem.q_heads = 4;
    problem.dim = 16;
    late.receives = self == 1;
    ra_status status = ra_group_measure(group, &problem, NULL, &machine);
    ra_group_destroy(group);
    expect_kept(status);
}

/* They bring other options, or have no memory for the n-th thing they need, until all have
 * joined. */
static void a_join_that_fails_leaves_no_communicators(void **state)
{
    int before = comms;
    ra_group *group = NULL;
    ra_group_options options = ra_group_options_default();
    (void)state;
    options.threads = 1;
    options.checksum = self;
    meet();
    assert_int_equal(ra_group_join("mpi", NULL, &options, &group), RA_ERR_MISMATCH);
    assert_int_equal(comms, before);
    options.checksum = 0;
    ra_status status = RA_ERR_MEMORY;
    for (int times = 0; status == RA_ERR_MEMORY; times++) {
        meet();
        left = times;
        status = ra_group_join("mpi", NULL, &options, &group);
        left = INT_MAX;
        if (status == RA_ERR_MEMORY) assert_int_equal(comms, before);
    }
    assert_ok(status);
    assert_int_equal(comms, before + 2);
    ra_group_destroy(group);
    assert_int_equal(comms, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_join_that_fails_leaves_no_communicators),
        cmocka_unit_test(twins_leave_together),
        cmocka_unit_test(a_measurement_leaves_what_mpi_holds),
        cmocka_unit_test(idle_is_reported_after_a_late_heartbeat),
        cmocka_unit_test(a_plan_leaves_what_mpi_holds),
        cmocka_unit_test(a_state_leaves_what_mpi_holds),
        cmocka_unit_test(a_share_leaves_what_mpi_holds),
    };
    ra_allocator allocator = ra_allocator_default();
    ra_group_options options = ra_group_options_default();
    allocator.alloc = take;
    allocator.free = give;
    options.threads = 1;
    if (ra_allocator_set(&allocator) != RA_OK ||
        ra_group_join("mpi", NULL, &options, &meeting) != RA_OK) {
        fprintf(stderr, "%s\n", ra_last_error());
        return 1;
    }
    self = ra_group_rank(meeting);
    int failed = ra_group_ranks(meeting) == RANKS ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    if (failed) ra_group_abort(meeting, "a test failed");
    ra_group_destroy(meeting);
    return failed;
}
