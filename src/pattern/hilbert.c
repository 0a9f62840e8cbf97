/* SPDX-License-Identifier: Apache-2.0 */
/* hilbert.c - positions as cells of a grid, visited along the Hilbert curve of the smallest
 * power-of-two square that holds the grid. The curve starts at row 0, column 0 and ends in the top
 * right corner; cells outside the grid, or after the last position, are skipped. */
#include <inttypes.h>

#include "pattern/order.h"

struct walk {
    int64_t rows, columns; /* of the grid; below 2^31, so that a position is below 2^62 */
    int64_t length, count; /* number of positions, and listed so far */
    int32_t *origin;
};

/* The orientation of a square on the curve: each bit is its own inverse, and their order does not
 * matter. */
enum { TRANSPOSED = 1, ROTATED = 2 }; /* rows and columns swapped; both counted from the far end */

/* The quarters of a square as the curve visits them: down on the left, up on the right. In the
 * first and the last quarter the curve is oriented so that it begins and ends next to its
 * neighbours. */
static const struct {
    int row, column, orientation;
} quarters[4] = { { 0, 0, TRANSPOSED }, { 1, 0, 0 }, { 1, 1, 0 }, { 0, 1, TRANSPOSED | ROTATED } };

/* Lists the cells of a square. A square without a position ends here, so a long thin grid costs no
 * more than its cells times the levels above them. */
static void visit(struct walk *walk, int64_t row, int64_t column, int64_t side, int orientation)
{
    if (row >= walk->rows || column >= walk->columns) return;
    int64_t position = row * walk->columns + column; /* the first of this square */
    if (position >= walk->length) return;
    if (side == 1) {
        walk->origin[walk->count++] = (int32_t)position;
        return;
    }
    side /= 2;
    for (int i = 0; i < 4; i++) {
        int down = orientation & TRANSPOSED ? quarters[i].column : quarters[i].row;
        int right = orientation & TRANSPOSED ? quarters[i].row : quarters[i].column;
        if (orientation & ROTATED) down = 1 - down, right = 1 - right;
        visit(walk, row + down * side, column + right * side, side,
              orientation ^ quarters[i].orientation);
    }
}

/* Digits; false for none of them, or for a number that is 0 or not below 2^31. */
static bool take_side(const char **cursor, int64_t *side)
{
    int64_t value = 0;
    for (; **cursor >= '0' && **cursor <= '9' && value <= INT32_MAX; ++*cursor)
        value = value * 10 + (**cursor - '0');
    *side = value;
    return value >= 1 && value <= INT32_MAX;
}

static bool take_grid(const char *text, int64_t *rows, int64_t *columns)
{
    return take_side(&text, rows) && *text++ == 'x' && take_side(&text, columns) && !*text;
}

/* The smallest power of two that is not below either of the two. */
static int64_t power_of_two(int64_t a, int64_t b)
{
    int64_t side = 1;
    while (side < a || side < b) side *= 2;
    return side;
}

static ra_status fill(const char *args, int64_t length, int32_t *origin)
{
    struct walk walk = { .length = length, .origin = origin };
    if (args && !take_grid(args, &walk.rows, &walk.columns))
        return ra__order_misread(&ra__order_hilbert, args);
    if (!args) {
        int64_t side = 1;
        while (side * side < length) side *= 2;
        walk.rows = walk.columns = side;
    }
    if (walk.rows * walk.columns < length)
        return ra__fail(RA_ERR_ARGUMENT,
                        "order hilbert: a grid of %" PRId64 "x%" PRId64
                        " has too few cells for %" PRId64 " positions",
                        walk.rows, walk.columns, length);
    visit(&walk, 0, 0, power_of_two(walk.rows, walk.columns), 0);
    return RA_OK;
}

const struct ra__order_kind ra__order_hilbert = {
    .name = "hilbert",
    .syntax = "hilbert[:HxW]",
    .summary = "a grid of H rows and W columns along the Hilbert curve",
    .samples = "hilbert hilbert:8x16",
    .fill = fill,
};
