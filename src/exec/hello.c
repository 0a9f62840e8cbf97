/* hello.c - before its first message a plan compares its problem with that of every other rank; and
 * the exchange behind it, in which every rank tells every other the same. */
#include <inttypes.h>

#include "exec/exec.h"

static const char *const field_names[] = {
#define RA__HELLO_NAME(name, text) text,
    RA__HELLO_LIST(RA__HELLO_NAME)
#undef RA__HELLO_NAME
};

ra_status ra__exec_share(const struct ra__rank *rank, struct ra__message *messages, int tag,
                         const void *mine, void *theirs, size_t bytes)
{
    int others = rank->ranks - 1;
    struct ra__message *sends = messages, *recvs = messages + others;
    for (int i = 0; i < others; i++) {
        int peer = i < rank->rank ? i : i + 1;
        sends[i] = recvs[i] = (struct ra__message){ .peer = peer, .tag = tag, .bytes = bytes };
        sends[i].data = (void *)mine; /* only read */
        recvs[i].data = (char *)theirs + (size_t)i * bytes;
    }
    struct ra__round round = { sends, recvs, others, others, 0, NULL };
    RA__TRY(rank->transport->post(rank->link, &round));
    return rank->transport->wait(rank->link, &round);
}

static ra_status compare(const struct ra__exec *exec, int other)
{
    int peer = other < exec->rank->rank ? other : other + 1;
    const uint64_t *mine = (const uint64_t *)&exec->hello,
                   *theirs = (const uint64_t *)&exec->hellos[other];
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
    struct ra__hello *mine =
        &exec->hellos[rank->ranks - 1]; /* stays where the transport holds it */
    *mine = exec->hello;
    RA__TRY(ra__exec_share(rank, exec->hello_messages, ra__tag(0, RA__TOPIC_HELLO), mine,
                           exec->hellos, sizeof *mine));
    for (int i = 0; i < rank->ranks - 1; i++) RA__TRY(compare(exec, i));
    exec->greeted = true;
    return RA_OK;
}
