/* SPDX-License-Identifier: Apache-2.0 */
/* test_peers.c - the grids that other implementations of this field test themselves with, at sizes
 * that take seconds; at their own sizes with RINGATTN_LONG=1. */
#include "support/expect.h"

#include "harness/check/check.h"
#include "harness/run/engine.h"

/* Runs a problem through the library and compares every number with the oracle. */
static void verify(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void verify(const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct fixture fixture;
    fixture_open(&fixture, "%s", text);
    fixture_run(&fixture);
    expect_lab(&fixture);
    fixture_close(&fixture);
}

/* The same through the command's engine, which looks at some rows where there are many. */
static void verify_large(const char *text)
{
    struct trial trial;
    struct engine engine;
    struct check check;
    if (trial_parse(&trial, text)) fail_msg("not a problem: %s", text);
    struct engine_setup setup = { .trial = &trial, .quiet = true };
    if (engine_open(&engine, &setup) || engine_forward(&engine) ||
        (trial.backward && engine_backward(&engine)) || check_engine(&engine, &check))
        fail_msg("ringattn verify \"%s\"", text);
    if (!check.passed) fail_msg("%s\n  ringattn verify \"%s\"", check.what, text);
    engine_close(&engine);
    trial_clear(&trial);
}

/* ---- FlashAttention's lengths ---------------------------------------------------------------- */

static const int fa_lengths[][2] = {
    { 1, 1 },     { 64, 128 },  { 128, 192 }, { 256, 256 }, { 239, 1 },
    { 799, 3 },   { 113, 203 }, { 113, 128 }, { 128, 217 }, { 113, 211 },
    { 108, 256 }, { 256, 512 }, { 384, 256 }, { 640, 128 }, { 512, 256 },
};
static const int fa_long_lengths[][2] = {
    { 1024, 1024 }, { 1023, 1024 }, { 1024, 1023 }, { 4096, 4096 }, { 4224, 4224 },
};

static void flash_attention_lengths(void **state)
{
    (void)state;
    static const char *const heads[] = { "h=4", "h=4/2", "h=4/1" };
    static const char *const patterns[] = { "full", "causal", "window:37,11", "window:90" };
    static const char *const dtypes[] = { "bf16", "f16", "f32" };
    static const char *const ways[] = { "ring=1", "ring=4", "ring=3 zigzag",
                                        "ring=2 striped allgather" };
    int turn = 0;
    for (int i = 0; i < TEST_COUNT(fa_lengths); i++)
        for (int p = 0; p < TEST_COUNT(patterns); p++) {
            const char *shape = heads[turn % 3], *dtype = dtypes[turn / 2 % 3];
            int dim = fa_lengths[i][0] * fa_lengths[i][1] > 50000 ? 16 : 64;
            if (test_long()) dim = 128;
            for (int w = 0; w < (test_long() ? TEST_COUNT(ways) : 2); w++)
                verify("%s n=%d nk=%d %s d=%d %s %s backward", patterns[p], fa_lengths[i][0],
                       fa_lengths[i][1], shape, dim, dtype, ways[(turn + w) % 4]);
            turn++;
        }
    expect_forget();
}

static void flash_attention_long_lengths(void **state)
{
    (void)state;
    char text[256];
    if (!test_long()) skip();
    for (int i = 0; i < TEST_COUNT(fa_long_lengths); i++)
        for (int p = 0; p < 2; p++) {
            snprintf(text, sizeof text, "%s n=%d nk=%d h=4/2 d=64 bf16 ring=4 %s backward",
                     p ? "causal" : "full", fa_long_lengths[i][0], fa_long_lengths[i][1],
                     p ? "zigzag" : "contiguous");
            verify_large(text);
        }
}

/* Backward twice gives the same bits. */
static void flash_attention_repeats_backward(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, "causal n=239 nk=239 h=4/2 d=32 bf16 ring=4 zigzag threads=2 backward");
    fixture_start(&fixture);
    fixture_forward(&fixture);
    fixture_backward(&fixture);
    struct fixture first = fixture;
    for (int t = TENSOR_DQ; t <= TENSOR_DV; t++) {
        first.whole[t].data = test_malloc(fixture_bytes(&fixture, t));
        memcpy(first.whole[t].data, fixture.whole[t].data, fixture_bytes(&fixture, t));
    }
    for (int i = 0; i < 20; i++) {
        fixture_backward(&fixture);
        for (int t = TENSOR_DQ; t <= TENSOR_DV; t++)
            if (!fixture_same(&first, &fixture, t))
                fixture_fail(&fixture, "%s differs in run %d", tensor_name(t), i);
    }
    for (int t = TENSOR_DQ; t <= TENSOR_DV; t++) test_free(first.whole[t].data);
    fixture_close(&fixture);
}

/* ---- Rings on eight ranks -------------------------------------------------------------------- */

static void ring_flash_attention(void **state)
{
    (void)state;
    static const char *const quick[] = {
        "causal n=477 h=5 d=32 bf16 ring=8 backward",
        "causal n=478 h=5 d=32 bf16 ring=8 zigzag backward",
        "causal n=478 h=5 d=32 bf16 ring=8 striped backward",
        "full n=477 h=5 d=32 bf16 ring=8 backward",
        "causal;docs=0,15,156,529 n=529 h=5 d=32 bf16 ring=8 backward",
        "causal;docs=0,15,156,529 n=529 h=5 d=32 bf16 ring=8 zigzag;perdoc backward",
        "full;docs=0,7,14,16 n=16 h=5 d=128 bf16 ring=8 backward",
        "causal;docs=0,7,14,16 n=16 h=5 d=128 bf16 ring=8 zigzag;perdoc backward",
        "causal;docs=0,7,14,16 n=16 h=5 d=128 bf16 ring=8 striped;perdoc allgather backward",
    };
    static const char *const full_size[] = {
        "causal n=3816 h=5 d=128 bf16 ring=8 backward",
        "causal n=3824 h=5 d=128 bf16 ring=8 zigzag backward",
        "causal n=3824 h=5 d=128 bf16 ring=8 striped backward",
        "causal;docs=0,120,1248,4232 n=4232 h=5 d=128 bf16 ring=8 backward",
        "causal;docs=0,120,1248,4232 n=4232 h=5 d=128 bf16 ring=8 zigzag;perdoc backward",
    };
    for (int i = 0; i < TEST_COUNT(quick); i++) verify("%s", quick[i]);
    expect_forget();
    for (int i = 0; test_long() && i < TEST_COUNT(full_size); i++) verify_large(full_size[i]);
}

static void thirty_one_tokens_on_eight_ranks(void **state)
{
    (void)state;
    static const char *const ways[] = { "contiguous", "striped", "zigzag", "contiguous allgather" };
    for (int i = 0; i < TEST_COUNT(ways); i++)
        for (int causal = 0; causal < 2; causal++)
            verify("%s n=31 h=8/2 d=16 b=2 ring=8 %s backward", causal ? "causal" : "full",
                   ways[i]);
    expect_forget();
}

/* ---- Heads, dims and windows of large models ------------------------------------------------- */

static void heads_and_dims_of_models(void **state)
{
    (void)state;
    static const char *const shapes[] = { "h=12 d=128",         "h=32/4 d=128", "h=12/2 d=128",
                                          "h=128 d=192 dv=128", "h=64/8 d=64",  "h=16 d=256" };
    static const char *const quick[] = { "h=3 d=128",        "h=8/1 d=128", "h=6/1 d=128",
                                         "h=4 d=192 dv=128", "h=8/1 d=64",  "h=2 d=256" };
    static const char *const patterns[] = { "causal", "window:16,0", "window:16,16", "window:4" };
    char text[256];
    for (int s = 0; s < TEST_COUNT(quick); s++)
        for (int p = 0; p < TEST_COUNT(patterns); p++)
            verify("%s n=64 %s %s ring=%d %s backward", patterns[p], quick[s],
                   s % 2 ? "bf16" : "f16", 2 + (s + p) % 3, p % 2 ? "contiguous" : "zigzag");
    expect_forget();
    for (int s = 0; test_long() && s < TEST_COUNT(shapes); s++) {
        snprintf(text, sizeof text, "%s n=1024 %s bf16 ring=4 backward",
                 s % 2 ? "window:512,512" : "window:128", shapes[s]);
        verify_large(text);
    }
}

/* Documents of random length, empty ones among them. */
static void documents_of_random_length(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (int round = 0; round < (test_long() ? 40 : 8); round++) {
        char docs[256] = "0";
        int at = 0, n = 150;
        while (at < n) {
            seed = seed * 1664525u + 1013904223u;
            int length = (seed >> 28) < 4 ? 0 : (int)(seed >> 16) % 50;
            at = at + length < n ? at + length : n;
            size_t used = strlen(docs);
            snprintf(docs + used, sizeof docs - used, ",%d", at);
        }
        verify("%s;docs=%s n=%d h=2 d=16 bf16 ring=%d %s%s backward", round % 2 ? "causal" : "full",
               docs, n, 2 + round % 4, round % 3 ? "zigzag" : "striped",
               round % 4 < 2 ? ";perdoc" : "");
    }
    expect_forget();
}

static void uneven_lengths(void **state)
{
    (void)state;
    static const int quick[] = { 900, 1050 }, full_size[] = { 10000, 11021 };
    char text[256];
    for (int i = 0; i < TEST_COUNT(quick); i++)
        verify("window:100,50 n=%d h=1 d=16 bf16 ring=%d zigzag backward", quick[i], 7 + i);
    for (int i = 0; test_long() && i < TEST_COUNT(full_size); i++) {
        snprintf(text, sizeof text, "causal n=%d h=2/1 d=64 bf16 ring=7 zigzag backward",
                 full_size[i]);
        verify_large(text);
    }
    expect_forget();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flash_attention_lengths),
        cmocka_unit_test(flash_attention_long_lengths),
        cmocka_unit_test(flash_attention_repeats_backward),
        cmocka_unit_test(ring_flash_attention),
        cmocka_unit_test(thirty_one_tokens_on_eight_ranks),
        cmocka_unit_test(heads_and_dims_of_models),
        cmocka_unit_test(documents_of_random_length),
        cmocka_unit_test(uneven_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
