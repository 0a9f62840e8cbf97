/* SPDX-License-Identifier: Apache-2.0 */
/* plot.c - lines over numbers: a script for gnuplot, and its SVG made part of a page.
 *
 * The script names colours that nobody draws with (#000100 and so on); in the SVG they become
 * variables of the page's style sheet, so that one drawing serves light and dark. */
#include "plot.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/text/text.h"

enum { WIDTH = 680, HEIGHT = 400, TICS_MOST = 9 };

static const char *const light[PLOT_COLOURS] = { "#2f6db3", "#c4561f", "#23856d", "#8457b3",
                                                 "#a67c00", "#bf3f78", "#4f6b80", "#7a5230" };
static const char *const dark[PLOT_COLOURS] = { "#7ab4f0", "#f2955f", "#5cc7a9", "#bd97ea",
                                                "#dcb64a", "#ee85b4", "#9db7ca", "#c9a07c" };

const char *plot_colour(int series, bool on_dark)
{
    return (on_dark ? dark : light)[series % PLOT_COLOURS];
}

/* ---- Data ------------------------------------------------------------------------------------ */

struct plot_series *plot_line(struct plot *plot, const char *name)
{
    for (int i = 0; i < plot->count; i++)
        if (!strcmp(plot->series[i].name, name)) return &plot->series[i];
    if (plot->count == PLOT_SERIES) return NULL;
    struct plot_series *series = &plot->series[plot->count++];
    *series = (struct plot_series){ .count = 0 };
    snprintf(series->name, sizeof series->name, "%s", name);
    return series;
}

void plot_point(struct plot *plot, const char *name, double x, double y, double least, double most)
{
    if (!isfinite(x) || !isfinite(y) || (plot->y_axis == AXIS_LOG && !(y > 0.0))) return;
    struct plot_series *s = plot_line(plot, name);
    if (!s || s->count == PLOT_POINTS) return;
    int at = s->count++;
    while (at > 0 && s->x[at - 1] > x && !s->is_cloud) {
        s->x[at] = s->x[at - 1];
        s->y[at] = s->y[at - 1];
        s->least[at] = s->least[at - 1];
        s->most[at] = s->most[at - 1];
        at--;
    }
    s->x[at] = x;
    s->y[at] = y;
    s->least[at] = isfinite(least) ? least : y;
    s->most[at] = isfinite(most) ? most : y;
}

bool plot_has_lines(const struct plot *plot)
{
    for (int i = 0; i < plot->count; i++)
        if (plot->series[i].count > 1) return true;
    return false;
}

/* ---- Ranges ---------------------------------------------------------------------------------- */

struct range {
    double least, most;
};

static bool is_log(enum plot_axis axis) { return axis != AXIS_PLAIN; }

static void widen(struct range *range, double value)
{
    if (value < range->least) range->least = value;
    if (value > range->most) range->most = value;
}

static struct range x_range(const struct plot *plot)
{
    struct range r = { INFINITY, -INFINITY };
    for (int i = 0; i < plot->count; i++)
        for (int j = 0; j < plot->series[i].count; j++) widen(&r, plot->series[i].x[j]);
    if (r.least == r.most) r.most = is_log(plot->x_axis) ? 2.0 * r.least : r.least + 1.0;
    if (is_log(plot->x_axis)) r.least /= pow(r.most / r.least, 0.02); /* off the axis */
    return r;
}

static struct range y_range(const struct plot *plot)
{
    struct range r = { INFINITY, -INFINITY };
    for (int i = 0; i < plot->count; i++)
        for (int j = 0; j < plot->series[i].count; j++) {
            double least = plot->series[i].least[j];
            widen(&r, is_log(plot->y_axis) && !(least > 0.0) ? plot->series[i].y[j] : least);
            widen(&r, plot->series[i].most[j]);
        }
    if (is_log(plot->y_axis)) return (struct range){ r.least / 1.5, r.most * 1.5 };
    return (struct range){ r.least < 0.0 ? 1.08 * r.least : 0.0,
                           r.most > 0.0 ? 1.08 * r.most : 1.0 };
}

/* Where a value lies between the ends of its axis, 0 to 1; and back. */
static double place(double value, struct range r, bool log_scale)
{
    return log_scale ? log(value / r.least) / log(r.most / r.least)
                     : (value - r.least) / (r.most - r.least);
}

/* ---- The script ------------------------------------------------------------------------------ */

/* What the script draws with. */
struct style {
    bool marks; /* colours for the page to replace; otherwise those of white paper */
};

static struct text colour(struct style style, const struct plot *plot, int series)
{
    struct text text;
    if (plot->series[series].is_bound)
        snprintf(text.s, sizeof text.s, "%s", style.marks ? "#000300" : "#6b7680");
    else if (style.marks) snprintf(text.s, sizeof text.s, "#0000%02x", series + 1);
    else snprintf(text.s, sizeof text.s, "%s", plot_colour(series, false));
    return text;
}

static const char *ink(struct style style) { return style.marks ? "#000100" : "#333333"; }
static const char *faint(struct style style) { return style.marks ? "#000200" : "#dddddd"; }

static void put_text(FILE *script, const char *text)
{
    fputc('\'', script);
    for (; *text; text++) {
        if (*text == '\'') fputc('\'', script);
        fputc(*text, script);
    }
    fputc('\'', script);
}

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct text token_text(double tokens)
{
    struct text text;
    const double k = 1024.0;
    if (tokens >= k * k && fmod(tokens, k * k) == 0.0)
        snprintf(text.s, sizeof text.s, "%gM", tokens / k / k);
    else if (tokens >= k && fmod(tokens, k) == 0.0)
        snprintf(text.s, sizeof text.s, "%gK", tokens / k);
    else snprintf(text.s, sizeof text.s, "%s", text_count((int64_t)tokens).s);
    return text;
}

/* A mark on the x axis at the places where there are points. */
static void put_tics(const struct plot *plot, FILE *script)
{
    double at[PLOT_SERIES * PLOT_POINTS];
    int count = 0, unique = 0;
    for (int i = 0; i < plot->count; i++)
        for (int j = 0; j < plot->series[i].count; j++) at[count++] = plot->series[i].x[j];
    qsort(at, (size_t)count, sizeof *at, compare_numbers);
    for (int i = 0; i < count; i++)
        if (!unique || at[i] != at[unique - 1]) at[unique++] = at[i];
    int step = (unique + TICS_MOST - 1) / TICS_MOST;
    fprintf(script, "set xtics (");
    for (int i = 0; i < unique; i += step ? step : 1)
        fprintf(script, "%s'%s' %.10g", i ? ", " : "",
                plot->x_axis == AXIS_TOKENS ? token_text(at[i]).s : text_real(at[i]).s, at[i]);
    fprintf(script, ")\n");
}

static void put_frame(const struct plot *plot, struct style style, struct range x, struct range y,
                      FILE *script)
{
    fprintf(script, "set border 3 lw 1 lc rgb '%s'\nset tics nomirror scale 0.6 tc rgb '%s'\n",
            faint(style), ink(style));
    fprintf(script,
            "set grid ytics lt 1 lw 1 lc rgb '%s'\nset mytics 1\nset nokey\n"
            "set pointintervalbox 0\n",
            faint(style));
    fprintf(script, "set tmargin 1.2\nset xlabel ");
    put_text(script, plot->x_label);
    fprintf(script, " tc rgb '%s'\nset ylabel ", ink(style));
    put_text(script, plot->y_label);
    /* Large numbers as 10k and 1M, not as 1e+06. */
    fprintf(script, " tc rgb '%s'\nset format y '%s'\n", ink(style),
            y.least >= 1.0 && y.most >= 1e5 ? "%.0s%c" : "%g");
    if (is_log(plot->x_axis)) fprintf(script, "set logscale x\n");
    if (is_log(plot->y_axis)) fprintf(script, "set logscale y\n");
    fprintf(script, "set xrange [%.10g:%.10g]\nset yrange [%.10g:%.10g]\n", x.least, x.most,
            y.least, y.most);
    if (plot->x_axis == AXIS_TOKENS || !is_log(plot->x_axis)) put_tics(plot, script);
}

/* The name of each series at the end of its line, in its colour, moved up or down until none covers
 * another. */
static void put_labels(const struct plot *plot, struct style style, struct range x, struct range y,
                       FILE *script)
{
    const double gap = 0.058;
    int order[PLOT_SERIES], count = 0, widest = 0;
    double at[PLOT_SERIES];
    for (int i = 0; i < plot->count; i++) {
        const struct plot_series *s = &plot->series[i];
        if (!s->count) continue;
        double end = place(s->y[s->count - 1], y, is_log(plot->y_axis));
        int k = count++;
        for (; k > 0 && at[k - 1] > end; k--) {
            at[k] = at[k - 1];
            order[k] = order[k - 1];
        }
        at[k] = end;
        order[k] = i;
        if ((int)strlen(s->name) > widest) widest = (int)strlen(s->name);
    }
    for (int k = 1; k < count; k++)
        if (at[k] < at[k - 1] + gap) at[k] = at[k - 1] + gap;
    double over = count ? at[count - 1] - 0.99 : 0.0;
    for (int k = count - 1; k >= 0 && over > 0.0; k--) {
        double most = k == count - 1 ? 0.99 : at[k + 1] - gap;
        if (at[k] > most) at[k] = most;
    }
    (void)x;
    fprintf(script, "set rmargin %d\n", widest + 3);
    for (int k = 0; k < count; k++) {
        fprintf(script, "set label %d ", k + 1);
        put_text(script, plot->series[order[k]].name);
        fprintf(script, " at graph 1.015, graph %.4f left tc rgb '%s'\n", at[k],
                colour(style, plot, order[k]).s);
    }
}

static void put_data(const struct plot *plot, FILE *script)
{
    for (int i = 0; i < plot->count; i++) {
        const struct plot_series *s = &plot->series[i];
        fprintf(script, "$d%d << EOD\n", i);
        for (int j = 0; j < s->count; j++)
            fprintf(script, "%.10g %.10g %.10g %.10g\n", s->x[j], s->y[j], s->least[j], s->most[j]);
        fprintf(script, "EOD\n");
    }
}

static void put_curves(const struct plot *plot, struct style style, FILE *script)
{
    static const int points[PLOT_SERIES] = { 7, 5, 9, 11, 13, 7, 5, 9 };
    const char *between = "plot ";
    for (int i = 0; i < plot->count; i++) {
        const struct plot_series *s = &plot->series[i];
        struct text own = colour(style, plot, i);
        const char *c = own.s;
        if (!s->count) continue;
        if (s->is_bound)
            fprintf(script, "%s$d%d using 1:2 with lines lw 1.5 dt 2 lc rgb '%s'", between, i, c);
        else if (s->is_cloud)
            fprintf(script, "%s$d%d using 1:2 with points pt %d ps 0.6 lc rgb '%s'", between, i,
                    points[i], c);
        else
            fprintf(script,
                    "%s$d%d using 1:2:3:4 with yerrorbars pt 0 ps 0 lw 1 lc rgb '%s', "
                    "$d%d using 1:2 with linespoints lw 2 pt %d ps 0.55 lc rgb '%s'",
                    between, i, c, i, points[i], c);
        between = ", ";
    }
    fputc('\n', script);
}

static void put_script(const struct plot *plot, struct style style, FILE *script)
{
    struct range x = x_range(plot), y = y_range(plot);
    put_data(plot, script);
    put_frame(plot, style, x, y, script);
    put_labels(plot, style, x, y, script);
    put_curves(plot, style, script);
}

/* ---- gnuplot --------------------------------------------------------------------------------- */

bool plot_works(void)
{
    char line[64] = "";
    FILE *version = popen("gnuplot --version 2>/dev/null", "r");
    if (!version) return false;
    if (!fgets(line, sizeof line, version)) *line = 0;
    pclose(version);
    return !strncmp(line, "gnuplot", 7);
}

/* Runs a script that writes to `path`. */
static int draw(const struct plot *plot, struct style style, const char *terminal, const char *path)
{
    FILE *script = popen("gnuplot -", "w");
    if (!script) return fault("gnuplot cannot be started");
    fprintf(script, "set terminal %s\nset output ", terminal);
    put_text(script, path);
    fputc('\n', script);
    put_script(plot, style, script);
    fprintf(script, "set output\n");
    return pclose(script) == 0 ? EXIT_PASS : fault("gnuplot failed to draw %s", plot->id);
}

int plot_png(const struct plot *plot, const char *path)
{
    char terminal[128];
    snprintf(terminal, sizeof terminal,
             "pngcairo noenhanced size %d,%d font 'sans,15' background rgb 'white'",
             2 * WIDTH * 2 / 3, 2 * HEIGHT * 2 / 3);
    return draw(plot, (struct style){ .marks = false }, terminal, path);
}

/* ---- SVG as part of a page ------------------------------------------------------------------- */

/* "rgb(  0,   1,   0)" at the start of a text: the style sheet's word for it, and how long it was;
 * NULL for other texts. */
static const char *mark_of(const char *text, struct text *word, int *length)
{
    int red, green, blue;
    if (sscanf(text, "rgb( %d , %d , %d )%n", &red, &green, &blue, length) < 3) return NULL;
    if (red == 0 && green == 0 && blue > 0)
        snprintf(word->s, sizeof word->s, "var(--line-%d)", blue);
    else if (red == 0 && green == 1) snprintf(word->s, sizeof word->s, "var(--ink)");
    else if (red == 0 && green == 2) snprintf(word->s, sizeof word->s, "var(--faint)");
    else if (red == 0 && green == 3) snprintf(word->s, sizeof word->s, "var(--soft)");
    else return NULL;
    return word->s;
}

/* One attribute name="value" at `at`, with whatever quotes: returns what follows it, or NULL where
 * there is none. Colours become styles, and ids get a prefix, for a page has several plots. */
static const char *put_attribute(const char *at, const char *prefix, FILE *to)
{
    static const char *const paints[] = { "stroke=", "fill=", "color=" };
    static const char *const names[] = { " id=", "href=" };
    struct text word;
    int length;
    for (int i = 0; i < COUNT(paints); i++) {
        size_t skip = strlen(paints[i]);
        if (strncmp(at, paints[i], skip) || !mark_of(at + skip + 1, &word, &length)) continue;
        fprintf(to, "style=\"%.*s:%s\"", (int)skip - 1, at, word.s);
        return at + skip + 1 + length + 1;
    }
    for (int i = 0; i < COUNT(names); i++) {
        size_t skip = strlen(names[i]);
        if (strncmp(at, names[i], skip)) continue;
        bool link = at[skip + 1] == '#';
        fprintf(to, "%s%c%s%s-", names[i], at[skip], link ? "#" : "", prefix);
        return at + skip + 1 + link;
    }
    return NULL;
}

static void put_svg(const struct plot *plot, const char *svg, FILE *to)
{
    const char *at = strstr(svg, "viewBox");
    if (!at) return;
    fprintf(to, "<svg role=\"img\" aria-label=\"%s\" ", plot->title);
    while (*at) {
        const char *next = put_attribute(at, plot->id, to);
        if (!next && !strncmp(at, "<title>", 7)) next = strstr(at, "</title>") + 8;
        if (!next && !strncmp(at, "<desc>", 6)) next = strstr(at, "</desc>") + 7;
        if (!next) fputc(*at, to);
        at = next ? next : at + 1;
    }
}

static char *read_file(const char *path)
{
    struct string text = { .lost = false };
    char buffer[4096];
    FILE *file = fopen(path, "r");
    while (file && fgets(buffer, sizeof buffer, file)) string_add(&text, "%s", buffer);
    if (file) fclose(file);
    return text.s;
}

int plot_svg(const struct plot *plot, FILE *to)
{
    const char *folder = getenv("TMPDIR");
    char path[4096], terminal[96];
    snprintf(path, sizeof path, "%s/ringattn-plot-XXXXXX", folder && *folder ? folder : "/tmp");
    int file = mkstemp(path);
    if (file < 0) return fault("no temporary file for a plot");
    close(file);
    snprintf(terminal, sizeof terminal, "svg noenhanced size %d,%d dynamic font 'sans-serif,14'",
             WIDTH, HEIGHT);
    int status = draw(plot, (struct style){ .marks = true }, terminal, path);
    char *svg = status ? NULL : read_file(path);
    unlink(path);
    if (!status && !svg) status = fault("gnuplot drew nothing of %s", plot->id);
    if (!status) put_svg(plot, svg, to);
    free(svg);
    return status;
}
