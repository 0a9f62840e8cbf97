/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - a page from a set of results. Both files appear when they are complete. */
#include "report.h"

#include <string.h>

#include "harness/files/outfile.h"
#include "page.h"
#include "results.h"
#include "section.h"

enum { PATH_MOST = 4096 };

/* NAME.html gives NAME.md and the folder NAME-plots. */
static int make_names(const char *out, char *markdown, struct page *page)
{
    const char *dot = strrchr(out, '.'), *slash = strrchr(out, '/');
    int stem = (int)(dot && (!slash || dot > slash) ? dot - out : (long)strlen(out));
    if (!dot || strcmp(dot, ".html")) return refuse("--out: %s does not end in .html", out);
    if (stem > PATH_MOST - 16) return refuse("--out: the name is too long");
    snprintf(markdown, PATH_MOST, "%.*s.md", stem, out);
    snprintf(page->pictures, sizeof page->pictures, "%.*s-plots", stem, out);
    page->linked = page->pictures + (slash ? slash + 1 - out : 0);
    return EXIT_PASS;
}

static bool has_rows(const struct rows *rows, const char *suite)
{
    if (!suite) return true;
    for (int i = 0; i < rows->count; i++)
        if (!strcmp(rows->at[i].suite, suite) && !*rows->at[i].absent) return true;
    return false;
}

static int write_page(struct page *page, const struct rows *rows)
{
    char about[240];
    const struct row *first = &rows->at[0];
    snprintf(about, sizeof about, "Exact attention on %s: %d configurations%s.",
             row_device_text(first).s, rows->count, first->quick ? ", a quick look" : "");
    page_begin(page, "ringattn: benchmark report", about);
    for (int i = 0; section_at(i); i++) {
        const struct section *section = section_at(i);
        if (!has_rows(rows, section->suite)) continue;
        page_section(page, section->id, section->title);
        section->write(page, rows);
    }
    page_end(page);
    return page->status;
}

static int write_files(const char *out, const struct rows *rows)
{
    struct outfile files[2] = { { .path = NULL }, { .path = NULL } };
    char markdown[PATH_MOST];
    struct page page = { .plots = plot_works() };
    int status = make_names(out, markdown, &page);
    const char *const paths[2] = { out, markdown };
    for (int i = 0; i < 2 && !status; i++) status = outfile_check("--out", paths[i]);
    for (int i = 0; i < 2 && !status; i++) status = outfile_open(&files[i], paths[i]);
    page.html = files[0].stream;
    page.markdown = files[1].stream;
    if (!status) status = write_page(&page, rows);
    for (int i = 0; i < 2 && !status; i++) status = outfile_finish(&files[i]);
    for (int i = 0; i < 2 && !status; i++) status = outfile_commit(&files[i]);
    for (int i = 0; i < 2; i++) outfile_discard(&files[i]);
    if (status) return status;
    printf("%s and %s: %d rows%s\n", out, markdown, rows->count, page.plots ? ", plots in " : "");
    if (page.plots) printf("%s\n", page.pictures);
    else
        printf("without plots: gnuplot was not found (tools/install-deps report brings it, on "
               "Debian the package gnuplot-nox)\n");
    return EXIT_PASS;
}

int report_write(const struct options *options)
{
    struct rows rows = { .count = 0 };
    if (options->word_count != 1) return refuse("report: one folder of results");
    if (!options->out) return refuse("report: --out FILE.html is missing");
    int status = results_read("report", options->words[0], &rows);
    if (!status && !rows.count) status = refuse("report: %s has no rows", options->words[0]);
    if (!status) status = write_files(options->out, &rows);
    rows_free(&rows);
    return status;
}
