/* SPDX-License-Identifier: Apache-2.0 */
/* problems.c - what the suite `kernels` measures beside rivals. */
#include "problems.h"

#include <string.h>

#include "child.h"
#include "harness/base/machine.h"
#include "rivals.h"

#define SECTION "rivals"
#define SECONDS "20" /* of all rounds of a problem: four with two rivals, both passes */
#define QUICK_SECONDS "1"

enum { TOKENS = 16384, QUICK_TOKENS = 2048, CPU_TOKENS = 4096, CPU_QUICK_TOKENS = 512 };
enum { WIDTH = 2048 /* heads x dim, of a GPU */, CPU_HEADS = 8 };
enum { WINDOWS = 4, DOCUMENTS = 8 /* of all tokens: 4,096 and 2,048 of 16,384 */ };

/* A kind of problem, and who can do it: cuDNN and FlashAttention have no sparse patterns, and no
 * f32. */
static const struct kind {
    const char *rivals, *dtype;
    int dims[3]; /* 0: none */
    bool sparse;
} gpu_kinds[] = {
    { "cudnn,flash", "bf16", { 64, 128, 256 }, false },
    { "efficient", "f32", { 64, 128 }, false },
    { "flex", "bf16", { 64 }, true },
}, cpu_kinds[] = {
    { "flash", "f32", { 64, 128 }, false },
    { "flash", "bf16", { 64, 128 }, false },
};

enum { PATTERN_BYTES = 160 };

static void write_documents(char *pattern, long long tokens)
{
    int length = snprintf(pattern, PATTERN_BYTES, "full;docs=0");
    for (int i = 1; i <= DOCUMENTS; i++)
        length += snprintf(pattern + length, (size_t)(PATTERN_BYTES - length), ",%lld",
                           i == DOCUMENTS ? tokens : tokens / DOCUMENTS * i);
}

/* The pattern of a number; false after the last. */
static bool name_pattern(bool sparse, int number, long long tokens, char *pattern)
{
    static const char *const names[][4] = { { "full", "causal" },
                                            { "window", "documents", "blocks:64;local=8" } };
    const char *name = names[sparse][number];
    if (!name) return false;
    if (!strcmp(name, "documents")) write_documents(pattern, tokens);
    else if (!strcmp(name, "window"))
        snprintf(pattern, PATTERN_BYTES, "window:%lld", tokens / WINDOWS);
    else snprintf(pattern, PATTERN_BYTES, "%s", name);
    return true;
}

static long long tokens_of(const struct configurations *list)
{
    const int64_t wish = list->wishes->trial.q_len;
    if (wish) return (long long)wish;
    if (suite_device(list)) return list->quick ? QUICK_TOKENS : TOKENS;
    return list->quick ? CPU_QUICK_TOKENS : CPU_TOKENS;
}

static long long heads_of(const struct configurations *list, int dim)
{
    const int64_t wish = list->wishes->trial.q_heads;
    if (wish) return (long long)wish;
    return suite_device(list) ? WIDTH / dim : CPU_HEADS;
}

/* Those of a list that are wished for. */
static void choose(const struct configurations *list, const char *rivals, char *names, size_t bytes)
{
    const char *wish = list->wishes->rivals ? list->wishes->rivals : "all";
    size_t length = 0;
    *names = 0;
    for (int i = 0; rivals_at(i); i++)
        if (rivals_named(rivals, rivals_at(i)) && rivals_named(wish, rivals_at(i)))
            length += (size_t)snprintf(names + length, bytes - length, "%s%s", length ? "," : "",
                                       rivals_at(i));
}

static void add(struct configurations *list, const struct kind *kind, int dim, const char *pattern)
{
    const struct trial *wish = &list->wishes->trial;
    char problem[320], kernel[40] = "", threads[40] = "", options[96], names[48];
    choose(list, kind->rivals, names, sizeof names);
    if (!*names) return;
    if (*wish->kernel) snprintf(kernel, sizeof kernel, " kernel=%s", wish->kernel);
    if (wish->threads) snprintf(threads, sizeof threads, " threads=%lld", (long long)wish->threads);
    snprintf(options, sizeof options, "--rivals %s --seconds %s", names,
             list->quick ? QUICK_SECONDS : SECONDS);
    for (int backward = 1; backward >= 0; backward--) { /* with gradients, or perhaps without */
        snprintf(problem, sizeof problem, "%s n=%lld h=%lld d=%d %s%s%s%s", pattern,
                 tokens_of(list), heads_of(list, dim), dim, kind->dtype, kernel, threads,
                 backward ? " backward" : "");
        if (!suite_serves(list, NULL, problem)) continue;
        suite_add(list, SECTION, "ours", options, "%s", problem);
        return;
    }
}

void rival_problems_list(struct configurations *list)
{
    const char *wish = list->wishes->rivals;
    const bool gpu = suite_device(list) != NULL;
    const struct kind *kinds = gpu ? gpu_kinds : cpu_kinds;
    const int count = gpu ? COUNT(gpu_kinds) : COUNT(cpu_kinds);
    char pattern[PATTERN_BYTES];
    if (wish ? !strcmp(wish, "no") : !gpu) return;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < COUNT(kinds[i].dims) && kinds[i].dims[j]; j++)
            for (int k = 0; name_pattern(kinds[i].sparse, k, tokens_of(list), pattern); k++)
                add(list, &kinds[i], kinds[i].dims[j], pattern);
}

int rival_problems_trim(struct configurations *list)
{
    const char *device = suite_device(list);
    const struct child_setup setup = { .device = device ? device : "cpu",
                                       .threads = machine_cores(),
                                       .file = -1 };
    struct child child;
    struct row answer;
    int wanted = 0, kept = 0;
    for (int i = 0; i < list->count; i++) wanted += !strcmp(list->at[i].section, SECTION);
    if (!wanted) return EXIT_PASS;
    int status = child_start(&child, &setup, &answer);
    child_stop(&child);
    if (status || !*answer.absent) return status;
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->at[i].section, SECTION)) list->at[kept++] = list->at[i];
    list->count = kept;
    snprintf(list->note, sizeof list->note,
             "rivals are left out: %s: %s; RINGATTN_TORCH_PYTHON names another Python",
             child_python(), answer.absent);
    return EXIT_PASS;
}
