/* hello.c - before its first message a plan compares its problem with that of every other rank; and
 * the exchange behind it, in which every rank tells every other the same. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "exec/exec.h"
#include "pattern/text.h"

/* ---- What differs, for people ---------------------------------------------------------------- */

/* A field that differs, as it travels, and where the words about it go. */
struct contrast {
    const struct ra__plan_input *input; /* what this rank was given */
    uint64_t mine, theirs;
    struct ra__writer *words;
};

static void show_number(const struct contrast *c)
{
    ra__write(c->words, " (%" PRIu64 " here, %" PRIu64 " there)", c->mine, c->theirs);
}

static void show_dtype(const struct contrast *c)
{
    ra__write(c->words, " (%s here, %s there)", ra__dtype_name((ra_dtype)c->mine),
              ra__dtype_name((ra_dtype)c->theirs));
}

static void show_version(const struct contrast *c)
{
    const uint64_t m = c->mine, t = c->theirs;
    ra__write(c->words,
              " (%" PRIu64 ".%" PRIu64 ".%" PRIu64 " here, %" PRIu64 ".%" PRIu64 ".%" PRIu64
              " there)",
              m / 1000000, m / 1000 % 1000, m % 1000, t / 1000000, t / 1000 % 1000, t % 1000);
}

/* With as many digits as it takes to tell them apart; 17 always do. */
static void show_two(struct ra__writer *words, double mine, double theirs)
{
    char here[32], there[32];
    int digits = 6;
    do {
        snprintf(here, sizeof here, "%.*g", digits, mine);
        snprintf(there, sizeof there, "%.*g", digits, theirs);
    } while (!strcmp(here, there) && ++digits <= 17);
    ra__write(words, " (%s here, %s there)", here, there);
}

static void show_real(const struct contrast *c)
{
    show_two(c->words, ra__f32_from_bits((uint32_t)c->mine),
             ra__f32_from_bits((uint32_t)c->theirs));
}

/* Of 2^32, as ra__philox_limit() says. */
static void show_share(const struct contrast *c)
{
    show_two(c->words, (double)c->mine / 0x1p32, (double)c->theirs / 0x1p32);
}

/* A hash, which says nothing to people but that there is something. */
static void show_digest(const struct contrast *c)
{
    if (!c->mine || !c->theirs) ra__write(c->words, " (none %s)", c->mine ? "there" : "here");
}

/* Hashes too, but of something that has a text on this side. */
static void show_pattern(const struct contrast *c)
{
    char text[80];
    size_t length = 0;
    if (ra_pattern_format(c->input->pattern, text, sizeof text, &length) != RA_OK) return;
    ra__write(c->words, " (%s%s here)", text, length < sizeof text ? "" : "...");
}

static void show_strategy(const struct contrast *c)
{
    char text[RA__STRATEGY_TEXT];
    ra__strategy_format(c->input, text);
    ra__write(c->words, " (%s here)", text);
}

static const struct {
    const char *name;
    void (*show)(const struct contrast *c);
} fields[] = {
#define RA__HELLO_ROW(name, text, show) { text, show_##show },
    RA__HELLO_LIST(RA__HELLO_ROW)
#undef RA__HELLO_ROW
};

/* ---- Comparing ------------------------------------------------------------------------------- */

ra_status ra__exec_share(const struct ra__rank *rank, struct ra__message *messages, int tag,
                         const void *mine, void *theirs, size_t bytes)
{
    int others = rank->ranks - 1;
    struct ra__message *sends = messages, *recvs = messages + others;
    for (int i = 0; i < others; i++) {
        int peer = i < rank->rank ? i : i + 1;
        sends[i] = recvs[i] = (struct ra__message){ .peer = peer, .tag = tag, .bytes = bytes };
        sends[i].data = (void *)mine; /* only read */
        recvs[i].data = (char *)theirs + (size_t)i * bytes;
    }
    struct ra__round round = { sends, recvs, others, others, 0, NULL };
    RA__TRY(rank->transport->post(rank->link, &round));
    return rank->transport->wait(rank->link, &round);
}

static ra_status compare(const struct ra__exec *exec, int other)
{
    int peer = other < exec->rank->rank ? other : other + 1;
    const uint64_t *mine = (const uint64_t *)&exec->hello,
                   *theirs = (const uint64_t *)&exec->hellos[other];
    for (int i = 0; i < RA__COUNT(fields); i++) {
        if (mine[i] == theirs[i]) continue;
        char text[160] = "";
        struct ra__writer words = { text, sizeof text, 0 };
        fields[i].show(&(struct contrast){ &exec->plan->home, mine[i], theirs[i], &words });
        return ra__fail(RA_ERR_MISMATCH, "rank %d, hop 0: rank %d was given another %s%s",
                        exec->rank->rank, peer, fields[i].name, text);
    }
    return RA_OK;
}

ra_status ra__exec_hello(struct ra__exec *exec)
{
    const struct ra__rank *rank = exec->rank;
    if (exec->greeted || rank->ranks == 1) return RA_OK;
    struct ra__hello *mine =
        &exec->hellos[rank->ranks - 1]; /* stays where the transport holds it */
    *mine = exec->hello;
    RA__TRY(ra__exec_share(rank, exec->hello_messages, ra__reserved_tag(RA__RESERVED_HELLO), mine,
                           exec->hellos, sizeof *mine));
    for (int i = 0; i < rank->ranks - 1; i++) RA__TRY(compare(exec, i));
    exec->greeted = true;
    return RA_OK;
}
