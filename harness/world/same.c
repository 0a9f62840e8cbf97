/* SPDX-License-Identifier: Apache-2.0 */
/* same.c - see same.h. Every process sends a number for each flag, 0 if it was not given. */
#include "same.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

/* Words with a number each; 0 only for none. FNV-1a. */
static uint64_t number_of(const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *c = text; c && *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    return text && *text ? hash | 1 : 0;
}

/* Inputs may be in different places on different machines; outputs are one file that all write. */
#define SAME_LIST(X)                                                                               \
    X("verb", number_of(verb))                                                                     \
    X("--backward", o->trial.backward)                                                             \
    X("--strategy", number_of(o->trial.strategy))                                                  \
    X("--seed", o->trial.seed)                                                                     \
    X("--q", o->q != NULL)                                                                         \
    X("--k", o->k != NULL)                                                                         \
    X("--v", o->v != NULL)                                                                         \
    X("--dout", o->dout != NULL)                                                                   \
    X("--dlse", o->dlse != NULL)                                                                   \
    X("--out", number_of(o->out))                                                                  \
    X("--lse", number_of(o->lse))                                                                  \
    X("--dq", number_of(o->dq))                                                                    \
    X("--dk", number_of(o->dk))                                                                    \
    X("--dv", number_of(o->dv))                                                                    \
    X("--dsinks", number_of(o->dsinks))                                                            \
    X("--trace", number_of(o->trace))                                                              \
    X("--warmup", o->warmup)                                                                       \
    X("--verify", o->verify)                                                                       \
    X("--predict", o->predict)

static const char *const names[] = {
#define SAME_NAME(name, value) name,
    SAME_LIST(SAME_NAME)
#undef SAME_NAME
};

/* All processes see the same numbers, so one speaks for all. */
static int tell(int rank, int field, uint64_t first, uint64_t other)
{
    const char *name = names[field];
    if (!world_first()) return EXIT_FAULT;
    if (field == 0) return fault("ranks 0 and %d run different verbs of ringattn", rank);
    if (first == 0 || other == 0)
        return fault("rank %d was given %s and rank %d was not; all processes need the same flags",
                     first ? 0 : rank, name, first ? rank : 0);
    return fault("ranks 0 and %d were given different %s; all processes need the same flags", rank,
                 name);
}

int same_command(const struct options *o, const char *verb)
{
    enum { FIELDS = COUNT(names) };
    const uint64_t mine[FIELDS] = {
#define SAME_VALUE(name, value) (uint64_t)(value),
        SAME_LIST(SAME_VALUE)
#undef SAME_VALUE
    };
    uint64_t(*all)[FIELDS] = malloc((size_t)world_size() * sizeof *all);
    int status = all ? world_share(mine, all, sizeof mine)
                     : fault("out of memory: %d ranks", world_size());
    for (int rank = 1; !status && rank < world_size(); rank++)
        for (int i = 0; !status && i < FIELDS; i++)
            if (all[rank][i] != all[0][i]) status = tell(rank, i, all[0][i], all[rank][i]);
    free(all);
    return status;
}
