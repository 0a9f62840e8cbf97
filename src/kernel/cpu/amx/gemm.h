/* gemm.h - the matrix product of vector/product.h in tiles. Sums of C += start from C here, in every
 * piece alike, so a row still does not depend on its neighbours. */
#ifndef RA__KERNEL_CPU_AMX_GEMM_H
#define RA__KERNEL_CPU_AMX_GEMM_H

#include "kernel/cpu/amx/tile.h"
#include "kernel/cpu/vector/product.h"

enum {
    STRIP = TILE_SIDE, /* a tile of B lies in one piece */
    GEMM_ROWS = 2 * TILE_SIDE,
    GEMM_PAD = TILE_SIDE,
    GEMM_DEPTH = TILE_SIDE,
    GEMM_AHEAD = 1,
};

/* A piece of C: `down` x `across` tiles, one or two each way; constants where these are inlined. Tiles
 * 0 to 3 are C, 4 and 5 A, 6 and 7 B. Strides count bytes. */
static inline __attribute__((always_inline)) void piece_begin(const float *c, int64_t stride,
                                                              bool add, const int down,
                                                              const int across)
{
    const float *below = c + TILE_SIDE * (stride / 4);
    if (add) {
        tile_load(0, c, stride);
        if (across > 1) tile_load(1, c + TILE_SIDE, stride);
        if (down > 1) tile_load(2, below, stride);
        if (down > 1 && across > 1) tile_load(3, below + TILE_SIDE, stride);
        return;
    }
    tile_zero(0);
    if (across > 1) tile_zero(1);
    if (down > 1) tile_zero(2);
    if (down > 1 && across > 1) tile_zero(3);
}

static inline __attribute__((always_inline)) void piece_step(const grain *a, int64_t a_stride,
                                                             const grain *b, int64_t b_stride,
                                                             int64_t strip, const int down,
                                                             const int across)
{
    tile_load(6, b, b_stride);
    tile_load(4, a, a_stride);
    tile_dot(0, 4, 6);
    if (across > 1) {
        tile_load(7, b + strip, b_stride);
        tile_dot(1, 4, 7);
    }
    if (down > 1) {
        tile_load(5, a + TILE_SIDE * (a_stride / 4), a_stride);
        tile_dot(2, 5, 6);
        if (across > 1) tile_dot(3, 5, 7);
    }
}

static inline __attribute__((always_inline)) void piece_end(float *c, int64_t stride,
                                                            const int down, const int across)
{
    float *below = c + TILE_SIDE * (stride / 4);
    tile_store(0, c, stride);
    if (across > 1) tile_store(1, c + TILE_SIDE, stride);
    if (down > 1) tile_store(2, below, stride);
    if (down > 1 && across > 1) tile_store(3, below + TILE_SIDE, stride);
}

/* The piece at (i, j), whole, which lies at c. */
static inline __attribute__((always_inline)) void piece(const struct product *p, int i, int j,
                                                        float *c, int64_t c_row, const int down,
                                                        const int across)
{
    const grain *a = p->a.at + i * p->a.row, *b = p->b.at + j / STRIP * p->b.strip;
    piece_begin(c, c_row * 4, p->add, down, across);
    for (int t = 0; t < p->depth; t += TILE_SIDE, a += TILE_SIDE, b += TILE_SIDE * p->b.row)
        piece_step(a, p->a.row * 4, b, p->b.row * 4, p->b.strip, down, across);
    piece_end(c, c_row * 4, down, across);
}

/* A row of pieces whose tiles are whole. */
static inline __attribute__((always_inline)) void band(const struct product *p, int i,
                                                       const int down)
{
    float *c = p->c.at + i * p->c.row;
    int j = 0;
    for (; j + 2 * TILE_SIDE <= p->n; j += 2 * TILE_SIDE) piece(p, i, j, c + j, p->c.row, down, 2);
    if (j < p->n) piece(p, i, j, c + j, p->c.row, down, 1);
}

/* The last rows, fewer than a tile has: C goes by way of a whole tile. */
static void fringe(const struct product *p, int i)
{
    float square[TILE_SIDE * TILE_SIDE];
    const size_t bytes = TILE_SIDE * sizeof(float);
    for (int j = 0; j < p->n; j += TILE_SIDE) {
        float *c = p->c.at + i * p->c.row + j;
        memset(square, 0, sizeof square);
        for (int r = 0; p->add && r < p->m - i; r++)
            memcpy(square + r * TILE_SIDE, c + r * p->c.row, bytes);
        piece(p, i, j, square, TILE_SIDE, 1, 1);
        for (int r = 0; r < p->m - i; r++) memcpy(c + r * p->c.row, square + r * TILE_SIDE, bytes);
    }
}

static void gemm(const struct product *p)
{
    int i = 0;
    for (; i + 2 * TILE_SIDE <= p->m; i += 2 * TILE_SIDE) band(p, i, 2);
    for (; i + TILE_SIDE <= p->m; i += TILE_SIDE) band(p, i, 1);
    if (i < p->m) fringe(p, i);
}

/* ---- Products between other things --------------------------------------------------------------- */

/* Products that are worked off step by step; a step multiplies once into each tile of a piece. */
struct errand {
    const struct product *at, *end;
    int j, t; /* where in the product */
    int steps, done;
};

/* Only products of the shape that matters go by steps; others are one step. */
static inline bool goes_by_steps(const struct product *p)
{
    return p->m == 2 * TILE_SIDE && p->n > 0 && p->n % (2 * TILE_SIDE) == 0 && p->depth > 0;
}

static inline int count_steps(const struct product *p)
{
    return goes_by_steps(p) ? p->n / (2 * TILE_SIDE) * (p->depth / TILE_SIDE) : 1;
}

static struct errand errand_begin(const struct product *products, int count)
{
    struct errand e = { .at = products, .end = products + count };
    for (int n = 0; n < count; n++) e.steps += count_steps(&products[n]);
    return e;
}

/* The next step of a product that goes by steps. */
static inline void step_on(struct errand *e)
{
    const struct product *p = e->at;
    float *c = p->c.at + e->j;
    if (e->t == 0) piece_begin(c, p->c.row * 4, p->add, 2, 2);
    piece_step(p->a.at + e->t, p->a.row * 4, p->b.at + e->j / STRIP * p->b.strip + e->t * p->b.row,
               p->b.row * 4, p->b.strip, 2, 2);
    e->t += TILE_SIDE;
    if (e->t < p->depth) return;
    piece_end(c, p->c.row * 4, 2, 2);
    e->t = 0;
    e->j += 2 * TILE_SIDE;
}

/* Goes on until `part` of `parts` is done. */
static void errand_go(struct errand *e, int part, int parts)
{
    for (const int goal = e->steps * part / parts; e->done < goal;) {
        if (goes_by_steps(e->at)) step_on(e);
        else gemm(e->at);
        e->done++;
        if (goes_by_steps(e->at) && e->j < e->at->n) continue;
        e->at++;
        e->j = 0;
    }
}

#endif
