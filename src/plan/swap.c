/* swap.c - a team swaps heads before a program, and results go home behind it.
 *
 * Wave w: what member u + w gets is packed and sent, what member u - w sent is put in its place
 * while that of the next one arrives. The own part is copied while the first one arrives. What is
 * in a message is counted here and moved by exec/swap.c. */
#include "core/dtype.h"
#include "plan/builder.h"

/* Bytes of one row and head on their way, of queries and of keys. */
struct freight {
    int64_t q, k;
};

/* In: Q, K, V; backward also the gradient of the result, the LSE and delta. Out: the result and its
 * LSE; backward dQ, dK and dV: rounded to the dtype, since they are complete, unless members share
 * KV heads. */
static struct freight freight_of(const struct ra__builder *b, bool in)
{
    const struct ra__shape *s = &b->plan->home.shape;
    bool forward = b->program == &b->plan->forward;
    int64_t e = (int64_t)ra__dtype_bytes(s->dtype), f = (int64_t)sizeof(float);
    int64_t sums = b->plan->team.shared ? f : e;
    if (in && forward) return (struct freight){ s->dim * e, (s->dim + s->value_dim) * e };
    if (in)
        return (struct freight){ (s->dim + s->value_dim) * e + 2 * f, (s->dim + s->value_dim) * e };
    if (forward) return (struct freight){ s->value_dim * e + f, 0 };
    return (struct freight){ s->dim * e, (s->dim + s->value_dim) * sums };
}

/* Too much for a number is refused later, when memory is counted. */
static int64_t product(int64_t a, int64_t b)
{
    int64_t c;
    return __builtin_mul_overflow(a, b, &c) ? RA__FAR : ra__min(c, RA__FAR);
}

/* The rows of one member with the heads of another. */
static int64_t bytes_between(const struct ra__builder *b, bool in, int rows_of, int heads_of)
{
    const struct ra__plan_input *home = &b->plan->home;
    const struct ra__team *team = &b->plan->team;
    struct freight freight = freight_of(b, in);
    struct ra__heads share = ra__heads_of(&home->shape, team->size, heads_of);
    int64_t q_rows = home->q_layout->count[team->first + rows_of];
    int64_t k_rows = home->k_layout->count[team->first + rows_of];
    int64_t q_bytes = product(product(q_rows, share.q_heads), freight.q);
    int64_t k_bytes = product(product(k_rows, share.kv_heads), freight.k);
    return product(home->shape.batch, q_bytes + k_bytes);
}

static int member_at(const struct ra__builder *b, int distance)
{
    const struct ra__team *team = &b->plan->team;
    return (team->member + distance + team->size) % team->size;
}

static enum ra__slot arrival_slot(int wave) { return wave % 2 ? RA__SWAP_A : RA__SWAP_B; }

static ra_status put_swap(struct ra__builder *b, int wave, int member, enum ra__slot from,
                          enum ra__slot to)
{
    return ra__put_step(b, (struct ra__step){ .op = RA__OP_SWAP,
                                              .hop = wave,
                                              .block = b->plan->team.first + member,
                                              .from = from,
                                              .to = to });
}

/* Packs for one member, and starts that round. In, rows of this rank go out with the other's heads;
 * out, the other's rows with the heads of this rank. */
static ra_status start_wave(struct ra__builder *b, bool in, int wave)
{
    if (wave >= b->plan->team.size) return RA_OK;
    int me = b->plan->team.member, to = member_at(b, wave), from = member_at(b, -wave);
    int64_t sent = in ? bytes_between(b, in, me, to) : bytes_between(b, in, to, me);
    int64_t coming = in ? bytes_between(b, in, from, me) : bytes_between(b, in, me, from);
    ra__use_slot(b, RA__SWAP_OUT, sent);
    ra__use_slot(b, arrival_slot(wave), coming);
    if (sent > 0) RA__TRY(put_swap(b, wave, to, in ? RA__SWAP_HOME : RA__SWAP_SHARE, RA__SWAP_OUT));
    RA__TRY(ra__open_round(b, wave));
    RA__TRY(ra__send_bytes(b, to, RA__SWAP_OUT, sent));
    RA__TRY(ra__recv_bytes(b, from, arrival_slot(wave), coming));
    return ra__put_move(b);
}

static ra_status put_waves(struct ra__builder *b, bool in)
{
    int me = b->plan->team.member;
    enum ra__slot home = RA__SWAP_HOME, share = RA__SWAP_SHARE, to = in ? share : home;
    RA__TRY(start_wave(b, in, 1));
    RA__TRY(put_swap(b, 0, me, in ? home : share, to));
    for (int wave = 1; wave < b->plan->team.size; wave++) {
        int from = member_at(b, -wave);
        bool comes = in ? bytes_between(b, in, from, me) > 0 : bytes_between(b, in, me, from) > 0;
        RA__TRY(ra__put_wait(b));
        RA__TRY(start_wave(b, in, wave + 1));
        if (comes) RA__TRY(put_swap(b, wave, from, arrival_slot(wave), to));
    }
    return RA_OK;
}

ra_status ra__put_swap_in(struct ra__builder *b)
{
    const struct ra__plan_input *input = b->input;
    b->hops_before = 0;
    if (b->plan->team.size == 1) return RA_OK;
    ra__use_slot(b, RA__SHARE_Q, input->q_layout->count[input->rank]);
    ra__use_slot(b, RA__SHARE_OUT, input->q_layout->count[input->rank]);
    ra__use_slot(b, RA__SHARE_KV, input->k_layout->count[input->rank]);
    RA__TRY(put_waves(b, true));
    b->hops_before = b->plan->team.size - 1;
    return RA_OK;
}

/* Sums of the caller's own keys: those of all members that had their heads. */
static ra_status clear_shared(struct ra__builder *b, int64_t rows)
{
    struct ra__step clear = { .op = RA__OP_CLEAR, .block = b->rank, .to = RA__GRAD_SHARED };
    struct ra__ranges all = { 0 };
    ra__ranges_add(&all, 0, rows);
    ra__use_slot(b, RA__GRAD_SHARED, rows);
    return ra__put_ranges(b, clear, &all);
}

ra_status ra__put_swap_out(struct ra__builder *b)
{
    const struct ra__plan_input *home = &b->plan->home;
    const struct ra__team *team = &b->plan->team;
    bool backward = b->program == &b->plan->backward, add = backward && team->shared;
    struct ra__step finish = { .op = RA__OP_FINISH, .block = b->rank, .from = RA__GRAD_OWN };
    if (team->size == 1) return backward ? ra__put_step(b, finish) : RA_OK;
    /* Behind the hops of the ring between: its last sums come home one behind the number of
     * teams. */
    if (b->ranks > 1) b->hops_before += backward ? b->ranks + 1 : b->ranks - 1;
    if (add) RA__TRY(clear_shared(b, home->k_layout->count[home->rank]));
    RA__TRY(put_waves(b, false));
    finish.from = RA__GRAD_SHARED;
    return add ? ra__put_step(b, finish) : RA_OK;
}
