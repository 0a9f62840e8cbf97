/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c - block-sparse attention: query block i sees key block j if any given term makes the
 * pair active.
 *
 * The key blocks of a query block are two lists of intervals: fixed ones (global, strided, random,
 * bitmap) and ones that move with i (local, dilated, levels, the block itself). A key is visible
 * once, so the moving list leaves out what is in the fixed one. The fixed list is then the same for
 * all query blocks and the moving one repeats, so plans store both once. */
#include <inttypes.h>

#include "core/hash.h"
#include "core/philox.h"
#include "pattern/bitmap.h"
#include "pattern/kinds.h"
#include "pattern/ratios.h"

enum term {
    LOCAL = 1,
    GLOBAL = 2,
    STRIDED = 4,
    DILATED = 8,
    LEVELS = 16,
    RANDOM = 32,
    SEED = 64,
    BITMAP = 128
};

struct blocks {
    unsigned terms; /* those that were given, enum term */
    int64_t local, global, strided;
    struct ra__ratio dilated; /* rate / reach */
    struct ra__ratios levels; /* stride / reach */
    double density;
    uint64_t seed;
    struct ra__bitmap bitmap;
    /* Random blocks drawn once for a plan: a bit per head, query and key block; or NULL. */
    uint64_t *drawn;
    int64_t drawn_words, drawn_blocks; /* 64-bit words of a row; rows of a head */
};

static const struct blocks *of(const ra_pattern *pattern) { return pattern->state; }

/* ---- Active blocks --------------------------------------------------------------------------- */

/* The query block that is being written. */
struct view {
    const struct ra__pattern_input *input;
    const struct blocks *p;
    int64_t size;      /* of a block */
    int64_t i, blocks; /* the query block; how many there are */
};

static bool has(const struct view *v, unsigned term) { return v->p->terms & term; }

static bool draw(const struct blocks *p, uint64_t limit, int64_t head, int64_t i, int64_t j)
{
    struct ra__philox word = ra__philox(p->seed, (uint32_t)j, (uint32_t)i, (uint32_t)head,
                                        UINT32_MAX);
    return i == j || word.word[0] < limit;
}

/* 64 key blocks from j on, a multiple of 64. */
static uint64_t draw_word(const struct blocks *p, uint64_t limit, int64_t head, int64_t i,
                          int64_t j)
{
    enum { LANES = 64 };
    uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES];
    for (int l = 0; l < LANES; l++) {
        c0[l] = (uint32_t)j + (uint32_t)l;
        c1[l] = (uint32_t)i;
        c2[l] = (uint32_t)head;
        c3[l] = UINT32_MAX;
    }
    ra__philox_many(p->seed, c0, c1, c2, c3, LANES);
    uint64_t bits = i / 64 == j / 64 ? UINT64_C(1) << i % 64 : 0;
    for (int l = 0; l < LANES; l++) bits |= (uint64_t)(c0[l] < limit) << l;
    return bits;
}

/* The bits of one row of drawn blocks. */
static uint64_t *drawn_row(const struct blocks *p, int64_t head, int64_t i)
{
    return p->drawn + (head * p->drawn_blocks + i) * p->drawn_words;
}

static bool random_active(const struct view *v, int64_t j)
{
    int64_t head = v->input->heads.start;
    if (v->p->drawn) return drawn_row(v->p, head, v->i)[j / 64] >> j % 64 & 1;
    return draw(v->p, ra__philox_limit(v->p->density), head, v->i, j);
}

/* Draws all blocks, if that takes no more memory than is good. */
static ra_status prepare(ra_pattern *pattern, struct ra__account *account,
                         const struct ra__shape *shape)
{
    enum { MOST_BYTES = 1 << 26 }; /* 524,288 tokens in blocks of 64 and 8 heads */
    struct blocks *p = pattern->state;
    if (!(p->terms & RANDOM)) return RA_OK;
    int64_t blocks = ra__ceil_div(shape->k_len, pattern->args[0]), words = (blocks + 63) / 64;
    if (blocks > (1 << 20) || words * blocks * shape->q_heads > MOST_BYTES / 8) return RA_OK;
    p->drawn = ra__alloc_array(account, RA__FOR_BOOKKEEPING,
                               (size_t)(words * blocks * shape->q_heads), sizeof(uint64_t));
    if (!p->drawn) return ra__fail(RA_ERR_MEMORY, "pattern: %" PRId64 " random blocks", blocks);
    p->drawn_words = words;
    p->drawn_blocks = blocks;
    uint64_t limit = ra__philox_limit(p->density);
    for (int64_t row = 0; row < blocks * shape->q_heads; row++) {
        uint64_t *bits = drawn_row(p, row / blocks, row % blocks);
        for (int64_t j = 0; j < blocks; j += 64)
            bits[j / 64] = draw_word(p, limit, row / blocks, row % blocks, j) &
                           (blocks - j < 64 ? (UINT64_C(1) << (blocks - j)) - 1 : UINT64_MAX);
    }
    return RA_OK;
}

static bool bitmap_active(const struct view *v, int64_t j)
{
    int64_t head = v->p->bitmap.heads == 1 ? 0 : v->input->heads.start;
    return v->p->bitmap.active[(head * v->p->bitmap.blocks + v->i) * v->p->bitmap.blocks + j] != 0;
}

/* Is j in the fixed list? */
static bool fixed_active(const struct view *v, int64_t j)
{
    const struct blocks *p = v->p;
    return (has(v, GLOBAL) && (v->i < p->global || j < p->global)) ||
           (has(v, STRIDED) && j % p->strided == 0) || (has(v, RANDOM) && random_active(v, j)) ||
           (has(v, BITMAP) && bitmap_active(v, j));
}

static bool moving_active(const struct view *v, int64_t j)
{
    const struct blocks *p = v->p;
    int64_t distance = v->i > j ? v->i - j : j - v->i;
    if (has(v, LOCAL) && distance <= p->local) return true;
    if (has(v, STRIDED) && distance == 0) return true;
    if (has(v, DILATED) && distance % p->dilated.a == 0 && distance / p->dilated.a <= p->dilated.b)
        return true;
    if (!has(v, LEVELS)) return false;
    if (distance == 0) return true;
    for (int k = 0; k < p->levels.count; k++)
        if (v->i % p->levels.at[k].a == 0 && distance <= p->levels.at[k].b) return true;
    return false;
}

/* ---- Lists ----------------------------------------------------------------------------------- */

/* Key blocks [from, to) as one tile, not clipped if all query blocks have it. */
static ra_status add_blocks(const struct view *v, int64_t from, int64_t to, bool whole,
                            struct ra__row_writer *writer)
{
    int64_t size = v->size, start = from * size;
    ra_run keys = { start, 1, ra__min(to * size, v->input->k_len) - start };
    struct ra__band everywhere = { RA__UNBOUNDED, RA__UNBOUNDED };
    return whole ? ra__row_writer_add_whole(writer, keys, everywhere)
                 : ra__row_writer_add(writer, keys, everywhere);
}

/* The ranges of candidates that are active, one tile each. */
static ra_status add_active(const struct view *v, bool (*active)(const struct view *, int64_t),
                            ra_run candidates, bool whole, struct ra__row_writer *writer)
{
    int64_t open = -1, end = -1; /* the current range */
    for (int64_t n = 0; n < candidates.count; n++) {
        int64_t j = candidates.start + n * candidates.step;
        if (!active(v, j)) continue;
        if (open >= 0 && j == end) {
            end++;
            continue;
        }
        if (open >= 0) RA__TRY(add_blocks(v, open, end, whole, writer));
        open = j;
        end = j + 1;
    }
    return open >= 0 ? add_blocks(v, open, end, whole, writer) : RA_OK;
}

/* The next drawn block from j on; v->blocks if there is none. */
static int64_t next_drawn(const struct view *v, int64_t j)
{
    const uint64_t *bits = drawn_row(v->p, v->input->heads.start, v->i);
    if (j >= v->blocks) return v->blocks;
    uint64_t word = bits[j / 64] >> j % 64;
    for (int64_t w = j / 64; !word;) {
        if (++w == v->p->drawn_words) return v->blocks;
        word = bits[w];
        j = w * 64;
    }
    return j + __builtin_ctzll(word);
}

/* If only random blocks are fixed: from one to the next. */
static ra_status add_drawn(const struct view *v, struct ra__row_writer *writer)
{
    for (int64_t from = next_drawn(v, 0), to; from < v->blocks; from = next_drawn(v, to)) {
        to = from + 1;
        while (to < v->blocks && random_active(v, to)) to++;
        RA__TRY(add_blocks(v, from, to, false, writer));
    }
    return RA_OK;
}

/* If nothing else is fixed, only multiples of the stride need to be tested. */
static ra_status add_fixed(const struct view *v, struct ra__row_writer *writer)
{
    const struct blocks *p = v->p;
    bool scattered = has(v, RANDOM | BITMAP);
    bool everything = has(v, GLOBAL) && v->i < p->global;
    int64_t first = has(v, GLOBAL) ? ra__min(p->global, v->blocks) : 0;
    bool alone = !has(v, GLOBAL | STRIDED | BITMAP);
    if (everything) return add_blocks(v, 0, v->blocks, false, writer);
    if (p->drawn && alone) return add_drawn(v, writer);
    if (scattered) return add_active(v, fixed_active, (ra_run){ 0, 1, v->blocks }, false, writer);
    if (first > 0) RA__TRY(add_blocks(v, 0, first, true, writer));
    if (!has(v, STRIDED) || first == v->blocks) return RA_OK;
    int64_t start = ra__ceil_div(first, p->strided) * p->strided;
    if (start >= v->blocks) return RA_OK;
    ra_run multiples = { start, p->strided, (v->blocks - 1 - start) / p->strided + 1 };
    return add_active(v, fixed_active, multiples, true, writer);
}

static bool only_moving(const struct view *v, int64_t j)
{
    return moving_active(v, j) && !fixed_active(v, j);
}

/* The half-width of the moving terms around a query block. */
static int64_t moving_half_width(const struct view *v)
{
    const struct blocks *p = v->p;
    int64_t half_width = 0;
    if (has(v, LOCAL)) half_width = ra__max(half_width, p->local);
    if (has(v, DILATED))
        half_width = ra__max(half_width, p->dilated.b > v->blocks / p->dilated.a
                                             ? v->blocks
                                             : p->dilated.a * p->dilated.b);
    for (int k = 0; k < p->levels.count && has(v, LEVELS); k++)
        if (v->i % p->levels.at[k].a == 0) half_width = ra__max(half_width, p->levels.at[k].b);
    return ra__min(half_width, v->blocks);
}

static ra_status add_moving(const struct view *v, struct ra__row_writer *writer)
{
    bool any = has(v, LOCAL | STRIDED | DILATED | LEVELS);
    bool everything = has(v, GLOBAL) && v->i < v->p->global;
    if (!any || everything) return RA_OK;
    int64_t half_width = moving_half_width(v);
    int64_t from = ra__max(v->i - half_width, 0), to = ra__min(v->i + half_width + 1, v->blocks);
    if (v->p->terms == LOCAL) return add_blocks(v, from, to, false, writer);
    return add_active(v, only_moving, (ra_run){ from, 1, to - from }, false, writer);
}

static ra_status see(const struct ra__pattern_input *input, ra_run q, struct ra__row_writer *writer)
{
    int64_t size = input->pattern->args[0];
    struct view view = { input, of(input->pattern), size, q.start / size,
                         ra__ceil_div(input->k_len, size) };
    RA__TRY(add_fixed(&view, writer));
    RA__TRY(add_moving(&view, writer));
    return ra__row_writer_put(writer, q);
}

static int64_t next_boundary(const ra_pattern *pattern, int64_t position)
{
    int64_t size = pattern->args[0];
    return position - position % size + size;
}

/* The moving list has the same shape again if i is the same modulo every stride. */
static int64_t period(const ra_pattern *pattern)
{
    const struct blocks *p = of(pattern);
    int64_t blocks = p->terms & STRIDED ? p->strided : 1;
    for (int k = 0; k < p->levels.count; k++)
        blocks = ra__common_multiple(blocks, p->levels.at[k].a);
    return blocks > RA__UNBOUNDED / pattern->args[0] ? 0 : blocks * pattern->args[0];
}

/* ---- Heads ----------------------------------------------------------------------------------- */

static int head_classes(const ra_pattern *pattern, int q_heads)
{
    bool by_head = of(pattern)->terms & RANDOM || of(pattern)->bitmap.heads > 1;
    return by_head ? q_heads : 1;
}

static ra_run head_class(const ra_pattern *pattern, int q_heads, int index)
{
    return head_classes(pattern, q_heads) == 1 ? (ra_run){ 0, 1, q_heads }
                                               : (ra_run){ index, 1, 1 };
}

/* ---- Text ------------------------------------------------------------------------------------ */

static ra_status refuse(const ra_pattern *pattern, struct ra__text word)
{
    return ra__fail(RA_ERR_ARGUMENT, "pattern blocks: \"%.*s\" is not understood; write %s",
                    ra__text_shown(word), word.start, pattern->kind->syntax);
}

static ra_status add_number(ra_pattern *pattern, struct ra__text value, struct ra__text word,
                            int64_t least, int64_t *number)
{
    if (!ra__text_number(value, number) || *number < least) return refuse(pattern, word);
    return RA_OK;
}

static ra_status add_dilated(ra_pattern *pattern, struct ra__text value, struct ra__text word)
{
    struct blocks *p = pattern->state;
    struct ra__text half_width = value, rate = ra__text_take(&half_width, '/');
    if (rate.length == value.length) return refuse(pattern, word);
    RA__TRY(add_number(pattern, rate, word, 1, &p->dilated.a));
    return add_number(pattern, half_width, word, 0, &p->dilated.b);
}

static ra_status read_term(ra_pattern *pattern, unsigned term, struct ra__text value,
                           struct ra__text word)
{
    struct blocks *p = pattern->state;
    switch (term) {
    case LOCAL: return add_number(pattern, value, word, 0, &p->local);
    case GLOBAL: return add_number(pattern, value, word, 0, &p->global);
    case STRIDED: return add_number(pattern, value, word, 1, &p->strided);
    case DILATED: return add_dilated(pattern, value, word);
    case LEVELS:
        return ra__ratios_read(&p->levels, pattern->kind, value, (struct ra__ratio){ 1, 0 });
    case RANDOM: return ra__text_fraction(value, &p->density) ? RA_OK : refuse(pattern, word);
    case SEED: return ra__text_seed(value, &p->seed) ? RA_OK : refuse(pattern, word);
    default: return ra__bitmap_read(&p->bitmap, value);
    }
}

static const struct {
    const char *word;
    unsigned term;
} terms[] = {
    { "local=", LOCAL },   { "global=", GLOBAL }, { "strided=", STRIDED }, { "dilated=", DILATED },
    { "levels=", LEVELS }, { "random=", RANDOM }, { "seed=", SEED },       { "bitmap=", BITMAP },
};

/* Undoes a term that was refused half way. */
static void forget(struct blocks *p, unsigned term)
{
    if (term == DILATED) p->dilated = (struct ra__ratio){ 0, 0 };
    if (term == LEVELS) ra__ratios_free(&p->levels);
    if (term == BITMAP) ra__bitmap_free(&p->bitmap);
}

static ra_status add(ra_pattern *pattern, struct ra__text word, bool *known)
{
    struct blocks *p = pattern->state;
    for (int i = 0; i < RA__COUNT(terms); i++) {
        struct ra__text value = word;
        if (!ra__text_starts(&value, terms[i].word)) continue;
        if (p->terms & terms[i].term)
            return ra__fail(RA_ERR_ARGUMENT, "pattern blocks: %.*s is given twice",
                            (int)ra__text_of(terms[i].word).length - 1, terms[i].word);
        ra_status status = read_term(pattern, terms[i].term, value, word);
        if (status != RA_OK) {
            forget(p, terms[i].term);
            return status;
        }
        p->terms |= terms[i].term;
        *known = true;
        return RA_OK;
    }
    return RA_OK;
}

static void write(const ra_pattern *pattern, struct ra__writer *w)
{
    const struct blocks *p = of(pattern);
    if (p->terms & LOCAL) ra__write(w, ";local=%" PRId64, p->local);
    if (p->terms & GLOBAL) ra__write(w, ";global=%" PRId64, p->global);
    if (p->terms & STRIDED) ra__write(w, ";strided=%" PRId64, p->strided);
    if (p->terms & DILATED)
        ra__write(w, ";dilated=%" PRId64 "/%" PRId64, p->dilated.a, p->dilated.b);
    ra__ratios_write(&p->levels, ";levels=", w);
    if (p->terms & RANDOM) {
        ra__write(w, ";random=");
        ra__write_fraction(w, p->density);
    }
    if (p->terms & SEED) ra__write(w, ";seed=%" PRIu64, p->seed);
    if (p->terms & BITMAP) ra__write(w, ";bitmap=%s", p->bitmap.file ? p->bitmap.file : "(memory)");
}

static ra_status check(const ra_pattern *pattern)
{
    const struct blocks *p = of(pattern);
    if (pattern->args[0] < 1)
        return ra__fail(RA_ERR_ARGUMENT, "pattern blocks: a block has at least 1 position");
    if (p->terms & SEED && !(p->terms & RANDOM))
        return ra__fail(RA_ERR_ARGUMENT, "pattern blocks: seed= is of use only with random=");
    if (p->terms) return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT, "pattern blocks: no term is given; write %s",
                    pattern->kind->syntax);
}

static ra_status check_lengths(const ra_pattern *pattern, const struct ra__shape *shape)
{
    const struct blocks *p = of(pattern);
    return p->terms & BITMAP ? ra__bitmap_check(&p->bitmap, pattern->args[0], shape) : RA_OK;
}

/* ---- State ----------------------------------------------------------------------------------- */

ra_status ra__blocks_add_bitmap(ra_pattern *pattern, int heads, int64_t blocks,
                                const uint8_t *active)
{
    struct blocks *p = pattern->state;
    if (p->terms & BITMAP)
        return ra__fail(RA_ERR_ARGUMENT, "pattern blocks: bitmap is given twice");
    RA__TRY(ra__bitmap_set(&p->bitmap, heads, blocks, active));
    p->terms |= BITMAP;
    return RA_OK;
}

static ra_status clone(struct ra__account *account, const void *from, void *to)
{
    const struct blocks *old = from;
    struct blocks *copy = to;
    *copy = (struct blocks){ .terms = old->terms,
                             .local = old->local,
                             .global = old->global,
                             .strided = old->strided,
                             .dilated = old->dilated,
                             .density = old->density,
                             .seed = old->seed };
    RA__TRY(ra__ratios_copy(account, &old->levels, &copy->levels));
    return ra__bitmap_copy(account, &old->bitmap, &copy->bitmap);
}

static uint64_t hash(const void *state, uint64_t so_far)
{
    const struct blocks *p = state;
    int64_t numbers[] = { (int64_t)p->terms, p->local,     p->global,       p->strided,
                          p->dilated.a,      p->dilated.b, (int64_t)p->seed };
    so_far = ra__hash(so_far, numbers, sizeof numbers);
    so_far = ra__hash(so_far, &p->density, sizeof p->density);
    return ra__bitmap_hash(&p->bitmap, ra__ratios_hash(&p->levels, so_far));
}

static void destroy(void *state)
{
    struct blocks *p = state;
    ra__ratios_free(&p->levels);
    ra__bitmap_free(&p->bitmap);
    ra__free(p->drawn);
}

const struct ra__pattern_kind ra__pattern_blocks = {
    .name = "blocks",
    .syntax = "blocks:B;TERM[;TERM...] with local=G, global=G, strided=S, dilated=R/G, "
              "levels=S/G,..., random=DENSITY;seed=K, bitmap=FILE.npy",
    .summary =
        "blocks of B positions; query block i sees key block j if any term makes the pair active",
    .samples = "blocks:4;local=1 blocks:5;global=1;local=0 blocks:4;strided=3 blocks:3;dilated=2/2 "
               "blocks:4;levels=1/1,4/3 blocks:6;random=0.3;seed=7 "
               "blocks:7;local=1;strided=4;dilated=3/1;global=1;causal",
    .min_args = 1,
    .max_args = 1,
    .sparse = true,
    .state_bytes = sizeof(struct blocks),
    .clone = clone,
    .hash = hash,
    .destroy = destroy,
    .prepare = prepare,
    .add = add,
    .write = write,
    .check = check,
    .check_lengths = check_lengths,
    .head_classes = head_classes,
    .head_class = head_class,
    .next_boundary = next_boundary,
    .period = period,
    .see = see,
};
