/* SPDX-License-Identifier: Apache-2.0 */
/* faulty.h - a transport that misbehaves by a script: it delays, reorders, stalls and fails, and is
 * otherwise the transport it is wrapped round. It never changes a byte. */
#ifndef TESTS_SUPPORT_FAULTY_H
#define TESTS_SUPPORT_FAULTY_H

#include <stdatomic.h>
#include <stdbool.h>

#include "api/handles.h"

/* What one rank does wrong. Zero means nothing. Calls are counted from 1 over the life of the
 * group; the first post and wait of a plan are its hello, hop 0. */
struct faulty_script {
    unsigned seed;     /* of delays and orders */
    int delay_us;      /* every post and wait starts late by 0 to this many microseconds */
    bool reorder;      /* the messages of a round are posted one by one, in any order */
    int stall_at_post; /* this call waits for faulty_release(), for seconds, and shows no life */
    int stall_at_wait;
    int stall_at_poll;
    int fail_at_post; /* this call fails with RA_ERR_SYSTEM and FAULTY_WORDS */
    int fail_at_wait; /* likewise, when the messages have arrived */
};

#define FAULTY_WORDS "the cable was pulled"

struct faulty {
    struct faulty_script script;
    const struct ra__transport *inner;
    void *link;
    int rank;
    int posts, waits, polls; /* calls so far */
    int hop;                 /* of the newest round, until it stalls */
    uint64_t random;
    atomic_bool stalled, released;
};

/* Puts `faulty` between a group and its transport. It must live until the group is destroyed. */
void faulty_wrap(struct faulty *faulty, ra_group *group, const struct faulty_script *script);

/* Lets a stalled rank go on. Any thread; harmless where nothing stalls. */
void faulty_release(struct faulty *faulty);

#endif
