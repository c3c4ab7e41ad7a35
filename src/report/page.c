/* The report page: headline numbers, curves, samples, machine, configuration.
 * Everything that comes from a file goes through hl_markup_*: a model may write tags. */
#include "report/page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "halley/text_number.h"
#include "report/markup.h"
#include "report/page_css.h"
#include "report/panels.h"
#include "report/words.h"

enum { SAMPLE_MAX = 20000 };

/* ---- headline numbers ---- */

static bool last_finite(const struct hl_series *s, double *x, double *y) {
    for (size_t i = s ? s->n : 0; i-- > 0;)
        if (isfinite(s->y[i])) return *x = s->x[i], *y = s->y[i], true;
    return false;
}

static bool lowest(const struct hl_series *s, double *x, double *y) {
    bool found = false;
    for (size_t i = 0; s && i < s->n; i++)
        if (isfinite(s->y[i]) && (!found || s->y[i] < *y)) *x = s->x[i], *y = s->y[i], found = true;
    return found;
}

/* The harmonic mean: as fast as the same work at one speed would have been. */
static bool mean_speed(const struct hl_series *s, double *out) {
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; s && i < s->n; i++)
        if (s->y[i] > 0 && isfinite(s->y[i])) sum += 1 / s->y[i], n++;
    return n ? *out = (double)n / sum, true : false;
}

/* Time in training: as logged, else the mean step of each line times the steps since the line
 * before. */
static bool training_time(const struct hl_run *run, double *out) {
    double x = 0, sum = 0, before = 0;
    if (last_finite(hl_run_series(run, "seconds"), &x, out)) return true;
    const struct hl_series *s = hl_run_series(run, "step_ms");
    for (size_t i = 0; s && i < s->n; before = s->x[i++])
        if (isfinite(s->y[i])) sum += s->y[i] * 1e-3 * (s->x[i] - before);
    return s ? *out = sum, true : false;
}

/* What the head of the page says of a run; words are empty where nothing is known. */
struct headline {
    char loss[HL_WORDS], loss_step[HL_WORDS], best[HL_WORDS], best_step[HL_WORDS],
        perplexity[HL_WORDS], steps[HL_WORDS], tokens[HL_WORDS], time[HL_WORDS], speed[HL_WORDS];
};

static void print_perplexity(char out[HL_WORDS], double value) {
    if (value < 1e6) hl_print_fixed(out, HL_WORDS, value, value < 99.95 ? 1 : 0);
    else hl_words_rate(out, value);
}

static void print_time(char out[HL_WORDS], double seconds) {
    if (!(seconds >= 0 && seconds < 60)) {
        hl_words_duration(out, seconds);
        return;
    }
    hl_print_fixed(out, HL_WORDS - 3, seconds, seconds < 9.95 ? 1 : 0);
    (void)strcat(out, " s");
}

static struct headline headline_of(const struct hl_run *run) {
    struct headline h = {0};
    double x = 0, y = 0, last = -1;
    for (int k = 0; k < run->n_series; k++)
        if (run->series[k].n) last = fmax(last, run->series[k].x[run->series[k].n - 1]);
    if (last >= 0) hl_words_integer(h.steps, (int64_t)last);
    if (last_finite(hl_run_series(run, "loss"), &x, &y)) {
        hl_words_value(h.loss, y);
        hl_words_integer(h.loss_step, (int64_t)x);
    }
    if (lowest(hl_run_series(run, "eval_loss"), &x, &y)) {
        hl_words_value(h.best, y);
        hl_words_integer(h.best_step, (int64_t)x);
        print_perplexity(h.perplexity, exp(y));
    }
    if (last_finite(hl_run_series(run, "tokens"), &x, &y)) hl_words_count(h.tokens, y);
    if (training_time(run, &y)) print_time(h.time, y);
    if (mean_speed(hl_run_series(run, "tokens_per_second"), &y)) hl_words_count(h.speed, y);
    return h;
}

static void put_fact(struct hl_buf *out, const char *name, const char *value, const char *unit,
                     const char *more) {
    if (!*value) return;
    hl_buf_printf(out, "<div class=\"card fact\"><span>%s</span><b>%s%s%s%s</b><i>%s</i></div>\n",
                  name, value, *unit ? " <small>" : "", unit, *unit ? "</small>" : "", more);
}

static void put_facts(struct hl_buf *out, const struct hl_run *run) {
    struct headline h = headline_of(run);
    char more[128];
    hl_buf_puts(out, "<div class=\"facts\">\n");
    (void)snprintf(more, sizeof more, "step %s, perplexity %s", h.best_step, h.perplexity);
    put_fact(out, "Best held-out loss", h.best, "", more);
    (void)snprintf(more, sizeof more, "at step %s", h.loss_step);
    put_fact(out, "Final training loss", h.loss, "", more);
    (void)snprintf(more, sizeof more, "in %s step%s", h.steps, strcmp(h.steps, "1") ? "s" : "");
    put_fact(out, "Tokens seen", h.tokens, "", more);
    if (!*h.tokens) put_fact(out, "Steps", h.steps, "", "");
    put_fact(out, "Training time", h.time, "", "");
    put_fact(out, "Speed", h.speed, "tok/s", "mean over the run");
    hl_buf_puts(out, "</div>\n");
}

static void put_cell(struct hl_buf *out, const char *value, const char *step) {
    hl_buf_printf(out, "<td>%s", *value ? value : "–");
    if (*step) hl_buf_printf(out, " <small>at %s</small>", step);
    hl_buf_puts(out, "</td>");
}

static void put_comparison(struct hl_buf *out, const struct hl_run *runs, int n_runs) {
    hl_buf_puts(out, "<div class=\"card scroll\"><table><tr><th>Run</th><th>Best held-out "
                     "loss</th><th>Final training loss</th>"
                     "<th>Steps</th><th>Tokens</th><th>Time</th><th>tok/s</th></tr>\n");
    for (int r = 0; r < n_runs; r++) {
        struct headline h = headline_of(&runs[r]);
        hl_buf_printf(out,
                      "<tr><td><svg class=\"key\" viewBox=\"0 0 14 14\"><circle cx=\"7\" cy=\"7\" "
                      "r=\"5\" class=\"f%d\"/></svg>",
                      r % HL_PLOT_COLOURS);
        hl_markup_puts(out, runs[r].name);
        hl_buf_puts(out, "</td>");
        put_cell(out, h.best, h.best_step);
        put_cell(out, h.loss, "");
        put_cell(out, h.steps, "");
        put_cell(out, h.tokens, "");
        put_cell(out, h.time, "");
        put_cell(out, h.speed, "");
        hl_buf_puts(out, "</tr>\n");
    }
    hl_buf_puts(out, "</table></div>\n");
}

/* ---- what is not right ---- */

static void note_begin(struct hl_buf *out, const struct hl_run *run, int n_runs) {
    hl_buf_puts(out, "<p class=\"note\">");
    if (n_runs == 1) return;
    hl_markup_puts(out, run->name);
    hl_buf_puts(out, ": ");
}

static void put_notes(struct hl_buf *out, const struct hl_run *run, int n_runs) {
    if (!run->n_series) {
        note_begin(out, run, n_runs);
        hl_buf_puts(out, "This run has logged nothing yet.</p>\n");
    }
    if (run->n_bad) {
        note_begin(out, run, n_runs);
        hl_buf_printf(out,
                      "%ld of %ld lines of metrics.jsonl could not be read and were skipped, the "
                      "first is line %ld.</p>\n",
                      run->n_bad, run->n_lines, run->first_bad);
    }
    if (run->n_series_dropped) {
        note_begin(out, run, n_runs);
        hl_buf_printf(out, "Only the first %d kinds of numbers are shown.</p>\n", HL_RUN_SERIES);
    }
    for (int k = 0; k < run->n_series; k++) {
        const struct hl_series *s = &run->series[k];
        size_t n = 0, first = 0;
        for (size_t i = s->n; i-- > 0;)
            if (!isfinite(s->y[i])) first = i, n++;
        if (!n) continue;
        char step[HL_WORDS];
        hl_words_integer(step, (int64_t)s->x[first]);
        note_begin(out, run, n_runs);
        hl_markup_puts(out, s->name);
        hl_buf_printf(out, " is not finite (%s) at step %s",
                      isnan(s->y[first]) ? "NaN"
                      : s->y[first] > 0  ? "Infinity"
                                         : "-Infinity",
                      step);
        if (n > 1) hl_buf_printf(out, " and %zu more", n - 1);
        hl_buf_puts(out, ".</p>\n");
    }
}

/* ---- samples and tables ---- */

static void put_heading(struct hl_buf *out, const char *text, const struct hl_run *run,
                        int n_runs) {
    hl_buf_printf(out, "<h2>%s", text);
    if (n_runs > 1) {
        hl_buf_puts(out, ": ");
        hl_markup_puts(out, run->name);
    }
    hl_buf_puts(out, "</h2>\n");
}

static void put_samples(struct hl_buf *out, const struct hl_run *run, int n_runs) {
    if (!run->n_samples) return;
    put_heading(out, "What it wrote", run, n_runs);
    for (int i = run->n_samples - 1; i >= 0; i--) {
        const struct hl_sample *sample = &run->samples[i];
        char step[HL_WORDS];
        hl_words_integer(step, sample->step);
        hl_buf_printf(out, "<details class=\"card sample\"%s><summary>step %s</summary><pre>\n",
                      i >= run->n_samples - 2 ? " open" : "", step);
        hl_markup_text(out, sample->text, sample->n < SAMPLE_MAX ? sample->n : SAMPLE_MAX);
        hl_buf_puts(out, sample->n < SAMPLE_MAX ? "</pre></details>\n" : "…</pre></details>\n");
    }
}

static void put_rows(struct hl_buf *out, const char *title, const struct hl_rows *rows,
                     const struct hl_run *run, int n_runs) {
    if (!rows->n) return;
    put_heading(out, title, run, n_runs);
    hl_buf_puts(out, "<dl class=\"card pairs\">\n");
    for (size_t i = 0; i < rows->n; i++) {
        hl_buf_puts(out, "<div><dt>");
        hl_markup_puts(out, rows->at[i].key);
        hl_buf_puts(out, "</dt><dd>");
        hl_markup_puts(out, *rows->at[i].value ? rows->at[i].value : "–");
        hl_buf_puts(out, "</dd></div>\n");
    }
    hl_buf_puts(out, "</dl>\n");
}

/* ---- the whole ---- */

static void put_title(struct hl_buf *out, const struct hl_run *runs, int n_runs) {
    for (int r = 0; r < n_runs && r < 4; r++) {
        if (r) hl_buf_puts(out, ", ");
        hl_markup_puts(out, runs[r].name);
    }
    if (n_runs > 4) hl_buf_printf(out, " and %d more", n_runs - 4);
}

void hl_page_html(struct hl_buf *out, const struct hl_run *runs, int n_runs) {
    hl_buf_puts(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
                     "'none';style-src 'unsafe-inline'\">\n<title>");
    put_title(out, runs, n_runs);
    hl_buf_puts(out, " · Halley</title>\n<style>");
    hl_buf_puts(out, page_css);
    hl_buf_puts(out, hl_plot_css);
    hl_buf_printf(out, "</style></head>\n<body><main>\n<header><p>Halley training report</p><h1>");
    put_title(out, runs, n_runs);
    hl_buf_puts(out, "</h1></header>\n");
    for (int r = 0; r < n_runs; r++) put_notes(out, &runs[r], n_runs);
    if (n_runs == 1) put_facts(out, runs);
    else put_comparison(out, runs, n_runs);
    hl_buf_puts(out, "<div class=\"card\">");
    hl_panel_loss(out, runs, n_runs, false);
    hl_buf_puts(out, "</div>\n<div class=\"grid\">\n");
    hl_panels_small(out, runs, n_runs);
    hl_buf_puts(out, "</div>\n");
    for (int r = 0; r < n_runs; r++) put_samples(out, &runs[r], n_runs);
    for (int r = 0; r < n_runs; r++)
        put_rows(out, "Model and machine", &runs[r].info, &runs[r], n_runs);
    for (int r = 0; r < n_runs; r++)
        put_rows(out, "Configuration", &runs[r].config, &runs[r], n_runs);
    hl_buf_printf(out,
                  "<footer>Written by halley %s. Pale lines are raw values, strong ones smoothed; "
                  "every number is in "
                  "metrics.jsonl.</footer>\n</main></body></html>\n",
                  HALLEY_VERSION);
}
