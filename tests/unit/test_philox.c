/* SPDX-License-Identifier: Apache-2.0 */
/* test_philox.c - Philox4x32-10 of the library and of the harness, which share no code, against
 * the answers that its authors publish; and which words a fraction takes. */
#include "support/test.h"

#include "core/philox.h"
#include "harness/base/philox.h"
static const struct {
    uint32_t counter[4], key[2], want[4];
} known[] = {
    { { 0 }, { 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
    { { ~0u, ~0u, ~0u, ~0u }, { ~0u, ~0u }, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
    { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
      { 0xa4093822, 0x299f31d0 },
      { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
};

static uint64_t key_of(int n) { return (uint64_t)known[n].key[1] << 32 | known[n].key[0]; }

static void philox_gives_its_known_answers(void **state)
{
    (void)state;
    for (int n = 0; n < TEST_COUNT(known); n++) {
        const uint32_t *c = known[n].counter;
        struct ra__philox ours = ra__philox(key_of(n), c[0], c[1], c[2], c[3]);
        assert_memory_equal(ours.word, known[n].want, 16);
    }
}

/* That of the harness, which tests and the oracle draw with. */
static void philox_is_philox(void **state)
{
    (void)state;
    for (int n = 0; n < TEST_COUNT(known); n++)
        for (int word = 0; word < 4; word++)
            assert_int_equal(philox_word(key_of(n), known[n].counter, word), known[n].want[word]);
}

/* Words below fraction x 2^32 are hit: as many integers as that, rounded up. */
static void philox_limits_are_exact(void **state)
{
    (void)state;
    assert_true(ra__philox_limit(0.0) == 0);
    assert_true(ra__philox_limit(1.0) == UINT64_C(1) << 32);
    assert_true(ra__philox_limit(0.5) == UINT64_C(1) << 31);
    assert_true(ra__philox_limit(0x1p-32) == 1);
    assert_true(ra__philox_limit(0x1p-40) == 1);
    assert_true(ra__philox_limit(0x3p-33) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_its_known_answers),
        cmocka_unit_test(philox_is_philox),
        cmocka_unit_test(philox_limits_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
