/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - one run of a program. A step is issued as soon as the steps it waits for allow it: steps
 * of the device may still be in its queue, since the device keeps their order; a round of messages
 * is waited for here. Steps are looked at in the order of the program, and rounds are posted in
 * that order on every rank. A load or store that keeps the host busy comes after whatever else may
 * be issued. */
#include <stdio.h>

#include "core/clock.h"
#include "exec/exec.h"

enum { NONE = -1 };

struct run {
    struct ra__exec *exec;
    const struct ra__program *program;
    const struct ra__io *io;
    struct ra__heartbeat heartbeat;
    int first;    /* all steps before it are issued */
    int exchange; /* the step whose round is under way; NONE */
    double last_report;
    int64_t pairs_before, pairs_expected;
};

/* ---- Heartbeat ------------------------------------------------------------------------------- */

static int64_t pairs_of(const struct ra__exec *exec)
{
    return exec->rank->backend->pairs(exec->prepared);
}

/* Poll the link, and report progress. */
static ra_status beat(void *context)
{
    struct run *run = context;
    const struct ra__rank *rank = run->exec->rank;
    RA__TRY(rank->transport->poll(rank->link));
    if (!run->io->progress) return RA_OK;
    double now = ra__now();
    if (now - run->last_report < 0.05) return RA_OK; /* often enough for a reader */
    run->last_report = now;
    double done = (double)(pairs_of(run->exec) - run->pairs_before) /
                  (double)ra__max(run->pairs_expected, 1);
    if (run->io->progress(run->io->context, done < 1 ? done : 1) == 0) return RA_OK;
    return ra__fail(RA_ERR_ABORTED, "rank %d: stopped by its progress callback", rank->rank);
}

/* ---- Issuing --------------------------------------------------------------------------------- */

static void trace(const struct run *run, const char *name, const struct ra__step *step,
                  double start)
{
    const struct ra__rank *rank = run->exec->rank;
    if (!rank->trace) return;
    const struct ra_trace_event event = { name,      rank->rank,
                                          step->hop, ra__step_rank(run->exec->plan, step),
                                          start,     ra__now() - start };
    rank->trace(rank->context, &event);
}

/* Is it enough that `other`, which this step waits for, is in the queue of the device? A device
 * orders its own steps. A transport that takes no events has to be given finished buffers. Where
 * blocks are lent, nothing of a buffer is sent, and sums are lent with an event; but keys that are
 * packed first have none, so those must be there. */
static bool may_overtake(const struct run *run, const struct ra__step *step,
                         const struct ra__step *other)
{
    const struct ra__program *program = run->program;
    if (other->op == RA__OP_EXCHANGE) return false; /* waited for on the host */
    if (step->op != RA__OP_EXCHANGE || run->exec->rank->transport->takes_events) return true;
    return (other->op == RA__OP_ATTEND || other->op == RA__OP_GRADIENT) &&
           ra__round_lends(program, &program->rounds[step->round]);
}

/* May a step be issued now? */
static bool may_issue(const struct run *run, const struct ra__step *step)
{
    const struct ra__program *program = run->program;
    for (int i = 0; i < step->wait_count; i++) {
        const int other = program->waits[step->first_wait + i];
        const enum ra__stage stage = run->exec->steps[other].stage;
        if (stage == RA__DONE) continue;
        if (stage == RA__WAITING || !may_overtake(run, step, &program->steps[other])) return false;
    }
    return true;
}

/* The events that came with sums which a step uses, after those that have been collected. */
static int collect_arrivals(const struct run *run, const struct ra__step *step,
                            const struct ra__step *exchange, int count)
{
    const struct ra__program *program = run->program;
    const struct ra__round *round =
        &run->exec->messages[program->direction].rounds[exchange->round];
    const struct ra__transfer *recvs = program->recvs + program->rounds[exchange->round].first_recv;
    for (int i = 0; i < round->recv_count; i++) {
        const bool used = (step->reads | step->writes) & ra__buffer_bit(recvs[i].buffer);
        if (used && round->recvs[i].after.source) run->exec->after[count++] = round->recvs[i].after;
    }
    return count;
}

/* The events of the steps that a step waits for and that are not done yet. */
static int collect_events(const struct run *run, const struct ra__step *step)
{
    struct ra__exec *exec = run->exec;
    int count = 0;
    for (int i = 0; i < step->wait_count; i++) {
        const int index = run->program->waits[step->first_wait + i];
        const struct ra__step *other = &run->program->steps[index];
        if (other->op == RA__OP_EXCHANGE) count = collect_arrivals(run, step, other, count);
        else if (exec->steps[index].stage == RA__ISSUED)
            exec->after[count++] = exec->steps[index].event;
    }
    return count;
}

/* A call on a queue of the caller returned when it was issued, and may still read the buffers that
 * messages of this one arrive in. */
static ra_status finish_last_call(const struct run *run)
{
    const struct ra__rank *rank = run->exec->rank;
    return rank->backend->finish ? rank->backend->finish(rank->device, &run->heartbeat) : RA_OK;
}

/* Whoever is told that this rank is done may be gone then, with its events. */
static ra_status wait_for_arrivals(const struct run *run)
{
    const struct ra__rank *rank = run->exec->rank;
    const struct ra__message *recvs = run->exec->messages[run->program->direction].recvs;
    for (int i = 0; i < run->program->recv_count; i++)
        RA__TRY(rank->backend->wait(rank->device, &recvs[i].after, &run->heartbeat));
    return RA_OK;
}

static ra_status post(struct run *run, int index)
{
    struct ra__exec *exec = run->exec;
    const struct ra__step *step = &run->program->steps[index];
    struct ra__round *round = &exec->messages[run->program->direction].rounds[step->round];
    const bool carries = ra__round_carries(run->program, &run->program->rounds[step->round]);
    if (run->program->lends && !carries) RA__TRY(wait_for_arrivals(run));
    ra__loans_lend(exec, run->program, step, round);
    round->after = exec->after;
    round->after_count = collect_events(run, step);
    RA__TRY(finish_last_call(run));
    RA__TRY(exec->rank->transport->post(exec->rank->link, round));
    run->exchange = index;
    exec->steps[index].stage = RA__ISSUED;
    exec->stats.hops += carries;
    for (int i = 0; i < round->send_count; i++)
        exec->stats.bytes_sent += (int64_t)round->sends[i].bytes;
    for (int i = 0; i < round->recv_count; i++)
        exec->stats.bytes_received += (int64_t)round->recvs[i].bytes;
    return RA_OK;
}

static ra_status compute(struct run *run, int index)
{
    struct ra__exec *exec = run->exec;
    const struct ra__rank *rank = exec->rank;
    struct ra__step_progress *progress = &exec->steps[index];
    const struct ra__launch launch = { .direction = run->program->direction,
                                       .step = &run->program->steps[index],
                                       .call = exec->call,
                                       .after = exec->after,
                                       .after_count = collect_events(run,
                                                                     &run->program->steps[index]),
                                       .heartbeat = &run->heartbeat };
    RA__TRY(rank->backend->issue(rank->device, exec->prepared, &launch, &progress->event));
    progress->stage = progress->event.source ? RA__ISSUED : RA__DONE;
    *(launch.step->op == RA__OP_LOAD
          ? &exec->stats.bytes_loaded
          : &exec->stats.bytes_stored) += ra__step_bytes(run->program, launch.step);
    return RA_OK;
}

static ra_status issue(struct run *run, int index)
{
    const struct ra__step *step = &run->program->steps[index];
    const double start = run->exec->rank->trace ? ra__now() : 0;
    RA__TRY(step->op == RA__OP_EXCHANGE ? post(run, index) : compute(run, index));
    trace(run, ra__step_name(step), step, start);
    return beat(run);
}

/* Does issuing a step keep the host busy? It does where the memory of the device is its own: rows
 * of callbacks pass through the host, and so does memory that is not pinned. A queue of the caller
 * may be captured, and is not asked how far it is; callbacks on a queue need no host. */
static bool is_slow(const struct run *run, const struct ra__step *step)
{
    const ra_stream *stream = run->io->stream;
    return !run->exec->rank->backend->host && !run->io->queue && !(stream && stream->queue) &&
           (step->op == RA__OP_LOAD || step->op == RA__OP_STORE);
}

/* Which slow step is the host to be busy with? 3: a load that can start now, since the device will
 * need it; 2: such a store; 1: a step that must wait for the device first. */
static int rank_slow(const struct run *run, const struct ra__step *step)
{
    for (int i = 0; i < step->wait_count; i++) {
        const struct ra__step_progress *other =
            &run->exec->steps[run->program->waits[step->first_wait + i]];
        if (other->stage != RA__DONE && !run->exec->rank->backend->has_passed(&other->event))
            return 1;
    }
    return step->op == RA__OP_LOAD ? 3 : 2;
}

/* Issues the steps that may be, up to a second round that cannot be posted yet: those after it
 * would wait for it, or for the first, anyway. Of the slow ones only the best, and last, so that
 * the device is not idle meanwhile; *slow says whether there was one. Stores keep their order: the
 * one that ends a unit comes after all others of the unit. */
static ra_status issue_some(struct run *run, bool *slow)
{
    enum { AHEAD = 64 }; /* steps that are looked at after a slow one */
    const int count = run->program->step_count;
    int best = NONE, best_rank = 0, end = count;
    bool stores_wait = false;
    for (int i = run->first, rounds = 0; i < end && rounds < 2; i++) {
        const struct ra__step *step = &run->program->steps[i];
        const bool waits = run->exec->steps[i].stage == RA__WAITING;
        const bool overtakes = step->op == RA__OP_STORE && stores_wait;
        const bool ready = waits && may_issue(run, step);
        if (waits && step->op == RA__OP_STORE) stores_wait = true;
        if (ready && is_slow(run, step)) {
            const int rank = overtakes ? 0 : rank_slow(run, step);
            if (best == NONE) end = count - i > AHEAD ? i + AHEAD : count;
            if (rank > best_rank) best = i, best_rank = rank;
        } else if (ready) {
            RA__TRY(issue(run, i));
        } else if (waits && step->op == RA__OP_EXCHANGE) rounds++;
        if (i == run->first && run->exec->steps[i].stage != RA__WAITING) run->first++;
    }
    *slow = best != NONE;
    return *slow ? issue(run, best) : RA_OK;
}

static ra_status issue_ready(struct run *run)
{
    bool slow;
    do RA__TRY(issue_some(run, &slow));
    while (slow);
    return RA_OK;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static ra_status wait_for_exchange(struct run *run)
{
    struct ra__exec *exec = run->exec;
    const int index = run->exchange;
    const struct ra__step *step = &run->program->steps[index];
    struct ra__round *round = &exec->messages[run->program->direction].rounds[step->round];
    const double start = ra__now();
    run->exchange = NONE; /* after a failure its buffers are free, or retained */
    RA__TRY(exec->rank->transport->wait(exec->rank->link, round));
    ra__loans_borrow(exec, run->program, step, round);
    exec->stats.wait_seconds += ra__now() - start;
    exec->steps[index].stage = RA__DONE;
    trace(run, "wait", step, start);
    return RA_OK;
}

static ra_status wait_for_step(struct run *run, int index)
{
    const struct ra__rank *rank = run->exec->rank;
    struct ra__step_progress *progress = &run->exec->steps[index];
    if (progress->stage != RA__ISSUED) return RA_OK;
    RA__TRY(rank->backend->wait(rank->device, &progress->event, &run->heartbeat));
    progress->stage = RA__DONE;
    return RA_OK;
}

/* No step may be issued. With a round under way, whatever is left waits for it; without one, the
 * next round waits for steps of the device. */
static ra_status wait_for_something(struct run *run)
{
    const struct ra__step *next = &run->program->steps[run->first];
    if (run->exchange != NONE) return wait_for_exchange(run);
    for (int i = 0; i < next->wait_count; i++)
        RA__TRY(wait_for_step(run, run->program->waits[next->first_wait + i]));
    return RA_OK;
}

/* Must the host wait for what the run comes after? Others read keys that are lent in place without
 * an event. A copy of the caller's tensors may wait inside of the runtime, where other ranks would
 * miss this one's heartbeats. */
static bool must_be_there(const struct run *run)
{
    const struct ra__exec *exec = run->exec;
    const bool loads = exec->plan->caller.loads && !run->io->queue;
    return ra__loans_in_place(exec, run->program) || (loads && exec->rank->ranks > 1);
}

/* A run comes after what is on the caller's queue, or on the default one. */
static ra_status follow_queue(struct run *run)
{
    const struct ra__rank *rank = run->exec->rank;
    const struct ra__backend *backend = rank->backend;
    struct ra__event there;
    if (!backend->follow && !run->io->queue) return RA_OK;
    if (!backend->follow)
        return ra__fail(RA_ERR_UNSUPPORTED, "run: the device %s has no queues", backend->name);
    const bool waits = must_be_there(run);
    RA__TRY(backend->follow(rank->device, run->exec->prepared, run->program->direction,
                            run->io->queue, waits ? &there : NULL));
    return waits ? backend->wait(rank->device, &there, &run->heartbeat) : RA_OK;
}

static ra_status precede_queue(const struct run *run)
{
    const struct ra__rank *rank = run->exec->rank;
    return rank->backend->precede(rank->device, run->io->queue);
}

static ra_status run_program(struct run *run)
{
    const struct ra__program *program = run->program;
    RA__TRY(beat(run));
    RA__TRY(ra__handshake(&run->exec->handshake, run->exec->rank));
    RA__TRY(follow_queue(run));
    RA__TRY(issue_ready(run));
    while (run->first < program->step_count) {
        RA__TRY(wait_for_something(run));
        RA__TRY(issue_ready(run));
    }
    if (run->exchange != NONE) RA__TRY(wait_for_exchange(run));
    if (run->io->queue) return precede_queue(run);
    for (int i = 0; i < program->step_count; i++) RA__TRY(wait_for_step(run, i));
    return RA_OK;
}

/* After a failure: informs the others, and lets everything in flight end. The first sentence is the
 * one that counts. */
static ra_status give_up(struct run *run, ra_status status)
{
    const struct ra__rank *rank = run->exec->rank;
    char sentence[1024];
    snprintf(sentence, sizeof sentence, "%s", ra_last_error());
    rank->transport->abort(rank->link, status, sentence);
    rank->backend->drain(rank->device);
    if (run->exchange != NONE) wait_for_exchange(run);
    ra__loans_give_up(run->exec, run->program);
    return ra__fail(status, "%s", sentence);
}

/* A stream: was this step done by an earlier run, or is it for something that is not wanted? A
 * ring: is what it would pack lent in place? */
static bool is_skipped(const struct run *run, const struct ra__step *step)
{
    const ra_stream *stream = run->io->stream;
    if (ra__loans_skip(run->exec, run->program, step)) return true;
    if (step->unit == RA__SINKS_UNIT) return !run->io->dsinks;
    if (step->unit == 0 || !stream || !stream->finished) return false;
    const int backward = run->program->direction == RA__BACKWARD;
    return stream->finished(stream->context, backward, step->unit - 1) != 0;
}

static void begin_steps(struct run *run)
{
    const struct ra__program *program = run->program;
    const struct ra__plan *plan = run->exec->plan;
    if (run->io->progress) run->pairs_expected = ra__program_pairs_roughly(plan, program);
    for (int i = 0; i < program->step_count; i++) {
        const struct ra__step *step = &program->steps[i];
        const bool skipped = is_skipped(run, step);
        run->exec->steps[i] = (struct ra__step_progress){ .stage = skipped ? RA__DONE
                                                                           : RA__WAITING };
        if (skipped && run->io->progress)
            run->pairs_expected -= ra__step_pairs_roughly(plan, program, step);
    }
}

ra_status ra__exec_run(struct ra__exec *exec, enum ra__direction direction, const struct ra__io *io)
{
    const struct ra__program *program = direction == RA__FORWARD ? &exec->plan->forward
                                                                 : &exec->plan->backward;
    const double start = ra__now();
    struct run run = { .exec = exec,
                       .program = program,
                       .io = io,
                       .exchange = NONE,
                       .last_report = start,
                       .pairs_before = pairs_of(exec) };
    run.heartbeat = (struct ra__heartbeat){ beat, &run };
    exec->stats = ra_stats_default();
    ra__call_set(exec, direction, io);
    ra__loans_begin(exec, program, io);
    begin_steps(&run);
    ra_status status = run_program(&run);
    if (status != RA_OK) return give_up(&run, status);
    ra__rank_idle(exec->rank);
    if (io->progress) io->progress(io->context, 1.0);
    exec->stats.pairs = pairs_of(exec) - run.pairs_before;
    exec->stats.flops = ra__flops(&program->work.shape, exec->stats.pairs,
                                  direction == RA__BACKWARD);
    exec->stats.seconds = ra__now() - start;
    return RA_OK;
}
