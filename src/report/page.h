/* The report page: one HTML file that needs nothing else, no script and no network. */
#ifndef HALLEY_REPORT_PAGE_H
#define HALLEY_REPORT_PAGE_H

#include "report/run.h"

void hl_page_html(struct hl_buf *out, const struct hl_run *runs,
                  int n_runs); /* failure: out->failed */

#endif
