/* See doctor_report.h. */
#include "doctor_report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "halley/text_number.h"

void doctor_line(const char *title, const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("%-12s ", title);
    (void)vprintf(format, args);
    printf("\n");
    va_end(args);
}

void doctor_complain(struct doctor_report *report, bool fatal, const char *format, ...) {
    char text[1200];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (report->complaints.data && strstr(report->complaints.data, text))
        return; /* one cause, met twice */
    hl_buf_printf(&report->complaints, "%s: %s\n", fatal ? "problem" : "hint", text);
    if (fatal) report->n_failures++;
    else report->n_warnings++;
}

const char *doctor_bytes(char out[40], uint64_t bytes) {
    hl_print_bytes(out, 40, bytes);
    return out;
}
