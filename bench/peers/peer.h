/* SPDX-License-Identifier: Apache-2.0 */
/* peer.h - a program that computes attention on request, so that rivals can be timed interleaved.
 *
 * Each rival written in C is one file that ends in one `struct peer` and hands it to peer_main(),
 * which speaks with `compare` over standard input and output: a command per line, a JSON object per
 * answer.
 *
 *     open TOKENS HEADS DIM DTYPE PATTERN PASS FOLDER    {"ready": TEXT, "result": DTYPE}
 *     run COUNT                                          {"seconds": of one run}
 *     rows POSITION...                                   {"rows": bytes in hexadecimal}
 *     close                                              {"closed": true}
 *
 * The first line it prints, unasked, is {"peer": NAME, "version": TEXT}. What it cannot do is
 * answered by {"error": TEXT}. Files of FOLDER are written by the program `tensors`. */
#ifndef PEERS_PEER_H
#define PEERS_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum peer_dtype { PEER_F32, PEER_BF16, PEER_F16 };

/* One problem: `tokens` queries and keys, `heads` of both, one sequence. */
struct peer_case {
    const char *folder;
    int64_t tokens;
    int heads;
    int dim;
    enum peer_dtype dtype;
    bool causal;
    bool backward;
    int threads;
};

struct peer {
    const char *name;
    const char *(*version)(void);
    /* Loads, converts and plans all that a run needs. Returns the job, or NULL after
     * peer_refuse(). */
    void *(*open)(const struct peer_case *problem);
    /* What is timed: forward, or backward alone. Returns false after peer_refuse(). */
    bool (*run)(void *job);
    /* The results of the last run at one position and head, `dim` elements of type *dtype: the
     * output, or dq, dk, dv as `which` counts from 0. */
    const void *(*row)(void *job, int which, int64_t position, int head, enum peer_dtype *dtype);
    const char *(*detail)(void *job); /* how this job is computed, in a few words */
    void (*close)(void *job);         /* accepts NULL */
};

/* main() of a rival. */
int peer_main(int argc, char **argv, const struct peer *peer);

/* Says why something cannot be done; returns NULL, which stands for false too. */
void *peer_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

size_t peer_bytes(enum peer_dtype dtype);              /* of an element */
size_t peer_elements(const struct peer_case *problem); /* of a tensor */

/* Memory for a tensor, in large pages where the system has them; to be freed. NULL after
 * peer_refuse(). */
void *peer_alloc(size_t bytes);

/* Reads tensor `name` ("q", "k", "v", "dout") as [position, head, dim] in the dtype of the problem;
 * to be freed. NULL after peer_refuse(). */
void *peer_load(const struct peer_case *problem, const char *name);

/* The same as [head, position, dim]. */
void *peer_load_by_head(const struct peer_case *problem, const char *name);

#endif
