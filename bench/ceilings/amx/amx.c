/* SPDX-License-Identifier: Apache-2.0 */
/* amx.c - what AMX can do: tdpbf16ps, a 16 x 32 tile of bf16 times a 32 x 16 one, in registers. */
#include "ceilings/ceiling.h"

#include <immintrin.h>

enum { ROWS = 16, ROW_BYTES = 64, TILE = ROWS * ROW_BYTES / 2, TILES = 8, SUMS = 4, STEPS = 64 };

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Random bits in a narrow range of exponents; half of them negative, so that sums stay small. */
static void fill(uint16_t *numbers, int count)
{
    uint32_t seed = 1;
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        numbers[i] = (uint16_t)((seed >> 16 & 0x80ff) | 0x3e00);
    }
}

/* Four sums, two tiles on the left, two on the right: what a kernel would keep in the eight
 * registers. Their names must be constants. */
static double tile_work(int64_t rounds, const unsigned char *data, size_t bytes)
{
    (void)data;
    (void)bytes;
    _Alignas(64) uint16_t numbers[4 * TILE];
    _Alignas(64) float sums[ROWS * ROW_BYTES / 4];
    _Alignas(64) struct tile_config config = { .palette = 1 };
    for (int t = 0; t < TILES; t++) config.row_bytes[t] = ROW_BYTES, config.rows[t] = ROWS;
    fill(numbers, 4 * TILE);
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, numbers, ROW_BYTES);
    _tile_loadd(5, numbers + TILE, ROW_BYTES);
    _tile_loadd(6, numbers + 2 * TILE, ROW_BYTES);
    _tile_loadd(7, numbers + 3 * TILE, ROW_BYTES);
    for (int64_t i = 0; i < rounds * STEPS; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, ROW_BYTES);
    ceiling_use(sums);
    _tile_release();
    return 2.0 * ROWS * ROWS * (ROW_BYTES / 2) * SUMS * STEPS * (double)rounds;
}

const struct ceiling ceiling_tdpbf16_amx = {
    .name = "tdpbf16-amx",
    .summary = "bf16 tiles, tdpbf16ps",
    .unit = "GFLOP/s",
    .needs = "AMX with BF16",
    .usable = ceiling_has_amx,
    .work = tile_work,
};
