/* SPDX-License-Identifier: Apache-2.0 */
/* ratios.c - see ratios.h. */
#include "pattern/ratios.h"

#include <inttypes.h>

#include "core/hash.h"
#include "pattern/pattern.h"

ra_status ra__ratios_add(struct ra__ratios *ratios, struct ra__ratio ratio)
{
    struct ra__ratio *grown = ra__grow(NULL, ratios->at, (size_t)ratios->count, sizeof *grown);
    if (!grown) return ra__fail(RA_ERR_MEMORY, "pattern: %d pairs", ratios->count);
    ratios->at = grown;
    grown[ratios->count++] = ratio;
    return RA_OK;
}

ra_status ra__ratios_read(struct ra__ratios *ratios, const struct ra__pattern_kind *kind,
                          struct ra__text list, struct ra__ratio least)
{
    bool more = true;
    while (more) {
        struct ra__text rest = list, pair = ra__text_take(&list, ',');
        struct ra__text second = pair, first = ra__text_take(&second, '/');
        struct ra__ratio ratio;
        more = rest.length > pair.length;
        if (first.length == pair.length || !ra__text_number(first, &ratio.a) ||
            !ra__text_number(second, &ratio.b) || ratio.a < least.a || ratio.b < least.b)
            return ra__fail(RA_ERR_ARGUMENT,
                            "pattern %s: \"%.*s\" is not A/B with A at least %" PRId64
                            " and B at least %" PRId64 "; write %s",
                            kind->name, ra__text_shown(pair), pair.start, least.a, least.b,
                            kind->syntax);
        RA__TRY(ra__ratios_add(ratios, ratio));
    }
    return RA_OK;
}

ra_status ra__ratios_copy(struct ra__account *account, const struct ra__ratios *from,
                          struct ra__ratios *to)
{
    ra_status status = RA_OK;
    to->at = ra__duplicate(account, from->at, (size_t)from->count * sizeof *from->at, &status);
    to->count = from->count;
    return status;
}

uint64_t ra__ratios_hash(const struct ra__ratios *ratios, uint64_t hash)
{
    return ra__hash(hash, ratios->at, (size_t)ratios->count * sizeof *ratios->at);
}

void ra__ratios_write(const struct ra__ratios *ratios, const char *before, struct ra__writer *w)
{
    for (int i = 0; i < ratios->count; i++)
        ra__write(w, "%s%" PRId64 "/%" PRId64, i ? "," : before, ratios->at[i].a, ratios->at[i].b);
}

void ra__ratios_free(struct ra__ratios *ratios)
{
    ra__free(ratios->at);
    *ratios = (struct ra__ratios){ NULL, 0 };
}
