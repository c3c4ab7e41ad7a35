/* The page of `halley compare`: runs of the same configuration that differ in their strategy, by
 * tokens, seconds and bytes. */
#ifndef HALLEY_REPORT_COMPARE_H
#define HALLEY_REPORT_COMPARE_H

#include "report/run.h"

enum hl_compare_by { HL_BY_TOKENS, HL_BY_SECONDS, HL_BY_BYTES, HL_COMPARE_AXES };

/* The loss of all runs over one axis: held-out where every run has evaluated more than once, else
 * of training. standalone: a picture of its own. Failure: out->failed. */
void hl_compare_plot(struct hl_buf *out, const struct hl_run *runs, int n_runs,
                     enum hl_compare_by axis, bool standalone);
/* about: a line under the title; NULL: none. Failure: out->failed. */
void hl_compare_page(struct hl_buf *out, const struct hl_run *runs, int n_runs, const char *about);

#endif
