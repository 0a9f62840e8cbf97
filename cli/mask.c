/* mask.c - who sees whom, by the formulas of the pattern, one pair at a time. */
#include "mask.h"

#include <stdlib.h>
#include <string.h>

#define FAR ((int64_t)1 << 60) /* further than any position, and safe to add to one */

static int64_t read_number(const char **at)
{
    int64_t value = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++)
        if (value < FAR / 16) value = value * 10 + (**at - '0');
        else value = FAR;
    return value;
}

/* "0,120,1248,4232" */
static int read_documents(struct mask *mask, const char **at)
{
    size_t count = 1;
    for (const char *c = *at; *c && *c != ';'; c++) count += *c == ',';
    mask->bounds = malloc(count * sizeof *mask->bounds);
    if (!mask->bounds) return fault("out of memory: %zu documents", count);
    for (size_t i = 0; i < count; i++) {
        mask->bounds[i] = read_number(at);
        if (**at == ',') (*at)++;
    }
    mask->bound_count = (int64_t)count;
    return EXIT_PASS;
}

static bool take(const char **at, const char *word)
{
    if (strncmp(*at, word, strlen(word))) return false;
    *at += strlen(word);
    return true;
}

static bool read_rule(struct mask *mask, const char **at)
{
    if (take(at, "full")) {
        mask->all_keys = true;
    } else if (take(at, "causal")) {
        mask->left = FAR;
    } else if (take(at, "window:")) {
        mask->left = read_number(at);
        if (take(at, ",")) mask->right = read_number(at);
    } else if (take(at, "prefix:")) {
        mask->prefix = read_number(at);
        mask->left = FAR;
    } else {
        return false;
    }
    return true;
}

int mask_open(struct mask *mask, const char *pattern)
{
    const char *at = pattern ? pattern : "full";
    *mask = (struct mask){ .all_keys = false };
    bool good = read_rule(mask, &at);
    while (good && *at) {
        if (take(&at, ";causal")) {
            mask->causal = true;
        } else if (take(&at, ";docs=")) {
            int status = read_documents(mask, &at);
            if (status) return status;
        } else {
            good = false;
        }
    }
    if (good) return EXIT_PASS;
    mask_close(mask);
    return fault("the oracle does not understand the pattern %.80s", pattern);
}

void mask_close(struct mask *mask)
{
    free(mask->bounds);
    mask->bounds = NULL;
}

void mask_document(const struct mask *mask, int64_t position, int64_t *first, int64_t *end)
{
    *first = -FAR;
    *end = FAR;
    if (!mask->bounds) return;
    int64_t low = 0, high = mask->bound_count - 1; /* bounds[low] <= position < bounds[high] */
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (mask->bounds[middle] <= position) low = middle;
        else high = middle;
    }
    *first = mask->bounds[low];
    *end = mask->bounds[high];
}

bool mask_sees(const struct mask *mask, int64_t position, int64_t key)
{
    bool sees = mask->all_keys || key < mask->prefix ||
                (key >= position - mask->left && key <= position + mask->right);
    return sees && !(mask->causal && key > position);
}
