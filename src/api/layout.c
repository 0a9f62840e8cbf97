/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - the public functions of layouts: making them, and permuting arrays. */
#include <inttypes.h>
#include <string.h>

#include "api/handles.h"

static ra_status check_ranks(int ranks)
{
    if (ranks >= 1 && ranks <= RA__MOST_RANKS) return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT, "layout: %d ranks; there may be 1 to %d", ranks,
                    RA__MOST_RANKS);
}

ra_status ra_layout_create(const char *partition, int64_t length, int ranks,
                           const ra_pattern *pattern, ra_layout **out)
{
    if (!out) return ra__fail(RA_ERR_ARGUMENT, "layout: NULL argument");
    RA__TRY(check_ranks(ranks));
    return ra__layout_create(partition, length, ranks, pattern, out);
}

ra_status ra_layout_create_parts(const char *partition, const int64_t *bounds, int64_t count,
                                 int ranks, ra_layout **out)
{
    if (!bounds || !out) return ra__fail(RA_ERR_ARGUMENT, "layout: NULL argument");
    RA__TRY(check_ranks(ranks));
    RA__TRY(ra__check_bounds("layout", bounds, count));
    return ra__layout_create_parts(partition, bounds, count, ranks, out);
}

ra_status ra_layout_create_custom(int64_t length, int ranks, const ra_run *runs,
                                  const int64_t *counts, ra_layout **out)
{
    if ((!runs && length > 0) || !counts || !out)
        return ra__fail(RA_ERR_ARGUMENT, "layout: NULL argument");
    RA__TRY(check_ranks(ranks));
    return ra__layout_create_custom(length, ranks, runs, counts, out);
}

static bool has_rank(const ra_layout *layout, int rank)
{
    return layout && rank >= 0 && rank < layout->ranks;
}

int64_t ra_layout_count(const ra_layout *layout, int rank)
{
    return has_rank(layout, rank) ? layout->count[rank] : 0;
}

int64_t ra_layout_runs(const ra_layout *layout, int rank, ra_run *runs, int64_t capacity)
{
    if (!has_rank(layout, rank)) return 0;
    int64_t count = layout->first[rank + 1] - layout->first[rank];
    for (int64_t i = 0; runs && i < count && i < capacity; i++)
        runs[i] = layout->runs[layout->first[rank] + i].at;
    return count;
}

/* Between global order and a shard that starts `shard_start` positions into an array of
 * `shard_length` per batch item. */
struct shard_copy {
    int rank;
    bool to_shard;
    int64_t shard_start, shard_length;
};

static void copy_run(const ra_array *array, const struct ra__shard_run *run,
                     const struct shard_copy *way, size_t global_batch, size_t shard_batch)
{
    size_t bytes = array->bytes,
           shard_at = shard_batch + (size_t)(way->shard_start + run->token) * bytes;
    size_t global_at = global_batch + (size_t)run->at.start * bytes,
           step = (size_t)run->at.step * bytes;
    const char *from = (const char *)array->from + (way->to_shard ? global_at : shard_at);
    char *to = (char *)array->to + (way->to_shard ? shard_at : global_at);
    size_t from_step = way->to_shard ? step : bytes, to_step = way->to_shard ? bytes : step;
    if (step == bytes) {
        memcpy(to, from, bytes * (size_t)run->at.count);
        return;
    }
    for (int64_t i = 0; i < run->at.count; i++)
        memcpy(to + (size_t)i * to_step, from + (size_t)i * from_step, bytes);
}

static void copy_shard(const ra_layout *layout, const ra_array *array, struct shard_copy way)
{
    for (int64_t batch = 0; batch < array->batch; batch++)
        for (int64_t i = layout->first[way.rank]; i < layout->first[way.rank + 1]; i++)
            copy_run(array, &layout->runs[i], &way, (size_t)(batch * layout->length) * array->bytes,
                     (size_t)(batch * way.shard_length) * array->bytes);
}

static ra_status check_arrays(const ra_layout *layout, const ra_array *arrays, int count)
{
    if (!layout) return ra__fail(RA_ERR_ARGUMENT, "layout: NULL argument");
    return ra__check_arrays("layout", layout->length, arrays, count);
}

static ra_status copy_all(const ra_layout *layout, const ra_array *arrays, int count, bool to_shard)
{
    RA__TRY(check_arrays(layout, arrays, count));
    for (int i = 0; i < count; i++) {
        int64_t start = 0;
        for (int rank = 0; rank < layout->ranks; rank++) {
            copy_shard(layout, &arrays[i],
                       (struct shard_copy){ rank, to_shard, start, layout->length });
            start += layout->count[rank];
        }
    }
    return RA_OK;
}

static ra_status copy_one(const ra_layout *layout, int rank, const ra_array *arrays, int count,
                          bool to_shard)
{
    RA__TRY(check_arrays(layout, arrays, count));
    if (!has_rank(layout, rank))
        return ra__fail(RA_ERR_ARGUMENT, "layout: rank %d of %d", rank, layout->ranks);
    for (int i = 0; i < count; i++)
        copy_shard(layout, &arrays[i],
                   (struct shard_copy){ rank, to_shard, 0, layout->count[rank] });
    return RA_OK;
}

ra_status ra_layout_permute(const ra_layout *layout, const ra_array *arrays, int count)
{
    return copy_all(layout, arrays, count, true);
}
ra_status ra_layout_restore(const ra_layout *layout, const ra_array *arrays, int count)
{
    return copy_all(layout, arrays, count, false);
}
ra_status ra_layout_take(const ra_layout *layout, int rank, const ra_array *arrays, int count)
{
    return copy_one(layout, rank, arrays, count, true);
}
ra_status ra_layout_give(const ra_layout *layout, int rank, const ra_array *arrays, int count)
{
    return copy_one(layout, rank, arrays, count, false);
}
