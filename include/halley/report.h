/* What people and their tools see of a run: the progress line, metrics.jsonl, TensorBoard event
 * files, the report page. */
#ifndef HALLEY_REPORT_H
#define HALLEY_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "halley/log.h"
#include "halley/mem.h"
#include "halley/status.h"

struct hl_metric {
    const char *name;
    double value;
    bool is_integer;
};

/* Append-only metrics of one run. Owner: caller; one thread. */
struct hl_metrics;
/* Opens output_dir/metrics.jsonl, output_dir/samples.jsonl and
 * output_dir/runs/events.out.tfevents.*, making the folder if its parent is there. When resuming at
 * a step, metrics and samples past `keep_through_step` are cut (-1: keep nothing; TensorBoard is
 * told to forget them), and half a last line is removed. errors HL_E_IO, HL_E_MEMORY */
enum hl_status hl_metrics_open(struct hl_mem *mem, const char *output_dir,
                               int64_t keep_through_step, bool tensorboard, struct hl_metrics **out,
                               struct hl_diag *diag) HL_MUST_CHECK;
/* One JSON object per line: {"step": n, "loss": ..., ...}; non-finite values are written as the
 * strings "NaN", "Infinity",
 * "-Infinity"; the order of keys is the caller's. TensorBoard tags: train/NAME, and eval/NAME for
 * names that begin with eval_. A full disk does not stop a run: the first failure is returned once
 * (warn, go on), later ones are only counted. */
enum hl_status hl_metrics_write(struct hl_metrics *metrics, int64_t step,
                                const struct hl_metric *values, int n,
                                struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status hl_metrics_text(struct hl_metrics *metrics, int64_t step, const char *tag,
                               const char *text, struct hl_diag *diag)
    HL_MUST_CHECK; /* a sample: to samples.jsonl and TensorBoard's text tab; any bytes */
/* rounds.jsonl, of runs whose ranks decide how many micro-batches they make: what each step's
 * update was made of. counts [n_ranks][2]: micro-batches after the commit of the step before began,
 * and in this step until its own did. Opened once, before the first is written. */
enum hl_status hl_metrics_open_rounds(struct hl_metrics *metrics, const char *output_dir,
                                      int64_t keep_through_step,
                                      struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status hl_metrics_rounds(struct hl_metrics *metrics, int64_t step, const int64_t *counts,
                                 int n_ranks, struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status hl_metrics_flush(struct hl_metrics *metrics, struct hl_diag *diag)
    HL_MUST_CHECK; /* fsync: before a checkpoint is committed */
int64_t hl_metrics_n_lost(const struct hl_metrics *metrics); /* records that could not be written */
void hl_metrics_close(struct hl_metrics *metrics);           /* metrics may be NULL */

/* The progress line. On a terminal one line rewritten in place (colours unless NO_COLOR); piped:
 * plain lines. */
struct hl_progress_state {
    int64_t step, max_steps;
    double loss, grad_norm, learning_rate, tokens_per_second;
    double peak_share;  /* of the machine's product peak, 0..1; < 0: unknown, shown as n/a */
    double eta_seconds; /* < 0: unknown */
    double eval_loss;   /* NaN: none yet */
};
struct hl_progress;
enum hl_status hl_progress_new(struct hl_mem *mem, int fd, struct hl_progress **out,
                               struct hl_diag *diag) HL_MUST_CHECK; /* fd 2 as a rule */
void hl_progress_show(struct hl_progress *progress, const struct hl_progress_state *state,
                      bool is_log_step); /* piped: only log steps */
void hl_progress_line(struct hl_progress *progress,
                      const char *text); /* a line of its own above the progress line */
void hl_progress_free(struct hl_progress *progress);

/* Read runs (several: curves side by side in one plot) and write one self-contained HTML page:
 * headline numbers, curves of loss, rate, norm and speed as inline SVG, samples, run.json and
 * run.yaml as tables. svg_path gets the loss curve alone, for a README. Either path may be NULL.
 * Damaged lines are skipped, counted and told to the log (NULL: nobody). errors HL_E_IO (no such
 * run, cannot write), HL_E_MEMORY, HL_E_USER (no run given) */
enum hl_status hl_report_write(struct hl_mem *mem, const char *const *run_dirs, int n_runs,
                               const char *html_path, const char *svg_path, struct hl_log *log,
                               struct hl_diag *diag) HL_MUST_CHECK;

/* The same for runs that differ in their strategy (halley compare): the loss against tokens,
 * seconds and bytes, what they waited, and what they sent beside what the strategy's cost says.
 * about: a line about the circumstances, NULL: none. svg_path gets the loss against seconds alone.
 * errors as hl_report_write */
enum hl_status hl_report_compare(struct hl_mem *mem, const char *const *run_dirs, int n_runs,
                                 const char *about, const char *html_path, const char *svg_path,
                                 struct hl_log *log, struct hl_diag *diag) HL_MUST_CHECK;

#endif
