/* SPDX-License-Identifier: Apache-2.0 */
/* test_team.c - teams: which member has which heads, and where the tokens of members are stored. */
#include "support/walk.h"

#include "plan/team.h"

/* ---- Heads ----------------------------------------------------------------------------------- */

/* Every query head is in one slice, next to its KV head, and slices of a KV head are as equal as
 * possible. */
static void check_heads(int q_heads, int kv_heads, int size)
{
    struct ra__shape shape = { .q_heads = q_heads, .kv_heads = kv_heads };
    int group = q_heads / kv_heads, next = 0;
    for (int m = 0; m < size; m++) {
        struct ra__heads slice = ra__heads_of(&shape, size, m);
        assert_int_equal(slice.q_first, slice.q_heads ? next : slice.q_first);
        assert_int_equal(slice.q_heads > 0, slice.kv_heads > 0);
        if (slice.q_heads == 0) continue;
        next = slice.q_first + slice.q_heads;
        assert_int_equal(slice.q_first / group, slice.kv_first);
        assert_int_equal((next - 1) / group, slice.kv_first + slice.kv_heads - 1);
        /* The heads of a plan number from 0, and their KV heads follow from that. */
        assert_int_equal(slice.q_heads % slice.kv_heads, 0);
        if (kv_heads >= size) assert_int_equal(slice.q_heads, slice.kv_heads * group);
        else assert_int_equal(slice.kv_heads, 1);
        if (kv_heads % size == 0) assert_int_equal(slice.kv_heads, kv_heads / size);
        if (q_heads >= size) assert_true(slice.q_heads > 0);
    }
    assert_int_equal(next, q_heads);
}

static void every_head_has_one_place(void **state)
{
    (void)state;
    for (int kv_heads = 1; kv_heads <= 12; kv_heads++)
        for (int group = 1; group <= 6; group++)
            for (int size = 1; size <= 16; size++) check_heads(kv_heads * group, kv_heads, size);
}

/* ---- Seats ----------------------------------------------------------------------------------- */

enum { MOST_N = 200 };

static int64_t position_of(const ra_layout *layout, int rank, int64_t row)
{
    for (int64_t i = layout->first[rank]; i < layout->first[rank + 1]; i++) {
        const struct ra__shard_run *run = &layout->runs[i];
        if (row >= run->token && row < run->token + run->at.count)
            return run->at.start + (row - run->token) * run->at.step;
    }
    return -1;
}

/* Rows of the members are where the layout of teams says that their positions are, each once. */
static void check_runs(const struct ra__team *team, const ra_layout *home, int rank)
{
    int team_index = rank / team->size;
    bool taken[MOST_N] = { false };
    int64_t rows = 0;
    for (int m = 0; m < team->size; m++)
        for (int i = team->q.first[m]; i < team->q.first[m + 1]; i++) {
            const struct ra__team_run *run = &team->q.runs[i];
            for (int64_t k = 0; k < run->count; k++, rows++) {
                assert_false(taken[run->team_token + k]);
                taken[run->team_token + k] = true;
                assert_int_equal(position_of(home, team->first + m, run->member_token + k),
                                 position_of(team->q.layout, team_index, run->team_token + k));
            }
        }
    assert_int_equal(rows, team->q.layout->count[team_index]);
}

/* Keys are found in a layout whose runs interleave: all keys of a tile, each once. */
static void check_search(const ra_layout *layout, int owner, int64_t n, ra_run keys)
{
    struct ra__tile tile = { keys, { RA__UNBOUNDED, RA__UNBOUNDED }, false };
    bool found[MOST_N] = { false };
    struct ra__key_run run;
    int64_t cursor = 0, owned = 0, count = 0;
    while (ra__layout_next_keys(layout, owner, &tile, &cursor, &run))
        for (int64_t i = 0; i < run.count; i++, count++) {
            int64_t position = run.pos + i * run.pos_step;
            assert_in_range(position, 0, n - 1);
            assert_false(found[position]);
            found[position] = true;
            assert_int_equal(position_of(layout, owner, run.token + i * run.token_step), position);
        }
    for (int64_t row = 0; row < layout->count[owner]; row++) {
        int64_t position = position_of(layout, owner, row);
        owned += position >= keys.start && position <= ra__run_last(keys) &&
                 (position - keys.start) % keys.step == 0;
    }
    assert_int_equal(count, owned);
}

static void check_team(const char *partition, int64_t n, int ranks, int size, int rank)
{
    struct ra__account account = { { 0 } };
    struct ra__shape shape = { .q_heads = size, .kv_heads = size };
    struct ra__team team;
    ra_layout *home;
    assert_ok(ra_layout_create(partition, n, ranks, NULL, &home));
    struct ra__team_input input = { &shape, home, home, size, rank };
    assert_ok(ra__team_make(&input, &account, &team));
    assert_int_equal(team.first, rank - rank % size);
    check_runs(&team, home, rank);
    for (int owner = 0; owner < ranks / size; owner++)
        for (int64_t start = 0; start < n; start += 1 + n / 5)
            for (int64_t step = 1; step < 6; step++) {
                int64_t most = (n - 1 - start) / step + 1;
                check_search(team.q.layout, owner, n, (ra_run){ start, step, most });
                check_search(team.q.layout, owner, n, (ra_run){ start, step, (most + 1) / 2 });
            }
    ra__team_clear(&team);
    ra_layout_destroy(home);
    assert_int_equal(account.bytes[RA__FOR_BOOKKEEPING], 0);
    assert_int_equal(ra_allocated_bytes(), 0);
}

static void tokens_of_members_have_places(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 1, 2, 7, 13, 64, 97, MOST_N };
    static const int sizes[][2] = { { 2, 2 }, { 4, 2 }, { 6, 3 }, { 8, 4 }, { 8, 8 }, { 9, 3 } };
    ra_part partition;
    for (int p = 0; walk_part("partition", p, &partition); p++)
        for (int l = 0; l < TEST_COUNT(lengths); l++)
            for (int s = 0; s < TEST_COUNT(sizes); s++)
                for (int rank = 0; rank < sizes[s][0]; rank++)
                    check_team(partition.name, lengths[l], sizes[s][0], sizes[s][1], rank);
}

/* However long the sequence, there are as many runs as partitions have: none of this grows. */
static void runs_do_not_grow_with_n(void **state)
{
    (void)state;
    ra_part partition;
    for (int p = 0; walk_part("partition", p, &partition); p++) {
        struct ra__account account = { { 0 } };
        struct ra__shape shape = { .q_heads = 4, .kv_heads = 4 };
        struct ra__team team;
        ra_layout *home;
        assert_ok(ra_layout_create(partition.name, (int64_t)1 << 30, 8, NULL, &home));
        struct ra__team_input input = { &shape, home, home, 4, 5 };
        assert_ok(ra__team_make(&input, &account, &team));
        assert_true(team.q.layout->run_count <= 2 * 8);
        assert_true(account.bytes[RA__FOR_BOOKKEEPING] < 8192);
        ra__team_clear(&team);
        ra_layout_destroy(home);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_head_has_one_place),
        cmocka_unit_test(tokens_of_members_have_places),
        cmocka_unit_test(runs_do_not_grow_with_n),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
