/* SPDX-License-Identifier: Apache-2.0 */
/* gridpacked.c - groups of the conformance grid in which queries are not simply the last positions:
 * packed sequences, and query offsets. */
#include "gridlist.h"

/* Sequences alike and not, with one query, without queries, without keys. */
static const char *const lengths[] = {
    "20,20,20",
    "7/19,0/5,30/30,1/1,4/0,11/23",
    "1/40,1/3,1/17,1/1",
    "33,1,0,28",
};

/* Every pattern on every partition and strategy, some forward and some backward. */
static void add_sequences(struct grid_lists *lists)
{
    static const char *const patterns[] = {
        "full",
        "causal",
        "window:6,2",
        "prefix:5",
        "dilated:8/1,16/2",
        "dilated:6/2,15/3;causal",
        "blocks:4;local=1;global=1",
        "blocks:6;random=0.4;seed=3;causal",
    };
    for (int p = 0; p < COUNT(patterns); p++)
        for (int c = 0; c < lists->partitions.count; c++)
            for (int s = 0; s < lists->strategies.count; s++) {
                const int turn = lists->turn;
                grid_add(lists, "packed sequences",
                         "%s seqs=%s h=4/2 d=%d %s ring=%d %s %s%s kernel=%s", patterns[p],
                         lengths[(p + c + s) % COUNT(lengths)], turn % 3 ? 16 : 64,
                         grid_dtypes[turn % GRID_DTYPES], grid_ranks[turn % GRID_RANKS],
                         lists->partitions.name[c], lists->strategies.name[s],
                         (p + c + s) % 2 ? " backward" : "", grid_next_kernel(lists));
            }
    for (int i = 0; i < 2 * GRID_SCORE_TERMS; i++) {
        const int turn = lists->turn;
        grid_add(lists, "packed sequences", "%s seqs=%s h=4/2 d=16 b=2 ring=%d %s%s kernel=%s",
                 patterns[i % COUNT(patterns)], lengths[i % COUNT(lengths)],
                 grid_ranks[turn % GRID_RANKS], grid_score_terms[i / 2], i % 2 ? " backward" : "",
                 grid_next_kernel(lists));
    }
    for (int t = 0; t < GRID_DTYPES; t++) /* so many keys are split into ranges */
        grid_add(lists, "packed sequences",
                 "causal seqs=1/30000,1/9,1/20000 h=4/2 d=32 %s kernel=%s", grid_dtypes[t],
                 grid_next_kernel(lists));
    /* So long that tensor cores take them, also backward. */
    static const char *const large[] = { "causal seqs=256,300/700,0/128,200/512",
                                         "full seqs=64,64,64,64,64,64,64,64",
                                         "window:100,20 seqs=400,1/300,256/256 alibi dropout=0.1" };
    for (int k = 0; k < lists->kernels.count; k++)
        for (int i = 0; i < COUNT(large); i++)
            grid_add(lists, "packed sequences", "%s h=4/2 d=%d bf16 ring=%d backward kernel=%s",
                     large[i], i % 2 ? 64 : 128, 1 + k % 2, lists->kernels.name[k]);
    /* The keys of a sequence without queries are seen by nobody. */
    grid_add(lists, "packed sequences", "full seqs=128/80,0/176 h=2 d=64 bf16 backward kernel=%s",
             grid_next_kernel(lists));
}

/* Queries before the first key, inside, and after the last. */
static void add_offsets(struct grid_lists *lists)
{
    static const char *const anywhere[] = { "full", "causal", "window:9,4", "full;causal" };
    static const char *const inside[] = { "prefix:12", "dilated:8/1,16/2",
                                          "blocks:4;local=1;global=1",
                                          "blocks:5;strided=3;causal" };
    static const int offsets[] = { -70, -30, -7, 3, 90 };
    static const char *const terms[] = {
        "", "alibi ", "", "dropout=0.2 ", "sinks ", "bias=heads "
    };
    for (int p = 0; p < COUNT(anywhere); p++)
        for (int i = 0; i < COUNT(offsets); i++)
            for (int s = 0; s < lists->strategies.count; s++) {
                const int turn = lists->turn;
                grid_add(lists, "query offset",
                         "%s n=41 nk=61 offset=%d h=4/2 d=16 %s%s ring=%d %s %s%s kernel=%s",
                         anywhere[p], offsets[i], terms[(p + i + s) % COUNT(terms)],
                         grid_dtypes[turn % GRID_DTYPES], grid_ranks[turn % GRID_RANKS],
                         lists->partitions.name[turn % lists->partitions.count],
                         lists->strategies.name[s], (p + i + s) % 2 ? " backward" : "",
                         grid_next_kernel(lists));
            }
    for (int p = 0; p < COUNT(inside); p++)
        for (int s = 0; s < lists->strategies.count; s++) {
            const int turn = lists->turn;
            grid_add(lists, "query offset",
                     "%s n=20 nk=61 offset=%d h=4/2 d=16 ring=%d %s%s kernel=%s", inside[p],
                     p % 2 ? -41 : -13, grid_ranks[turn % GRID_RANKS], lists->strategies.name[s],
                     (p + s) % 2 ? " backward" : "", grid_next_kernel(lists));
        }
    grid_add(lists, "query offset",
             "causal seqs=7/19,0/5,30/30,4/0 offset=-3 h=2 d=16 ring=3 zigzag "
             "backward");
}

void grid_add_packed(struct grid_lists *lists)
{
    add_sequences(lists);
    add_offsets(lists);
}
