/* SPDX-License-Identifier: Apache-2.0 */
/* team.c - see team.h. */
#include <inttypes.h>
#include <stdlib.h>

#include "plan/team.h"

struct ra__heads ra__heads_of(const struct ra__shape *shape, int size, int member)
{
    int group = shape->q_heads / shape->kv_heads;
    struct ra__heads slice = { 0 };
    if (shape->kv_heads >= size) { /* whole KV heads, with all query heads that read them */
        slice.kv_first = (int)ra__chunk_start(shape->kv_heads, member, size);
        slice.kv_heads = (int)ra__chunk_start(shape->kv_heads, member + 1, size) - slice.kv_first;
        slice.q_first = slice.kv_first * group;
        slice.q_heads = slice.kv_heads * group;
        return slice;
    }
    /* One KV head, and a part of its query heads. */
    slice.kv_first = (int)ra__chunk_start(shape->kv_heads, member, size);
    int first = member, end = member + 1; /* members that have the same one */
    while (first > 0 && ra__chunk_start(shape->kv_heads, first - 1, size) == slice.kv_first)
        first--;
    while (end < size && ra__chunk_start(shape->kv_heads, end, size) == slice.kv_first) end++;
    int low = (int)ra__chunk_start(group, member - first, end - first);
    int high = (int)ra__chunk_start(group, member - first + 1, end - first);
    slice.q_first = slice.kv_first * group + low;
    slice.q_heads = high - low;
    slice.kv_heads = high > low;
    return slice;
}

/* ---- Positions ------------------------------------------------------------------------------- */

/* A run of a member. */
struct member_run {
    int member;
    ra_run at;     /* positions */
    int64_t token; /* of the member's shard: where the first of them is stored */
};

static int compare_runs(const void *a, const void *b)
{
    const struct member_run *left = a, *right = b;
    return left->at.start < right->at.start ? -1 : left->at.start > right->at.start;
}

/* Runs of ranks [first, first + size), by their first positions. */
static void list_runs(const ra_layout *layout, int first, int size, struct member_run *runs)
{
    int64_t count = 0;
    for (int m = 0; m < size; m++)
        for (int64_t i = layout->first[first + m]; i < layout->first[first + m + 1]; i++)
            runs[count++] = (struct member_run){ m, layout->runs[i].at, layout->runs[i].token };
    qsort(runs, (size_t)count, sizeof *runs, compare_runs);
}

static int64_t count_runs(const ra_layout *layout, int first, int size)
{
    return layout->first[first + size] - layout->first[first];
}

/* The shards of one team after the other become shards of one layout. */
static ra_status join_teams(const ra_layout *layout, int size, struct member_run *runs,
                            ra_layout *out)
{
    for (int team = 0; team < out->ranks; team++) {
        int64_t count = count_runs(layout, team * size, size);
        list_runs(layout, team * size, size, runs);
        out->first[team + 1] = out->first[team];
        for (int64_t i = 0; i < count; i++) RA__TRY(ra__layout_append(out, team, runs[i].at));
    }
    return RA_OK;
}

/* Where the runs of this team are stored: one after the other, in the order of the layout. */
static ra_status place_runs(const ra_layout *layout, const struct ra__team *team,
                            struct ra__account *account, struct member_run *runs,
                            struct ra__team_layout *side)
{
    size_t count = (size_t)count_runs(layout, team->first, team->size), used = 0;
    side->runs = ra__alloc_array(account, RA__FOR_BOOKKEEPING, count, sizeof *side->runs);
    side->first = ra__alloc_array(account, RA__FOR_BOOKKEEPING, (size_t)team->size + 1,
                                  sizeof *side->first);
    if (!side->runs || !side->first)
        return ra__fail(RA_ERR_MEMORY, "plan: %zu runs of a team", count);
    list_runs(layout, team->first, team->size, runs);
    for (int m = 0; m < team->size; m++) {
        int64_t token = 0; /* of the team's shard */
        for (size_t i = 0; i < count; i++) {
            if (runs[i].member == m)
                side->runs[used++] = (struct ra__team_run){ runs[i].token, token,
                                                            runs[i].at.count };
            token += runs[i].at.count;
        }
        side->first[m + 1] = (int)used;
    }
    return RA_OK;
}

static int64_t most_runs(const ra_layout *layout, int size)
{
    int64_t most = 0;
    for (int first = 0; first < layout->ranks; first += size)
        most = ra__max(most, count_runs(layout, first, size));
    return most;
}

static ra_status make_layout(const ra_layout *layout, const struct ra__team *team,
                             struct ra__account *account, struct ra__team_layout *side)
{
    size_t most = (size_t)most_runs(layout, team->size);
    struct member_run *runs = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, most, sizeof *runs);
    if (!runs) return ra__fail(RA_ERR_MEMORY, "plan: %zu runs of a team", most);
    ra_status status = ra__layout_create_empty(layout->length, layout->ranks / team->size,
                                               &side->layout);
    if (status == RA_OK && team->slice.q_heads > 0)
        status = join_teams(layout, team->size, runs, side->layout);
    if (status == RA_OK) status = place_runs(layout, team, account, runs, side);
    if (side->layout) ra__layout_charge(account, side->layout);
    ra__free(runs);
    return status;
}

ra_status ra__team_make(const struct ra__team_input *input, struct ra__account *account,
                        struct ra__team *team)
{
    int member = input->rank % input->size;
    *team = (struct ra__team){ .size = input->size,
                               .member = member,
                               .first = input->rank - member,
                               .slice = ra__heads_of(input->shape, input->size, member),
                               .shared = input->shape->kv_heads < input->size };
    if (input->size == 1) return RA_OK;
    RA__TRY(make_layout(input->q_layout, team, account, &team->q));
    return make_layout(input->k_layout, team, account, &team->k);
}

static void clear_layout(struct ra__team_layout *side)
{
    ra_layout_destroy(side->layout);
    ra__free(side->runs);
    ra__free(side->first);
}

void ra__team_clear(struct ra__team *team)
{
    clear_layout(&team->q);
    clear_layout(&team->k);
    *team = (struct ra__team){ 0 };
}
