/* deal.c - work in pieces, dealt to all threads of a rank that shows life meanwhile. */
#include "exec/exec.h"

static void body(void *context, int64_t item, int thread)
{
    const struct ra__deal *deal = context;
    deal->body(deal->context, item, thread);
}

static bool ready(void *context, int64_t item)
{
    const struct ra__deal *deal = context;
    return deal->ready(deal->context, item);
}

static bool clashes(void *context, int64_t item, int64_t before)
{
    const struct ra__deal *deal = context;
    return deal->clashes(deal->context, item, before);
}

static ra_status post_held(void *context)
{
    return ra__exec_post_held(((const struct ra__deal *)context)->exec);
}

static ra_status tick(void *context)
{
    const struct ra__deal *deal = context;
    RA__TRY(ra__exec_tick(deal->exec));
    return deal->posts ? post_held(context) : RA_OK;
}

ra_status ra__exec_deal(struct ra__exec *exec, struct ra__deal *deal)
{
    struct ra__pool *pool = exec->rank->pool;
    struct ra__work work = { .body = body,
                             .tick = tick,
                             .ready = deal->ready ? ready : NULL,
                             .clashes = deal->clashes ? clashes : NULL,
                             .aside = deal->posts ? post_held : NULL,
                             .context = deal,
                             .items = deal->items };
    deal->exec = exec;
    RA__TRY(ra__pool_begin(pool, &work));
    if (!deal->lingers || exec->held) RA__TRY(ra__pool_settle(pool));
    return deal->posts ? ra__exec_post_held(exec) : RA_OK;
}
