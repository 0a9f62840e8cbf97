/* SPDX-License-Identifier: Apache-2.0 */
/* test_dtype.c - conversions between bf16, f16 and f32: every 16-bit pattern there and back, and
 * narrowing against a search for the nearest pattern. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdbool.h>

#include "core/dtype.h"

/* The value of a 16-bit pattern by its definition, from its fields. */
static double value_of(uint16_t bits, int mantissa_bits, int bias)
{
    int exponent_bits = 15 - mantissa_bits, top = (1 << exponent_bits) - 1;
    int exponent = bits >> mantissa_bits & top, mantissa = bits & ((1 << mantissa_bits) - 1);
    double sign = bits & 0x8000u ? -1.0 : 1.0;
    if (exponent == top) return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

static double bf16_value(uint16_t bits) { return value_of(bits, 7, 127); }
static double f16_value(uint16_t bits) { return value_of(bits, 10, 15); }

static void widening_is_exact(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        double bf16 = bf16_value((uint16_t)bits), f16 = f16_value((uint16_t)bits);
        double got_bf16 = ra__from_bf16((uint16_t)bits), got_f16 = ra__from_f16((uint16_t)bits);
        assert_true(isnan(bf16) ? isnan(got_bf16) : got_bf16 == bf16);
        assert_true(isnan(f16) ? isnan(got_f16) : got_f16 == f16);
        assert_int_equal(signbit(got_bf16) != 0, bits >> 15);
        assert_int_equal(signbit(got_f16) != 0, bits >> 15);
    }
}

static void every_pattern_round_trips(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t bf16 = ra__to_bf16(ra__from_bf16((uint16_t)bits));
        uint16_t f16 = ra__to_f16(ra__from_f16((uint16_t)bits));
        /* A NaN comes back quiet: with the highest bit of its mantissa set. */
        assert_int_equal(bf16, isnan(bf16_value((uint16_t)bits)) ? bits | 0x40u : bits);
        assert_int_equal(f16, isnan(f16_value((uint16_t)bits)) ? bits | 0x200u : bits);
    }
}

/* The pattern nearest to x >= 0, ties to the even one. Patterns are ordered like their values, so a
 * binary search finds the two neighbours; infinity counts as the next power of two. */
static uint16_t nearest(double x, double (*value)(uint16_t), uint16_t infinity)
{
    uint16_t low = 0, high = infinity;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (value(middle) <= x) low = middle;
        else high = middle;
    }
    double below = value(low);
    double above = high == infinity ? below + (below - value((uint16_t)(low - 1))) : value(high);
    if (x - below == above - x) return low & 1 ? high : low;
    return x - below < above - x ? low : high;
}

static void check_narrowing(float x)
{
    uint16_t sign = signbit(x) ? 0x8000u : 0;
    double magnitude = fabs((double)x);
    assert_int_equal(ra__to_bf16(x), nearest(magnitude, bf16_value, 0x7f80u) | sign);
    assert_int_equal(ra__to_f16(x), nearest(magnitude, f16_value, 0x7c00u) | sign);
}

static void narrowing_rounds_to_nearest_even(void **state)
{
    (void)state;
    /* A prime step over all finite patterns, and every f16 value with the middle above it. */
    for (uint64_t bits = 0; bits < 0x7f800000u; bits += 4099) {
        check_narrowing(ra__f32_from_bits((uint32_t)bits));
        check_narrowing(-ra__f32_from_bits((uint32_t)bits));
    }
    for (uint16_t bits = 0; bits < 0x7bffu; bits++) {
        float here = (float)f16_value(bits), next = (float)f16_value((uint16_t)(bits + 1));
        float middle = (here + next) / 2;
        check_narrowing(middle);
        check_narrowing(nextafterf(middle, 0.0f));
        check_narrowing(nextafterf(middle, INFINITY));
    }
}

static void narrowing_keeps_infinities_and_nan(void **state)
{
    (void)state;
    assert_int_equal(ra__to_bf16(INFINITY), 0x7f80);
    assert_int_equal(ra__to_bf16(-INFINITY), 0xff80);
    assert_int_equal(ra__to_f16(INFINITY), 0x7c00);
    assert_int_equal(ra__to_f16(-INFINITY), 0xfc00);
    assert_true(isnan(ra__from_bf16(ra__to_bf16(NAN))));
    assert_true(isnan(ra__from_f16(ra__to_f16(NAN))));
    /* A NaN whose mantissa is in the truncated bits must not become infinity. */
    float low_nan = ra__f32_from_bits(0x7f800001u);
    assert_true(isnan(ra__from_bf16(ra__to_bf16(low_nan))));
    assert_true(isnan(ra__from_f16(ra__to_f16(low_nan))));
}

static void load_and_store_go_by_dtype(void **state)
{
    (void)state;
    const ra_dtype dtypes[] = { RA_F32, RA_BF16, RA_F16 };
    for (int t = 0; t < 3; t++) {
        float memory[4] = { 0 };
        ra__store(dtypes[t], memory, 2, -1.5f);
        assert_true(ra__load(dtypes[t], memory, 2) == -1.5f);
        assert_true(ra__load(dtypes[t], memory, 1) == 0.0f);
        assert_true(ra__load(dtypes[t], memory, 3) == 0.0f);
        assert_int_equal(ra__dtype_bytes(dtypes[t]), dtypes[t] == RA_F32 ? 4 : 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widening_is_exact),
        cmocka_unit_test(every_pattern_round_trips),
        cmocka_unit_test(narrowing_rounds_to_nearest_even),
        cmocka_unit_test(narrowing_keeps_infinities_and_nan),
        cmocka_unit_test(load_and_store_go_by_dtype),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
