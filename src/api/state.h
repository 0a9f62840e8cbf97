/* state.h - what lies behind ra_state, for the two files that work on it: state.c (fold, merge,
 * finish) and reduce.c (the states of a group). */
#ifndef RA__API_STATE_H
#define RA__API_STATE_H

#include "api/handles.h"
#include "kernel/state.h"

/* What states must have in common to be added up, and how it is called where they have not. */
#define RA__FORM_LIST(X)                                                                           \
    X(batch, "batch")                                                                              \
    X(q_len, "number of queries")                                                                  \
    X(q_heads, "number of query heads")                                                            \
    X(value_dim, "value dim")

struct ra__form {
#define RA__FORM_FIELD(name, text) int64_t name;
    RA__FORM_LIST(RA__FORM_FIELD)
#undef RA__FORM_FIELD
};

/* Room for what the other ranks have; made by the first ra_state_reduce() and kept. */
struct ra__meeting {
    int others; /* ranks there is room for */
    struct ra__message *messages;
    struct ra__form *forms; /* theirs, then its own: sent from here, since MPI may hold it */
    float *states;
};

struct ra_state {
    struct ra__shape shape;
    ra_pattern *pattern;
    const struct ra__kernel *kernel;
    float *data;  /* m, then l, then acc: what ra_state_data() shows */
    int64_t rows; /* batch x queries x heads */
    size_t bytes;
    void *workspace;
    float *alibi; /* its own copy, or NULL */
    struct ra__terms terms;
    struct ra__meeting meeting;
    bool held; /* a transport did not let go of `data` and `meeting`: they are never freed */
};

/* A row of a state that lies at `data` in the form of this one. */
static inline struct ra__state_row ra__row_of(const ra_state *state, float *data, int64_t row)
{
    return (struct ra__state_row){ data + row, data + state->rows + row,
                                   data + 2 * state->rows + row * state->shape.value_dim };
}

struct ra__form ra__form_of(const ra_state *state);

/* How the first field is called in which two forms differ; NULL if they are the same. */
const char *ra__form_difference(const struct ra__form *a, const struct ra__form *b);

void ra__meeting_clear(struct ra__meeting *meeting);

#endif
