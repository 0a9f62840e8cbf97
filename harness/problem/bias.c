/* SPDX-License-Identifier: Apache-2.0 */
/* bias.c - what a trial may name as its bias: a kind of synthetic one, or a file. */
#include "bias.h"

#include <string.h>

#include "places.h"

static const struct bias_kind bias_kinds[] = {
    { "add", false, false, false },     { "heads", false, true, false },
    { "batch", true, true, false },     { "mask", false, false, true },
    { "maskheads", false, true, true },
};

const struct bias_kind *bias_kind(const char *text)
{
    for (int i = 0; i < COUNT(bias_kinds); i++)
        if (!strcmp(bias_kinds[i].name, text)) return &bias_kinds[i];
    return NULL;
}

int bias_check(const char *what, const char *text)
{
    if (places_is_file(text) || bias_kind(text)) return EXIT_PASS;
    return refuse("%s: %.60s is not a .npy file", what, text);
}
