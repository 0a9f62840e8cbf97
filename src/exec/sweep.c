/* sweep.c - rows that are copied, cleared or summed, some at a time, on all threads of the rank. */
#include "exec/exec.h"

struct sweep_work {
    struct ra__exec *exec;
    ra__sweep_fn *body;
    const void *context;
    int64_t rows, rows_per_item;
};

static void sweep_item(void *context, int64_t item, int thread)
{
    const struct sweep_work *work = context;
    int64_t first = item * work->rows_per_item;
    (void)thread;
    work->body(work->exec, work->context, first, ra__min(work->rows_per_item, work->rows - first));
}

ra_status ra__exec_sweep(struct ra__exec *exec, int64_t rows, size_t row_bytes, ra__sweep_fn *body,
                         const void *context)
{
    enum { ITEM_BYTES = 128 << 10 }; /* tens of microseconds: less is not worth a thread */
    struct sweep_work work = { exec, body, context, rows,
                               ra__max(ITEM_BYTES / ra__max((int64_t)row_bytes, 1), 1) };
    return ra__exec_deal(exec,
                         &(struct ra__deal){ .body = sweep_item,
                                             .context = &work,
                                             .items = ra__ceil_div(rows, work.rows_per_item) });
}
