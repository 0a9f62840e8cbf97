/* SPDX-License-Identifier: Apache-2.0 */
/* plot.h - lines over numbers, drawn by gnuplot where it is installed. */
#ifndef BENCH_REPORT_PLOT_H
#define BENCH_REPORT_PLOT_H

#include "harness/base/complain.h"

enum { PLOT_SERIES = 8, PLOT_POINTS = 64, PLOT_COLOURS = 8 };

enum plot_axis { AXIS_PLAIN, AXIS_LOG, AXIS_TOKENS /* logarithmic, 1K 2K 4K */ };

struct plot_series {
    char name[40];
    bool is_bound; /* a line that others are measured against: thin, dashed, without points */
    bool is_cloud; /* points without a line */
    int count;
    double x[PLOT_POINTS], y[PLOT_POINTS], least[PLOT_POINTS], most[PLOT_POINTS];
};

struct plot {
    const char *id, *title, *x_label, *y_label; /* borrowed; the id is a file's name too */
    enum plot_axis x_axis, y_axis;
    int count;
    struct plot_series series[PLOT_SERIES];
};

/* The series of that name, made if necessary; NULL if there are too many. */
struct plot_series *plot_line(struct plot *plot, const char *name);

/* A point of that series; further points than there is room for are left out, as are values that
 * are no numbers. `least` and `most` are its spread, equal to y where there is none. */
void plot_point(struct plot *plot, const char *name, double x, double y, double least, double most);

/* Is there anything to draw? One point is no line. */
bool plot_has_lines(const struct plot *plot);

/* Is gnuplot there? */
bool plot_works(void);

/* Writes the plot as part of a page: SVG whose colours are variables of the page's style sheet
 * (--ink, --faint, --line-1 ...), its ids prefixed with the plot's. */
int plot_svg(const struct plot *plot, FILE *to);

/* The same as a picture of its own. */
int plot_png(const struct plot *plot, const char *path);

/* The colours of lines on white paper, and on dark screens: "#3b6fb6". */
const char *plot_colour(int series, bool dark);

#endif
