/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.c - texts of patterns: refused with a sentence, or the same after writing and reading. */
#include "fuzz/fuzz.h"
#include "ringattn.h"

static char *format(const ra_pattern *pattern)
{
    size_t length = 0;
    MUST(ra_pattern_format(pattern, NULL, 0, &length) == RA_OK);
    char *text = malloc(length + 1);
    MUST(text && ra_pattern_format(pattern, text, length + 1, &length) == RA_OK);
    MUST(strlen(text) == length);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    ra_pattern *pattern = NULL, *again = NULL;
    if (ra_pattern_parse(text, &pattern) == RA_OK) {
        char *first = format(pattern);
        MUST(ra_pattern_parse(first, &again) == RA_OK);
        char *second = format(again);
        MUST(!strcmp(first, second));
        free(second);
        free(first);
    } else MUST(!pattern && *ra_last_error());
    ra_pattern_destroy(again);
    ra_pattern_destroy(pattern);
    free(text);
    return 0;
}
