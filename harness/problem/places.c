/* SPDX-License-Identifier: Apache-2.0 */
/* places.c - the oracle's own view of an order: the original position of every index. */
#include "places.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "harness/files/npy.h"
#include "harness/base/philox.h"

#define SIDE_MOST ((int64_t)1 << 31) /* so that the cells of a square fit into 62 bits */

/* ---- Hilbert --------------------------------------------------------------------------------- */

/* The step at which the curve of a square of `side` reaches a cell. Its quarters are visited
 * top left, bottom left, bottom right, top right; the first holds the curve mirrored at its main
 * diagonal, the last at the other one. */
static int64_t curve_step(int64_t side, int64_t row, int64_t column)
{
    if (side == 1) return 0;
    int64_t half = side / 2, quarter = half * half;
    bool below = row >= half, right = column >= half;
    if (below) return (right ? 2 : 1) * quarter + curve_step(half, row - half, column % half);
    if (!right) return curve_step(half, column, row);
    return 3 * quarter + curve_step(half, side - 1 - column, half - 1 - row);
}

/* A position and when the curve comes by. */
struct visit {
    int64_t step, position;
};

static int by_step(const void *a, const void *b)
{
    int64_t left = ((const struct visit *)a)->step, right = ((const struct visit *)b)->step;
    return (left > right) - (left < right);
}

static int64_t power_of_two(int64_t least)
{
    int64_t side = 1;
    while (side < least && side < SIDE_MOST) side *= 2;
    return side;
}

/* `grid` is "HxW" or NULL. Sorting by step skips the cells outside the grid by itself. */
static int fill_hilbert(const char *grid, int64_t length, int64_t *positions)
{
    int64_t rows = 1, columns;
    while (rows * rows < length) rows *= 2;
    columns = rows;
    if (grid && sscanf(grid, "%" SCNd64 "x%" SCNd64, &rows, &columns) != 2)
        return fault("the oracle does not understand the grid %.40s", grid);
    int64_t side = power_of_two(rows > columns ? rows : columns);
    struct visit *visits = malloc((size_t)length * sizeof *visits);
    if (!visits) return fault("the oracle is out of memory: %" PRId64 " positions", length);
    for (int64_t p = 0; p < length; p++)
        visits[p] = (struct visit){ curve_step(side, p / columns, p % columns), p };
    qsort(visits, (size_t)length, sizeof *visits, by_step);
    for (int64_t i = 0; i < length; i++) positions[i] = visits[i].position;
    free(visits);
    return EXIT_PASS;
}

/* ---- Shuffled -------------------------------------------------------------------------------- */

/* Swaps every index, from the last down, with one at or below it. */
static void fill_shuffled(uint64_t seed, int64_t length, int64_t *positions)
{
    for (int64_t i = 0; i < length; i++) positions[i] = i;
    for (int64_t i = length - 1; i >= 1; i--) {
        const uint32_t counter[4] = { (uint32_t)i, 0, 0, UINT32_MAX - 1 };
        int64_t j = (int64_t)philox_word(seed, counter, 0) % (i + 1);
        int64_t moved = positions[i];
        positions[i] = positions[j];
        positions[j] = moved;
    }
}

/* ---- Files ----------------------------------------------------------------------------------- */

bool places_is_file(const char *order)
{
    size_t length = order ? strlen(order) : 0;
    return length > 4 && !strcasecmp(order + length - 4, ".npy");
}

static int check_permutation(const char *path, const int64_t *positions, int64_t length)
{
    if (length < 1) return EXIT_PASS;
    char *seen = calloc((size_t)length, 1);
    int64_t wrong = -1;
    if (!seen) return fault("--order: out of memory: %" PRId64 " bytes", length);
    for (int64_t i = 0; i < length && wrong < 0; i++) {
        bool good = positions[i] >= 0 && positions[i] < length && !seen[positions[i]];
        if (good) seen[positions[i]] = 1;
        else wrong = i;
    }
    free(seen);
    if (wrong < 0) return EXIT_PASS;
    return refuse("--order: %s must hold each of 0 to %" PRId64 " once; entry %" PRId64
                  " is %" PRId64,
                  path, length - 1, wrong, positions[wrong]);
}

int places_read(const char *path, int64_t length, int64_t **out)
{
    struct npy npy;
    int status = npy_read_kind("--order", path, NPY_OF_POSITIONS, &npy);
    if (status) return status;
    int64_t *positions = malloc((size_t)npy.values * sizeof *positions);
    if (!positions) status = fault("--order: out of memory: %" PRId64 " positions", npy.values);
    else if (npy.axes != 1 || npy.values != length)
        status = refuse("--order: %s holds %" PRId64 " values on %d ax%cs; one axis of %" PRId64
                        " positions is needed",
                        path, npy.values, npy.axes, npy.axes == 1 ? 'i' : 'e', length);
    for (int64_t i = 0; !status && i < length; i++)
        positions[i] = npy.type == NPY_I64 ? ((const int64_t *)npy.data)[i]
                                           : ((const int32_t *)npy.data)[i];
    if (!status) status = check_permutation(path, positions, length);
    free(npy.data);
    if (status) free(positions);
    else *out = positions;
    return status;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static int fill(const char *order, int64_t length, int64_t *positions)
{
    const char *colon = strchr(order, ':');
    if (!strncmp(order, "hilbert", 7))
        return fill_hilbert(colon ? colon + 1 : NULL, length, positions);
    if (!strncmp(order, "shuffled", 8)) {
        fill_shuffled(colon ? strtoull(colon + 1, NULL, 10) : 0, length, positions);
        return EXIT_PASS;
    }
    return fault("the oracle does not understand the order %.40s", order);
}

int places_open(const char *order, int64_t length, int64_t **out)
{
    *out = NULL;
    if (!order || !strcmp(order, "sequential")) return EXIT_PASS;
    if (places_is_file(order)) return places_read(order, length, out);
    int64_t *positions = malloc((size_t)length * sizeof *positions);
    if (!positions) return fault("the oracle is out of memory: %" PRId64 " positions", length);
    int status = fill(order, length, positions);
    if (status) free(positions);
    else *out = positions;
    return status;
}

int64_t *places_invert(const int64_t *positions, int64_t length)
{
    int64_t *indices = malloc((size_t)length * sizeof *indices);
    for (int64_t i = 0; indices && i < length; i++) indices[positions[i]] = i;
    return indices;
}
