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

/* The work before may still read what the round overwrites. */
static ra_status post(void *context)
{
    struct ra__deal *deal = context;
    struct ra__round *round = deal->round;
    if (!round || ra__pool_lingers(deal->exec->rank->pool)) return RA_OK;
    deal->round = NULL;
    return ra__exec_post(deal->exec, round);
}

static ra_status tick(void *context)
{
    RA__TRY(ra__exec_tick(((const struct ra__deal *)context)->exec));
    return post(context);
}

ra_status ra__exec_deal(struct ra__exec *exec, struct ra__deal *deal)
{
    struct ra__pool *pool = exec->rank->pool;
    struct ra__work work = { .body = body,
                             .tick = tick,
                             .ready = deal->ready ? ready : NULL,
                             .clashes = deal->clashes ? clashes : NULL,
                             .aside = post,
                             .context = deal,
                             .items = deal->items };
    deal->exec = exec;
    RA__TRY(ra__pool_begin(pool, &work));
    if (!deal->lingers || deal->round) RA__TRY(ra__pool_settle(pool));
    return post(deal);
}
