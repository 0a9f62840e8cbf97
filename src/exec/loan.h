/* SPDX-License-Identifier: Apache-2.0 */
/* loan.h - blocks of keys, and sums of their gradients, that ranks of one process lend to one
 * another instead of sending them. */
#ifndef RA__EXEC_LOAN_H
#define RA__EXEC_LOAN_H

#include "core/program.h"
#include "transport/transport.h"

struct ra__exec;
struct ra__io;

/* Where K and V of a block are, and, backward, the sums of their gradients. It belongs to the exec
 * of the block's owner, and does not change while others may use the block. */
struct ra__loan {
    struct ra__location k, v, sums;
    /* Ranks that have it, or an event of its owner: raised by the transport, lowered by them. */
    atomic_int holders;
};

struct ra__loans {
    struct ra__loan own;
    bool in_place;           /* own: the caller's tensors themselves, which are not packed */
    struct ra__loan *now[2]; /* what is in RA__TRAVEL_A and in RA__TRAVEL_B; NULL: nothing */
};

/* When the tensors of a run are known: what this rank lends. */
void ra__loans_begin(struct ra__exec *exec, const struct ra__program *program,
                     const struct ra__io *io);
/* Does this rank lend the caller's tensors themselves? */
bool ra__loans_in_place(const struct ra__exec *exec, const struct ra__program *program);
/* Is this step not needed, since what it would pack is lent in place? */
bool ra__loans_skip(const struct ra__exec *exec, const struct ra__program *program,
                    const struct ra__step *step);
/* Before the round of a step is posted: its messages name what they lend, and after which event.
 * Where they say that this rank is done with what it borrowed, it has nothing any more; the events
 * that came must have passed. */
void ra__loans_lend(struct ra__exec *exec, const struct ra__program *program,
                    const struct ra__step *step, struct ra__round *round);
/* After it: what has arrived is where the steps of this run look for it. */
void ra__loans_borrow(struct ra__exec *exec, const struct ra__program *program,
                      const struct ra__step *step, const struct ra__round *round);
/* After a failure, when the device of this rank is idle: gives back what was borrowed, and waits
 * until others have done so, too: they notice the failure. */
void ra__loans_give_up(struct ra__exec *exec, const struct ra__program *program);

#endif
