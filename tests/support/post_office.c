/* SPDX-License-Identifier: Apache-2.0 */
/* post_office.c - see post_office.h. */
#include "support/post_office.h"

#include <stdlib.h>

/* The numbers of a transfer. */
static uint64_t *numbers_of(const struct shelf *shelf, const struct ra__transfer *t, bool write,
                            size_t *count)
{
    const struct shelf_space *s = &shelf->space[t->buffer];
    assert_true(t->range.lo >= 0 && t->range.lo < t->range.hi && t->range.hi <= s->tokens);
    shelf_check_use(shelf, t->buffer, write);
    *count = (size_t)((t->range.hi - t->range.lo) * s->heads * s->width);
    return &s->cells[t->range.lo * s->heads * s->width];
}

/* The spaces of a block that comes or goes, and of the sums of its gradients. */
static struct shelf_space *keys_of(struct shelf *shelf, const struct ra__transfer *t)
{
    assert_true(t->buffer == RA__TRAVEL_A || t->buffer == RA__TRAVEL_B);
    return &shelf->space[t->buffer];
}
static struct shelf_space *sums_of(struct shelf *shelf, const struct ra__transfer *t)
{
    return &shelf->space[t->buffer == RA__TRAVEL_A ? RA__SUM_A : RA__SUM_B];
}

/* What is lent goes with where to look, and nothing at all with an empty message. */
static bool is_copied(const struct ra__transfer *t) { return !t->lends && !t->done; }

static void lend(struct post_office_mail *mail, struct shelf *shelf, const struct ra__transfer *t)
{
    const bool own = keys_of(shelf, t)->cells == shelf->memory[t->buffer];
    mail->keys = *keys_of(shelf, t);
    mail->sums = own ? shelf->space[RA__SUM_OWN] : *sums_of(shelf, t);
}

static void post(struct post_office *office, struct shelf *shelf, const struct ra__transfer *t)
{
    if (office->count == office->capacity) {
        office->capacity = office->capacity ? 2 * office->capacity : 64;
        office->mail = realloc(office->mail, (size_t)office->capacity * sizeof *office->mail);
        assert_non_null(office->mail);
    }
    struct post_office_mail *mail = &office->mail[office->count++];
    *mail = (struct post_office_mail){ .from = shelf->plan->caller.rank, t->peer, t->tag };
    if (t->lends && ra__has_tokens(t)) lend(mail, shelf, t);
    if (!is_copied(t)) return;
    const uint64_t *numbers = numbers_of(shelf, t, false, &mail->count);
    mail->numbers = malloc(mail->count * sizeof *numbers);
    assert_non_null(mail->numbers);
    memcpy(mail->numbers, numbers, mail->count * sizeof *numbers);
}

/* The next message of the tag; NULL as long as there is none. */
static struct post_office_mail *find_mail(const struct post_office *office, int rank,
                                          const struct ra__transfer *t)
{
    for (int i = 0; i < office->count; i++) {
        struct post_office_mail *mail = &office->mail[i];
        if (mail->from == t->peer && mail->to == rank && mail->tag == t->tag && !mail->taken)
            return mail;
    }
    return NULL;
}

/* Numbers on their way in are nobody's until they have arrived. */
void post_office_start(struct post_office *office, struct shelf *shelf,
                       const struct ra__plan_round *round)
{
    shelf_check_use(shelf, RA__LINK, true); /* one round at a time */
    for (int i = 0; i < round->send_count; i++)
        post(office, shelf, &shelf->program->sends[round->first_send + i]);
    for (int i = 0; i < round->recv_count; i++) {
        const struct ra__transfer *t = &shelf->program->recvs[round->first_recv + i];
        size_t count;
        if (!is_copied(t)) continue;
        uint64_t *numbers = numbers_of(shelf, t, true, &count);
        for (size_t k = 0; k < count; k++) numbers[k] = SHELF_NOTHING;
    }
}

/* Numbers on their way out must be what they were. */
static void check_sent(const struct post_office *office, const struct shelf *shelf,
                       const struct ra__transfer *t)
{
    size_t count;
    if (!is_copied(t)) return;
    const uint64_t *numbers = numbers_of(shelf, t, false, &count);
    bool found = false;
    for (int i = 0; i < office->count && !found; i++) {
        const struct post_office_mail *mail = &office->mail[i];
        if (mail->from != shelf->plan->caller.rank || mail->to != t->peer || mail->tag != t->tag)
            continue;
        found = mail->count == count && !memcmp(mail->numbers, numbers, count * sizeof *numbers);
    }
    if (!found)
        fail_msg("%s: rank %d writes to numbers that are on their way to rank %d",
                 shelf->world->text, shelf->plan->caller.rank, t->peer);
}

bool post_office_end(struct post_office *office, struct shelf *shelf,
                     const struct ra__plan_round *round)
{
    int rank = shelf->plan->caller.rank;
    for (int i = 0; i < round->recv_count; i++) {
        const struct ra__transfer *t = &shelf->program->recvs[round->first_recv + i];
        if (!find_mail(office, rank, t)) return false; /* all of a tag come in one round */
    }
    for (int i = 0; i < round->send_count; i++)
        check_sent(office, shelf, &shelf->program->sends[round->first_send + i]);
    for (int i = 0; i < round->recv_count; i++) {
        const struct ra__transfer *t = &shelf->program->recvs[round->first_recv + i];
        struct post_office_mail *mail = find_mail(office, rank, t);
        size_t count;
        mail->taken = true;
        if (t->lends && ra__has_tokens(t)) {
            *keys_of(shelf, t) = mail->keys;
            *sums_of(shelf, t) = mail->sums;
        }
        if (!is_copied(t)) continue;
        uint64_t *numbers = numbers_of(shelf, t, true, &count);
        assert_int_equal(count, mail->count);
        for (size_t k = 0; k < count; k++)
            if (numbers[k] != SHELF_NOTHING)
                fail_msg("%s: rank %d writes to numbers that are about to arrive",
                         shelf->world->text, rank);
        memcpy(numbers, mail->numbers, count * sizeof *numbers);
    }
    return true;
}

void post_office_close(struct post_office *office)
{
    for (int i = 0; i < office->count; i++) {
        assert_true(office->mail[i].taken);
        free(office->mail[i].numbers);
    }
    free(office->mail);
}
