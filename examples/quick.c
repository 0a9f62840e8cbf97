/* SPDX-License-Identifier: Apache-2.0 */
/* quick.c - attention in one call, on one rank: to try the library. Numbers in bf16.
 *
 * Attention is a weighted mean of the values, so values of one must give one. */
#include <math.h>
#include <stdio.h>

#include <ringattn.h>

enum { TOKENS = 256, HEADS = 4, DIM = 64, NUMBERS = TOKENS * HEADS * DIM };

static float wide[NUMBERS];
static uint16_t q[NUMBERS], k[NUMBERS], v[NUMBERS], out[NUMBERS]; /* [position, head, dim] */

int main(void)
{
    ra_problem problem = ra_problem_default();
    problem.dtype = RA_BF16;
    problem.q_len = TOKENS;
    problem.q_heads = HEADS;
    problem.dim = DIM;

    for (int i = 0; i < NUMBERS; i++) wide[i] = sinf(0.37f * (float)i);
    ra_convert(RA_F32, wide, RA_BF16, q, NUMBERS);
    for (int i = 0; i < NUMBERS; i++) wide[i] = cosf(1.7f * (float)i);
    ra_convert(RA_F32, wide, RA_BF16, k, NUMBERS);
    for (int i = 0; i < NUMBERS; i++) wide[i] = 1.0f;
    ra_convert(RA_F32, wide, RA_BF16, v, NUMBERS);

    if (ra_attention(&problem, q, k, v, out, NULL) != RA_OK) {
        fprintf(stderr, "quick: %s\n", ra_last_error());
        return 1;
    }
    ra_convert(RA_BF16, out, RA_F32, wide, NUMBERS);
    float worst = 0.0f;
    for (int i = 0; i < NUMBERS; i++) worst = fmaxf(worst, fabsf(wide[i] - 1.0f));
    printf("%d tokens in bf16: values of one give one, largest error %.1e\n", TOKENS,
           (double)worst);
    return !(worst < 0.01f);
}
