/* SPDX-License-Identifier: Apache-2.0 */
/* control.c - see rank.h. */
#include "exec/rank.h"

ra_status ra__control_share(const struct ra__rank *rank, struct ra__message *messages, int tag,
                            const void *mine, void *theirs, size_t bytes)
{
    const int others = rank->ranks - 1;
    struct ra__message *sends = messages, *recvs = messages + others;
    for (int i = 0; i < others; i++) {
        int peer = i < rank->rank ? i : i + 1;
        sends[i] = recvs[i] = (struct ra__message){ .peer = peer, .tag = tag, .bytes = bytes };
        sends[i].data = (void *)mine; /* only read */
        recvs[i].data = (char *)theirs + (size_t)i * bytes;
    }
    struct ra__round round = {
        .sends = sends, .recvs = recvs, .send_count = others, .recv_count = others
    };
    RA__TRY(rank->transport->post(rank->link, &round));
    return rank->transport->wait(rank->link, &round);
}
