/* SPDX-License-Identifier: Apache-2.0 */
/* problem.c - problem strings: refused, or the same after writing and reading. */
#include "fuzz/fuzz.h"
#include "harness/problem/trial.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct trial trial, again;
    trial_default(&trial);
    trial_default(&again);
    if (trial_parse(&trial, text) == EXIT_PASS) {
        char *first = trial_format(&trial);
        MUST(first && trial_parse(&again, first) == EXIT_PASS);
        char *second = trial_format(&again);
        MUST(second && !strcmp(first, second));
        free(second);
        free(first);
    }
    trial_clear(&again);
    trial_clear(&trial);
    free(text);
    return 0;
}
