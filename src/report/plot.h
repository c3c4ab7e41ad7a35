/* Line plots as SVG: axes with nice numbers, legend, tooltips; light and dark by CSS; no script, no
 * external resource. Knows nothing of runs: loss against steps, seconds or bytes are the same to
 * it. */
#ifndef HALLEY_REPORT_PLOT_H
#define HALLEY_REPORT_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "halley/mem.h"
#include "report/words.h"

enum { HL_PLOT_COLOURS = 8 };
enum hl_plot_style {
    HL_PLOT_LINE,
    HL_PLOT_FAINT, /* behind the others, thin and pale: raw values under a smoothed line; no tooltip
                    */
    HL_PLOT_DASHED,
    HL_PLOT_POINTS /* a line with a dot at each value (dots are left out when they would touch) */
};

struct hl_plot_series {
    const char *label; /* NULL: not in the legend */
    const double *x,
        *y; /* [n], x ascending; a y that is not finite leaves a gap and a mark, with a tooltip */
    size_t n;
    int colour; /* 0..HL_PLOT_COLOURS-1 */
    enum hl_plot_style style;
};

struct hl_plot {
    const char *title, *unit, *x_label; /* unit may be NULL */
    int width, height;
    const struct hl_plot_series *series; /* drawn in this order */
    int n_series;
    bool log_x, log_y;
    bool whole_x;   /* x counts something: no ticks between whole numbers */
    bool from_zero; /* linear y begins at 0 at the latest */
    bool has_range; /* show y_lo..y_hi whatever the data are; lines leave the frame */
    double y_lo, y_hi;
    bool standalone;     /* a file of its own: with name space, style sheet and a background */
    const char *message; /* in place of the curves when there are none; NULL: a default */
    int id;              /* unique within a page */
};

/* The style sheet that plots within a page share. */
extern const char hl_plot_css[];

/* Append the <svg> element. cost: O(points) time, O(width) size whatever the number of points.
 * Failure: out->failed. */
void hl_plot_svg(struct hl_buf *out, const struct hl_plot *plot);

#endif
