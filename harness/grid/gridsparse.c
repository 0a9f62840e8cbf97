/* SPDX-License-Identifier: Apache-2.0 */
/* gridsparse.c - the groups of the conformance grid that are about dilated and blocks patterns,
 * orders and score terms. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gridlist.h"

/* ---- What a case has besides its subject ----------------------------------------------------- */

/* One of `count`: as good as random, and the same in every run. `salt` distinguishes the draws of
 * one case. */
static int pick(const struct grid_lists *lists, int salt, int count)
{
    uint32_t x = ((uint32_t)lists->turn * 16u + (uint32_t)salt + 1u) * 2654435761u;
    return (int)((x >> 12 ^ x >> 20) % (uint32_t)count);
}

/* "bf16 ring=3 zigzag;perdoc allgather kernel=avx2" */
struct tail {
    char s[120];
};

static struct tail tail(struct grid_lists *lists, const char *pattern, const char *strategy)
{
    struct tail tail;
    int dtype = pick(lists, 0, 2 * GRID_DTYPES); /* f32 more often: its bounds are the closest */
    bool perdoc = strstr(pattern, "docs=") && pick(lists, 1, 2);
    int ranks = grid_ranks[pick(lists, 2, GRID_RANKS)];
    const char *partition = lists->partitions.name[pick(lists, 3, lists->partitions.count)];
    snprintf(tail.s, sizeof tail.s, "%s ring=%d %s%s %s kernel=%s",
             grid_dtypes[dtype < GRID_DTYPES ? dtype : 0], ranks, partition,
             perdoc ? ";perdoc" : "", strategy, grid_next_kernel(lists));
    return tail;
}

static const char *pick_strategy(const struct grid_lists *lists)
{
    return lists->strategies.name[pick(lists, 4, lists->strategies.count)];
}

/* ---- Patterns -------------------------------------------------------------------------------- */

/* For 61 positions. Branches that divide and that do not, that are longer than all, with a rate
 * above the length (some heads select nothing), the same twice, and five of them. */
static const char *const branches[] = {
    "dilated:8/1",
    "dilated:8/2",
    "dilated:16/4",
    "dilated:8/1,16/2,32/4",
    "dilated:7/3,5/2",
    "dilated:100/3",
    "dilated:3/5,4/1",
    "dilated:13/2,13/2",
    "dilated:1/1",
    "dilated:61/61",
    "dilated:4/1,8/2,16/4,32/8,64/16",
};
static const char *const branch_options[] = {
    "",
    ";dedup",
    ";groups",
    ";causal",
    ";dedup;causal",
    ";groups;causal",
    ";docs=0,20,20,45,61",
    ";groups;causal;docs=0,7,61",
};
/* Heads that no number of branches divides, and shared KV heads. */
static const char *const head_counts[] = { "2/1", "12", "8", "6/2", "4/1", "12/4", "3", "1" };

static void add_dilated(struct grid_lists *lists)
{
    for (int back = 0; back < 2; back++)
        for (int b = 0; b < COUNT(branches); b++)
            for (int o = 0; o < COUNT(branch_options); o++)
                for (int s = 0; s < lists->strategies.count; s++) {
                    const char *heads = head_counts[pick(lists, 5, COUNT(head_counts))];
                    struct tail t = tail(lists, branch_options[o], lists->strategies.name[s]);
                    grid_add(lists, back ? "dilated, backward" : "dilated",
                             "%s%s n=61 h=%s d=%d %s%s", branches[b], branch_options[o], heads,
                             back ? 12 : 16, t.s, back ? " backward" : "");
                }
}

/* Every head count with every list of branches: offsets and groups come out differently in each. */
static void add_head_groups(struct grid_lists *lists)
{
    static const char *const options[] = { "", ";groups", ";dedup" };
    for (int b = 0; b < COUNT(branches); b++)
        for (int h = 0; h < COUNT(head_counts); h++)
            for (int o = 0; o < COUNT(options); o++) {
                struct tail t = tail(lists, "", pick_strategy(lists));
                grid_add(lists, "dilated heads", "%s%s n=47 h=%s d=8 %s%s", branches[b], options[o],
                         head_counts[h], t.s, (b + h + o) % 2 ? "" : " backward");
            }
}

/* Offsets by block differ from cyclic ones with two branches or more; head counts that no rate
 * divides leave the last offsets without a head. */
static void add_offsets(struct grid_lists *lists)
{
    static const char *const options[] = { "", ";dedup", ";causal", ";docs=0,20,20,45,61" };
    for (int b = 0; b < COUNT(branches); b++)
        for (int h = 0; h < COUNT(head_counts); h++) {
            struct tail t = tail(lists, "", pick_strategy(lists));
            grid_add(lists, "dilated offsets", "%s;offsets=block%s n=61 h=%s d=8 %s%s", branches[b],
                     options[(b + h) % COUNT(options)], head_counts[h], t.s,
                     (b + h) % 3 ? "" : " backward");
        }
}

/* Each term, and unions of them. */
static const char *const block_terms[] = {
    ";local=1",
    ";global=1",
    ";strided=3",
    ";dilated=2/2",
    ";levels=2/1,4/3",
    ";random=0.3;seed=7",
    ";local=1;global=1",
    ";strided=4;local=0;random=0.1",
    ";random=0.05;seed=3;global=2;levels=3/1;dilated=3/1",
};
static const int block_sizes[] = { 1, 4, 7, 16, 64 };
static const char *const block_options[] = {
    "",
    ";causal",
    ";docs=0,0,11,40,61",
};

static void add_blocks(struct grid_lists *lists)
{
    for (int back = 0; back < 2; back++)
        for (int t = 0; t < COUNT(block_terms); t++)
            for (int b = 0; b < COUNT(block_sizes); b++)
                for (int o = 0; o < COUNT(block_options); o++) {
                    const char *heads = head_counts[pick(lists, 5, COUNT(head_counts))];
                    struct tail rest = tail(lists, block_options[o], pick_strategy(lists));
                    grid_add(lists, back ? "blocks, backward" : "blocks",
                             "blocks:%d%s%s n=61 h=%s d=%d %s%s", block_sizes[b], block_terms[t],
                             block_options[o], heads, back ? 12 : 16, rest.s,
                             back ? " backward" : "");
                }
}

/* Every way the library itself lists to write a pattern, on every rank count. */
static void add_samples(struct grid_lists *lists)
{
    ra_part part = ra_part_default();
    for (int i = 0; ra_part_at("pattern", i, &part) == RA_OK; i++) {
        const char *at = part.samples ? part.samples : "";
        for (int length; (length = (int)strcspn(at, " ")) > 0; at += length, at += *at == ' ')
            for (int r = 0; r < GRID_RANKS && !strstr(at, "bitmap="); r++)
                grid_add(lists, "samples", "%.*s n=64 h=6/2 d=16 ring=%d %s%s kernel=%s", length,
                         at, grid_ranks[r], pick_strategy(lists), r % 3 == 1 ? " backward" : "",
                         grid_next_kernel(lists));
    }
}

/* ---- Lengths --------------------------------------------------------------------------------- */

/* Sparse patterns of some size, each good for every length. */
static const char *const sparse[] = {
    "window:5",
    "dilated:16/1,32/2,64/4",
    "dilated:10/3;causal",
    "dilated:16/2,48/3;groups",
    "blocks:16;local=1;global=1",
    "blocks:8;strided=3;causal",
    "blocks:10;random=0.2;seed=5",
    "dilated:8/1,16/2,24/3;dedup",
    "blocks:6;dilated=2/2;levels=1/0,4/3",
};

static void add_sparse_lengths(struct grid_lists *lists)
{
    static const int lengths[] = { 1, 2, 3, 7, 13, 31, 63, 64, 65, 97, 128, 199, 257, 331 };
    for (int i = 0; i < COUNT(lengths); i++)
        for (int p = 0; p < COUNT(sparse); p++) {
            struct tail t = tail(lists, sparse[p], pick_strategy(lists));
            grid_add(lists, "sparse lengths", "%s n=%d h=4/2 d=8 %s%s", sparse[p], lengths[i], t.s,
                     (i + p) % 3 ? "" : " backward");
        }
}

/* Each of them on every partition, strategy and rank count. */
static void add_sparse_rings(struct grid_lists *lists)
{
    for (int p = 0; p < COUNT(sparse); p++)
        for (int c = 0; c < lists->partitions.count; c++)
            for (int s = 0; s < lists->strategies.count; s++)
                for (int r = 0; r < 2 * GRID_RANKS; r++)
                    grid_add(lists, "sparse on rings",
                             "%s%s n=71 h=4/2 d=8 ring=%d %s %s%s kernel=%s", sparse[p],
                             (c + s + r) % 3 ? "" : ";docs=0,9,9,40,71", grid_ranks[r / 2],
                             lists->partitions.name[c], lists->strategies.name[s],
                             r % 2 ? "" : " backward", grid_next_kernel(lists));
}

/* Queries at the end of more keys, one and several. */
static void add_decode(struct grid_lists *lists)
{
    static const int pairs[][2] = { { 1, 61 }, { 1, 128 },  { 2, 97 },
                                    { 7, 61 }, { 30, 101 }, { 100, 127 } };
    static const char *const terms[] = { "", "alibi", "dropout=0.2", "sinks softcap=10",
                                         "bias=add" };
    for (int i = 0; i < COUNT(pairs); i++)
        for (int p = 0; p < COUNT(sparse) + 1; p++)
            for (int s = 0; s < lists->strategies.count; s++) {
                const char *pattern = p < COUNT(sparse) ? sparse[p] : "causal";
                const char *term = terms[pick(lists, 6, COUNT(terms))];
                struct tail t = tail(lists, pattern, lists->strategies.name[s]);
                grid_add(lists, "decode", "%s n=%d nk=%d h=6/2 d=16 %s %s%s", pattern, pairs[i][0],
                         pairs[i][1], term, t.s, (i + p + s) % 3 ? "" : " backward");
            }
}

/* ---- Orders ---------------------------------------------------------------------------------- */

static void add_orders(struct grid_lists *lists)
{
    static const char *const orders[] = { "hilbert",      "hilbert:8x8", "hilbert:5x13",
                                          "hilbert:1x61", "shuffled:7",  "sequential" };
    static const char *const patterns[] = {
        "full",
        "causal",
        "window:5",
        "window:6,6;causal",
        "prefix:9",
        "full;docs=0,7,14,16,61",
        "causal;docs=0,0,10,23,23,50,61",
        "window:8,2;docs=0,30,31,61",
        "dilated:8/1,16/2",
        "dilated:16/2,12/3;causal",
        "dilated:8/2,16/4;groups;docs=0,25,61",
        "blocks:8;local=1;global=1",
        "blocks:4;random=0.2;seed=9;causal",
        "blocks:7;strided=3;docs=0,30,61",
    };
    for (int back = 0; back < 2; back++)
        for (int o = 0; o < COUNT(orders); o++)
            for (int p = 0; p < COUNT(patterns); p++) {
                /* Documents are of original positions, so a partition cannot follow them here. */
                struct tail t = tail(lists, "", pick_strategy(lists));
                grid_add(lists, back ? "orders, backward" : "orders",
                         "%s n=61 h=4/2 d=12 order=%s %s%s", patterns[p], orders[o], t.s,
                         back ? " backward" : "");
            }
}

/* Every kind of order on every partition, strategy and rank count; and at many lengths. */
static void add_order_rings(struct grid_lists *lists)
{
    static const char *const orders[] = { "hilbert", "shuffled:3", "hilbert:9x8" };
    static const char *const patterns[] = { "causal", "window:9,4", "dilated:8/1,32/4;causal",
                                            "blocks:8;local=1;docs=0,30,71" };
    for (int c = 0; c < lists->partitions.count; c++)
        for (int s = 0; s < lists->strategies.count; s++)
            for (int r = 0; r < 2 * GRID_RANKS; r++)
                for (int p = 0; p < COUNT(patterns); p++)
                    grid_add(lists, "orders on rings",
                             "%s n=71 h=4/2 d=8 order=%s ring=%d %s %s%s kernel=%s", patterns[p],
                             orders[(c + s + r + p) % COUNT(orders)], grid_ranks[r / 2],
                             lists->partitions.name[c], lists->strategies.name[s],
                             r % 2 ? "" : " backward", grid_next_kernel(lists));
}

static void add_order_lengths(struct grid_lists *lists)
{
    static const int lengths[] = { 1, 2, 3, 5, 16, 17, 31, 64, 97, 128, 211, 257 };
    static const char *const orders[] = { "hilbert", "hilbert:3x100", "shuffled:1" };
    static const char *const patterns[] = { "causal", "prefix:7", "dilated:16/2,40/5;causal",
                                            "blocks:16;local=1;causal" };
    for (int i = 0; i < COUNT(lengths); i++)
        for (int o = 0; o < COUNT(orders); o++) {
            const char *pattern = patterns[pick(lists, 8, COUNT(patterns))];
            struct tail t = tail(lists, "", pick_strategy(lists));
            grid_add(lists, "order lengths", "%s n=%d h=2/1 d=8 order=%s %s%s", pattern, lengths[i],
                     orders[o], t.s, (i + o) % 2 ? "" : " backward");
        }
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Bitmaps, for all heads and one per head, and an order of the user's own. */
static void add_files(struct grid_lists *lists)
{
    char *const *path = lists->grid->files.path;
    static const char *const options[] = { "", ";causal", ";docs=0,20,61", ";local=0;global=1" };
    for (int o = 0; o < COUNT(options); o++)
        for (int r = 0; r < GRID_RANKS; r++) {
            enum gridfile bitmap = (o + r) % 2 ? GRIDFILE_BITMAP : GRIDFILE_BITMAP_HEADS;
            struct tail t = tail(lists, "", pick_strategy(lists));
            if (!path[GRIDFILE_ORDER]) return; /* a list that nobody runs */
            grid_add(lists, "files", "blocks:%d;bitmap=%s%s n=%d h=%d/2 d=8 %s%s", GRIDFILE_BLOCK,
                     path[bitmap], options[o], GRIDFILE_LENGTH, GRIDFILE_HEADS, t.s,
                     r % 2 ? " backward" : "");
            grid_add(lists, "files", "window:9,9%s n=%d h=2 d=8 order=%s %s%s",
                     o == 3 ? "" : options[o], GRIDFILE_LENGTH, path[GRIDFILE_ORDER], t.s,
                     r % 2 ? "" : " backward");
        }
}

/* ---- Score terms ----------------------------------------------------------------------------- */

const char *const grid_score_terms[GRID_SCORE_TERMS] = {
    "softcap=3",
    "alibi",
    "alibi=0.5,0,2,0.0625",
    "sinks",
    "bias=add",
    "bias=heads",
    "bias=batch",
    "bias=mask",
    "bias=maskheads",
    "dropout=0.2",
    "dropout=0.9 seed=5",
    "alibi sinks bias=maskheads",
    "softcap=20 alibi bias=batch sinks dropout=0.1 seed=3",
};

static void add_terms(struct grid_lists *lists)
{
    static const char *const patterns[] = { "full",
                                            "causal",
                                            "window:9,3",
                                            "causal;docs=0,0,10,23,23,50,61",
                                            "dilated:8/1,16/2",
                                            "blocks:8;local=1;global=1",
                                            "causal order=hilbert",
                                            "dilated:8/2,20/3 order=shuffled:3" };
    for (int back = 0; back < 2; back++)
        for (int i = 0; i < GRID_SCORE_TERMS; i++)
            for (int p = 0; p < COUNT(patterns); p++) {
                struct tail t = tail(lists, "", pick_strategy(lists));
                grid_add(lists, back ? "terms, backward" : "terms",
                         "%s n=61 h=4/2 d=12 b=2 %s %s%s", patterns[p], grid_score_terms[i], t.s,
                         back ? " backward" : "");
            }
}

/* Every term on every partition, strategy and rank count, in both directions. */
static void add_terms_rings(struct grid_lists *lists)
{
    static const char *const terms[] = { "softcap=5",  "alibi",     "sinks",
                                         "bias=heads", "bias=mask", "dropout=0.3" };
    static const char *const patterns[] = { "causal", "dilated:8/1,24/3",
                                            "blocks:8;local=1;global=1" };
    for (int c = 0; c < lists->partitions.count; c++)
        for (int s = 0; s < lists->strategies.count; s++)
            for (int r = 0; r < 2 * GRID_RANKS; r++)
                for (int i = 0; i < COUNT(terms); i++)
                    grid_add(lists, "terms on rings",
                             "%s n=53 h=4/2 d=8 b=2 %s ring=%d %s %s%s kernel=%s",
                             patterns[(c + s + r + i) % COUNT(patterns)], terms[i],
                             grid_ranks[r / 2], lists->partitions.name[c],
                             lists->strategies.name[s], r % 2 ? "" : " backward",
                             grid_next_kernel(lists));
}

/* Every kernel and dtype with every term, at dims on both sides of a register. */
static void add_terms_kernels(struct grid_lists *lists)
{
    static const int dims[] = { 8, 17, 40, 64, 128 };
    for (int k = 0; k < lists->kernels.count; k++)
        for (int d = 0; d < GRID_DTYPES; d++)
            for (int i = 0; i < GRID_SCORE_TERMS; i++) {
                int dim = dims[pick(lists, 7, COUNT(dims))];
                lists->turn++;
                grid_add(lists, "terms on kernels",
                         "%s n=75 h=4 d=%d %s ring=%d %s backward kernel=%s",
                         i % 2 ? "causal" : "full", dim, grid_dtypes[d], 1 + (i + d) % 3,
                         grid_score_terms[i], lists->kernels.name[k]);
            }
}

void grid_add_sparse(struct grid_lists *lists)
{
    static void (*const groups[])(struct grid_lists *) = {
        add_samples,        add_dilated, add_head_groups, add_blocks,        add_sparse_rings,
        add_sparse_lengths, add_decode,  add_orders,      add_order_rings,   add_order_lengths,
        add_files,          add_terms,   add_terms_rings, add_terms_kernels, add_offsets,
    };
    for (int i = 0; i < COUNT(groups); i++) groups[i](lists);
}
