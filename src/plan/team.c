/* SPDX-License-Identifier: Apache-2.0 */
/* team.c - see team.h. */
#include <inttypes.h>
#include <stdlib.h>

#include "plan/team.h"

struct ra__heads ra__heads_of(const struct ra__shape *shape, int size, int member)
{
    int group = shape->q_heads / shape->kv_heads;
    struct ra__heads share = { 0 };
    if (shape->kv_heads >= size) { /* whole KV heads, with all query heads that read them */
        share.kv_first = (int)ra__chunk_start(shape->kv_heads, member, size);
        share.kv_heads = (int)ra__chunk_start(shape->kv_heads, member + 1, size) - share.kv_first;
        share.q_first = share.kv_first * group;
        share.q_heads = share.kv_heads * group;
        return share;
    }
    /* One KV head, and a part of its query heads. */
    share.kv_first = (int)ra__chunk_start(shape->kv_heads, member, size);
    int first = member, end = member + 1; /* members that have the same one */
    while (first > 0 && ra__chunk_start(shape->kv_heads, first - 1, size) == share.kv_first)
        first--;
    while (end < size && ra__chunk_start(shape->kv_heads, end, size) == share.kv_first) end++;
    int low = (int)ra__chunk_start(group, member - first, end - first);
    int high = (int)ra__chunk_start(group, member - first + 1, end - first);
    share.q_first = share.kv_first * group + low;
    share.q_heads = high - low;
    share.kv_heads = high > low;
    return share;
}

/* ---- Seats ----------------------------------------------------------------------------------- */

/* A run of a member, and its place in the layout of the team. */
struct guest {
    int member;
    ra_run at;
    int64_t home;
};

static int compare_guests(const void *a, const void *b)
{
    const struct guest *left = a, *right = b;
    return left->at.start < right->at.start ? -1 : left->at.start > right->at.start;
}

/* Runs of ranks [first, first + size), by their first positions. */
static void list_guests(const ra_layout *layout, int first, int size, struct guest *guests)
{
    int64_t count = 0;
    for (int m = 0; m < size; m++)
        for (int64_t i = layout->first[first + m]; i < layout->first[first + m + 1]; i++)
            guests[count++] = (struct guest){ m, layout->runs[i].at, layout->runs[i].row };
    qsort(guests, (size_t)count, sizeof *guests, compare_guests);
}

static int64_t count_guests(const ra_layout *layout, int first, int size)
{
    return layout->first[first + size] - layout->first[first];
}

/* The shards of one team after the other become shards of one layout. */
static ra_status seat_teams(const ra_layout *layout, int size, struct guest *guests, ra_layout *out)
{
    for (int team = 0; team < out->ranks; team++) {
        int64_t count = count_guests(layout, team * size, size);
        list_guests(layout, team * size, size, guests);
        out->first[team + 1] = out->first[team];
        for (int64_t i = 0; i < count; i++) RA__TRY(ra__layout_append(out, team, guests[i].at));
    }
    return RA_OK;
}

/* Where the runs of this team are stored: one after the other, in the order of the layout. */
static ra_status list_units(const ra_layout *layout, const struct ra__team *team,
                            struct ra__account *account, struct guest *guests,
                            struct ra__team_layout *seats)
{
    size_t count = (size_t)count_guests(layout, team->first, team->size), used = 0;
    seats->units = ra__alloc_array(account, RA__FOR_BOOKKEEPING, count, sizeof *seats->units);
    seats->first = ra__alloc_array(account, RA__FOR_BOOKKEEPING, (size_t)team->size + 1,
                                   sizeof *seats->first);
    if (!seats->units || !seats->first)
        return ra__fail(RA_ERR_MEMORY, "plan: %zu runs of a team", count);
    list_guests(layout, team->first, team->size, guests);
    for (int m = 0; m < team->size; m++) {
        int64_t row = 0;
        for (size_t i = 0; i < count; i++) {
            if (guests[i].member == m)
                seats->units[used++] = (struct ra__team_run){ guests[i].home, row,
                                                              guests[i].at.count };
            row += guests[i].at.count;
        }
        seats->first[m + 1] = (int)used;
    }
    return RA_OK;
}

static int64_t most_guests(const ra_layout *layout, int size)
{
    int64_t most = 0;
    for (int first = 0; first < layout->ranks; first += size)
        most = ra__max(most, count_guests(layout, first, size));
    return most;
}

static ra_status make_seats(const ra_layout *layout, const struct ra__team *team,
                            struct ra__account *account, struct ra__team_layout *seats)
{
    size_t most = (size_t)most_guests(layout, team->size);
    struct guest *guests = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, most, sizeof *guests);
    if (!guests) return ra__fail(RA_ERR_MEMORY, "plan: %zu runs of a team", most);
    ra_status status = ra__layout_create_empty(layout->length, layout->ranks / team->size,
                                               &seats->layout);
    if (status == RA_OK && team->share.q_heads > 0)
        status = seat_teams(layout, team->size, guests, seats->layout);
    if (status == RA_OK) status = list_units(layout, team, account, guests, seats);
    if (seats->layout) ra__layout_charge(account, seats->layout);
    ra__free(guests);
    return status;
}

ra_status ra__team_make(const struct ra__team_input *input, struct ra__account *account,
                        struct ra__team *team)
{
    int member = input->rank % input->size;
    *team = (struct ra__team){ .size = input->size,
                               .member = member,
                               .first = input->rank - member,
                               .share = ra__heads_of(input->shape, input->size, member),
                               .shared = input->shape->kv_heads < input->size };
    if (input->size == 1) return RA_OK;
    RA__TRY(make_seats(input->q_layout, team, account, &team->q));
    return make_seats(input->k_layout, team, account, &team->k);
}

static void clear_seats(struct ra__team_layout *seats)
{
    ra_layout_destroy(seats->layout);
    ra__free(seats->units);
    ra__free(seats->first);
}

void ra__team_clear(struct ra__team *team)
{
    clear_seats(&team->q);
    clear_seats(&team->k);
    *team = (struct ra__team){ 0 };
}
