/* SPDX-License-Identifier: Apache-2.0 */
/* test_values.c - rows of synthetic values that are made fast have the bits that recipe.h, which a
 * GPU compiles too, gives one by one. */
#include "harness/data/values.h"
#include "support/test.h"

static void check_row(const struct recipe *recipe, int64_t position)
{
    enum { MOST = 160 };
    const int64_t batch = 1, head = 2;
    float row[MOST + 1];
    const uint64_t key = recipe_row(recipe, batch, position, head);
    row[recipe->dim] = -7.0f;
    values_make(recipe, batch, position, head, row);
    for (int64_t i = 0; i < recipe->dim; i++) {
        const float value = recipe_value(recipe, key, position, head, i);
        assert_memory_equal(&row[i], &value, sizeof value);
    }
    assert_true(row[recipe->dim] == -7.0f);
}

static void rows_have_the_bits_of_the_recipe(void **state)
{
    (void)state;
    struct recipe recipe = { .seed = 11, .tensor = 1, .heads = 4, .length = 100, .factor = 0.7f };
    recipe.gap_even = 4.0f;
    recipe.gap_odd = -5.0f;
    for (recipe.ones = 0; recipe.ones < 2; recipe.ones++)
        for (recipe.gaps = 0; recipe.gaps < 2; recipe.gaps++)
            for (recipe.dim = 1; recipe.dim <= 160; recipe.dim += recipe.dim < 40 ? 1 : 13)
                for (int64_t position = 0; position < 100; position += 33)
                    check_row(&recipe, position);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rows_have_the_bits_of_the_recipe) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
