/* SPDX-License-Identifier: Apache-2.0 */
/* ablate_section.c - what each optimisation is worth: the lines of a table against its first. */
#include <string.h>

#include "harness/text/text.h"
#include "section.h"

/* A line is compared with the first of its table and pass; "NAME, kept" starts a table of its
 * own. */
static const struct row *base_of(const struct rows *rows, const struct row *row)
{
    bool pairs = !strcmp(row->section, "plan");
    size_t stem = pairs ? strcspn(row->name, ",") : 0;
    for (int i = 0; i < rows->count; i++) {
        const struct row *other = &rows->at[i];
        if (!row_in(other, "ablate", row->section) || strcmp(other->pass, row->pass)) continue;
        if (!strncmp(other->name, row->name, stem)) return other;
    }
    return row;
}

static const char *verdict(const struct row *base, const struct row *row)
{
    if (base == row) return "compared with";
    if (!row_has_spread(row) || !row_has_spread(base)) return "too few runs to tell";
    if (row_faster(row, base)) return "faster";
    return row_faster(base, row) ? "slower" : "within the spread";
}

static void put_table(struct page *page, const struct rows *rows, const char *section)
{
    struct table table = { .heads = { "", "pass", "time", "spread", "times as fast", "", "memory" },
                           .columns = 7 };
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (!row_in(row, "ablate", section)) continue;
        const struct row *base = base_of(rows, row);
        table_text(&table, "%s", row->name);
        table_text(&table, "%s", row->pass);
        cell_seconds(&table, row);
        table_number(&table, base->seconds / row->seconds, "%.2fx", base->seconds / row->seconds);
        table_text(&table, "%s", verdict(base, row));
        cell_bytes(&table, row->bytes_per_rank);
    }
    page_table(page, &table);
}

static void write_ablate(struct page *page, const struct rows *rows)
{
    static const struct {
        const char *section, *title;
    } tables[] = {
        { "plan", "Plan reuse (the pattern cache of the reports)" },
        { "pool", "Buffer pool, plans made anew for each run" },
        { "dtype", "Dtype" },
        { "kernel", "Kernel" },
        { "partition", "Partition, causal, ring of 2" },
        { "overlap", "Overlap of communication and work, ring of 2 over a link of 100 MB/s" },
    };
    for (int i = 0; i < COUNT(tables); i++) {
        bool any = false;
        for (int j = 0; j < rows->count; j++)
            any |= row_in(&rows->at[j], "ablate", tables[i].section);
        if (!any) continue;
        page_heading(page, tables[i].title);
        put_table(page, rows, tables[i].section);
    }
}

const struct section section_ablate = { .id = "ablate",
                                        .title = "What each optimisation is worth",
                                        .suite = "ablate",
                                        .write = write_ablate };
