/* SPDX-License-Identifier: Apache-2.0 */
/* world.c - the processes that were started together, where ranks are processes. */
#include "world.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/problem/parts.h"

static struct {
    ra_group *group; /* NULL: this process alone */
    bool agreed;     /* that something failed: all come to world_close() */
    char transport[24];
} world;

bool world_runs(const struct trial *trial)
{
    return world.group && !strcmp(trial->transport, world.transport);
}

int world_rank(void) { return world.group ? ra_group_rank(world.group) : 0; }
int world_size(void) { return world.group ? ra_group_ranks(world.group) : 1; }
bool world_first(void) { return world_rank() == 0; }

static int join(const struct trial *trial, struct wire wire)
{
    ra_group_options options = wire_options(wire);
    options.threads = 1; /* it computes nothing */
    int status = library_failed(ra_group_join(trial->transport, NULL, &options, &world.group));
    if (status) return status;
    snprintf(world.transport, sizeof world.transport, "%s", trial->transport);
    if (!world_first() && !freopen("/dev/null", "w", stdout))
        return fault("rank %d: stdout cannot be closed", world_rank());
    return EXIT_PASS;
}

static int check_width(const struct trial *trial)
{
    if (trial->ranks == world_size()) return EXIT_PASS;
    if (!world_first()) return EXIT_USAGE; /* the first one says so */
    return refuse("a ring of %" PRId64 " over %s needs as many processes; there %s %d%s",
                  trial->ranks, trial->transport, world_size() == 1 ? "is" : "are", world_size(),
                  world_size() == 1 ? " (start it with mpirun -np P)" : "");
}

int world_open(struct trial *trial, struct wire wire)
{
    ra_part part;
    const char *name = trial->transport;
    if (!*name || !parts_find("transport", name, strlen(name), &part) || !part.joins)
        return EXIT_PASS;
    int status = world.group ? EXIT_PASS : join(trial, wire);
    if (status) return status;
    if (!trial->ranks) trial->ranks = world_size();
    return world_agree(check_width(trial));
}

/* What launchers put into the environment of every process: how many there are, and which one. */
static const struct {
    const char *size, *rank;
} launchers[] = { { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK" }, { "PMI_SIZE", "PMI_RANK" } };

void world_hint(void)
{
    for (int i = 0; i < COUNT(launchers) && !world.group; i++) {
        const char *size = getenv(launchers[i].size), *rank = getenv(launchers[i].rank);
        if (!size || !rank || atoi(size) < 2) continue;
        if (!strcmp(rank, "0"))
            fprintf(stderr,
                    "ringattn: hint: %d processes were started together, and each of them computes "
                    "all by itself; with --transport mpi they share the work\n",
                    atoi(size));
        return;
    }
}

void world_close(int status)
{
    if (!world.group) return;
    if (status > EXIT_CHECK && !world.agreed) {
        char reason[400]; /* others may be past the call that failed here, and have heard nothing */
        last_complaint(reason, sizeof reason);
        ra_group_abort(world.group, *reason ? reason : "it gave up");
    }
    ra_group_destroy(world.group);
    world.group = NULL;
}

int world_share(const void *mine, void *all, size_t bytes)
{
    if (world.group) return library_failed(ra_group_share(world.group, mine, all, bytes));
    memcpy(all, mine, bytes);
    return EXIT_PASS;
}

int world_agree(int status)
{
    int *all = world.group ? malloc((size_t)world_size() * sizeof *all) : NULL;
    if (!world.group) return status;
    if (!all) return fault("out of memory: %d ranks", world_size());
    int shared = world_share(&status, all, sizeof status), worst = shared ? shared : status;
    for (int i = 0; !shared && i < world_size(); i++)
        if (all[i] > worst) worst = all[i];
    world.agreed = !shared && worst > EXIT_CHECK;
    free(all);
    return worst;
}

void world_poll(void)
{
    if (world.group) ra_group_poll(world.group);
}
