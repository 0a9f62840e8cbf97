/* SPDX-License-Identifier: Apache-2.0 */
/* machines.c - machines by name: the built-in table, and tables in files. A line of a file is name,
 * source, four rates, memory and what it is, separated by spaces; # begins a comment. */
#include "machines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness/text/text.h"

#define MACHINE(name, source, flops, half_flops, bandwidth, latency, memory, summary)              \
    { name, source, flops, half_flops, bandwidth, latency, memory, summary },
static const struct known_machine machines[] = {
#include "machines.list"
};
#undef MACHINE

static int refuse_name(const char *name, const struct string *names)
{
    return refuse("--machine: there is no \"%.40s\"; there are %s", name,
                  names->s ? names->s : "none");
}

/* One line: 1 it is a machine, 0 it is empty, -1 it is neither. */
static int read_line(const char *line, struct known_machine *m)
{
    *m = (struct known_machine){ .flops = 0.0 };
    line += strspn(line, " \t\r\n");
    if (!*line || *line == '#') return 0;
    int count = sscanf(line, "%31s %15s %lf %lf %lf %lf %lf %95[^\n]", m->name, m->source,
                       &m->flops, &m->half_flops, &m->bandwidth, &m->latency, &m->memory,
                       m->summary);
    bool positive = m->flops > 0.0 && m->half_flops > 0.0 && m->bandwidth > 0.0 &&
                    m->latency > 0.0 && m->memory > 0.0;
    return count >= 7 && positive ? 1 : -1;
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

void machines_apply(const struct known_machine *machine, struct trial *trial)
{
    double flops = trial->dtype == RA_F32 ? machine->flops : machine->half_flops;
    if (!(trial->flops > 0.0)) trial->flops = flops;
    if (!(trial->bandwidth > 0.0)) trial->bandwidth = machine->bandwidth;
    if (!(trial->latency > 0.0)) trial->latency = machine->latency;
}

void machines_print(void)
{
    printf(
        "# name source f32-flop/s 16-bit-flop/s bytes/s latency-seconds memory-bytes what it is\n");
    for (const struct known_machine *m = machines; m < machines + COUNT(machines); m++)
        printf("%-9s %-9s %-8.4g %-9.4g %-9.4g %-6.3g %-8.4g %s\n", m->name, m->source, m->flops,
               m->half_flops, m->bandwidth, m->latency, m->memory, m->summary);
}
