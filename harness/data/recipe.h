/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.h - how synthetic values are made, and digests: integers and single roundings, so that a
 * GPU makes the same bits as a CPU. Compiled for both. */
#ifndef HARNESS_RECIPE_H
#define HARNESS_RECIPE_H

#include <stdint.h>

#ifdef __CUDACC__
#define RECIPE_FUNCTION __host__ __device__ static inline
#else
#define RECIPE_FUNCTION static inline
#endif

#define GOLDEN 0x9e3779b97f4a7c15u /* 2^64 times the fraction of the golden ratio, odd */
#define ROOT_2 0xb504f333f9de6485u /* 2^63 times the square root of 2, odd */

/* One tensor [batch, position, head, dim] of a trial. */
struct recipe {
    uint64_t seed;   /* scrambled */
    uint64_t tensor; /* enum tensor */
    int64_t heads, dim;
    int64_t length;          /* positions, for the gaps of K */
    float factor;            /* of every value */
    int32_t ones;            /* all values are 1 */
    int32_t gaps;            /* dimension 0 holds the next two: */
    float gap_even, gap_odd; /* by the quarter of the positions plus the head */
};

/* Scrambles 64 bits one to one: multiply by odd constants, fold the upper half down. */
RECIPE_FUNCTION uint64_t recipe_scramble(uint64_t x)
{
    x ^= x >> 31;
    x *= GOLDEN;
    x ^= x >> 29;
    x *= ROOT_2;
    return x ^ x >> 32;
}

/* Four 16-bit numbers added up, moved and scaled to mean 0 and variance 1: nearly normal,
 * +-3.46. */
RECIPE_FUNCTION float recipe_normal(uint64_t bits)
{
    const float one_over_deviation = 0x1.bb67bp-16f; /* of four numbers, each 65536^2 / 12 */
    const int32_t sum = (int32_t)(bits & 0xffff) + (int32_t)(bits >> 16 & 0xffff) +
                        (int32_t)(bits >> 32 & 0xffff) + (int32_t)(bits >> 48);
    return ((float)sum - 2.0f * 65535.0f) * one_over_deviation;
}

/* What the values of a row depend on. */
RECIPE_FUNCTION uint64_t recipe_row(const struct recipe *recipe, int64_t batch, int64_t position,
                                    int64_t head)
{
    const uint64_t place = recipe->tensor << 56 | (uint64_t)head << 32 | (uint64_t)batch;
    return recipe_scramble(recipe_scramble(recipe->seed ^ place) + (uint64_t)position);
}

/* Value i of that row, not rounded to a dtype. */
RECIPE_FUNCTION float recipe_value(const struct recipe *recipe, uint64_t row, int64_t position,
                                   int64_t head, int64_t i)
{
    if (recipe->ones) return 1.0f;
    if (recipe->gaps && i == 0)
        return (position * 4 / recipe->length + head) % 2 ? recipe->gap_odd : recipe->gap_even;
    return recipe->factor * recipe_normal(recipe_scramble(row + (uint64_t)i * ROOT_2));
}

/* What one number of a tensor adds to its digest: it depends on the bits and on the place, and
 * the sum does not depend on the order. `index` counts the numbers of the whole tensor. */
RECIPE_FUNCTION uint64_t recipe_digest(int64_t index, uint32_t bits)
{
    return recipe_scramble((uint64_t)index * ROOT_2 + ((uint64_t)bits << 32 | bits));
}

#endif
