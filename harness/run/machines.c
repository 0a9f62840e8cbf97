/* SPDX-License-Identifier: Apache-2.0 */
/* machines.c - machines by name: the built-in table, and tables in files. A line of a file is a
 * name, seven figures, and what the machine is, separated by spaces; # begins a comment. A figure
 * is NUMBER:SOURCE. */
#include "machines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness/text/text.h"

#define DATASHEET(value)                                                                           \
    {                                                                                              \
        value, "datasheet"                                                                         \
    }
#define GEMM(value)                                                                                \
    {                                                                                              \
        value, "gemm"                                                                              \
    }
#define MEASURED(value)                                                                            \
    {                                                                                              \
        value, "measured"                                                                          \
    }
#define ASSUMED(value)                                                                             \
    {                                                                                              \
        value, "assumed"                                                                           \
    }
#define MACHINE(name, summary, ...) { name, summary, __VA_ARGS__ },
static const struct known_machine machines[] = {
#include "machines.list"
};
#undef MACHINE

/* The figures of a machine, in the order of a line. */
enum { FIGURES = 7 };
static const size_t places[FIGURES] = {
    offsetof(struct known_machine, flops),     offsetof(struct known_machine, half_flops),
    offsetof(struct known_machine, bandwidth), offsetof(struct known_machine, latency),
    offsetof(struct known_machine, memory),    offsetof(struct known_machine, copy),
    offsetof(struct known_machine, load),
};

static struct machine_figure *figure_of(struct known_machine *m, int i)
{
    return (struct machine_figure *)(void *)((char *)m + places[i]);
}

static int refuse_name(const char *name, const struct string *names)
{
    return refuse("--machine: there is no \"%.40s\"; there are %s", name,
                  names->s ? names->s : "none");
}

/* NUMBER:SOURCE, up to a space; where it ends, or NULL. */
static const char *read_figure(const char *text, struct machine_figure *figure)
{
    static const char *const sources[] = { "datasheet", "gemm", "measured", "assumed" };
    char *end;
    figure->value = strtod(text, &end);
    if (end == text || !(figure->value > 0.0) || *end != ':') return NULL;
    const size_t length = strcspn(end + 1, " \t\r\n");
    for (int i = 0; i < COUNT(sources); i++)
        if (length == strlen(sources[i]) && !strncmp(end + 1, sources[i], length)) {
            snprintf(figure->source, sizeof figure->source, "%s", sources[i]);
            return end + 1 + length;
        }
    return NULL;
}

/* One line: 1 it is a machine, 0 it is empty, -1 it is neither. */
static int read_line(const char *line, struct known_machine *m)
{
    *m = (struct known_machine){ .name = "" };
    line += strspn(line, " \t\r\n");
    if (!*line || *line == '#') return 0;
    const size_t length = strcspn(line, " \t\r\n");
    if (length >= sizeof m->name) return -1;
    memcpy(m->name, line, length);
    line += length;
    for (int i = 0; i < FIGURES && line; i++)
        line = read_figure(line + strspn(line, " \t"), figure_of(m, i));
    if (!line) return -1;
    sscanf(line, " %95[^\n]", m->summary);
    return 1;
}

static int find_in_file(const char *path, const char *name, struct known_machine *machine)
{
    struct string names = { .lost = false };
    char *line = NULL;
    size_t room = 0;
    int number = 0, status = EXIT_PASS;
    bool found = false;
    FILE *file = fopen(path, "r");
    if (!file) return refuse("--machines: %s: %s", path, strerror(errno));
    while (!status && !found && getline(&line, &room, file) > 0) {
        int kind = read_line(line, machine);
        number++;
        if (kind < 0) status = refuse("--machines: %s: line %d is no machine", path, number);
        if (kind <= 0) continue;
        found = !strcmp(machine->name, name);
        string_add(&names, "%s%s", names.s ? ", " : "", machine->name);
    }
    free(line);
    fclose(file);
    if (!status && !found) status = refuse_name(name, &names);
    string_free(&names);
    return status;
}

int machines_find(const char *file, const char *name, struct known_machine *machine)
{
    struct string names = { .lost = false };
    if (file) return find_in_file(file, name, machine);
    for (int i = 0; i < COUNT(machines); i++) {
        if (!strcmp(machines[i].name, name)) {
            *machine = machines[i];
            string_free(&names);
            return EXIT_PASS;
        }
        string_add(&names, "%s%s", i ? ", " : "", machines[i].name);
    }
    int status = refuse_name(name, &names);
    string_free(&names);
    return status;
}

const struct machine_figure *machines_flops(const struct known_machine *machine,
                                            const struct trial *trial)
{
    return trial->dtype == RA_F32 ? &machine->flops : &machine->half_flops;
}

bool machines_attends(const struct known_machine *machine)
{
    return !strcmp(machine->flops.source, "measured") &&
           !strcmp(machine->half_flops.source, "measured");
}

void machines_apply(const struct known_machine *machine, struct trial *trial)
{
    if (!(trial->flops > 0.0)) trial->flops = machines_flops(machine, trial)->value;
    if (!(trial->bandwidth > 0.0)) trial->bandwidth = machine->bandwidth.value;
    if (!(trial->latency > 0.0)) trial->latency = machine->latency.value;
    if (!(trial->load > 0.0)) trial->load = machine->load.value;
    trial->copy = machine->copy.value;
}

void machines_print(void)
{
    printf("# name f32-flop/s 16-bit-flop/s bytes/s latency-seconds memory-bytes copied-bytes/s "
           "host-bytes/s what it is\n"
           "# Sources: datasheet (a peak), gemm (a matrix product was measured), measured, "
           "assumed.\n");
    for (int i = 0; i < COUNT(machines); i++) {
        struct known_machine m = machines[i];
        printf("%-8s", m.name);
        for (int f = 0; f < FIGURES; f++)
            printf(" %.5g:%s", figure_of(&m, f)->value, figure_of(&m, f)->source);
        printf(" %s\n", m.summary);
    }
}
