/* SPDX-License-Identifier: Apache-2.0 */
/* values.c - one loop, compiled for each width of vectors: it multiplies 64-bit integers, and these
 * have vector instructions on few processors. No rounding differs between the versions, since no
 * product is added to anything. */
#include "values.h"

/* Not `inline` alone: each version below must have its own copy, for its instructions. */
__attribute__((always_inline)) static inline void make(const struct recipe *recipe, uint64_t row,
                                                       float *to)
{
    const float factor = recipe->factor;
    const int64_t dim = recipe->dim;
    for (int64_t i = 0; i < dim; i++)
        to[i] = factor * recipe_normal(recipe_scramble(row + (uint64_t)i * ROOT_2));
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void make_avx2(const struct recipe *recipe, uint64_t row,
                                                      float *to)
{
    make(recipe, row, to);
}

__attribute__((target("avx512f,avx512dq"))) static void make_avx512(const struct recipe *recipe,
                                                                    uint64_t row, float *to)
{
    make(recipe, row, to);
}

static void make_fast(const struct recipe *recipe, uint64_t row, float *to)
{
    if (__builtin_cpu_supports("avx512dq")) make_avx512(recipe, row, to);
    else if (__builtin_cpu_supports("avx2")) make_avx2(recipe, row, to);
    else make(recipe, row, to);
}
#else
static void make_fast(const struct recipe *recipe, uint64_t row, float *to)
{
    make(recipe, row, to);
}
#endif

void values_make(const struct recipe *recipe, int64_t batch, int64_t position, int64_t head,
                 float *to)
{
    const uint64_t row = recipe_row(recipe, batch, position, head);
    if (!recipe->ones) make_fast(recipe, row, to);
    for (int64_t i = 0; i < recipe->dim && recipe->ones; i++) to[i] = 1.0f;
    if (recipe->gaps && !recipe->ones) to[0] = recipe_value(recipe, row, position, head, 0);
}
