/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - what a Hilbert order buys on a grid, counted.
 *
 * The tokens of a picture are on a grid, row after row. `blocks:B;local=g` lets a query see its own
 * block of B tokens and g blocks to each side: the same number of pairs in every order. What an
 * order changes is who these keys are. For each grid and pattern, printed for row by row against
 * Hilbert:
 *
 *     4-near, 8-near   fraction of the 4 and 8 neighbours on the grid that a cell sees
 *     nearest          fraction it sees of the (2g + 1) B cells nearest to it
 *
 * A few rows of every count are compared with what ra_problem_row() says the library computes.
 *
 *     usage: order [HxW...]      default 64x64 128x128 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <ringattn.h>

/* A grid, and the order in which its cells are tokens. */
struct grid {
    int rows, columns, cells;
    int64_t *positions, *index; /* position of every index, index of every position */
    ra_order *order;
};

/* A step from a cell to another one. */
struct offset {
    int down, right;
};

static const struct offset around[8] = { { 0, 1 }, { 1, 0 },  { 0, -1 }, { -1, 0 },
                                         { 1, 1 }, { 1, -1 }, { -1, 1 }, { -1, -1 } };

static int stop(const char *what)
{
    fprintf(stderr, "order: %s: %s\n", what, ra_last_error());
    return 1;
}

static int open_grid(struct grid *grid, int rows, int columns, const char *name)
{
    char text[64];
    size_t cells = (size_t)rows * (size_t)columns;
    snprintf(text, sizeof text, name, rows, columns);
    *grid = (struct grid){ rows, columns, rows * columns, NULL, NULL, NULL };
    grid->positions = malloc(cells * sizeof *grid->positions);
    grid->index = malloc(cells * sizeof *grid->index);
    if (!grid->positions || !grid->index) return stop("no memory");
    if (ra_order_parse(text, grid->cells, &grid->order) != RA_OK) return stop(text);
    if (ra_order_positions(grid->order, grid->positions) != RA_OK) return stop(text);
    for (int i = 0; i < grid->cells; i++) grid->index[grid->positions[i]] = i;
    return 0;
}

static void close_grid(struct grid *grid)
{
    ra_order_destroy(grid->order);
    free(grid->positions);
    free(grid->index);
}

/* The position at this distance from another one; -1 outside the grid. */
static int neighbour(const struct grid *grid, int position, struct offset by)
{
    int row = position / grid->columns + by.down, column = position % grid->columns + by.right;
    if (row < 0 || row >= grid->rows || column < 0 || column >= grid->columns) return -1;
    return row * grid->columns + column;
}

/* Does the query at position p see the key at position j under blocks:B;local=g? */
static int sees(const struct grid *grid, int block, int reach, int p, int j)
{
    int64_t distance = grid->index[p] / block - grid->index[j] / block;
    return distance <= reach && distance >= -reach;
}

/* Fraction of the cells at these offsets that is visible, over all cells of the grid. */
static double share(const struct grid *grid, int block, int reach, const struct offset *at, int n)
{
    int64_t seen = 0, there = 0;
    for (int p = 0; p < grid->cells; p++)
        for (int i = 0; i < n; i++) {
            int j = neighbour(grid, p, at[i]);
            there += j >= 0;
            seen += j >= 0 && sees(grid, block, reach, p, j);
        }
    return 100.0 * (double)seen / (double)there;
}

/* ---- The nearest cells ----------------------------------------------------------------------- */

static int distance(struct offset o) { return o.down * o.down + o.right * o.right; }

static int nearer(const void *a, const void *b)
{
    const struct offset *x = a, *y = b;
    if (distance(*x) != distance(*y)) return distance(*x) - distance(*y);
    return x->down != y->down ? x->down - y->down : x->right - y->right;
}

/* The offsets of the `count` nearest cells, itself among them; NULL without memory. */
static struct offset *find_nearest(int count)
{
    int radius = 1, n = 0;
    while (3 * radius * radius < count) radius++; /* the disc has more than 3 r^2 cells */
    size_t side = 2 * (size_t)radius + 1;
    struct offset *all = malloc(side * side * sizeof *all);
    for (int down = -radius; all && down <= radius; down++)
        for (int right = -radius; right <= radius; right++)
            all[n++] = (struct offset){ down, right };
    if (all) qsort(all, (size_t)n, sizeof *all, nearer);
    return all;
}

/* ---- The library's word for it --------------------------------------------------------------- */

/* Compares what a few queries see with sees(). */
static int compare(const struct grid *grid, int block, int reach)
{
    char text[64];
    int wrong = 0;
    ra_pattern *pattern = NULL;
    uint8_t *seen = malloc((size_t)grid->cells);
    snprintf(text, sizeof text, "blocks:%d;local=%d", block, reach);
    if (!seen) return stop("no memory");
    if (ra_pattern_parse(text, &pattern) != RA_OK) return stop(text);
    ra_problem problem = ra_problem_default();
    problem.pattern = pattern, problem.order = grid->order;
    problem.q_len = grid->cells, problem.q_heads = 1, problem.dim = 64;
    for (int i = 0; i < 16 && !wrong; i++) {
        int p = (int)((int64_t)i * (grid->cells - 1) / 15);
        if (ra_problem_row(&problem, 0, p, seen) != RA_OK) wrong = stop(text);
        for (int j = 0; j < grid->cells && !wrong; j++)
            if (seen[j] != sees(grid, block, reach, p, j)) {
                fprintf(stderr, "order: %s: position %d, key %d\n", text, p, j);
                wrong = 1;
            }
    }
    ra_pattern_destroy(pattern);
    free(seen);
    return wrong;
}

/* ---- Tables ---------------------------------------------------------------------------------- */

/* Pairs over all pairs, the same in both orders: blocks are blocks of the index. */
static double density(int cells, int block, int reach)
{
    double pairs = 0;
    for (int i = 0; i < cells; i++) {
        int from = (i / block - reach) * block, to = (i / block + reach + 1) * block;
        pairs += (to < cells ? to : cells) - (from > 0 ? from : 0);
    }
    return pairs / cells / cells;
}

static int print_row(const struct grid *plain, const struct grid *hilbert, int block, int reach)
{
    int count = (2 * reach + 1) * block;
    if (compare(plain, block, reach) || compare(hilbert, block, reach)) return 1;
    struct offset *nearest = find_nearest(count);
    if (!nearest) return stop("no memory");
    printf("| %d | %d | %.4f |", block, reach, density(plain->cells, block, reach));
    for (int n = 4; n <= 8; n += 4)
        printf(" %.1f | %.1f |", share(plain, block, reach, around, n),
               share(hilbert, block, reach, around, n));
    printf(" %.1f | %.1f |\n", share(plain, block, reach, nearest, count),
           share(hilbert, block, reach, nearest, count));
    free(nearest);
    return 0;
}

/* What it costs to bring tokens into the order: 8 heads of 64 numbers each, f32. */
static int print_cost(const struct grid *hilbert)
{
    enum { BYTES = 8 * 64 * 4, TIMES = 9 };
    size_t bytes = (size_t)hilbert->cells * BYTES;
    char *from = calloc(bytes, 1), *to = calloc(bytes, 1);
    ra_array array = { from, to, 1, BYTES };
    double least = 1e9;
    if (!from || !to) return stop("no memory");
    for (int i = 0; i < TIMES; i++) {
        struct timespec a, b;
        timespec_get(&a, TIME_UTC);
        if (ra_order_permute(hilbert->order, &array, 1) != RA_OK) return stop("permute");
        timespec_get(&b, TIME_UTC);
        double seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
        if (seconds < least) least = seconds;
    }
    printf("\nPermuting one tensor of %d x %d B takes %.2f ms here (best of %d).\n\n",
           hilbert->cells, BYTES, 1e3 * least, TIMES);
    free(from);
    free(to);
    return 0;
}

static int print_grid(int rows, int columns)
{
    static const int cases[][2] = { { 16, 0 }, { 16, 1 }, { 16, 4 },  { 64, 0 },
                                    { 64, 1 }, { 64, 4 }, { 256, 0 }, { 256, 1 } };
    struct grid plain, hilbert;
    if (open_grid(&plain, rows, columns, "sequential")) return 1;
    if (open_grid(&hilbert, rows, columns, "hilbert:%dx%d")) return 1;
    int wrong = 0;
    printf("%dx%d; per cent, row by row then Hilbert\n\n", rows, columns);
    printf("| B | g | density | 4-near | H | 8-near | H | nearest | H |\n");
    printf("|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !wrong; i++)
        wrong = print_row(&plain, &hilbert, cases[i][0], cases[i][1]);
    if (!wrong) wrong = print_cost(&hilbert);
    close_grid(&plain);
    close_grid(&hilbert);
    return wrong;
}

int main(int count, char **words)
{
    if (count < 2) return print_grid(64, 64) || print_grid(128, 128);
    for (int i = 1; i < count; i++) {
        char *end = NULL;
        long rows = strtol(words[i], &end, 10),
             columns = *end == 'x' ? strtol(end + 1, &end, 10) : 0;
        if (*end || rows < 1 || columns < 1 || rows > 4096 || columns > 4096) {
            fprintf(stderr, "usage: order [HxW...]      sides from 1 to 4096\n");
            return 2;
        }
        if (print_grid((int)rows, (int)columns)) return 1;
    }
    return 0;
}
