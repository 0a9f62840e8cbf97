/* deal.c - work in pieces, dealt to all threads of a rank that shows life meanwhile. */
#include "exec/exec.h"

struct dealt {
    struct ra__exec *exec;
    const struct ra__deal *deal;
};

static void body(void *context, int64_t item, int thread)
{
    const struct ra__deal *deal = ((struct dealt *)context)->deal;
    deal->body(deal->context, item, thread);
}

static bool ready(void *context, int64_t item)
{
    const struct ra__deal *deal = ((struct dealt *)context)->deal;
    return deal->ready(deal->context, item);
}

static ra_status tick(void *context) { return ra__exec_tick(((struct dealt *)context)->exec); }

static ra_status post_held(void *context)
{
    return ra__exec_post_held(((struct dealt *)context)->exec);
}

ra_status ra__exec_deal(struct ra__exec *exec, const struct ra__deal *deal)
{
    struct dealt dealt = { exec, deal };
    struct ra__work work = { .body = body,
                             .tick = tick,
                             .ready = deal->ready ? ready : NULL,
                             .aside = deal->posts ? post_held : NULL,
                             .context = &dealt,
                             .items = deal->items };
    return ra__pool_run(exec->rank->pool, &work);
}
