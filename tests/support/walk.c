/* SPDX-License-Identifier: Apache-2.0 */
/* walk.c - walks the lists of what the library has. */
#include "support/walk.h"

const int walk_ranks[7] = { 1, 2, 3, 4, 5, 7, 8 };

bool walk_part(const char *kind, int index, ra_part *part)
{
    *part = ra_part_default();
    return ra_part_at(kind, index, part) == RA_OK;
}

/* "auto" stands for one of the other strategies, after it has made plans of all of them. "stream"
 * is for one rank, and has tests of its own that walk the other lists. */
static bool stands_alone(const ra_part *part)
{
    return strcmp(part->name, "auto") && strcmp(part->name, "stream");
}

bool walk_usable(const char *kind, int index, ra_part *part)
{
    for (int i = 0; walk_part(kind, i, part); i++)
        if (part->usable && stands_alone(part) && index-- == 0) return true;
    return false;
}

void walk_turn(const char *kind, int turn, ra_part *part)
{
    int count = 0;
    while (walk_usable(kind, count, part)) count++;
    assert_true(count > 0 && walk_usable(kind, turn % count, part));
}

static const char *const dtypes[] = { [RA_F32] = "f32", [RA_BF16] = "bf16", [RA_F16] = "f16" };

/* How many dtypes a kernel takes; the index-th of them, if there is one. */
static int taken_by(const ra_part *kernel, int index, const char **dtype)
{
    int count = 0;
    for (int t = 0; t < TEST_COUNT(dtypes); t++)
        if (kernel->dtypes >> t & 1 && count++ == index) *dtype = dtypes[t];
    return count;
}

bool walk_kernel(int index, ra_part *kernel, const char **dtype)
{
    for (int k = 0; walk_usable("kernel", k, kernel); k++) {
        int count = taken_by(kernel, index, dtype);
        if (index < count) return true;
        index -= count;
    }
    return false;
}

const char *walk_dtype(const ra_part *kernel, int turn)
{
    const char *dtype = NULL;
    taken_by(kernel, turn % taken_by(kernel, 0, &dtype), &dtype);
    return dtype;
}

static bool sample_of(const char *kind, int index, char *text, size_t capacity)
{
    ra_part part;
    for (int i = 0; walk_part(kind, i, &part); i++) {
        const char *at = part.samples;
        while (*at) {
            size_t length = strcspn(at, " ");
            if (index-- == 0) {
                snprintf(text, capacity, "%.*s", (int)length, at);
                return true;
            }
            at += length + strspn(at + length, " ");
        }
    }
    return false;
}

const char *walk_strategy(const ra_part *strategy, const char *words)
{
    static const char *const swapping[] = { "ulysses", "2d" };
    for (int i = 0; i < TEST_COUNT(swapping); i++)
        if (strstr(words, "bias=") && !strcmp(strategy->name, swapping[i])) return "ring";
    return strategy->name;
}

bool walk_sample(int index, char *text, size_t capacity)
{
    return sample_of("pattern", index, text, capacity);
}

bool walk_order(int index, char *text, size_t capacity)
{
    return sample_of("order", index, text, capacity);
}
