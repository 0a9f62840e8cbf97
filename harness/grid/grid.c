/* SPDX-License-Identifier: Apache-2.0 */
/* grid.c - the built-in conformance grid. */
#include "gridlist.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const int grid_ranks[GRID_RANKS] = { 1, 2, 3, 4, 5, 7, 8 };
const char *const grid_dtypes[GRID_DTYPES] = { "f32", "bf16", "f16" };

/* The strategy auto is one of the others. */
static struct grid_names usable(const char *kind)
{
    struct grid_names names = { .count = 0 };
    ra_part part = ra_part_default();
    for (int i = 0; ra_part_at(kind, i, &part) == RA_OK && names.count < GRID_NAMES_MOST; i++)
        if (part.usable && strcmp(part.name, "auto")) names.name[names.count++] = part.name;
    return names;
}

static bool same_word(const char *word, const char *text, size_t length)
{
    return strlen(word) == length && memcmp(word, text, length) == 0;
}

/* The kernels of a device. A device that is not the default has kernels for some head dims only:
 * there the library chooses in every other case. */
static struct grid_names kernels_of(const char *device)
{
    const size_t stem = strcspn(device, ":");
    struct grid_names names = { .count = 0 };
    ra_part part = ra_part_default();
    for (int i = 0; ra_part_at("kernel", i, &part) == RA_OK && names.count < GRID_NAMES_MOST; i++) {
        const bool its = same_word(part.device, device, stem);
        if (!its || !part.usable) continue;
        names.name[names.count++] = part.name;
        if (!strcmp(part.device, "cpu")) continue;
        names.name[names.count++] = "auto";
        break; /* the first one takes everything */
    }
    return names;
}

const char *grid_next_kernel(struct grid_lists *lists)
{
    return lists->kernels.name[lists->turn++ % lists->kernels.count];
}

/* The dtypes of the kernel that a case or the environment names, as bits; all of them where neither
 * does. */
static unsigned kernel_dtypes(const char *text)
{
    const char *named = strstr(text, "kernel="), *wish = getenv("RINGATTN_KERNEL");
    const char *name = named ? named + strlen("kernel=") : wish ? wish : "";
    ra_part part = ra_part_default();
    for (int i = 0; ra_part_at("kernel", i, &part) == RA_OK; i++)
        if (same_word(part.name, name, strcspn(name, " "))) return part.dtypes;
    return ~0u;
}

/* Puts a dtype that its kernel takes into a case. False without memory. */
static bool fit_dtype(char **text)
{
    static const ra_dtype values[GRID_DTYPES] = { RA_F32, RA_BF16, RA_F16 };
    unsigned taken = kernel_dtypes(*text);
    int now = 0, fit = GRID_DTYPES - 1;
    const char *rest = *text + strlen(*text); /* after the dtype, with a leading space */
    size_t before = strlen(*text);            /* up to the dtype, without a trailing space */
    for (const char *word = *text; *word;) {
        size_t length = strcspn(word, " ");
        for (int t = 0; t < GRID_DTYPES; t++)
            if (same_word(grid_dtypes[t], word, length)) {
                now = t;
                rest = word + length;
                before = (size_t)(word - *text) - 1;
            }
        word += length + (word[length] == ' ');
    }
    if (taken >> values[now] & 1) return true;
    while (fit > 0 && !(taken >> values[fit] & 1)) fit--;
    char *fitted;
    if (asprintf(&fitted, "%.*s %s%s", (int)before, *text, grid_dtypes[fit], rest) < 0)
        return false;
    free(*text);
    *text = fitted;
    return true;
}

/* A bias stays with its queries: with a strategy that exchanges heads, such a case uses the ring
 * instead. */
static void fit_strategy(char *text)
{
    static const char *const swapping[] = { " ulysses", " 2d" };
    for (int i = 0; i < COUNT(swapping) && strstr(text, " bias="); i++) {
        char *word = strstr(text, swapping[i]);
        size_t length = strlen(swapping[i]);
        if (word) memmove(word, word + length, strlen(word + length) + 1);
    }
}

/* A stream is for one rank: other cases use the ring instead. Its blocks are small here, so that
 * there are several of them. */
static bool fit_stream(char **text)
{
    static const char word[] = " stream";
    char *at = strstr(*text, word), *fitted;
    if (!at || at[strlen(word)] == ':') return true;
    const bool alone = strstr(*text, "ring=1 ") || !strstr(*text, "ring=");
    if (asprintf(&fitted, "%.*s%s%s", (int)(at - *text), *text, alone ? " stream:16" : "",
                 at + strlen(word)) < 0)
        return false;
    free(*text);
    *text = fitted;
    return true;
}

void grid_add(struct grid_lists *lists, const char *group, const char *format, ...)
{
    struct grid *grid = lists->grid;
    if (grid->count == grid->capacity) {
        int capacity = grid->capacity ? 2 * grid->capacity : 256;
        struct grid_case *cases = realloc(grid->cases, (size_t)capacity * sizeof *cases);
        if (!cases) {
            grid->lost = true;
            return;
        }
        grid->cases = cases;
        grid->capacity = capacity;
    }
    va_list args;
    va_start(args, format);
    char *text;
    if (vasprintf(&text, format, args) < 0 || !fit_dtype(&text) || !fit_stream(&text))
        grid->lost = true;
    else {
        fit_strategy(text);
        grid->cases[grid->count++] = (struct grid_case){ group, text };
    }
    va_end(args);
}

/* ---- Groups ---------------------------------------------------------------------------------- */

/* Every kernel, at dims on both sides of every width it may work in. */
static void add_dims(struct grid_lists *lists)
{
    static const int dims[] = { 1,  2,  3,   7,   8,   15,  16,  17,  31,  32,  40,  63,  64, 65,
                                80, 96, 100, 127, 128, 129, 160, 192, 256, 257, 320, 511, 576 };
    for (int k = 0; k < lists->kernels.count; k++)
        for (int i = 0; i < COUNT(dims); i++)
            for (int t = 0; t < GRID_DTYPES; t++) {
                int ring = grid_ranks[(i + t) % 4], other = dims[(i * 7 + 5) % COUNT(dims)];
                grid_add(lists, "head dims", "causal n=67 h=2 d=%d dv=%d %s ring=%d%s kernel=%s",
                         dims[i], (i + t) % 3 ? dims[i] : other, grid_dtypes[t], ring,
                         ring > 1 ? " zigzag" : "", lists->kernels.name[k]);
            }
}

static void add_dims_backward(struct grid_lists *lists)
{
    static const int dims[] = { 1, 5, 16, 33, 64, 72, 128, 200, 256, 576 };
    for (int k = 0; k < lists->kernels.count; k++)
        for (int i = 0; i < COUNT(dims); i++)
            for (int t = 0; t < GRID_DTYPES; t++)
                grid_add(lists, "head dims, backward",
                         "%s n=45 h=2/1 d=%d dv=%d %s ring=%d backward kernel=%s",
                         t == 1 ? "window:9,4" : "causal", dims[i],
                         dims[i % 2 ? i : COUNT(dims) - 1 - i], grid_dtypes[t], 1 + (i + t) % 4,
                         lists->kernels.name[k]);
}

/* 61 positions; documents with empty ones, and shorter than a rank's share. */
static const char *const patterns[] = {
    "full",
    "causal",
    "window:5",
    "window:3,4",
    "prefix:9",
    "window:6,6;causal",
    "prefix:20;causal",
    "full;docs=0,7,14,16,61",
    "causal;docs=0,0,10,23,23,50,61",
    "window:8,2;docs=0,30,31,61",
    "prefix:12;docs=0,25,61",
};

/* Every pattern on every partition, strategy and rank count. */
static void add_rings(struct grid_lists *lists)
{
    for (int p = 0; p < COUNT(patterns); p++)
        for (int c = 0; c < lists->partitions.count; c++)
            for (int s = 0; s < lists->strategies.count; s++)
                for (int r = 0; r < GRID_RANKS; r++) {
                    bool perdoc = strstr(patterns[p], "docs") && (r + s) % 2;
                    grid_add(lists, "patterns on rings",
                             "%s n=61 h=2/1 d=16 %s ring=%d %s%s %s kernel=%s", patterns[p],
                             grid_dtypes[r % 4 == 3 ? 1 : 0], grid_ranks[r],
                             lists->partitions.name[c], perdoc ? ";perdoc" : "",
                             lists->strategies.name[s], grid_next_kernel(lists));
                }
}

static void add_rings_backward(struct grid_lists *lists)
{
    for (int p = 0; p < COUNT(patterns); p++)
        for (int c = 0; c < lists->partitions.count; c++)
            for (int s = 0; s < lists->strategies.count; s++) {
                int turn = lists->turn;
                bool perdoc = strstr(patterns[p], "docs") && turn % 2;
                grid_add(lists, "patterns, backward",
                         "%s n=61 h=4/2 d=12 dv=20 %s ring=%d %s%s %s backward kernel=%s",
                         patterns[p], grid_dtypes[turn % 3], grid_ranks[turn % GRID_RANKS],
                         lists->partitions.name[c], perdoc ? ";perdoc" : "",
                         lists->strategies.name[s], grid_next_kernel(lists));
            }
}

/* Sums of dq in any order: other kernels on a GPU. */
static void add_any_order(struct grid_lists *lists)
{
    static const char *const kinds[] = {
        "full",
        "causal",
        "window:20,3",
        "full;docs=0,7,75,150",
        "dilated:50/1,75/3",
        "blocks:16;local=2",
        "causal alibi softcap=20 dropout=0.1 sinks",
    };
    static const int dims[] = { 24, 64, 128, 256 };
    for (int k = 0; k < lists->kernels.count; k++)
        for (int p = 0; p < COUNT(kinds); p++)
            for (int d = 0; d < COUNT(dims); d++)
                grid_add(lists, "any order of sums",
                         "%s n=150 h=4/2 d=%d %s ring=%d backward any-order kernel=%s", kinds[p],
                         dims[d], grid_dtypes[1 + (p + d) % 2], grid_ranks[(p + d) % 3],
                         lists->kernels.name[k]);
}

/* Pairs of lengths that other test suites found worth having. */
static void add_lengths(struct grid_lists *lists)
{
    static const int pairs[][2] = {
        { 1, 1 },     { 64, 128 },  { 128, 192 }, { 256, 256 },   { 239, 1 },     { 799, 3 },
        { 113, 203 }, { 113, 128 }, { 128, 217 }, { 113, 211 },   { 108, 256 },   { 256, 512 },
        { 384, 256 }, { 640, 128 }, { 512, 256 }, { 1024, 1024 }, { 1023, 1024 }, { 1024, 1023 },
    };
    static const char *const rules[] = { "full", "causal", "window:100,30" };
    for (int i = 0; i < COUNT(pairs); i++)
        for (int p = 0; p < COUNT(rules); p++) {
            int turn = lists->turn;
            grid_add(lists, "lengths", "%s n=%d nk=%d h=1 d=32 %s ring=%d %s %s kernel=%s",
                     rules[p], pairs[i][0], pairs[i][1], grid_dtypes[turn % 3],
                     grid_ranks[turn % GRID_RANKS],
                     lists->partitions.name[turn % lists->partitions.count],
                     lists->strategies.name[turn / 2 % lists->strategies.count],
                     grid_next_kernel(lists));
        }
    grid_add(lists, "lengths", "prefix:40 n=30 nk=100 h=2 d=32 ring=3 kernel=%s",
             grid_next_kernel(lists));
    grid_add(lists, "lengths", "causal n=1 nk=777 h=8/2 d=64 ring=4 kernel=%s",
             grid_next_kernel(lists));
    for (int ring = 1; ring <= 2; ring++) /* so many keys are split into ranges */
        for (int t = 0; t < GRID_DTYPES; t++)
            grid_add(lists, "lengths", "causal n=1 nk=40000 h=4/2 d=32 %s ring=%d kernel=%s",
                     grid_dtypes[t], ring, grid_next_kernel(lists));
    grid_add(lists, "lengths", "causal n=30 nk=100 h=2 d=16 ring=4 backward kernel=%s",
             grid_next_kernel(lists));
    /* The first keys are seen by nobody. */
    grid_add(lists, "lengths", "window:100 n=128 nk=256 h=4/2 d=64 bf16 backward kernel=%s",
             grid_next_kernel(lists));
    grid_add(lists, "lengths", "causal n=100 nk=30 h=2 d=16 ring=4 backward kernel=%s",
             grid_next_kernel(lists));
}

/* Uneven lengths, dims and windows of real models, a few of each. */
static void add_models(struct grid_lists *lists)
{
    static const char *const cases[] = {
        "causal n=1050 h=1 d=128 ring=8 striped",
        "causal n=900 h=2/1 d=128 bf16 ring=4 zigzag",
        "causal n=509 h=2 d=192 dv=128 ring=4 zigzag allgather",
        "causal n=700 h=2 d=64 bf16 ring=3 zigzag allgather backward",
        "full n=382 h=4 d=64 f16 ring=8",
        "full n=301 h=2 d=256 bf16 ring=3 striped",
        "window:512 n=1050 h=1 d=64 ring=4 zigzag",
        "window:512,512 n=900 h=1 d=64 ring=5",
        "window:128 n=3816 h=1 d=32 ring=8 zigzag",
        "window:128 n=1021 h=2/1 d=64 bf16 ring=8 striped backward",
        "causal n=450 h=5 d=128 ring=7 zigzag backward",
        "causal n=31 h=64/8 d=64 ring=8 zigzag backward",
    };
    for (int i = 0; i < COUNT(cases); i++)
        grid_add(lists, "shapes of models", "%s kernel=%s", cases[i], grid_next_kernel(lists));
}

/* Fewer positions than ranks. */
static void add_tiny(struct grid_lists *lists)
{
    static const int lengths[] = { 1, 2, 3, 5, 7, 13 };
    static const char *const rules[] = { "full", "causal", "window:1,1" };
    for (int i = 0; i < COUNT(lengths); i++)
        for (int p = 0; p < COUNT(rules); p++)
            for (int c = 0; c < lists->partitions.count; c++)
                grid_add(lists, "few tokens", "%s n=%d h=1 d=8 ring=%d %s %s%s kernel=%s", rules[p],
                         lengths[i], c == 1 ? 7 : 8, lists->partitions.name[c],
                         lists->strategies.name[(i + p) % lists->strategies.count],
                         p == 1 ? " backward" : "", grid_next_kernel(lists));
}

static void add_heads(struct grid_lists *lists)
{
    static const char *const heads[] = { "8/2", "8/1", "5", "6/3", "12/2", "16/1", "32/4", "3/1" };
    for (int i = 0; i < COUNT(heads); i++)
        for (int t = 0; t < GRID_DTYPES; t++)
            grid_add(lists, "grouped heads", "causal n=50 h=%s d=24 b=%d %s ring=%d%s kernel=%s",
                     heads[i], 1 + i % 3, grid_dtypes[t], 1 + (i + t) % 4,
                     t == 2 ? " backward" : "", grid_next_kernel(lists));
    static const char *const many[] = { "full n=1 nk=300 h=32/1 d=16 threads=3",
                                        "causal n=3 nk=300 h=64/1 d=16 threads=3 backward",
                                        "full n=1 nk=66000 h=32/8 d=8 threads=2",
                                        "causal n=1 nk=300 h=32/1 d=24 b=3 threads=4 ring=2" };
    for (int i = 0; i < COUNT(many); i++)
        grid_add(lists, "grouped heads", "%s kernel=%s", many[i], grid_next_kernel(lists));
    grid_add(lists, "grouped heads", "causal n=31 h=8/2 d=16 ring=8 striped backward");
    grid_add(lists, "grouped heads", "full n=31 h=8/2 d=16 ring=8 zigzag backward");
    grid_add(lists, "grouped heads", "causal n=90 h=4 d=192 dv=128 ring=2 backward");
}

static void add_documents(struct grid_lists *lists)
{
    static const char *const large[] = { "causal", "full" };
    for (int c = 0; c < lists->partitions.count; c++)
        for (int s = 0; s < lists->strategies.count; s++)
            for (int perdoc = 0; perdoc < 2; perdoc++) {
                grid_add(lists, "documents",
                         "causal;docs=0,7,14,16 n=16 h=2 d=16 ring=8 %s%s %s backward",
                         lists->partitions.name[c], perdoc ? ";perdoc" : "",
                         lists->strategies.name[s]);
                grid_add(lists, "documents",
                         "full;docs=0,0,1,1,9,40,40 n=40 h=2 d=16 bf16 ring=5 %s%s %s",
                         lists->partitions.name[c], perdoc ? ";perdoc" : "",
                         lists->strategies.name[s]);
            }
    for (int p = 0; p < COUNT(large); p++)
        grid_add(lists, "documents", "%s;docs=0,120,1248,4232 n=4232 h=1 d=16 ring=8 zigzag%s",
                 large[p], p ? "" : ";perdoc");
}

/* Scores of +-200, and blocks of keys whose scores are 200 apart. */
static void add_scores(struct grid_lists *lists)
{
    static const int rings[] = { 1, 2, 4, 8 };
    static const char *const sizes[] = { "amp=200", "gap=200", "amp=50 gap=400" };
    for (int a = 0; a < COUNT(sizes); a++)
        for (int t = 0; t < GRID_DTYPES; t++)
            for (int r = 0; r < COUNT(rings); r++)
                for (int back = 0; back < 2; back++)
                    grid_add(lists, "large scores", "%s n=64 h=2 d=32 %s ring=%d %s%s %s kernel=%s",
                             r % 2 ? "full" : "causal", grid_dtypes[t], rings[r],
                             lists->strategies.name[(t + r) % lists->strategies.count],
                             back ? " backward" : "", sizes[a], grid_next_kernel(lists));
}

static void add_memory_shapes(struct grid_lists *lists)
{
    static const char *const strides[] = { "padded", "heads" };
    for (int i = 0; i < COUNT(strides); i++)
        for (int t = 0; t < GRID_DTYPES; t++)
            for (int r = 1; r <= 3; r++)
                grid_add(lists, "strides",
                         "causal n=37 h=4/2 d=20 dv=12 b=2 %s ring=%d backward strides=%s "
                         "kernel=%s",
                         grid_dtypes[t], r, strides[i], grid_next_kernel(lists));
}

static void add_threads(struct grid_lists *lists)
{
    for (int threads = 1; threads <= 5; threads++)
        for (int s = 0; s < lists->strategies.count; s++)
            grid_add(lists, "threads and scale",
                     "causal n=150 h=3 d=32 ring=%d %s backward threads=%d "
                     "scale=%g kernel=%s",
                     1 + threads % 3, lists->strategies.name[s], threads, threads % 2 ? 0.25 : 1.5,
                     grid_next_kernel(lists));
}

/* ---- The grid -------------------------------------------------------------------------------- */

int grid_open(struct grid *grid, const char *device, const char *kernel, bool files)
{
    static void (*const groups[])(struct grid_lists *) = {
        add_dims,        add_dims_backward, add_rings,         add_rings_backward,
        add_lengths,     add_models,        add_tiny,          add_heads,
        add_documents,   add_scores,        add_memory_shapes, add_threads,
        grid_add_tensor, add_any_order,     grid_add_sparse,   grid_add_packed,
    };
    *grid = (struct grid){ .count = 0 };
    struct grid_lists lists = { .grid = grid,
                                .kernels = kernels_of(device && *device ? device : "cpu"),
                                .partitions = usable("partition"),
                                .strategies = usable("strategy") };
    if (kernel && *kernel) lists.kernels = (struct grid_names){ { kernel }, 1 };
    if (!lists.kernels.count || !lists.partitions.count || !lists.strategies.count)
        return fault("the library has no usable kernel, partition or strategy");
    int status = files ? gridfiles_make(&grid->files) : EXIT_PASS;
    if (status) return status;
    for (int i = 0; i < COUNT(groups); i++) groups[i](&lists);
    return grid->lost ? fault("out of memory for the grid") : EXIT_PASS;
}

void grid_close(struct grid *grid, bool keep_files)
{
    gridfiles_close(&grid->files, keep_files);
    for (int i = 0; i < grid->count; i++) free(grid->cases[i].text);
    free(grid->cases);
    *grid = (struct grid){ .count = 0 };
}
