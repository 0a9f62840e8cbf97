/* SPDX-License-Identifier: Apache-2.0 */
/* post_office.h - the messages between the shelves of all ranks: what a receive brings is what the
 * sender held when it posted the round, and neither side may touch it on its way. What is lent is
 * used where its owner has it. */
#ifndef TESTS_SUPPORT_POST_OFFICE_H
#define TESTS_SUPPORT_POST_OFFICE_H

#include "support/shelf.h"

struct post_office_mail {
    int from, to, tag;
    bool taken;
    size_t count;
    uint64_t *numbers;
    struct shelf_space keys, sums; /* instead, where they are lent */
};

struct post_office {
    struct post_office_mail *mail;
    int count, capacity;
};

/* The round of the step under way. */
void post_office_start(struct post_office *office, struct shelf *shelf,
                       const struct ra__plan_round *round);

/* False as long as somebody has not sent. */
bool post_office_end(struct post_office *office, struct shelf *shelf,
                     const struct ra__plan_round *round);

/* Every message must have been received. */
void post_office_close(struct post_office *office);

#endif
