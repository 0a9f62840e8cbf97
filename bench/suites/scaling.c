/* SPDX-License-Identifier: Apache-2.0 */
/* scaling.c - the suite `scaling`: one thread per rank, more and more ranks, as threads and as
 * processes: the same problem (strong), the same tokens for each rank (weak), and the error against
 * the fp64 oracle. */
#include "suite.h"

static void add_strong(struct configurations *list, int ranks, const char *transport)
{
    suite_add(list, "strong", *transport ? "processes" : "threads", "",
              "causal n=%d h=8 d=64 %s ring=%d zigzag threads=1%s",
              suite_tokens(list, list->quick ? 2048 : 8192), suite_dtype(list), ranks, transport);
}

/* Segments keep the work of each token the same, so each rank has as much. */
static void add_weak(struct configurations *list, int ranks, const char *transport)
{
    suite_add(list, "weak", *transport ? "processes" : "threads", "",
              "dilated:2048/1,4096/2,8192/4 n=%d h=8 d=64 %s ring=%d threads=1%s",
              suite_tokens(list, list->quick ? 1024 : 8192) * ranks, suite_dtype(list), ranks,
              transport);
}

static void add_strategies(struct configurations *list)
{
    static const char *const ways[] = { "ring", "allgather", "ulysses", "2d:2x2" };
    for (int i = 0; i < COUNT(ways); i++)
        suite_add(list, "strategy", ways[i], "",
                  "causal n=%d h=8 d=64 %s ring=4 zigzag %s threads=1 backward",
                  suite_tokens(list, list->quick ? 1024 : 8192), suite_dtype(list), ways[i]);
}

static void add_errors(struct configurations *list)
{
    static const char *const dtypes[] = { "f32", "bf16", "f16" };
    for (int i = 0; i < COUNT(dtypes); i++)
        for (int ranks = 1; ranks <= 32; ranks *= list->quick ? 4 : 2)
            suite_add(list, "error", dtypes[i], list->quick ? "--runs 1" : "",
                      "full n=1024 h=2 d=64 %s ring=%d", dtypes[i], ranks);
}

/* Ranks as threads, then as processes. */
static void add_ranks(struct configurations *list,
                      void (*add)(struct configurations *list, int ranks, const char *transport))
{
    static const char *const transports[] = { "", " mpi" };
    for (int t = 0; t < COUNT(transports); t++)
        for (int ranks = 1; ranks <= (list->quick ? 4 : 8); ranks *= 2)
            add(list, ranks, transports[t]);
}

static void list_scaling(struct configurations *list)
{
    add_ranks(list, add_strong);
    add_ranks(list, add_weak);
    add_strategies(list);
    add_errors(list);
}

const struct suite suite_scaling = {
    .name = "scaling",
    .summary = "strong and weak scaling over ranks, exposed communication, error by ring size",
    .seconds = 12.0,
    .quick_seconds = 0.1,
    .list = list_scaling,
};
