/* SPDX-License-Identifier: Apache-2.0 */
/* settings.cc - environment variables: numbers, the seed of all random choices, and which calls are
 * to fail. */
#include <stdlib.h>
#include <string.h>

#include <string>

#include "internal.h"

namespace emulated
{

int64_t setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, nullptr, 0) : otherwise;
}

/* ---- Random choices. ---- */

static uint64_t random_state = 0x9E3779B97F4A7C15u;
static std::string last_seed;
static bool seeded;

void refresh_seed()
{
    const char *text = getenv("RINGATTN_EMULATED_SEED");
    if (!text) text = "";
    if (last_seed == text) return;
    last_seed = text;
    seeded = *text != 0;
    random_state = (strtoull(text, nullptr, 0) + 1) * 0x9E3779B97F4A7C15u;
    if (!random_state) random_state = 1;
}

bool random_order() { return seeded; }

uint32_t random_below(uint32_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(((random_state >> 32) * n) >> 32);
}

/* ---- Failures to inject. ---- */

static const char *const names[COUNT_KINDS] = { "lost", "alloc", "launch", "copy", "kernel" };
static std::string last_failures;
static int64_t fail_at[COUNT_KINDS], counted[COUNT_KINDS]; /* fail_at 0: never */
static bool lost;

/* "alloc:3,copy:1": the third allocation and the first copy, counted from when the variable was
 * last changed. */
static void read_failures()
{
    const char *text = getenv("RINGATTN_EMULATED_FAIL");
    if (!text) text = "";
    if (last_failures == text) return;
    last_failures = text;
    lost = false;
    set_sticky(cudaSuccess);
    memset(fail_at, 0, sizeof fail_at);
    memset(counted, 0, sizeof counted);
    while (*text) {
        bool known = false;
        for (int kind = 0; kind < COUNT_KINDS; kind++) {
            const size_t length = strlen(names[kind]);
            if (strncmp(text, names[kind], length) || text[length] != ':') continue;
            fail_at[kind] = strtoll(text + length + 1, nullptr, 10);
            known = true;
        }
        if (!known)
            fail("RINGATTN_EMULATED_FAIL: \"%s\" is not alloc, launch, copy, kernel or "
                 "lost, a colon and a number",
                 text);
        text += strcspn(text, ",");
        if (*text) text++;
    }
}

bool counted_failure(enum event_kind kind)
{
    if (kind == COUNT_CALL) read_failures();
    const bool now = ++counted[kind] == fail_at[kind];
    if (now && kind == COUNT_CALL) lost = true;
    return now;
}

bool device_lost() { return lost; }

} // namespace emulated
