/* How doctor speaks: lines with a title, and complaints that are shown again at the end. */
#ifndef HALLEY_DOCTOR_REPORT_H
#define HALLEY_DOCTOR_REPORT_H

#include "halley/mem.h"
#include "halley/status.h"

struct doctor_report {
    struct hl_mem *mem;
    struct hl_buf complaints;
    int n_warnings, n_failures;
    int n_threads; /* that a run would use */
};

void doctor_line(const char *title, const char *format, ...) HL_PRINTF(2, 3);
/* fatal: a problem, which makes the exit status 1; else a hint. */
void doctor_complain(struct doctor_report *report, bool fatal, const char *format, ...)
    HL_PRINTF(3, 4);
const char *doctor_bytes(char out[40], uint64_t bytes); /* returns out */

/* What several ranks need: wires, shared memory, networks, clocks, processors (doctor_ranks.c). */
void doctor_show_ranks(struct doctor_report *report, int n_ranks);

#endif
