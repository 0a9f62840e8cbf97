/* SPDX-License-Identifier: Apache-2.0 */
/* test_coarse.c - scores so large that an LSE in f32 cannot say them: forward is right, and
 * backward refuses, on every rank, instead of giving 0 or inf for gradients. Rows whose gradient is
 * 0 anyway are no reason to refuse, and stay 0. */
#include "support/crew.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const strategies[] = { "ring", "allgather", "ulysses", "2d" };
static const float sizes[] = { 1e6f, 1e9f, 1e12f, 1e30f };

/* 4 ranks; one query row of rank 1 is `size` times as large as the others. */
enum { RANKS = 4, LENGTH = 32, HEADS = 4, DIM = 8, ROW = 11 * HEADS + 2 };

static void open_case(struct crew *crew, const char *strategy, float size)
{
    crew_open(crew,
              &(struct crew_case){ .strategy = strategy,
                                   .ranks = RANKS,
                                   .q_len = LENGTH,
                                   .k_len = LENGTH,
                                   .q_heads = HEADS,
                                   .kv_heads = HEADS,
                                   .dim = DIM,
                                   .value_dim = DIM },
              &(ra_group_options){ .size = sizeof(ra_group_options) });
    for (int d = 0; d < DIM; d++) crew->q[ROW * DIM + d] = size * (d % 2 ? 4.0f : -4.0f);
}

static void gradients_are_refused_on_every_rank(void **state)
{
    (void)state;
    for (int s = 0; s < TEST_COUNT(strategies); s++)
        for (int n = 0; n < TEST_COUNT(sizes); n++) {
            struct crew crew;
            open_case(&crew, strategies[s], sizes[n]);
            crew_run(&crew);
            crew_expect(&crew, 1, RA_ERR_UNSUPPORTED, "query 3 of this rank, head 2");
            for (int rank = 0; rank < RANKS; rank++)
                if (crew.at[rank].status == RA_OK || !strstr(crew.at[rank].sentence, "LSE"))
                    crew_fail(&crew, "a rank does not know that the LSE is too coarse");
            crew_close(&crew);
        }
}

static void rows_without_a_gradient_are_no_reason(void **state)
{
    (void)state;
    for (int s = 0; s < TEST_COUNT(strategies); s++)
        for (int n = 0; n < TEST_COUNT(sizes); n++) {
            struct crew crew;
            open_case(&crew, strategies[s], sizes[n]);
            memset(crew.dout + ROW * DIM, 0, DIM * sizeof *crew.dout);
            crew.dlse[ROW] = 0.0f;
            crew_run(&crew);
            crew_expect_ok(&crew);
            for (size_t i = 0; i < crew.floats; i++) assert_true(isfinite(crew.results[i]));
            for (int d = 0; d < DIM; d++) assert_true(crew.dq[ROW * DIM + d] == 0.0f);
            crew_close(&crew);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_refused_on_every_rank),
        cmocka_unit_test(rows_without_a_gradient_are_no_reason),
    };
    crew_watchdog(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
