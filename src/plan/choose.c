/* SPDX-License-Identifier: Apache-2.0 */
/* choose.c - the strategy "auto": makes plans of all candidates, predicts their times, and chooses
 * the fastest. Every rank chooses the same one, because the choice depends only on the problem, the
 * options and figures that are the same on all ranks. */
#include <stdio.h>
#include <string.h>

#include "plan/choose.h"

/* A candidate. */
struct candidate {
    struct ra__plan_input input;
    char text[RA__STRATEGY_TEXT];
    double seconds; /* of the slowest of the ranks that were planned */
    bool fits;      /* within the budget */
};

/* The first, the last, and one between: under causal masks these differ most. */
static int ranks_to_ask(int ranks, int asked[3])
{
    const int all[3] = { 0, ranks / 2, ranks - 1 };
    int count = 0;
    for (int i = 0; i < 3; i++)
        if (count == 0 || all[i] != asked[count - 1]) asked[count++] = all[i];
    return count;
}

static ra_status ask_rank(const struct ra__choice *choice, struct candidate *candidate)
{
    struct ra__plan plan;
    struct ra__account account = { { 0 } };
    size_t bytes = 0;
    RA__TRY(ra__plan_build(&candidate->input, &account, &plan));
    double seconds = ra__program_cost(&plan, &plan.forward, choice->machine).seconds;
    if (plan.caller.backward)
        seconds += ra__program_cost(&plan, &plan.backward, choice->machine).seconds;
    size_t own = account.bytes[RA__FOR_BOOKKEEPING];
    ra_status status = choice->bytes(choice->context, &plan, own, &bytes);
    ra__plan_clear(&plan);
    if (status != RA_OK) return status;
    if (seconds > candidate->seconds) candidate->seconds = seconds;
    if (choice->budget && bytes > choice->budget) candidate->fits = false;
    return RA_OK;
}

static ra_status ask(const struct ra__choice *choice, struct candidate *candidate)
{
    int asked[3], count = ranks_to_ask(candidate->input.ranks, asked);
    ra__strategy_format(&candidate->input, candidate->text);
    candidate->fits = true;
    for (int i = 0; i < count; i++) {
        candidate->input.rank = asked[i];
        RA__TRY(ask_rank(choice, candidate));
    }
    return RA_OK;
}

/* The index-th candidate; false after the last. By size of the teams, from the ring, which needs
 * least memory, to ulysses; then allgather. Teams with more members than heads would leave members
 * idle. */
static bool candidate_at(const struct ra__plan_input *input, bool bias, int index,
                         struct candidate *out)
{
    char text[RA__STRATEGY_TEXT] = "ring";
    int heads = bias ? 1 : input->shape.q_heads;
    *out = (struct candidate){ .input = *input };
    for (int size = 1; size <= heads && size <= input->ranks; size++) {
        if (input->ranks % size || index-- > 0) continue;
        if (size > 1) snprintf(text, sizeof text, "2d:%dx%d", size, input->ranks / size);
        if (size > 1 && size == input->ranks) snprintf(text, sizeof text, "ulysses");
        return ra__strategy_parse(text, &out->input) == RA_OK;
    }
    return index == 0 && input->ranks > 1 && ra__strategy_parse("allgather", &out->input) == RA_OK;
}

/* The better of two; the earlier needs less memory, and one percent of the time is no reason for
 * more. */
static bool is_better(const struct candidate *next, const struct candidate *best)
{
    if (next->fits != best->fits) return next->fits;
    return next->seconds < 0.99 * best->seconds;
}

static void add_text(char *why, const char *before, const struct candidate *candidate)
{
    size_t used = strlen(why);
    double t = candidate->seconds;
    const char *unit = t >= 1.0 ? "s" : t >= 1e-3 ? "ms" : "us";
    snprintf(why + used, RA__WHY_TEXT - used, "%s%s %.3g %s%s", before, candidate->text,
             t >= 1.0    ? t
             : t >= 1e-3 ? t * 1e3
                         : t * 1e6,
             unit, candidate->fits ? "" : " (over the budget)");
}

/* The figures come last but must not be cut off: a long list of candidates is truncated. */
static void say_why(const struct ra__choice *choice, const struct candidate *best,
                    const char *others)
{
    snprintf(choice->why, RA__WHY_TEXT, "predicted");
    add_text(choice->why, " ", best);
    size_t used = strlen(choice->why), end = strlen("; at ") + strlen(choice->figures);
    snprintf(choice->why + used, RA__WHY_TEXT - used - end, "%s", others);
    used = strlen(choice->why);
    snprintf(choice->why + used, RA__WHY_TEXT - used, "; at %s", choice->figures);
}

/* A stream keeps nearly any budget, in smaller blocks if need be. But it reads keys again and
 * again: only where nothing else fits. */
static ra_status choose_stream(const struct ra__choice *choice, const struct ra__plan_input *input,
                               struct candidate *best, char *others)
{
    struct candidate stream = { .input = *input };
    RA__TRY(ra__strategy_parse("stream", &stream.input));
    stream.input.block = input->block;
    RA__TRY(ask(choice, &stream));
    stream.fits = true; /* or is refused when the plan is made */
    add_text(others, ", against ", best);
    *best = stream;
    return RA_OK;
}

ra_status ra__choose(const struct ra__choice *choice, struct ra__plan_input *input)
{
    struct candidate best, next;
    char others[RA__WHY_TEXT] = "";
    int rank = input->rank;
    for (int i = 0; candidate_at(input, choice->bias, i, &next); i++) {
        RA__TRY(ask(choice, &next));
        bool better = i == 0 || is_better(&next, &best);
        if (i > 0) add_text(others, i > 1 ? ", " : ", against ", better ? &best : &next);
        if (better) best = next;
    }
    if (!best.fits && input->sourced && input->ranks == 1)
        RA__TRY(choose_stream(choice, input, &best, others));
    *input = best.input;
    input->rank = rank;
    say_why(choice, &best, others);
    return RA_OK;
}
