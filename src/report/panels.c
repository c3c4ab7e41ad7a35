/* From runs to plots: smoothing, colours, ranges, legends. One run: its curves by what they are.
 * Several: a colour per run, solid for training and dashed for held-out. */
#include "report/panels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/smooth.h"

enum { SMOOTH_FROM = 40, MAX_CURVES = 96, MAX_EXTRAS = 16, RAW_UP_TO_RUNS = 3 };
enum {
    WIDE = 1040,
    WIDE_HEIGHT = 400,
    SMALL = 512,
    SMALL_HEIGHT = 260,
    PICTURE = 860,
    PICTURE_HEIGHT = 420
};

struct curves {
    struct hl_mem *mem;
    struct hl_plot_series at[MAX_CURVES];
    int n;
    double *owned[MAX_CURVES]; /* smoothed values */
    int n_owned;
    bool failed;
};

static void add(struct curves *c, const struct hl_series *s, const double *y, const char *label,
                int colour, enum hl_plot_style style) {
    if (c->n == MAX_CURVES) return;
    c->at[c->n++] = (struct hl_plot_series){label, s->x, y, s->n, colour % HL_PLOT_COLOURS, style};
}

static const double *smoothed(struct curves *c, const struct hl_series *s) {
    double *both = hl_alloc(c->mem, s->n, 2 * sizeof *both);
    if (!both || c->n_owned == MAX_CURVES) {
        hl_free(c->mem, both);
        c->failed = true;
        return s->y;
    }
    c->owned[c->n_owned++] = both;
    hl_smooth(both, s->y, s->n, fmax(1.5, (double)s->n / 70), both + s->n);
    return both;
}

static void release(struct curves *c) {
    for (int i = 0; i < c->n_owned; i++) hl_free(c->mem, c->owned[i]);
}

/* A noisy series: pale raw values and a smoothed line; a short one: as it is. */
static void add_noisy(struct curves *c, const struct hl_series *s, const char *raw_label,
                      const char *label, int colour, bool with_raw) {
    if (s->n < SMOOTH_FROM) {
        add(c, s, s->y, label, colour, HL_PLOT_POINTS);
        return;
    }
    if (with_raw) add(c, s, s->y, raw_label, colour, HL_PLOT_FAINT);
    add(c, s, smoothed(c, s), label, colour, HL_PLOT_LINE);
}

/* ---- ranges ---- */

struct range {
    double lo, hi, hi_later, sum;
    size_t n;
};

/* later: beyond the first 2 % of the steps, where a fresh model's loss falls steeply. */
static struct range range_of(const struct curves *c) {
    struct range r = {INFINITY, -INFINITY, -INFINITY, 0, 0};
    double end = 0;
    for (int k = 0; k < c->n; k++)
        if (c->at[k].n) end = fmax(end, c->at[k].x[c->at[k].n - 1]);
    for (int k = 0; k < c->n; k++)
        for (size_t i = 0; i < c->at[k].n; i++) {
            double y = c->at[k].y[i];
            if (!isfinite(y)) continue;
            r.lo = fmin(r.lo, y);
            r.hi = fmax(r.hi, y);
            if (c->at[k].x[i] >= 0.02 * end) r.hi_later = fmax(r.hi_later, y);
            r.sum += y > 0 ? log(y) : 0;
            r.n++;
        }
    return r;
}

/* Values far above the usual ones would press the rest to the floor of a linear axis. */
static bool wants_log(const struct range *r) {
    return r->n > 1 && r->lo > 0 && r->hi_later > 12 * exp(r->sum / (double)r->n);
}

static void choose_range(struct hl_plot *plot, const struct curves *c) {
    struct range r = range_of(c);
    plot->log_y = wants_log(&r);
    bool steep = r.n >= 100 && r.hi > r.lo + 1.35 * (r.hi_later - r.lo) && r.hi_later > r.lo;
    if (!steep || plot->log_y) return;
    plot->has_range = true;
    plot->y_lo = r.lo;
    plot->y_hi = r.hi_later;
}

/* ---- panels ---- */

static void finish(struct hl_buf *out, struct curves *c, struct hl_plot *plot) {
    plot->series = c->at;
    plot->n_series = c->n;
    plot->x_label = "step";
    plot->whole_x = true;
    if (c->failed) out->failed = true;
    else hl_plot_svg(out, plot);
    release(c);
}

static void add_loss(struct curves *c, const struct hl_run *run, int index, int n_runs) {
    const struct hl_series *train = hl_run_series(run, "loss"),
                           *held_out = hl_run_series(run, "eval_loss");
    bool alone = n_runs == 1;
    if (train)
        add_noisy(c, train, alone ? "training" : NULL, alone ? "training, smoothed" : run->name,
                  index, n_runs <= RAW_UP_TO_RUNS);
    if (train && alone && train->n < SMOOTH_FROM) c->at[c->n - 1].label = "training";
    if (!held_out) return;
    const char *label = alone ? "held-out" : train ? NULL : run->name;
    add(c, held_out, held_out->y, label, alone ? 1 : index,
        alone ? HL_PLOT_POINTS : HL_PLOT_DASHED);
}

void hl_panel_loss(struct hl_buf *out, const struct hl_run *runs, int n_runs, bool standalone) {
    struct curves c = {.mem = out->mem};
    for (int r = 0; r < n_runs; r++) add_loss(&c, &runs[r], r, n_runs);
    struct hl_buf title = {.mem = out->mem};
    hl_buf_printf(&title, standalone && n_runs == 1 ? "Loss of %s" : "Loss", runs[0].name);
    struct hl_plot plot = {.title = title.data,
                           .unit =
                               n_runs > 1 ? "nats per token; dashed: held-out" : "nats per token",
                           .width = standalone ? PICTURE : WIDE,
                           .height = standalone ? PICTURE_HEIGHT : WIDE_HEIGHT,
                           .standalone = standalone,
                           .message = c.n ? "no finite value of the loss" : "nothing logged yet"};
    choose_range(&plot, &c);
    c.failed |= title.failed;
    finish(out, &c, &plot);
    hl_buf_free(&title);
}

struct panel {
    const char *key, *title, *unit;
    bool noisy, from_zero;
};

static const struct panel known[] = {
    {"learning_rate", "Learning rate", NULL, false, true},
    {"grad_norm", "Gradient norm", "before clipping", true, false},
    {"tokens_per_second", "Speed", "tokens per second", true, true},
    {"data_wait_ms", "Waiting for data", "ms per step", true, true},
    {"mfu", "Use of the machine", "share of its product peak", true, true},
    {"comm_wait_ms", "Waiting for other ranks", "ms per step", true, true},
    {"busy", "Not waiting for them", "share of the steps' time", true, true},
    {"comm_bytes_out", "Sent by rank 0", "bytes per step", true, true},
};
static const char *const elsewhere[] = {"loss",         "eval_loss",    "tokens",
                                        "seconds",      "epoch",        "step_ms",
                                        "eval_runtime", "train_runtime"}; /* shown by other means */
enum { N_KNOWN = sizeof known / sizeof *known, N_ELSEWHERE = sizeof elsewhere / sizeof *elsewhere };

static void small_panel(struct hl_buf *out, const struct hl_run *runs, int n_runs,
                        const struct panel *panel, int id) {
    struct curves c = {.mem = out->mem};
    for (int r = 0; r < n_runs; r++) {
        const struct hl_series *s = hl_run_series(&runs[r], panel->key);
        const char *label = n_runs > 1 ? runs[r].name : NULL;
        if (!s) continue;
        if (panel->noisy) add_noisy(&c, s, NULL, label, r, n_runs <= RAW_UP_TO_RUNS);
        else add(&c, s, s->y, label, r, HL_PLOT_LINE);
    }
    if (!c.n) return;
    struct range range = range_of(&c);
    struct hl_plot plot = {.title = panel->title,
                           .unit = panel->unit,
                           .width = SMALL,
                           .height = SMALL_HEIGHT,
                           .id = id,
                           .from_zero = panel->from_zero,
                           .log_y = !panel->from_zero && wants_log(&range),
                           .message = "no finite value"};
    hl_buf_puts(out, "<div class=\"card\">");
    finish(out, &c, &plot);
    hl_buf_puts(out, "</div>\n");
}

static bool is_extra(const char *key) {
    for (int i = 0; i < N_KNOWN; i++)
        if (!strcmp(key, known[i].key)) return false;
    for (int i = 0; i < N_ELSEWHERE; i++)
        if (!strcmp(key, elsewhere[i])) return false;
    return true;
}

static bool shown_before(const struct hl_run *runs, int r, const char *key) {
    for (int i = 0; i < r; i++)
        if (hl_run_series(&runs[i], key)) return true;
    return false;
}

void hl_panels_small(struct hl_buf *out, const struct hl_run *runs, int n_runs) {
    int id = 1, n_extras = 0;
    for (int i = 0; i < N_KNOWN; i++) small_panel(out, runs, n_runs, &known[i], id++);
    for (int r = 0; r < n_runs; r++)
        for (int k = 0; k < runs[r].n_series && n_extras < MAX_EXTRAS; k++) {
            const char *key = runs[r].series[k].name;
            if (!is_extra(key) || shown_before(runs, r, key)) continue;
            struct panel panel = {key, key, NULL, true, false};
            small_panel(out, runs, n_runs, &panel, id++);
            n_extras++;
        }
}
