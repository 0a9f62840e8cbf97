/* hello.c - before its first message a plan compares its problem with that of every other rank. */
#include <inttypes.h>

#include "exec/exec.h"

static const char *const field_names[] = {
#define RA__HELLO_NAME(name, text) text,
    RA__HELLO_LIST(RA__HELLO_NAME)
#undef RA__HELLO_NAME
};

static ra_status compare(const struct ra__exec *exec, int peer)
{
    const uint64_t *mine = (const uint64_t *)&exec->hello,
                   *theirs = (const uint64_t *)&exec->hellos[peer];
    for (int i = 0; i < RA__COUNT(field_names); i++)
        if (mine[i] != theirs[i])
            return ra__fail(RA_ERR_MISMATCH,
                            "rank %d, hop 0: rank %d was given another %s (%#" PRIx64
                            " here, %#" PRIx64 " there)",
                            exec->rank->rank, peer, field_names[i], mine[i], theirs[i]);
    return RA_OK;
}

ra_status ra__exec_hello(struct ra__exec *exec)
{
    const struct ra__rank *rank = exec->rank;
    if (exec->greeted || rank->ranks == 1) return RA_OK;
    int count = 0, others = rank->ranks - 1;
    struct ra__message *sends = exec->hello_messages, *recvs = sends + others;
    for (int peer = 0; peer < rank->ranks; peer++) {
        if (peer == rank->rank) continue;
        struct ra__message message = { .peer = peer,
                                       .tag = ra__tag(0, RA__TOPIC_HELLO),
                                       .bytes = sizeof exec->hello };
        sends[count] = recvs[count] = message;
        sends[count].data = &exec->hello;
        recvs[count++].data = &exec->hellos[peer];
    }
    struct ra__round round = { sends, recvs, others, others, 0, NULL };
    RA__TRY(rank->transport->post(rank->link, &round));
    RA__TRY(rank->transport->wait(rank->link, &round));
    for (int peer = 0; peer < rank->ranks; peer++)
        if (peer != rank->rank) RA__TRY(compare(exec, peer));
    exec->greeted = true;
    return RA_OK;
}
