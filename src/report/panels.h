/* Which curves of which runs make up which picture. */
#ifndef HALLEY_REPORT_PANELS_H
#define HALLEY_REPORT_PANELS_H

#include "report/plot.h"
#include "report/run.h"

/* The loss of all runs, training and held-out. standalone: a picture of its own (title: the run's
 * name). */
void hl_panel_loss(struct hl_buf *out, const struct hl_run *runs, int n_runs, bool standalone);
/* Rate, norm, speed, waiting, and whatever else the runs recorded; each only where a run has it.
 * Plots get ids from 1. */
void hl_panels_small(struct hl_buf *out, const struct hl_run *runs, int n_runs);

#endif
