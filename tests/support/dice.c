/* SPDX-License-Identifier: Apache-2.0 */
/* dice.c - problems thrown by dice. */
#include "support/dice.h"

#include "support/walk.h"

/* A throw, and the text it goes into. */
struct thrower {
    uint64_t state;
    struct dice_problem *problem;
    size_t used;
};

/* From 0 to count - 1. (splitmix64) */
static int throw(struct thrower * t, int count)
{
    uint64_t z = t->state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return (int)((z ^ z >> 31) % (uint64_t)count);
}

static void write(struct thrower *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void write(struct thrower *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(t->problem->text + t->used, sizeof t->problem->text - t->used, format,
                           args);
    va_end(args);
    t->used += (size_t)length;
    assert_true(t->used < sizeof t->problem->text);
}

static void write_dilated(struct thrower *t, int n)
{
    int branches = 1 + throw(t, 4);
    for (int i = 0; i < branches; i++)
        write(t, "%s%d/%d", i ? "," : "dilated:", 1 + throw(t, throw(t, 2) ? n + 9 : 16),
              1 + throw(t, throw(t, 3) ? 4 : 12));
    if (throw(t, 4) == 0) write(t, ";dedup");
    if (throw(t, 5) == 0) write(t, ";groups");
}

static void write_blocks(struct thrower *t)
{
    int given = 1 + throw(t, 63);
    write(t, "blocks:%d", 1 + throw(t, throw(t, 2) ? 20 : 6));
    if (given & 1) write(t, ";local=%d", throw(t, 3));
    if (given & 2 && throw(t, 2)) write(t, ";global=%d", throw(t, 3));
    if (given & 4) write(t, ";strided=%d", 1 + throw(t, 6));
    if (given & 8) write(t, ";dilated=%d/%d", 1 + throw(t, 4), throw(t, 4));
    if (given & 16)
        write(t, ";levels=%d/%d,%d/%d", 1 + throw(t, 3), throw(t, 3), 1 + throw(t, 5), throw(t, 6));
    if (given & 32 || given == 2) write(t, ";random=0.%d;seed=%d", throw(t, 5), throw(t, 99));
}

static void write_dense(struct thrower *t, int n)
{
    int kind = throw(t, 3);
    if (kind == 0) write(t, "full");
    if (kind == 1) write(t, "causal");
    if (kind == 2) write(t, "window:%d,%d", throw(t, n + 3), throw(t, 9));
}

static void write_documents(struct thrower *t, int n)
{
    int at = 0;
    write(t, ";docs=0");
    while (at < n && throw(t, 4)) {
        at += throw(t, n - at + 1);
        write(t, ",%d", at);
    }
    write(t, ",%d", n);
}

/* Pattern, lengths, heads, order and ring. */
static void write_problem(struct thrower *t, bool bias)
{
    static const int lengths[] = { 96, 90, 67, 33, 12, 5, 1 };
    static const char *const heads[] = { "1", "2", "4/2", "6/2", "5/1", "6/3", "8/4", "3" };
    static const char *const orders[] = { "hilbert", "hilbert:10x10", "shuffled:3", "shuffled:8" };
    ra_part part;
    int n = lengths[throw(t, TEST_COUNT(lengths))], kind = throw(t, 9), queries = n;
    bool documents = throw(t, 4) == 0, ordered = throw(t, 3) == 0;
    if (!documents && !ordered && throw(t, 3) == 0) queries = 1 + throw(t, n);
    if (kind < 4) write_dilated(t, n);
    else if (kind < 8) write_blocks(t);
    else write_dense(t, n);
    if (throw(t, 3) == 0) write(t, ";causal");
    if (documents) write_documents(t, n);
    write(t, " n=%d nk=%d h=%s", queries, n, heads[throw(t, TEST_COUNT(heads))]);
    if (ordered) write(t, " order=%s", orders[throw(t, TEST_COUNT(orders))]);
    write(t, " ring=%d", 1 + throw(t, 8));
    assert_true(walk_usable("partition", throw(t, 3), &part));
    write(t, " %s", part.name);
    int strategies = 0;
    while (walk_usable("strategy", strategies, &part)) strategies++;
    assert_true(walk_usable("strategy", throw(t, strategies), &part));
    write(t, " %s d=%d dv=%d b=%d backward", walk_strategy(&part, bias ? "bias=" : ""),
          1 + throw(t, 20), 1 + throw(t, 20), 1 + throw(t, 2));
}

struct dice_problem dice_problem(uint64_t number)
{
    struct dice_problem problem;
    struct thrower t = { .state = number * 1000003, .problem = &problem };
    write_problem(&t, false);
    return problem;
}

struct dice_problem dice_run(uint64_t number)
{
    static const char *const terms[] = { " softcap=4", " alibi", " sinks", " dropout=0.3" };
    static const char *const biases[] = { "add", "heads", "batch", "mask", "maskheads" };
    static const char *const strides[] = { "packed", "padded", "heads" };
    struct dice_problem problem;
    struct thrower t = { .state = number * 1000003, .problem = &problem };
    ra_part part;
    int kernels = 0;
    while (walk_usable("kernel", kernels, &part)) kernels++;
    bool bias = throw(&t, 4) == 0;
    write_problem(&t, bias);
    for (int i = 0; i < TEST_COUNT(terms); i++)
        if (throw(&t, 4) == 0) write(&t, "%s", terms[i]);
    if (bias) write(&t, " bias=%s", biases[throw(&t, TEST_COUNT(biases))]);
    walk_usable("kernel", throw(&t, kernels), &part);
    write(&t, " %s kernel=%s threads=%d strides=%s seed=%d", walk_dtype(&part, throw(&t, 4)),
          part.name, 1 + throw(&t, 3), strides[throw(&t, 3)], throw(&t, 1000));
    return problem;
}
