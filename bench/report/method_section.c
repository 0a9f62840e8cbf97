/* SPDX-License-Identifier: Apache-2.0 */
/* method_section.c - the machine, how it was measured, how to repeat it, and what is missing. */
#include <stdlib.h>
#include <string.h>

#include "harness/text/text.h"
#include "runner.h"
#include "section.h"

static void put_machine(struct page *page, const struct row *row)
{
    struct table table = { .heads = { "machine", "" }, .columns = 2 };
    table_text(&table, "device");
    table_text(&table, "%s: %s", row->device, row->device_name);
    table_text(&table, "cores");
    table_text(&table, "%lld", (long long)row->cores);
    table_text(&table, "memory");
    table_text(&table, "%s", text_bytes(row->memory_bytes).s);
    table_text(&table, "system");
    table_text(&table, "%s", row->os);
    table_text(&table, "ringattn");
    table_text(&table, "%s%s%s", row->version, *row->commit ? ", commit " : "", row->commit);
    page_table(page, &table);
}

static bool has_suite(const struct rows *rows, const char *suite)
{
    for (int i = 0; i < rows->count; i++)
        if (!strcmp(rows->at[i].suite, suite)) return true;
    return false;
}

static void put_missing(struct page *page, const struct rows *rows)
{
    struct string names = { .lost = false };
    for (int i = 0; suite_at(i); i++)
        if (!has_suite(rows, suite_at(i)->name))
            string_add(&names, "%s`%s`", names.s ? ", " : "", suite_at(i)->name);
    if (names.s)
        page_note(page,
                  "Not in these results, and left out above: %s. `ringattn bench SUITE --out "
                  "DIR` adds a suite.",
                  names.s);
    string_free(&names);
}

static void put_absent(struct page *page, const struct rows *rows)
{
    struct table table = { .heads = { "suite", "name", "problem", "why there are no figures" },
                           .columns = 4 };
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (!*row->absent) continue;
        table_text(&table, "%s", row->suite);
        table_text(&table, "%s", row->name);
        table_text(&table, "`%s`", row->problem);
        table_text(&table, "%s", row->absent);
    }
    if (!table.count) return;
    page_heading(page, "Without figures");
    page_table(page, &table);
}

static void put_commands(struct page *page, const struct rows *rows)
{
    bool quick = rows->at[0].quick;
    struct string all = { .lost = false };
    string_add(&all,
               "ringattn bench all%s --out results\nringattn report results --out report.html",
               quick ? " --quick" : "");
    page_heading(page, "To repeat it");
    page_code(page, all.s ? all.s : "");
    string_free(&all);
    page_text(page, "Any row by itself: its problem string and flags follow `ringattn bench case`, "
                    "and `ringattn verify` takes the same string. For example:");
    for (int i = 0, shown = 0; i < rows->count && shown < 3; i += rows->count / 3 + 1) {
        char *command = *rows->at[i].absent ? NULL : runner_command(&rows->at[i]);
        if (command) page_code(page, command);
        shown += command != NULL;
        free(command);
    }
}

static void write_method(struct page *page, const struct rows *rows)
{
    put_machine(page, &rows->at[0]);
    page_text(page,
              "Each configuration ran in a process of its own, warmed up. A sample of the "
              "machine's ceiling preceded each run, and a run faster than the ceiling would have "
              "failed the suite, as would a result that differs from the fp64 oracle by more than "
              "its dtype explains.");
    put_commands(page, rows);
    put_missing(page, rows);
    put_absent(page, rows);
}

const struct section section_method = { .id = "method",
                                        .title = "Machine and method",
                                        .write = write_method };
