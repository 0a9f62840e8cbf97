/* SPDX-License-Identifier: Apache-2.0 */
/* custom_transport.c - bytes between ranks, carried by the caller: two processes and a socket pair.
 *
 * Both ranks send before either has received, and a block is larger than a socket's buffer, so
 * blocking writes would never end: `post` takes notes, `wait` moves bytes both ways. Zero queries
 * weigh all keys alike, so each process must get the mean of all values, its own and its peer's. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ringattn.h>

enum { TOKENS = 2048, SHARD = TOKENS / 2, DIM = 64 };

/* What is left of the messages of a round, sends first. Two ranks post in one order: no tags. */
struct round {
    int fd, sends, count;
    ra_message messages[16];
};

static ra_status socket_post(void *context, const ra_message *sends, int send_count,
                             const ra_message *recvs, int recv_count, void **ticket)
{
    struct round *round = *ticket = context;
    round->sends = send_count, round->count = send_count + recv_count;
    if (round->count > 16) return ra_transport_error(RA_ERR_UNSUPPORTED, "socket: many messages");
    for (int i = 0; i < round->count; i++)
        round->messages[i] = i < send_count ? sends[i] : recvs[i - send_count];
    return RA_OK;
}

/* Moves bytes of a message until it is through (RA_OK) or the socket would block (*stuck). */
static ra_status move(int fd, ra_message *m, int sending, short *stuck)
{
    while (m->bytes > 0 && !(*stuck & (sending ? POLLOUT : POLLIN))) {
        ssize_t n = sending ? send(fd, m->data, m->bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                            : recv(fd, m->data, m->bytes, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) *stuck |= sending ? POLLOUT : POLLIN;
        else if (n <= 0) return ra_transport_error(RA_ERR_PEER, "socket: the peer is gone");
        else m->data = (char *)m->data + n, m->bytes -= (size_t)n;
    }
    return RA_OK;
}

static ra_status socket_wait(void *context, void *ticket, double timeout)
{
    struct round *round = context;
    struct pollfd stuck = { .fd = ((struct round *)ticket)->fd };
    do {
        stuck.events = 0;
        for (int i = 0; i < round->count; i++)
            if (move(stuck.fd, &round->messages[i], i < round->sends, &stuck.events) != RA_OK)
                return RA_ERR_PEER;
        if (stuck.events && poll(&stuck, 1, (int)(1000 * timeout)) == 0)
            return ra_transport_error(RA_ERR_TIMEOUT, "socket: the peer is silent");
    } while (stuck.events);
    return RA_OK;
}

static int rank_main(int rank, int fd)
{
    static float q[SHARD * DIM], k[SHARD * DIM], v[SHARD * DIM], out[SHARD * DIM];
    for (int i = 0; i < SHARD * DIM; i++) k[i] = sinf((float)i), v[i] = (float)(4 * rank);
    struct round round = { .fd = fd };
    ra_transport_callbacks callbacks = ra_transport_callbacks_default();
    callbacks.context = &round, callbacks.post = socket_post, callbacks.wait = socket_wait;
    ra_problem problem = ra_problem_default();
    problem.q_len = TOKENS, problem.q_heads = 1, problem.dim = DIM;
    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(q), args.k = ra_const_tensor_packed(k),
    args.v = ra_const_tensor_packed(v);
    args.out = ra_tensor_packed(out);
    ra_group *group = NULL;
    ra_plan *plan = NULL;
    int failed = ra_group_create_custom(2, rank, &callbacks, NULL, &group) != RA_OK ||
                 ra_plan_create(group, &problem, NULL, &plan) != RA_OK ||
                 ra_attend(plan, &args) != RA_OK;
    if (failed) fprintf(stderr, "custom_transport: rank %d: %s\n", rank, ra_last_error());
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    float worst = 0.0f; /* the values are 0 on rank 0 and 4 on rank 1 */
    for (int i = 0; i < SHARD * DIM; i++) worst = fmaxf(worst, fabsf(out[i] - 2.0f));
    printf("process %ld: rank %d of 2, largest error %.1e\n", (long)getpid(), rank, (double)worst);
    return failed || !(worst < 1e-4f);
}

int main(void)
{
    int fds[2], child_status = 1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) return 1;
    pid_t child = fork();   /* before the library has made threads */
    close(fds[child != 0]); /* a process that ends must close the last copy of its socket */
    if (child == 0) return rank_main(1, fds[1]);
    int failed = rank_main(0, fds[0]);
    return waitpid(child, &child_status, 0) != child || child_status != 0 || failed;
}
