/* SPDX-License-Identifier: Apache-2.0 */
/* shelf.h - the buffers of one rank of a plan, where every number says which one it is: of a
 * query, a key, an output. A sum is that of numbers which say what pair of query and key each
 * belongs to, so that their order does not matter, but every one counts. Steps touch only the
 * buffers that they say they do. */
#ifndef TESTS_SUPPORT_SHELF_H
#define TESTS_SUPPORT_SHELF_H

#include "support/worlds.h"

/* What a buffer holds before somebody writes to it. */
#define SHELF_NOTHING UINT64_C(0x5eed5eed5eed5eed)

/* A number of a tensor, by position and head. */
uint64_t shelf_number(enum ra__buffer tensor, int64_t position, int head, int number);

/* What a pair of query and key adds to a sum, and what a sum of pairs is in the number-th number of
 * a vector. */
uint64_t shelf_pair(int64_t query, int head, int64_t key);
uint64_t shelf_times(uint64_t sum, int number);

/* ---- Buffers --------------------------------------------------------------------------------- */

/* One buffer: of one batch item, since all are treated alike. In a message every byte has a cell,
 * and a number lies at its first byte. */
struct shelf_space {
    uint64_t *cells;
    int64_t tokens;
    int heads, width; /* of a token, of a head */
    bool message;
};

enum shelf_stage { SHELF_WAITING, SHELF_UNDER_WAY, SHELF_DONE };

struct shelf {
    const struct world *world;
    const struct ra__plan *plan;
    const struct ra__program *program;
    const struct ra__step *step; /* under way */
    struct shelf_space space[RA__BUFFERS];
    uint64_t *memory[RA__BUFFERS]; /* cells of its own; those of a space that is lent are others */
    enum shelf_stage *stage;       /* [step] */
    int left;                      /* steps */
};

/* Every step is still to do; the tensors of the caller are there. */
void shelf_open(struct shelf *shelf, const struct world *w, int rank, bool backward);
void shelf_close(struct shelf *shelf);

/* One number, whoever asks; it must exist. */
uint64_t *shelf_cell(const struct shelf *shelf, enum ra__buffer buffer, int64_t token, int head,
                     int number);

/* For the step under way, which must have said that it uses the buffer so. */
void shelf_check_use(const struct shelf *shelf, enum ra__buffer buffer, bool write);
uint64_t shelf_read(const struct shelf *shelf, enum ra__buffer buffer, int64_t token, int head,
                    int number);
uint64_t *shelf_write(const struct shelf *shelf, enum ra__buffer buffer, int64_t token, int head,
                      int number);

/* ---- Steps (shelf_rows.c, shelf_pieces.c) ---------------------------------------------------- */

/* Do what the step under way does, and fail where a number is not the one it should be. */
void shelf_move(const struct shelf *shelf);
void shelf_attend(struct shelf *shelf);
void shelf_gradient(struct shelf *shelf);
void shelf_delta(const struct shelf *shelf);
void shelf_sinks(const struct shelf *shelf);

#endif
