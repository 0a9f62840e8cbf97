/* SPDX-License-Identifier: Apache-2.0 */
/* maskfile.c - the mask of a pattern as a file. */
#include "maskfile.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "harness/files/safetensors.h"
#include "harness/files/tensorfile.h"
#include "harness/text/number.h"
#include "harness/problem/order.h"
#include "harness/problem/places.h"
#include "harness/files/png.h"

#define MASK_MOST 4096                /* queries and keys */
#define PAIRS_MOST ((int64_t)1 << 28) /* over all heads that are drawn */
#define SIDE_LEAST 256                /* pixels of a tile, so that a small one can be seen */
#define GAP 4                         /* pixels between tiles */

enum { WHITE = 255, BETWEEN_TILES = 128 };

/* ---- What is wanted -------------------------------------------------------------------------- */

static bool ends_in(const char *path, const char *ending)
{
    size_t length = strlen(path);
    return length > strlen(ending) && !strcasecmp(path + length - strlen(ending), ending);
}

static bool is_numbers(const char *path) { return ends_in(path, ".npy") || safetensors_is(path); }

static bool all_heads(const struct options *o) { return o->head && !strcmp(o->head, "all"); }

/* The heads to draw, as [*first, *first + *count). */
static int find_heads(const struct options *o, int64_t *first, int64_t *count)
{
    *first = 0;
    *count = all_heads(o) ? o->trial.q_heads : 1;
    if (!o->head || all_heads(o)) return EXIT_PASS;
    return number_whole("--head", o->head, 0, o->trial.q_heads - 1, first);
}

/* Nothing that is read may be overwritten. */
static int check_file(const struct options *o)
{
    const char *order = places_is_file(o->trial.order) ? o->trial.order : NULL;
    char *bitmap = trial_bitmap(&o->trial);
    struct tensorfile to;
    int status = tensorfile_name(&to, o->mask);
    if (!status && order && outfile_same(order, to.file))
        status = refuse("--mask would overwrite %s, the file of --order", order);
    if (!status && bitmap && outfile_same(bitmap, to.file))
        status = refuse("--mask would overwrite %s, the file of --pattern", o->mask);
    if (!status) status = safetensors_check("--mask", o->mask);
    if (!status) status = outfile_check("--mask", to.file);
    tensorfile_free(&to);
    free(bitmap);
    return status;
}

int maskfile_check(const struct options *o)
{
    const struct trial *t = &o->trial;
    int64_t first, count;
    if (!o->mask) return o->head ? refuse("--head is for --mask") : EXIT_PASS;
    if (!is_numbers(o->mask) && !ends_in(o->mask, ".png") && !ends_in(o->mask, ".pgm"))
        return refuse("--mask: %s must end in .npy, .safetensors, .png or .pgm", o->mask);
    if (t->q_len > MASK_MOST || t->k_len > MASK_MOST)
        return refuse("--mask: %" PRId64 " x %" PRId64 " is too large to look at; at most %d x %d",
                      t->q_len, t->k_len, MASK_MOST, MASK_MOST);
    if (t->k_len == 0) return refuse("--mask: there are no keys to look at");
    int status = find_heads(o, &first, &count);
    if (status) return status;
    if (count * t->q_len * t->k_len > PAIRS_MOST)
        return refuse("--mask: %" PRId64 " heads of %" PRId64 " x %" PRId64
                      " are too large to look at; name one with --head",
                      count, t->q_len, t->k_len);
    return check_file(o);
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* How often every key is seen, [head, query, key]. */
struct counts {
    int64_t heads, q_len, k_len;
    unsigned char *seen;
    int most;
};

static ra_status fill_rows(const ra_problem *problem, int64_t first, struct counts *c)
{
    ra_status status = RA_OK;
    for (int64_t row = 0; row < c->heads * c->q_len && status == RA_OK; row++)
        status = ra_problem_row(problem, (int)(first + row / c->q_len), row % c->q_len,
                                c->seen + row * c->k_len);
    for (int64_t i = 0; i < c->heads * c->q_len * c->k_len && status == RA_OK; i++)
        if (c->seen[i] > c->most) c->most = c->seen[i];
    return status;
}

static int fill_counts(const struct options *o, int64_t first, struct counts *c)
{
    const struct trial *t = &o->trial;
    ra_problem problem = trial_problem(t);
    ra_pattern *pattern = NULL;
    ra_order *order = NULL;
    int result = library_failed(ra_pattern_parse(t->pattern ? t->pattern : "full", &pattern));
    if (!result) result = order_open(t, &order);
    problem.pattern = pattern;
    problem.order = order;
    if (!result) result = library_failed(fill_rows(&problem, first, c));
    ra_order_destroy(order);
    ra_pattern_destroy(pattern);
    return result;
}

static int write_numbers(const struct options *o, const struct counts *c,
                         const struct tensorfile *to, struct outfile *file)
{
    struct npy_output output = {
        .bytes = true, .axes = 2, .shape = { c->q_len, c->k_len }, .data = c->seen
    };
    if (all_heads(o)) {
        const int64_t shape[] = { c->heads, c->q_len, c->k_len };
        output.axes = COUNT(shape);
        memcpy(output.shape, shape, sizeof shape);
    }
    return tensorfile_write(file, to, &output);
}

/* ---- Picture --------------------------------------------------------------------------------- */

/* A picture for each head, in rows of as many as make the whole about square. */
struct tiling {
    int64_t zoom, columns, rows;
};

static struct tiling arrange(const struct counts *c)
{
    int64_t side = c->q_len > c->k_len ? c->q_len : c->k_len;
    struct tiling tiling = { (SIDE_LEAST + side - 1) / side, 1, 1 };
    while (tiling.columns * tiling.columns < c->heads) tiling.columns++;
    tiling.rows = (c->heads + tiling.columns - 1) / tiling.columns;
    return tiling;
}

/* White for hidden keys, black for those seen most often. */
static void draw_tile(const struct counts *c, const struct tiling *tiling, int64_t tile,
                      struct picture *p)
{
    int64_t zoom = tiling->zoom;
    int64_t top = tile / tiling->columns * (c->q_len * zoom + GAP);
    int64_t left = tile % tiling->columns * (c->k_len * zoom + GAP);
    for (int64_t y = 0; y < c->q_len * zoom; y++)
        for (int64_t x = 0; x < c->k_len * zoom; x++) {
            int seen = c->seen[(tile * c->q_len + y / zoom) * c->k_len + x / zoom];
            p->pixels[(top + y) * p->width + left + x] =
                (unsigned char)(WHITE - (c->most ? WHITE * seen / c->most : 0));
        }
}

static int write_picture(const struct options *o, const struct counts *c, struct outfile *file)
{
    struct tiling tiling = arrange(c);
    struct picture p = {
        .width = (uint32_t)(tiling.columns * (c->k_len * tiling.zoom + GAP) - GAP),
        .height = (uint32_t)(tiling.rows * (c->q_len * tiling.zoom + GAP) - GAP),
    };
    size_t bytes = (size_t)p.width * p.height;
    int status = outfile_open(file, o->mask);
    if (status) return status;
    p.pixels = malloc(bytes);
    if (!p.pixels) return fault("out of memory: a picture of %zu pixels", bytes);
    memset(p.pixels, BETWEEN_TILES, bytes);
    for (int64_t tile = 0; tile < c->heads; tile++) draw_tile(c, &tiling, tile, &p);
    if (ends_in(o->mask, ".png")) png_write(file->stream, &p);
    else pgm_write(file->stream, &p);
    free(p.pixels);
    return outfile_finish(file);
}

int maskfile_write(const struct options *o)
{
    struct outfile file = { .path = NULL };
    struct tensorfile to;
    struct counts c = { .q_len = o->trial.q_len, .k_len = o->trial.k_len };
    int64_t first;
    int status = find_heads(o, &first, &c.heads);
    if (status) return status;
    c.seen = malloc((size_t)(c.heads * c.q_len * c.k_len));
    if (!c.seen) return fault("out of memory: %" PRId64 " heads of a mask", c.heads);
    status = tensorfile_name(&to, o->mask);
    if (!status) status = fill_counts(o, first, &c);
    if (!status)
        status = is_numbers(o->mask) ? write_numbers(o, &c, &to, &file)
                                     : write_picture(o, &c, &file);
    if (!status) status = outfile_commit(&file);
    outfile_discard(&file);
    tensorfile_free(&to);
    free(c.seen);
    return status;
}
