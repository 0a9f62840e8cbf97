/* builder.c - appending steps to a program. */
#include "plan/builder.h"

#include <limits.h>

void ra__use_buffer(struct ra__builder *b, enum ra__buffer buffer, int64_t tokens)
{
    struct ra__storage *storage = &b->plan->storage[buffer];
    storage->tokens = ra__max(storage->tokens, tokens);
}

ra_status ra__make_more_room(struct ra__builder *b, void **array, int count, size_t bytes)
{
    const bool fits = count <= INT_MAX / 2;
    void *larger = fits ? ra__grow_full(b->account, *array, (size_t)count, bytes) : NULL;
    if (!larger) return ra__fail(RA_ERR_MEMORY, "plan: more than %d entries", count);
    *array = larger;
    return RA_OK;
}

ra_status ra__put_step(struct ra__builder *b, struct ra__step step)
{
    struct ra__program *p = b->program;
    step.hop += b->hops_before;
    RA__TRY(ra__make_room(b, (void **)&p->steps, p->step_count, sizeof *p->steps));
    ra__find_buffers(p, &step);
    p->steps[p->step_count++] = step;
    return RA_OK;
}
