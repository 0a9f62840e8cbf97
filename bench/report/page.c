/* SPDX-License-Identifier: Apache-2.0 */
/* page.c - a report as HTML and as Markdown. */
#include "page.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "assets.h"

/* ---- Texts ----------------------------------------------------------------------------------- */

static void put_letters(FILE *to, const char *text, bool breaks)
{
    for (; *text; text++) {
        if (*text == '<') fputs("&lt;", to);
        else if (*text == '>') fputs("&gt;", to);
        else if (*text == '&') fputs("&amp;", to);
        else if (*text == '"') fputs("&quot;", to);
        else fputc(*text, to);
        if (breaks && strchr(";,", *text)) fputs("<wbr>", to);
    }
}

static void put_html(FILE *to, const char *text) { put_letters(to, text, false); }

/* Words between backquotes are code, as in Markdown. A pattern may be broken after its commas. */
static void put_prose(FILE *to, const char *text)
{
    bool code = false;
    while (*text) {
        size_t length = strcspn(text, "`");
        char *piece = strndup(text, length);
        if (piece) put_letters(to, piece, code);
        free(piece);
        text += length;
        if (*text != '`') break;
        fputs(code ? "</code>" : "<code>", to);
        code = !code;
        text++;
    }
    if (code) fputs("</code>", to);
}

/* Cells of Markdown may hold no bar. */
static void put_cell(FILE *to, const char *text)
{
    for (; *text; text++) {
        if (*text == '|') fputc('\\', to);
        fputc(*text, to);
    }
}

static void close_cards(struct page *page)
{
    if (page->cards) fputs("</div>\n", page->html);
    page->cards = false;
}

static char *formatted(const char *format, va_list values)
{
    char *text = NULL;
    return vasprintf(&text, format, values) < 0 ? NULL : text;
}

/* ---- The page -------------------------------------------------------------------------------- */

static void put_colours(FILE *html)
{
    static const char *const rules[2] = { ":root{",
                                          "@media (prefers-color-scheme:dark) and screen{:root{" };
    for (int dark = 0; dark < 2; dark++) {
        fputs(rules[dark], html);
        for (int i = 0; i < PLOT_COLOURS; i++)
            fprintf(html, "--line-%d:%s;", i + 1, plot_colour(i, dark));
        fputs(dark ? "}}\n" : "}\n", html);
    }
}

void page_begin(struct page *page, const char *title, const char *about)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n<title>",
          page->html);
    put_html(page->html, title);
    fprintf(page->html, "</title>\n<style>\n%s", asset_style);
    put_colours(page->html);
    fputs("</style>\n</head>\n<body>\n<main>\n<header>\n<h1>", page->html);
    put_html(page->html, title);
    fputs("</h1>\n<p class=\"about\">", page->html);
    put_prose(page->html, about);
    fputs("</p>\n<nav id=\"contents\"></nav>\n</header>\n", page->html);
    fprintf(page->markdown, "# %s\n\n%s\n", title, about);
}

void page_end(struct page *page)
{
    close_cards(page);
    fprintf(page->html, "</section>\n</main>\n<script>\n%s</script>\n</body>\n</html>\n",
            asset_script);
}

void page_section(struct page *page, const char *id, const char *title)
{
    close_cards(page);
    if (strcmp(id, "summary")) fputs("</section>\n", page->html);
    fprintf(page->html, "<section id=\"%s\">\n<h2>%s</h2>\n", id, title);
    fprintf(page->markdown, "\n## %s\n", title);
}

void page_heading(struct page *page, const char *title)
{
    close_cards(page);
    fprintf(page->html, "<h3>%s</h3>\n", title);
    fprintf(page->markdown, "\n### %s\n", title);
}

static void put_paragraph(struct page *page, const char *kind, const char *text)
{
    close_cards(page);
    fprintf(page->html, "<p%s>", kind);
    put_prose(page->html, text ? text : "");
    fputs("</p>\n", page->html);
    fprintf(page->markdown, "\n%s\n", text ? text : "");
}

void page_text(struct page *page, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    char *text = formatted(format, values);
    va_end(values);
    put_paragraph(page, "", text);
    free(text);
}

void page_note(struct page *page, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    char *text = formatted(format, values);
    va_end(values);
    put_paragraph(page, " class=\"note\"", text);
    free(text);
}

void page_code(struct page *page, const char *text)
{
    close_cards(page);
    fputs("<pre tabindex=\"0\"><code>", page->html);
    put_html(page->html, text);
    fputs("</code></pre>\n", page->html);
    fprintf(page->markdown, "\n```sh\n%s\n```\n", text);
}

void page_card(struct page *page, const char *value, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    char *text = formatted(format, values);
    va_end(values);
    if (!page->cards) fputs("<div class=\"cards\">\n", page->html);
    fputs("<div class=\"card\"><b>", page->html);
    put_html(page->html, value);
    fputs("</b><span>", page->html);
    put_prose(page->html, text ? text : "");
    fputs("</span></div>\n", page->html);
    fprintf(page->markdown, "%s- **%s** %s\n", page->cards ? "" : "\n", value, text ? text : "");
    page->cards = true;
    free(text);
}

/* ---- Plots ----------------------------------------------------------------------------------- */

static int put_picture(struct page *page, const struct plot *plot)
{
    char path[4200];
    if (mkdir(page->pictures, 0777) && errno != EEXIST)
        return fault("%s: cannot be made: %s", page->pictures, strerror(errno));
    snprintf(path, sizeof path, "%s/%s.png", page->pictures, plot->id);
    fprintf(page->markdown, "\n![%s](%s/%s.png)\n", plot->title, page->linked, plot->id);
    return plot_png(plot, path);
}

void page_plot(struct page *page, const struct plot *plot)
{
    if (!page->plots || page->status || !plot_has_lines(plot)) return;
    close_cards(page);
    fputs("<figure>\n<figcaption>", page->html);
    put_html(page->html, plot->title);
    fputs("</figcaption>\n<div class=\"plot\">", page->html);
    page->status = plot_svg(plot, page->html);
    fputs("</div>\n</figure>\n", page->html);
    if (!page->status) page->status = put_picture(page, plot);
}

/* ---- Tables ---------------------------------------------------------------------------------- */

static void add_cell(struct table *table, char *text, double sort)
{
    if (table->count == table->capacity) {
        int capacity = table->capacity ? 2 * table->capacity : 64;
        struct cell *cells = realloc(table->cells, (size_t)capacity * sizeof *cells);
        if (!cells) {
            table->lost = true;
            free(text);
            return;
        }
        table->cells = cells;
        table->capacity = capacity;
    }
    table->cells[table->count++] = (struct cell){ text, sort, false };
}

void table_text(struct table *table, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    add_cell(table, formatted(format, values), NAN);
    va_end(values);
}

void table_phrase(struct table *table, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    add_cell(table, formatted(format, values), NAN);
    va_end(values);
    if (!table->lost) table->cells[table->count - 1].is_phrase = true;
}

void table_number(struct table *table, double sort, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    add_cell(table, isfinite(sort) ? formatted(format, values) : strdup("-"),
             isfinite(sort) ? sort : -INFINITY);
    va_end(values);
}

static const char *text_of(const struct cell *cell) { return cell->text ? cell->text : ""; }

static void put_html_table(FILE *to, const struct table *table)
{
    fputs("<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>", to);
    for (int c = 0; c < table->columns; c++) {
        bool number = !isnan(table->cells[c].sort);
        fprintf(to, "<th%s><button>", number ? " class=\"n\"" : "");
        put_html(to, table->heads[c]);
        fputs("</button></th>", to);
    }
    fputs("</tr></thead>\n<tbody>\n", to);
    for (int i = 0; i < table->count; i++) {
        const struct cell *cell = &table->cells[i];
        if (i % table->columns == 0) fputs("<tr>", to);
        if (cell->is_phrase) fputs("<td class=\"s\">", to);
        else if (isnan(cell->sort)) fputs("<td>", to);
        else if (isfinite(cell->sort)) fprintf(to, "<td class=\"n\" data-v=\"%.9g\">", cell->sort);
        else fputs("<td class=\"n\" data-v=\"-1e300\">", to);
        put_prose(to, text_of(cell));
        fputs("</td>", to);
        if (i % table->columns == table->columns - 1) fputs("</tr>\n", to);
    }
    fputs("</tbody>\n</table></div>\n", to);
}

static void put_markdown_table(FILE *to, const struct table *table)
{
    fputs("\n|", to);
    for (int c = 0; c < table->columns; c++) fprintf(to, " %s |", table->heads[c]);
    fputs("\n|", to);
    for (int c = 0; c < table->columns; c++)
        fputs(isnan(table->cells[c].sort) ? "---|" : "---:|", to);
    for (int i = 0; i < table->count; i++) {
        fputs(i % table->columns ? " " : "\n| ", to);
        put_cell(to, text_of(&table->cells[i]));
        fputs(" |", to);
    }
    fputc('\n', to);
}

void page_table(struct page *page, struct table *table)
{
    close_cards(page);
    if (table->lost && !page->status) page->status = fault("out of memory: a table");
    if (table->count && !table->lost) {
        if (table->title) page_heading(page, table->title);
        put_html_table(page->html, table);
        put_markdown_table(page->markdown, table);
    }
    for (int i = 0; i < table->count; i++) free(table->cells[i].text);
    free(table->cells);
    *table = (struct table){ .columns = 0 };
}
