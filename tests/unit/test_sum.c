/* SPDX-License-Identifier: Apache-2.0 */
/* test_sum.c - the checksum of messages: every change of one bit is seen, wherever it is, and so
 * are bytes that change places. */
#include "support/test.h"

#include "core/sum.h"

static uint64_t sum(const void *data, size_t bytes) { return ra__sum(RA__SUM_START, data, bytes); }

static void fill(unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) bytes[i] = (unsigned char)(i * 37 + i / 7);
}

static void every_bit_counts(void **state)
{
    unsigned char bytes[200];
    (void)state;
    fill(bytes, sizeof bytes);
    for (size_t count = 0; count <= sizeof bytes; count++) {
        uint64_t before = sum(bytes, count);
        for (size_t bit = 0; bit < 8 * count; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            assert_true(sum(bytes, count) != before);
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        assert_true(sum(bytes, count) == before);
    }
}

/* Two at once too, signs of numbers above all: in a product alone, high bits cancel. */
static void every_two_bits_count(void **state)
{
    unsigned char bytes[136];
    (void)state;
    fill(bytes, sizeof bytes);
    uint64_t before = sum(bytes, sizeof bytes);
    for (size_t a = 0; a < 8 * sizeof bytes; a++)
        for (size_t b = a + 1; b < 8 * sizeof bytes; b++) {
            bytes[a / 8] ^= (unsigned char)(1u << a % 8);
            bytes[b / 8] ^= (unsigned char)(1u << b % 8);
            assert_true(sum(bytes, sizeof bytes) != before);
            bytes[a / 8] ^= (unsigned char)(1u << a % 8);
            bytes[b / 8] ^= (unsigned char)(1u << b % 8);
        }
}

static void swap(unsigned char *a, unsigned char *b)
{
    unsigned char c = *a;
    *a = *b;
    *b = c;
}

static void places_count(void **state)
{
    unsigned char bytes[128];
    (void)state;
    fill(bytes, sizeof bytes);
    uint64_t before = sum(bytes, sizeof bytes);
    for (size_t a = 0; a < sizeof bytes; a++)
        for (size_t b = a + 1; b < sizeof bytes; b++) {
            if (bytes[a] == bytes[b]) continue;
            swap(&bytes[a], &bytes[b]);
            assert_true(sum(bytes, sizeof bytes) != before);
            swap(&bytes[a], &bytes[b]);
        }
}

/* Zeros are what memory is full of. */
static void lengths_count(void **state)
{
    static const unsigned char zeros[100];
    (void)state;
    for (size_t a = 0; a < sizeof zeros; a++)
        for (size_t b = a + 1; b < sizeof zeros; b++) assert_true(sum(zeros, a) != sum(zeros, b));
}

static void addresses_do_not_count(void **state)
{
    unsigned char bytes[108];
    (void)state;
    fill(bytes, 100);
    uint64_t before = sum(bytes, 100);
    for (int i = 1; i < 8; i++) {
        memmove(bytes + i, bytes + i - 1, 100);
        assert_true(sum(bytes + i, 100) == before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bit_counts),       cmocka_unit_test(every_two_bits_count),
        cmocka_unit_test(places_count),           cmocka_unit_test(lengths_count),
        cmocka_unit_test(addresses_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
