/* SPDX-License-Identifier: Apache-2.0 */
/* tasks.c - see tasks.h. */
#include "backend/cpu/tasks.h"

int ra__tasks_most(int64_t kv_items)
{
    enum { AT_ONCE = RA__MOST_TASKS / RA__MOST_CHUNKS }; /* tasks of a phase, over all kv_items */
    int64_t chunks = kv_items > 0 ? AT_ONCE / kv_items : 1;
    if (chunks > RA__MOST_CHUNKS) return RA__MOST_CHUNKS;
    return chunks > 1 ? (int)chunks : 1;
}

/* The chunk of queries that meets chunk k in a phase. Along the diagonal, tasks of a band are in
 * few phases; across it, those of a triangle are spread evenly over all, like the rounds of a
 * tournament. */
static int partner(const struct ra__tasks *tasks, bool across, int phase, int k)
{
    int n = tasks->chunks;
    return across ? (phase + n - k) % n : (phase + k) % n;
}

/* The work of the lightest phase that has any: threads run short of tasks there. */
static int64_t lightest_phase(const struct ra__tasks *tasks, bool across)
{
    int64_t least = 0;
    for (int phase = 0; phase < tasks->chunks; phase++) {
        int64_t work = 0;
        for (int k = 0; k < tasks->chunks; k++)
            work += tasks->work[k][partner(tasks, across, phase, k)];
        if (work > 0 && (least == 0 || work < least)) least = work;
    }
    return least;
}

void ra__tasks_order(struct ra__tasks *tasks)
{
    bool across = lightest_phase(tasks, true) > lightest_phase(tasks, false);
    short last_keys[RA__MOST_CHUNKS], last_queries[RA__MOST_CHUNKS];
    for (int i = 0; i < tasks->chunks; i++) last_keys[i] = last_queries[i] = -1;
    tasks->count = 0;
    for (int phase = 0; phase < tasks->chunks; phase++)
        for (int k = 0; k < tasks->chunks; k++) {
            int q = partner(tasks, across, phase, k);
            if (tasks->work[k][q] == 0) continue;
            tasks->list[tasks->count] = (struct ra__task){ (unsigned char)k,
                                                           (unsigned char)q,
                                                           { last_keys[k], last_queries[q] } };
            last_keys[k] = last_queries[q] = (short)tasks->count++;
        }
}
