/* SPDX-License-Identifier: Apache-2.0 */
/* peer.c - the half of a rival that is the same for all: commands, answers, files, the clock. */
#include "peer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static const char *const dtype_names[] = { "f32", "bf16", "f16" };
static char refusal[512];

void *peer_refuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(refusal, sizeof refusal, format, arguments);
    va_end(arguments);
    return NULL;
}

size_t peer_bytes(enum peer_dtype dtype) { return dtype == PEER_F32 ? 4 : 2; }

size_t peer_elements(const struct peer_case *problem)
{
    return (size_t)problem->tokens * (size_t)problem->heads * (size_t)problem->dim;
}

void *peer_alloc(size_t bytes)
{
    enum { LARGE_PAGE = 1 << 21 };
    void *memory = NULL;
    if (posix_memalign(&memory, LARGE_PAGE, bytes)) return peer_refuse("no %zu bytes", bytes);
    madvise(memory, bytes, MADV_HUGEPAGE); /* a wish: small pages do as well */
    return memory;
}

/* ---- Files ----------------------------------------------------------------------------------- */

void *peer_load(const struct peer_case *problem, const char *name)
{
    enum { HEADER = 128 }; /* as `tensors` writes it */
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s.npy", problem->folder, name, dtype_names[problem->dtype]);
    FILE *file = fopen(path, "rb");
    if (!file) return peer_refuse("%s cannot be opened", path);
    size_t count = peer_elements(problem);
    void *data = peer_alloc(count * peer_bytes(problem->dtype));
    bool good = data && !fseek(file, HEADER, SEEK_SET) &&
                fread(data, peer_bytes(problem->dtype), count, file) == count;
    fclose(file);
    if (good) return data;
    free(data);
    return peer_refuse("%s is too short, or memory is", path);
}

void *peer_load_by_head(const struct peer_case *problem, const char *name)
{
    char *packed = peer_load(problem, name);
    if (!packed) return NULL;
    size_t row = (size_t)problem->dim * peer_bytes(problem->dtype);
    char *by_head = peer_alloc(peer_elements(problem) * peer_bytes(problem->dtype));
    char *to = by_head;
    for (int h = 0; to && h < problem->heads; h++)
        for (int64_t i = 0; i < problem->tokens; i++, to += row)
            memcpy(to, packed + ((size_t)i * (size_t)problem->heads + (size_t)h) * row, row);
    free(packed);
    return by_head;
}

/* ---- Commands -------------------------------------------------------------------------------- */

struct session {
    const struct peer *peer;
    struct peer_case problem;
    char folder[4096];
    void *job; /* NULL between close and open */
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Quotes what would end a JSON string early. */
static void print_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') putchar('\\');
        putchar((unsigned char)*text < ' ' ? ' ' : *text);
    }
    putchar('"');
}

static void answer_refusal(void)
{
    printf("{\"error\": ");
    print_text(refusal);
    printf("}\n");
}

static const void *row_of(struct session *s, int which, int64_t position, int head,
                          enum peer_dtype *dtype)
{
    return s->peer->row(s->job, which, position, head, dtype);
}

static void command_open(struct session *s, const char *line)
{
    char dtype[8], pattern[8], pass[16];
    long long tokens;
    struct peer_case *p = &s->problem;
    if (s->job || sscanf(line, "open %lld %d %d %7s %7s %15s %4095[^\n]", &tokens, &p->heads,
                         &p->dim, dtype, pattern, pass, s->folder) != 7) {
        peer_refuse("not understood: %s", line);
        answer_refusal();
        return;
    }
    p->folder = s->folder;
    p->tokens = tokens;
    p->dtype = !strcmp(dtype, "bf16") ? PEER_BF16 : !strcmp(dtype, "f16") ? PEER_F16 : PEER_F32;
    p->causal = !strcmp(pattern, "causal");
    p->backward = !strcmp(pass, "backward");
    s->job = s->peer->open(p);
    if (!s->job) {
        answer_refusal();
        return;
    }
    enum peer_dtype result;
    row_of(s, 0, 0, 0, &result);
    printf("{\"ready\": ");
    print_text(s->peer->detail(s->job));
    printf(", \"result\": \"%s\"}\n", dtype_names[result]);
}

static void command_run(struct session *s, int count)
{
    double start = seconds();
    for (int i = 0; i < count; i++)
        if (!s->peer->run(s->job)) {
            answer_refusal();
            return;
        }
    printf("{\"seconds\": %.9f}\n", (seconds() - start) / count);
}

static void command_rows(struct session *s, const char *positions)
{
    const struct peer_case *p = &s->problem;
    printf("{\"rows\": \"");
    for (int which = 0; which < (p->backward ? 3 : 1); which++) {
        char *next;
        for (const char *word = positions;; word = next) {
            int64_t position = strtoll(word, &next, 10);
            if (next == word || position < 0 || position >= p->tokens) break;
            for (int h = 0; h < p->heads; h++) {
                enum peer_dtype dtype;
                const unsigned char *row = row_of(s, which, position, h, &dtype);
                size_t bytes = (size_t)p->dim * peer_bytes(dtype);
                for (size_t i = 0; i < bytes; i++) printf("%02x", row[i]);
            }
        }
    }
    printf("\"}\n");
}

static void command(struct session *s, char *line)
{
    line[strcspn(line, "\n")] = 0;
    int count = 0;
    if (!strncmp(line, "open ", 5)) {
        command_open(s, line);
    } else if (!s->job) {
        peer_refuse("nothing is open");
        answer_refusal();
    } else if (sscanf(line, "run %d", &count) == 1 && count > 0) {
        command_run(s, count);
    } else if (!strncmp(line, "rows ", 5)) {
        command_rows(s, line + 5);
    } else if (!strcmp(line, "close")) {
        s->peer->close(s->job);
        s->job = NULL;
        printf("{\"closed\": true}\n");
    } else {
        peer_refuse("not understood: %s", line);
        answer_refusal();
    }
    fflush(stdout);
}

int peer_main(int argc, char **argv, const struct peer *peer)
{
    struct session session = { .peer = peer };
    session.problem.threads = argc == 2 ? atoi(argv[1]) : 0;
    if (session.problem.threads < 1) {
        fprintf(stderr, "usage: %s THREADS   (a part of bench/peers/compare)\n", peer->name);
        return 2;
    }
    printf("{\"peer\": \"%s\", \"version\": ", peer->name);
    print_text(peer->version());
    printf("}\n");
    fflush(stdout);
    static char line[8192];
    while (fgets(line, sizeof line, stdin)) command(&session, line);
    peer->close(session.job);
    return 0;
}
