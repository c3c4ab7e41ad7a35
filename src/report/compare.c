/* See compare.h. A run's metrics have a value of each axis in every line, so a curve over an axis
 * takes the axis at the steps at which the loss was logged. Bytes are what rank 0 sent. */
#include "report/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "halley/text_number.h"
#include "report/markup.h"
#include "report/page_css.h"
#include "report/panels.h"
#include "report/plot.h"
#include "report/smooth.h"
#include "report/words.h"

enum { MOST_RUNS = 32, WIDE = 1040, WIDE_HEIGHT = 400, PICTURE = 860, PICTURE_HEIGHT = 420 };
enum { SMOOTH_FROM = 40, FIRST_ID = 1000 };

/* ---- curves ---- */

struct curve {
    double *x, *y, *scratch; /* one allocation, x's */
    size_t n;
};

/* The value at the last logged step up to this one; 0 before the first. */
static double value_at(const struct hl_series *s, double step) {
    size_t lo = 0, hi = s ? s->n : 0;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (s->x[middle] <= step) lo = middle + 1;
        else hi = middle;
    }
    return lo ? s->y[lo - 1] : 0;
}

/* out [n]: the sum of a mean per step, up to each of these steps. */
static void sum_until(const struct hl_series *s, const double *steps, size_t n, double *out) {
    double sum = 0, before = 0;
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        for (; s && k < s->n && s->x[k] <= steps[i]; before = s->x[k++])
            if (isfinite(s->y[k])) sum += s->y[k] * (s->x[k] - before);
        out[i] = sum;
    }
}

static void fill_axis(const struct hl_run *run, enum hl_compare_by axis, const double *steps,
                      size_t n, double *out) {
    const struct hl_series *seconds = hl_run_series(run, "train_runtime"),
                           *tokens = hl_run_series(run, "tokens");
    if (axis == HL_BY_BYTES) sum_until(hl_run_series(run, "comm_bytes_out"), steps, n, out);
    for (size_t i = 0; i < n; i++)
        if (axis == HL_BY_BYTES) out[i] *= 1e-6;
        else out[i] = value_at(axis == HL_BY_TOKENS ? tokens : seconds, steps[i]);
}

static bool all_evaluated(const struct hl_run *runs, int n_runs) {
    for (int r = 0; r < n_runs; r++) {
        const struct hl_series *s = hl_run_series(&runs[r], "eval_loss");
        if (!s || s->n < 2) return false;
    }
    return true;
}

/* false: memory is short, and the curve is empty */
static bool curve_of(struct hl_mem *mem, const struct hl_run *run, bool held_out,
                     enum hl_compare_by axis, struct curve *out) {
    const struct hl_series *loss = hl_run_series(run, held_out ? "eval_loss" : "loss");
    *out = (struct curve){.n = 0};
    if (!loss || !loss->n) return true;
    out->x = hl_alloc(mem, loss->n, 3 * sizeof *out->x);
    if (!out->x) return false;
    out->n = loss->n;
    out->y = out->x + out->n;
    out->scratch = out->y + out->n;
    fill_axis(run, axis, loss->x, loss->n, out->x);
    if (held_out || loss->n < SMOOTH_FROM) memcpy(out->y, loss->y, loss->n * sizeof *out->y);
    else hl_smooth(out->y, loss->y, loss->n, fmax(1.5, (double)loss->n / 70), out->scratch);
    return true;
}

/* ---- plots ---- */

/* The steep fall of a fresh model's first tenth would press the rest to the floor. */
static void choose_range(struct hl_plot *plot) {
    double lo = INFINITY, hi = -INFINITY;
    for (int k = 0; k < plot->n_series; k++) {
        const struct hl_plot_series *s = &plot->series[k];
        for (size_t i = 0; i < s->n; i++) {
            if (!isfinite(s->y[i])) continue;
            lo = fmin(lo, s->y[i]);
            if (s->x[i] >= 0.1 * s->x[s->n - 1]) hi = fmax(hi, s->y[i]);
        }
    }
    plot->has_range = hi > lo;
    plot->y_lo = lo;
    plot->y_hi = hi;
}

static void put_plot(struct hl_buf *out, const struct curve *curves, const struct hl_run *runs,
                     int n_runs, struct hl_plot *plot) {
    struct hl_plot_series series[MOST_RUNS];
    for (int r = 0; r < n_runs; r++)
        series[r] = (struct hl_plot_series){runs[r].name, curves[r].x,         curves[r].y,
                                            curves[r].n,  r % HL_PLOT_COLOURS, HL_PLOT_LINE};
    plot->series = series;
    plot->n_series = n_runs;
    choose_range(plot);
    hl_plot_svg(out, plot);
}

void hl_compare_plot(struct hl_buf *out, const struct hl_run *runs, int n_runs,
                     enum hl_compare_by axis, bool standalone) {
    static const char *const labels[] = {"tokens", "seconds", "MB sent by rank 0"};
    static const char *const titles[2][HL_COMPARE_AXES] = {
        {"Training loss by tokens", "Training loss by seconds", "Training loss by bytes"},
        {"Held-out loss by tokens", "Held-out loss by seconds", "Held-out loss by bytes"}};
    struct curve curves[MOST_RUNS] = {{0}};
    if (n_runs > MOST_RUNS) n_runs = MOST_RUNS;
    bool held_out = all_evaluated(runs, n_runs);
    for (int r = 0; r < n_runs && !out->failed; r++)
        out->failed = !curve_of(out->mem, &runs[r], held_out, axis, &curves[r]);
    struct hl_plot plot = {.title = titles[held_out][axis],
                           .unit = "nats per token",
                           .x_label = labels[axis],
                           .width = standalone ? PICTURE : WIDE,
                           .height = standalone ? PICTURE_HEIGHT : WIDE_HEIGHT,
                           .standalone = standalone,
                           .id = FIRST_ID + (int)axis,
                           .message = "nothing logged yet"};
    if (!out->failed) put_plot(out, curves, runs, n_runs, &plot);
    for (int r = 0; r < n_runs; r++) hl_free(out->mem, curves[r].x);
}

/* ---- numbers ---- */

struct numbers {
    double loss, best, tokens, seconds, steps; /* NaN: not known */
    double step_ms, wait_ms, sent, cost;       /* means per step */
    double to_target;                          /* seconds to the loss that all reach */
};

static double last_of(const struct hl_series *s) { return s && s->n ? s->y[s->n - 1] : NAN; }

static double lowest_of(const struct hl_series *s) {
    double lowest = NAN;
    for (size_t i = 0; s && i < s->n; i++)
        if (isfinite(s->y[i])) lowest = fmin(lowest, s->y[i]);
    return lowest;
}

/* Over all steps, of a key that is a mean since the line before. */
static double mean_of(const struct hl_series *s) {
    double sum;
    if (!s || !s->n) return NAN;
    sum_until(s, &s->x[s->n - 1], 1, &sum);
    return sum / s->x[s->n - 1];
}

static double info_of(const struct hl_run *run, const char *key) {
    double value;
    for (size_t i = 0; i < run->info.n; i++)
        if (!strcmp(run->info.at[i].key, key) && hl_parse_f64(run->info.at[i].value, &value))
            return value;
    return NAN;
}

/* When the curve first comes down to the target, on the straight line between two points. */
static double reaches(const struct curve *c, double target) {
    for (size_t i = 0; i < c->n; i++) {
        if (!(c->y[i] <= target)) continue;
        if (i == 0 || !(c->y[i - 1] > c->y[i])) return c->x[i];
        double share = (c->y[i - 1] - target) / (c->y[i - 1] - c->y[i]);
        return c->x[i - 1] + share * (c->x[i] - c->x[i - 1]);
    }
    return NAN;
}

static struct numbers numbers_of(const struct hl_run *run, bool held_out) {
    const struct hl_series *loss = hl_run_series(run, held_out ? "eval_loss" : "loss"),
                           *ms = hl_run_series(run, "step_ms");
    return (struct numbers){.loss = last_of(loss),
                            .best = lowest_of(loss),
                            .tokens = last_of(hl_run_series(run, "tokens")),
                            .seconds = last_of(hl_run_series(run, "train_runtime")),
                            .steps = ms && ms->n ? ms->x[ms->n - 1] : NAN,
                            .step_ms = mean_of(ms),
                            .wait_ms = mean_of(hl_run_series(run, "comm_wait_ms")),
                            .sent = mean_of(hl_run_series(run, "comm_bytes_out")),
                            .cost = info_of(run, "sent_bytes_per_step"),
                            .to_target = NAN};
}

/* The loss that all runs reach: the worst of their best ones. */
static double find_target(struct hl_buf *out, const struct hl_run *runs, int n_runs, bool held_out,
                          struct numbers *all) {
    double target = -INFINITY;
    for (int r = 0; r < n_runs; r++) {
        all[r] = numbers_of(&runs[r], held_out);
        target = isnan(all[r].best) ? NAN : fmax(target, all[r].best);
        if (isnan(target)) return NAN;
    }
    for (int r = 0; r < n_runs; r++) {
        struct curve c;
        out->failed |= !curve_of(out->mem, &runs[r], held_out, HL_BY_SECONDS, &c);
        all[r].to_target = reaches(&c, target);
        hl_free(out->mem, c.x);
    }
    return target;
}

/* ---- the table ---- */

enum format { COUNT, VALUE, SECONDS, MILLISECONDS, SHARE, MEGABYTES, TIMES };

static void print_cell(char out[HL_WORDS], double value, enum format format) {
    switch (format) {
    case COUNT: hl_words_count(out, value); return;
    case VALUE: hl_words_value(out, value); return;
    case SECONDS: hl_print_fixed(out, HL_WORDS, value, value < 99.95 ? 1 : 0); return;
    case MILLISECONDS: hl_print_fixed(out, HL_WORDS, value, value < 9.95 ? 1 : 0); return;
    case SHARE: hl_words_percent(out, value); return;
    case MEGABYTES: hl_print_fixed(out, HL_WORDS, value * 1e-6, value < 99.5e6 ? 3 : 1); return;
    case TIMES: hl_print_fixed(out, HL_WORDS, value, 2); return;
    }
}

static void put_number(struct hl_buf *out, double value, enum format format) {
    char words[HL_WORDS] = "–";
    if (isfinite(value)) print_cell(words, value, format);
    hl_buf_printf(out, "<td>%s</td>", words);
}

static void put_row(struct hl_buf *out, const struct hl_run *run, int r, const struct numbers *n,
                    const struct numbers *first) {
    double busy = 1 - n->wait_ms * 1e-3 * n->steps / n->seconds;
    hl_buf_printf(out,
                  "<tr><td><svg class=\"key\" viewBox=\"0 0 14 14\"><circle cx=\"7\" cy=\"7\" "
                  "r=\"5\" class=\"f%d\"/></svg>",
                  r % HL_PLOT_COLOURS);
    hl_markup_puts(out, run->name);
    hl_buf_puts(out, "</td>");
    put_number(out, n->loss, VALUE);
    put_number(out, n->to_target, SECONDS);
    put_number(out, first->to_target / n->to_target, TIMES);
    put_number(out, n->seconds, SECONDS);
    put_number(out, n->steps, COUNT);
    put_number(out, n->tokens, COUNT);
    put_number(out, n->step_ms, MILLISECONDS);
    put_number(out, n->wait_ms, MILLISECONDS);
    put_number(out, busy < 0 ? 0 : busy, SHARE); /* NaN stays */
    put_number(out, n->sent, MEGABYTES);
    put_number(out, n->cost, MEGABYTES);
    put_number(out, n->sent / n->cost, TIMES);
    hl_buf_puts(out, "</tr>\n");
}

static void put_table(struct hl_buf *out, const struct hl_run *runs, int n_runs) {
    struct numbers all[MOST_RUNS];
    char target[HL_WORDS] = "–";
    bool held_out = all_evaluated(runs, n_runs);
    double loss = find_target(out, runs, n_runs, held_out, all);
    if (isfinite(loss)) hl_words_value(target, loss);
    hl_buf_printf(out,
                  "<div class=\"card scroll\"><table><tr><th>Strategy</th><th>Final %s "
                  "loss</th><th>Seconds to %s</th><th>Times as fast as %s</th><th>Seconds</th>"
                  "<th>Steps</th><th>Tokens</th><th>ms per step</th><th>ms waited per step</th>"
                  "<th>Busy</th><th>MB sent per step</th><th>by cost()</th><th>sent / "
                  "cost()</th></tr>\n",
                  held_out ? "held-out" : "training", target, "the first");
    for (int r = 0; r < n_runs; r++) put_row(out, &runs[r], r, &all[r], &all[0]);
    hl_buf_puts(out, "</table></div>\n");
}

/* ---- the page ---- */

static void put_notes(struct hl_buf *out, const struct hl_run *runs, int n_runs) {
    for (int r = 0; r < n_runs; r++) {
        if (runs[r].n_series && !runs[r].n_bad) continue;
        hl_buf_puts(out, "<p class=\"note\">");
        hl_markup_puts(out, runs[r].name);
        if (!runs[r].n_series) hl_buf_puts(out, ": nothing logged yet.</p>\n");
        else
            hl_buf_printf(out, ": %ld of %ld lines of metrics.jsonl could not be read.</p>\n",
                          runs[r].n_bad, runs[r].n_lines);
    }
}

static void put_settings(struct hl_buf *out, const struct hl_run *run) {
    if (!run->config.n) return;
    hl_buf_puts(out, "<h2>Configuration of ");
    hl_markup_puts(out, run->name);
    hl_buf_puts(out, "</h2>\n<dl class=\"card pairs\">\n");
    for (size_t i = 0; i < run->config.n; i++) {
        hl_buf_puts(out, "<div><dt>");
        hl_markup_puts(out, run->config.at[i].key);
        hl_buf_puts(out, "</dt><dd>");
        hl_markup_puts(out, *run->config.at[i].value ? run->config.at[i].value : "–");
        hl_buf_puts(out, "</dd></div>\n");
    }
    hl_buf_puts(out, "</dl>\n");
}

static void put_head(struct hl_buf *out, const char *about) {
    hl_buf_printf(out,
                  "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                  "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
                  "'none';style-src 'unsafe-inline'\">\n<title>Strategies compared · Halley</title>"
                  "\n<style>%s%s</style></head>\n<body><main>\n<header><p>Halley</p>"
                  "<h1>Strategies compared</h1>",
                  page_css, hl_plot_css);
    hl_buf_puts(out, "</header>\n");
    if (!about) return;
    hl_buf_puts(out, "<p>");
    hl_markup_puts(out, about);
    hl_buf_puts(out, "</p>\n");
}

void hl_compare_page(struct hl_buf *out, const struct hl_run *runs, int n_runs, const char *about) {
    if (n_runs > MOST_RUNS) n_runs = MOST_RUNS;
    put_head(out, about);
    put_notes(out, runs, n_runs);
    put_table(out, runs, n_runs);
    for (int axis = 0; axis < HL_COMPARE_AXES; axis++) {
        hl_buf_puts(out, "<div class=\"card\">");
        hl_compare_plot(out, runs, n_runs, (enum hl_compare_by)axis, false);
        hl_buf_puts(out, "</div>\n");
    }
    hl_buf_puts(out, "<div class=\"grid\">\n");
    hl_panels_small(out, runs, n_runs);
    hl_buf_puts(out, "</div>\n");
    for (int r = 0; r < n_runs; r++) put_settings(out, &runs[r]);
    hl_buf_printf(out,
                  "<footer>Written by halley %s from each run's metrics.jsonl. Seconds are wall "
                  "clock from the first step on, evaluations included. Bytes are those that rank 0 "
                  "sent, with what the loop itself exchanges; cost() is what the strategy says "
                  "that it sends.</footer>\n</main></body></html>\n",
                  HALLEY_VERSION);
}
