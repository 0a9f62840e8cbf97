/* SPDX-License-Identifier: Apache-2.0 */
/* tags.h - the tags of messages between ranks. All of them are here, so that no two kinds of
 * message can be confused. A tag is a fingerprint of the plan (15 bits), then hop and topic
 * (16). */
#ifndef RA__CORE_TAGS_H
#define RA__CORE_TAGS_H

/* What messages are about. */
enum ra__topic {
    RA__TOPIC_KEYS,
    RA__TOPIC_SUMS,
    RA__TOPIC_RETURN,
    RA__TOPIC_CONTROL,
    RA__TOPIC_ALLTOALL,
    RA__TOPIC_DONE, /* what was lent is not read any more */
    RA__TOPICS
};

/* Of a plan, without its fingerprint. */
static inline int ra__tag(int hop, enum ra__topic topic) { return hop * RA__TOPICS + (int)topic; }

/* Messages that belong to no plan have fingerprint 0, topic CONTROL, and one of these as hop. */
enum ra__reserved {
    RA__RESERVED_HANDSHAKE,   /* plans compare their problems */
    RA__RESERVED_STATE_SHAPE, /* states compare their shapes, */
    RA__RESERVED_STATE,       /* and are added up */
    RA__RESERVED_ALLGATHER,   /* ra_group_share() */
    RA__RESERVED_TIME,        /* ra_group_measure(): the slowest rank counts, */
    RA__RESERVED_MEASUREMENT  /* and what is sent to be timed */
};
static inline int ra__reserved_tag(enum ra__reserved reserved)
{
    return ra__tag((int)reserved, RA__TOPIC_CONTROL);
}

enum { RA__TAG_FINGERPRINT_SHIFT = 16 };

#endif
