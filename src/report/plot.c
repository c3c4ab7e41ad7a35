/* Line plots as SVG.
 *
 * A series is walked once per element that it takes part in. All points that fall into one pixel
 * column become at most four (first, lowest, highest, last), so that a million steps look as they
 * would and cost what a thousand do. Tooltips are bands of some pixels over the whole height;
 * hovering shows a guide line, dots and a readout by CSS alone. Does not compute: smoothing and
 * choosing a range are the caller's. */
#include "report/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "halley/text_number.h"
#include "report/markup.h"
#include "report/ticks.h"

enum {
    CHAR_WIDTH = 7,
    LEGEND_ROW = 18,
    TOP = 40,
    BOTTOM = 42,
    RIGHT = 24,
    BAND = 6,
    MAX_MARKS = 32
};
static const double huge =
    1e100; /* beyond it a value is treated as not finite, so that spans do not overflow */

struct frame {
    const struct hl_plot *plot;
    double left, top, right, bottom; /* pixels */
    double x_lo, x_hi, y_lo, y_hi;   /* data, or their logarithms */
    struct hl_ticks x_ticks, y_ticks;
    bool empty;
};

/* ---- scales ---- */

static bool usable(double value, bool is_log) {
    return fabs(value) <= huge && (!is_log || value > 0);
}

static double on_scale(double value, bool is_log) { return is_log ? log10(value) : value; }

static double to_x(const struct frame *f, double x) {
    double share = (on_scale(x, f->plot->log_x) - f->x_lo) / (f->x_hi - f->x_lo);
    return f->left + share * (f->right - f->left);
}

static double to_y(const struct frame *f, double y) {
    double share = (on_scale(y, f->plot->log_y) - f->y_lo) / (f->y_hi - f->y_lo);
    return f->bottom - fmin(fmax(share, -2), 3) * (f->bottom - f->top);
}

struct span {
    double lo, hi;
};

static void widen(struct span *span, double value) {
    if (value < span->lo) span->lo = value;
    if (value > span->hi) span->hi = value;
}

static void find_spans(const struct hl_plot *plot, struct span *x, struct span *y) {
    *x = *y = (struct span){INFINITY, -INFINITY};
    for (int k = 0; k < plot->n_series; k++) {
        const struct hl_plot_series *s = &plot->series[k];
        for (size_t i = 0; i < s->n; i++) {
            if (!usable(s->x[i], plot->log_x)) continue;
            widen(x, s->x[i]);
            if (usable(s->y[i], plot->log_y)) widen(y, s->y[i]);
        }
    }
}

/* A span of one value gets some room around it. */
static void open_up(struct span *span, bool is_log) {
    if (span->hi > span->lo) return;
    double room = is_log ? span->lo * 0.5 : span->lo != 0 ? fabs(span->lo) * 0.1 : 1;
    span->lo -= room;
    span->hi += room;
}

static void set_x(struct frame *f, struct span x) {
    if (!f->plot->log_x && x.lo > 0 && x.lo <= 0.05 * x.hi) x.lo = 0;
    if (f->plot->whole_x && x.lo == x.hi) x = (struct span){x.lo - 1, x.hi + 1};
    open_up(&x, f->plot->log_x);
    f->x_lo = on_scale(x.lo, f->plot->log_x);
    f->x_hi = on_scale(x.hi, f->plot->log_x);
    int wanted = (int)((f->right - f->left) / 90);
    if (f->plot->whole_x && x.hi - x.lo < wanted) wanted = (int)fmax(1, x.hi - x.lo);
    if (f->plot->log_x) hl_ticks_log(&f->x_ticks, x.lo, x.hi, wanted);
    else hl_ticks_linear(&f->x_ticks, x.lo, x.hi, wanted);
}

static void set_y(struct frame *f, struct span y) {
    bool is_log = f->plot->log_y;
    if (f->plot->has_range) y = (struct span){f->plot->y_lo, f->plot->y_hi};
    else if (f->plot->from_zero && !is_log) widen(&y, 0);
    double data_lo = y.lo;
    open_up(&y, is_log);
    f->y_lo = on_scale(y.lo, is_log);
    f->y_hi = on_scale(y.hi, is_log);
    double room = (f->y_hi - f->y_lo) * 0.06;
    f->y_hi += room;
    if (data_lo != 0 || is_log) f->y_lo -= room;
    int wanted = (int)((f->bottom - f->top) / 44);
    if (is_log) hl_ticks_log(&f->y_ticks, pow(10, f->y_lo), pow(10, f->y_hi), wanted);
    else hl_ticks_linear(&f->y_ticks, f->y_lo, f->y_hi, wanted);
}

static double label_width(const struct hl_ticks *ticks) {
    size_t widest = 1;
    for (int i = 0; i < ticks->n; i++) {
        char label[HL_WORDS];
        hl_ticks_label(label, ticks, ticks->at[i]);
        if (strlen(label) > widest) widest = strlen(label);
    }
    return (double)(widest * CHAR_WIDTH);
}

/* ---- legend ---- */

static size_t n_characters(const char *utf8) {
    size_t n = 0;
    for (; *utf8; utf8++) n += (*utf8 & 0xC0) != 0x80;
    return n;
}

enum { LABEL_MAX = 48, SWATCH = 22, LEGEND_GAP = 18 };

static double legend_item_width(const struct hl_plot_series *s) {
    size_t n = n_characters(s->label);
    return SWATCH + 6 + (double)((n < LABEL_MAX ? n : LABEL_MAX) * CHAR_WIDTH) + LEGEND_GAP;
}

/* A label that fits: its first characters, then an ellipsis. */
static void put_label(struct hl_buf *out, const char *label) {
    size_t n = 0, bytes = 0;
    while (label[bytes] && n < LABEL_MAX) {
        bytes++;
        while ((label[bytes] & 0xC0) == 0x80) bytes++;
        n++;
    }
    hl_markup_text(out, label, bytes);
    if (label[bytes]) hl_buf_puts(out, "…");
}

static void put_pair(struct hl_buf *out, const char *between, double x, double y) {
    hl_markup_coord(out, x);
    hl_buf_puts(out, between);
    hl_markup_coord(out, y);
}

static void put_line(struct hl_buf *out, const char *class, double x1, double y1, double x2,
                     double y2) {
    hl_buf_printf(out, "<line class=\"%s\" x1=\"", class);
    put_pair(out, "\" y1=\"", x1, y1);
    hl_buf_puts(out, "\" x2=\"");
    put_pair(out, "\" y2=\"", x2, y2);
    hl_buf_puts(out, "\"/>");
}

static void put_dot(struct hl_buf *out, double x, double y, const char *radius, int colour) {
    hl_buf_puts(out, "<circle cx=\"");
    put_pair(out, "\" cy=\"", x, y);
    hl_buf_printf(out, "\" r=\"%s\" class=\"pt f%d\"/>", radius, colour);
}

static void put_text_at(struct hl_buf *out, double x, double y, const char *attributes) {
    hl_buf_puts(out, "<text x=\"");
    put_pair(out, "\" y=\"", x, y);
    hl_buf_printf(out, "\"%s>", attributes);
}

static void put_swatch(struct hl_buf *out, const struct hl_plot_series *s, double x, double y) {
    char class[32];
    const char *style = s->style == HL_PLOT_FAINT    ? "fa"
                        : s->style == HL_PLOT_DASHED ? "li da"
                                                     : "li";
    (void)snprintf(class, sizeof class, "%s c%d", style, s->colour);
    put_line(out, class, x, y, x + SWATCH, y);
    if (s->style == HL_PLOT_POINTS) put_dot(out, x + SWATCH / 2, y, "3.4", s->colour);
}

/* Lay the items out in rows; out NULL: only count the rows. */
static int legend(struct hl_buf *out, const struct hl_plot *plot) {
    double x = 16;
    int rows = 0;
    for (int k = 0; k < plot->n_series; k++) {
        const struct hl_plot_series *s = &plot->series[k];
        if (!s->label) continue;
        double width = legend_item_width(s), y;
        if (!rows) rows = 1;
        else if (x + width > plot->width) x = 16, rows++;
        y = TOP + (rows - 1) * LEGEND_ROW;
        if (out) {
            put_swatch(out, s, x, y + 1);
            put_text_at(out, x + SWATCH + 6, y + 5, "");
            put_label(out, s->label);
            hl_buf_puts(out, "</text>");
        }
        x += width;
    }
    return rows;
}

/* ---- curves ---- */

static bool drawable(const struct frame *f, const struct hl_plot_series *s, size_t i) {
    return usable(s->x[i], f->plot->log_x) && usable(s->y[i], f->plot->log_y);
}

/* The points of one pixel column. */
struct column {
    long at;
    size_t first, lowest, highest, last;
    bool open;
};

static void path_point(struct hl_buf *out, const struct frame *f, const struct hl_plot_series *s,
                       size_t i, bool *pen) {
    hl_buf_puts(out, *pen ? "L" : "M");
    *pen = true;
    put_pair(out, " ", to_x(f, s->x[i]), to_y(f, s->y[i]));
}

static void path_column(struct hl_buf *out, const struct frame *f, const struct hl_plot_series *s,
                        struct column *c, bool *pen) {
    if (!c->open) return;
    size_t low = c->lowest < c->highest ? c->lowest : c->highest,
           high = c->lowest < c->highest ? c->highest : c->lowest;
    path_point(out, f, s, c->first, pen);
    if (low != c->first) path_point(out, f, s, low, pen);
    if (high != low && high != c->last) path_point(out, f, s, high, pen);
    if (c->last != c->first && c->last != low) path_point(out, f, s, c->last, pen);
    c->open = false;
}

static void put_path(struct hl_buf *out, const struct frame *f, const struct hl_plot_series *s) {
    struct column c = {0};
    bool pen = false;
    for (size_t i = 0; i < s->n; i++) {
        if (!drawable(f, s, i)) {
            path_column(out, f, s, &c, &pen);
            pen = false;
            continue;
        }
        long at = (long)floor(to_x(f, s->x[i]));
        if (c.open && at != c.at) path_column(out, f, s, &c, &pen);
        if (!c.open) c = (struct column){at, i, i, i, i, true};
        if (s->y[i] < s->y[c.lowest]) c.lowest = i;
        if (s->y[i] > s->y[c.highest]) c.highest = i;
        c.last = i;
    }
    path_column(out, f, s, &c, &pen);
}

/* Dots where a line would not show a value: at points without neighbours, and on request while they
 * do not touch. */
static void put_dots(struct hl_buf *out, const struct frame *f, const struct hl_plot_series *s) {
    bool roomy = s->style == HL_PLOT_POINTS && (double)s->n * 9 < f->right - f->left;
    int n_dots = 0;
    for (size_t i = 0; i < s->n && n_dots < f->plot->width; i++) {
        if (!drawable(f, s, i)) continue;
        bool alone = (!i || !drawable(f, s, i - 1)) && (i + 1 == s->n || !drawable(f, s, i + 1));
        if (!roomy && !alone) continue;
        put_dot(out, to_x(f, s->x[i]), to_y(f, s->y[i]), roomy || s->n == 1 ? "3.4" : "2",
                s->colour);
        n_dots++;
    }
}

static void put_series(struct hl_buf *out, const struct frame *f, const struct hl_plot_series *s) {
    const char *style = s->style == HL_PLOT_FAINT    ? "fa"
                        : s->style == HL_PLOT_DASHED ? "li da"
                                                     : "li";
    hl_buf_printf(out, "<path class=\"%s c%d\" d=\"", style, s->colour);
    put_path(out, f, s);
    hl_buf_puts(out, "\"/>\n");
    put_dots(out, f, s);
}

static void put_step(struct hl_buf *out, const struct hl_plot *plot, double x) {
    char words[HL_WORDS];
    if (x == floor(x) && fabs(x) < 1e15) hl_words_integer(words, (int64_t)x);
    else hl_words_value(words, x);
    hl_markup_puts(out, plot->x_label);
    hl_buf_printf(out, " %s", words);
}

/* A cross at the upper edge where a value is not finite. */
static void put_marks(struct hl_buf *out, const struct frame *f, const struct hl_plot_series *s) {
    double last = -huge, y = f->top + 6;
    int n = 0;
    for (size_t i = 0; i < s->n && n < MAX_MARKS; i++) {
        if (!usable(s->x[i], f->plot->log_x) || fabs(s->y[i]) <= huge) continue;
        double x = to_x(f, s->x[i]);
        if (x - last < 8) continue;
        last = x;
        n++;
        hl_buf_puts(out, "<g class=\"bad\"><title>");
        put_step(out, f->plot, s->x[i]);
        hl_buf_printf(out, ": %s</title>",
                      isnan(s->y[i]) ? "NaN"
                      : s->y[i] > 0  ? "Infinity"
                                     : "-Infinity");
        put_line(out, "bad", x - 4, y - 4, x + 4, y + 4);
        put_line(out, "bad", x - 4, y + 4, x + 4, y - 4);
        hl_buf_puts(out, "</g>\n");
    }
}

/* ---- tooltips ---- */

struct hover {
    size_t next[32], at[32];
}; /* per series: where its walk stands, and the value in this band */
enum { HOVER_SERIES = 32 };

/* Move every walk to the end of the band; false when no series has a value in it. *x: a place with
 * a value. */
static bool hover_band(const struct frame *f, struct hover *h, double end, double *x) {
    bool any = false;
    for (int k = 0; k < f->plot->n_series && k < HOVER_SERIES; k++) {
        const struct hl_plot_series *s = &f->plot->series[k];
        h->at[k] = SIZE_MAX;
        for (; h->next[k] < s->n; h->next[k]++) {
            size_t i = h->next[k];
            if (usable(s->x[i], f->plot->log_x) && to_x(f, s->x[i]) >= end) break;
            if (s->style != HL_PLOT_FAINT && drawable(f, s, i)) h->at[k] = i;
        }
        if (h->at[k] == SIZE_MAX) continue;
        if (!any || s->x[h->at[k]] > *x) *x = s->x[h->at[k]];
        any = true;
    }
    return any;
}

static void put_readout(struct hl_buf *out, const struct frame *f, const struct hover *h, double x,
                        bool coloured) {
    put_step(out, f->plot, x);
    for (int k = 0; k < f->plot->n_series && k < HOVER_SERIES; k++) {
        const struct hl_plot_series *s = &f->plot->series[k];
        if (h->at[k] == SIZE_MAX) continue;
        char words[HL_WORDS];
        hl_words_value(words, s->y[h->at[k]]);
        hl_buf_puts(out, "  ");
        if (coloured) hl_buf_printf(out, "<tspan class=\"f%d\" stroke=\"none\">", s->colour);
        if (s->label && !(coloured && f->plot->n_series > 6)) {
            put_label(out, s->label);
            hl_buf_puts(out, " ");
        }
        hl_buf_puts(out, words);
        if (coloured) hl_buf_puts(out, "</tspan>");
    }
}

static void put_band(struct hl_buf *out, const struct frame *f, const struct hover *h, double begin,
                     double end, double x) {
    hl_buf_puts(out, "<g class=\"ho\"><rect class=\"hit\" x=\"");
    put_pair(out, "\" y=\"", begin, f->top);
    hl_buf_puts(out, "\" width=\"");
    put_pair(out, "\" height=\"", end - begin, f->bottom - f->top);
    hl_buf_puts(out, "\"><title>");
    put_readout(out, f, h, x, false);
    hl_buf_puts(out, "</title></rect>");
    put_line(out, "gu", to_x(f, x), f->top, to_x(f, x), f->bottom);
    for (int k = 0; k < f->plot->n_series && k < HOVER_SERIES; k++) {
        const struct hl_plot_series *s = &f->plot->series[k];
        if (h->at[k] != SIZE_MAX)
            put_dot(out, to_x(f, s->x[h->at[k]]), to_y(f, s->y[h->at[k]]), "3.4", s->colour);
    }
    put_text_at(out, f->right, 24, " class=\"ro\" text-anchor=\"end\" xml:space=\"preserve\"");
    put_readout(out, f, h, x, true);
    hl_buf_puts(out, "</text></g>\n");
}

static void put_tooltips(struct hl_buf *out, const struct frame *f) {
    struct hover h = {0};
    int n_bands = (int)((f->right - f->left) / BAND);
    double begin = f->left;
    for (int b = 0; b < n_bands; b++) {
        double end = f->left + (b + 1) * (f->right - f->left) / n_bands, x = 0;
        if (hover_band(f, &h, b + 1 == n_bands ? INFINITY : end, &x)) {
            put_band(out, f, &h, begin, end, x);
            begin = end;
        }
    }
}

/* ---- the whole ---- */

static void put_axes(struct hl_buf *out, const struct frame *f) {
    char label[HL_WORDS];
    for (int i = 0; i < f->y_ticks.n; i++) {
        double y = to_y(f, f->y_ticks.at[i]);
        put_line(out, "gr", f->left, y, f->right, y);
        hl_ticks_label(label, &f->y_ticks, f->y_ticks.at[i]);
        put_text_at(out, f->left - 8, y + 4, " text-anchor=\"end\"");
        hl_buf_printf(out, "%s</text>\n", label);
    }
    for (int i = 0; i < f->x_ticks.n; i++) {
        double x = to_x(f, f->x_ticks.at[i]);
        put_line(out, "ax", x, f->bottom, x, f->bottom + 5);
        hl_ticks_label(label, &f->x_ticks, f->x_ticks.at[i]);
        put_text_at(out, x, f->bottom + 19, " text-anchor=\"middle\"");
        hl_buf_printf(out, "%s</text>\n", label);
    }
    put_line(out, "ax", f->left, f->bottom, f->right, f->bottom);
    put_text_at(out, (f->left + f->right) / 2, f->bottom + 35,
                " class=\"un\" text-anchor=\"middle\"");
    hl_markup_puts(out, f->plot->x_label);
    hl_buf_puts(out, "</text>\n");
}

static void put_head(struct hl_buf *out, const struct hl_plot *plot) {
    hl_buf_printf(out, "<svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\"", plot->width,
                  plot->height);
    if (plot->standalone)
        hl_buf_printf(out, " xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\"",
                      plot->width, plot->height);
    hl_buf_puts(out, " aria-label=\"");
    hl_markup_puts(out, plot->title);
    hl_buf_puts(out, "\">\n");
    if (plot->standalone) {
        hl_buf_printf(out, "<style>%s</style>\n", hl_plot_css);
        hl_buf_printf(
            out, "<rect class=\"bg\" x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n",
            plot->width - 1, plot->height - 1);
    }
    put_text_at(out, 16, 24, " class=\"ti\"");
    hl_markup_puts(out, plot->title);
    if (plot->unit) {
        hl_buf_puts(out, "<tspan class=\"un\" dx=\"8\">");
        hl_markup_puts(out, plot->unit);
        hl_buf_puts(out, "</tspan>");
    }
    hl_buf_puts(out, "</text>\n");
}

static void put_message(struct hl_buf *out, const struct hl_plot *plot) {
    put_text_at(out, plot->width / 2.0, plot->height / 2.0 + 8, " text-anchor=\"middle\"");
    hl_markup_puts(out, plot->message ? plot->message : "no values yet");
    hl_buf_puts(out, "</text>\n");
}

static struct frame frame_of(const struct hl_plot *plot) {
    struct frame f = {.plot = plot};
    struct span x, y;
    find_spans(plot, &x, &y);
    f.empty = x.lo > x.hi || y.lo > y.hi;
    if (f.empty) return f;
    f.top = TOP + legend(NULL, plot) * LEGEND_ROW + 2;
    f.bottom = fmax(plot->height - BOTTOM, f.top + 20);
    f.right = plot->width - RIGHT;
    set_y(&f, y);
    f.left = 20 + label_width(&f.y_ticks);
    set_x(&f, x);
    return f;
}

void hl_plot_svg(struct hl_buf *out, const struct hl_plot *plot) {
    struct frame f = frame_of(plot);
    put_head(out, plot);
    if (f.empty) put_message(out, plot);
    else {
        (void)legend(out, plot);
        put_axes(out, &f);
        hl_buf_printf(out, "<clipPath id=\"p%d\"><rect x=\"", plot->id);
        put_pair(out, "\" y=\"", f.left - 5, f.top - 1);
        hl_buf_puts(out, "\" width=\"");
        put_pair(out, "\" height=\"", f.right - f.left + 10, f.bottom - f.top + 5);
        hl_buf_printf(out, "\"/></clipPath>\n<g clip-path=\"url(#p%d)\">\n", plot->id);
        for (int k = 0; k < plot->n_series; k++) put_series(out, &f, &plot->series[k]);
        hl_buf_puts(out, "</g>\n");
        if (!plot->standalone)
            put_tooltips(out, &f); /* a picture in a page has no pointer: keep it small */
        for (int k = 0; k < plot->n_series; k++)
            if (plot->series[k].style != HL_PLOT_FAINT) put_marks(out, &f, &plot->series[k]);
    }
    hl_buf_puts(out, "</svg>\n");
}
