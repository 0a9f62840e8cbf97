/* allgather.c - every rank first collects all keys its queries see, in global order, then works on
 * them at once. Costs the memory of all those keys; gives the same bits for every rank count,
 * because a row meets its keys in the same order and in the same blocks wherever it is computed.
 *
 * Wave h: the own block goes to rank p + h, that of rank p - h comes; it is put in its place while
 * the next one arrives. Backward, the gradients of gathered keys go home in waves of the same kind.
 */
#include "plan/builder.h"

static enum ra__slot wave_slot(int wave)
{
    return wave % 2 ? RA__SLOT_TRAVEL_A : RA__SLOT_TRAVEL_B;
}
static enum ra__slot sum_slot(int wave) { return wave % 2 ? RA__GRAD_A : RA__GRAD_B; }

/* The stretch of positions that holds all keys of the rows of this rank. */
static struct ra__range gathered(const struct ra__builder *b)
{
    struct ra__range hull = { RA__FAR, 0 };
    for (int r = 0; r < b->row_count; r++)
        for (int i = 0; i < b->rows[r].sight_count; i++) {
            ra_run keys = b->rows[r].sights[i].keys;
            hull.lo = ra__min(hull.lo, keys.start);
            hull.hi = ra__max(hull.hi, ra__run_last(keys) + 1);
        }
    return hull.lo < hull.hi ? hull : (struct ra__range){ 0, 0 };
}

static ra_status put_copy(struct ra__builder *b, enum ra__op op, int wave, int block,
                          enum ra__slot from, enum ra__slot to, const struct ra__ranges *ranges)
{
    if (ranges->count == 0) return RA_OK;
    ra__use_slot(b, to, op == RA__OP_PLACE ? 0 : ra__block_rows(b, block));
    return ra__put_step(
        b, (struct ra__step){
               .op = op, .hop = wave, .block = block, .from = from, .to = to, .range = *ranges });
}

static ra_status start_key_wave(struct ra__builder *b, int wave)
{
    if (wave >= b->ranks) return RA_OK;
    int reader = ra__peer(b, wave), owner = ra__peer(b, -wave);
    const struct ra__ranges *coming = &b->flows[owner].seen;
    if (coming->count) ra__use_slot(b, wave_slot(wave), ra__block_rows(b, owner));
    RA__TRY(ra__open_round(b, wave));
    RA__TRY(ra__send(b, reader, RA__TOPIC_KEYS, RA__SLOT_PACKED, &b->wanted[reader]));
    RA__TRY(ra__recv(b, owner, RA__TOPIC_KEYS, wave_slot(wave), coming));
    return ra__put_move(b);
}

static ra_status gather(struct ra__builder *b)
{
    struct ra__range hull = gathered(b);
    const struct ra__ranges *leaving = &b->flows[b->rank].onward;
    b->plan->gather_base = hull.lo;
    ra__use_slot(b, RA__SLOT_GATHER, hull.hi - hull.lo);
    RA__TRY(put_copy(b, RA__OP_PACK, 0, b->rank, RA__SLOT_OWN, RA__SLOT_PACKED, leaving));
    RA__TRY(start_key_wave(b, 1));
    RA__TRY(put_copy(b, RA__OP_PLACE, 0, b->rank, RA__SLOT_OWN, RA__SLOT_GATHER,
                     &b->flows[b->rank].seen));
    for (int wave = 1; wave < b->ranks; wave++) {
        int owner = ra__peer(b, -wave);
        RA__TRY(ra__put_wait(b));
        RA__TRY(start_key_wave(b, wave + 1));
        RA__TRY(put_copy(b, RA__OP_PLACE, wave, owner, wave_slot(wave), RA__SLOT_GATHER,
                         &b->flows[owner].seen));
    }
    return RA_OK;
}

static ra_status forward(struct ra__builder *b)
{
    if (b->ranks == 1) return ra__put_attend_gathered(b, RA__SLOT_OWN, RA__SLOT_OWN);
    RA__TRY(gather(b));
    return ra__put_attend_gathered(b, RA__SLOT_GATHER, RA__SLOT_OWN);
}

/* Wave h of the way home: my sums for the block of rank p + h leave, those of rank p - h for my
 * block arrive and are added, always in the same order. */
static ra_status return_wave(struct ra__builder *b, int wave)
{
    int owner = ra__peer(b, wave), reader = ra__peer(b, -wave);
    const struct ra__ranges *leaving = &b->flows[owner].seen;
    const struct ra__ranges *coming = &b->wanted[reader];
    RA__TRY(put_copy(b, RA__OP_PICK, wave, owner, RA__GRAD_GATHER, sum_slot(wave), leaving));
    if (coming->count) ra__use_slot(b, RA__GRAD_ARRIVE, ra__block_rows(b, b->rank));
    RA__TRY(ra__open_round(b, b->ranks - 1 + wave));
    RA__TRY(ra__send(b, owner, RA__TOPIC_HOME, sum_slot(wave), leaving));
    RA__TRY(ra__recv(b, reader, RA__TOPIC_HOME, RA__GRAD_ARRIVE, coming));
    RA__TRY(ra__put_move(b));
    RA__TRY(ra__put_wait(b));
    return put_copy(b, RA__OP_ADD, wave, b->rank, RA__GRAD_ARRIVE, RA__GRAD_OWN, coming);
}

static ra_status put_clear(struct ra__builder *b, enum ra__slot slot, int64_t rows)
{
    struct ra__step clear = { .op = RA__OP_CLEAR, .block = b->rank, .to = slot };
    ra__ranges_add(&clear.range, 0, rows);
    ra__use_slot(b, slot, rows);
    return clear.range.count ? ra__put_step(b, clear) : RA_OK;
}

static ra_status backward(struct ra__builder *b)
{
    struct ra__step finish = { .op = RA__OP_FINISH, .block = b->rank };
    RA__TRY(put_clear(b, RA__GRAD_OWN, ra__block_rows(b, b->rank)));
    if (b->ranks == 1) {
        RA__TRY(ra__put_attend_gathered(b, RA__SLOT_OWN, RA__GRAD_OWN));
        return ra__put_step(b, finish);
    }
    RA__TRY(gather(b));
    RA__TRY(put_clear(b, RA__GRAD_GATHER, b->plan->slot_rows[RA__SLOT_GATHER]));
    RA__TRY(ra__put_attend_gathered(b, RA__SLOT_GATHER, RA__GRAD_GATHER));
    RA__TRY(put_copy(b, RA__OP_PICK, 0, b->rank, RA__GRAD_GATHER, RA__GRAD_OWN,
                     &b->flows[b->rank].seen));
    for (int wave = 1; wave < b->ranks; wave++) RA__TRY(return_wave(b, wave));
    return ra__put_step(b, finish);
}

const struct ra__strategy ra__strategy_allgather = {
    .name = "allgather",
    .summary = "all keys a rank sees are collected first; same bits for every rank count",
    .forward = forward,
    .backward = backward,
};
