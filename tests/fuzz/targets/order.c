/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - names of orders, for a length that two bytes say: refused, or a permutation. */
#include "fuzz/fuzz.h"
#include "ringattn.h"

enum { LENGTH_MOST = 1 << 10 };

static void check_permutation(const ra_order *order, int64_t length)
{
    static int64_t positions[LENGTH_MOST];
    static unsigned char seen[LENGTH_MOST];
    memset(seen, 0, sizeof seen);
    MUST(ra_order_length(order) == length);
    MUST(ra_order_positions(order, positions) == RA_OK);
    for (int64_t i = 0; i < length; i++) {
        MUST(positions[i] >= 0 && positions[i] < length && !seen[positions[i]]);
        seen[positions[i]] = 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    const int64_t length = (data[0] + 256 * data[1]) % LENGTH_MOST;
    char *text = fuzz_text(data + 2, size - 2);
    ra_order *order = NULL;
    if (ra_order_parse(text, length, &order) != RA_OK) MUST(!order && *ra_last_error());
    else if (order) check_permutation(order, length);
    ra_order_destroy(order);
    free(text);
    return 0;
}
