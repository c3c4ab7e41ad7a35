/* Formatting of log lines; the sink belongs to the program. */
#include "halley/log.h"

#include <stdio.h>

void hl_log(struct hl_log *log, enum hl_log_level level, const char *format, ...) {
    if (!log || level < log->least) return;
    char text[2048];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log->line(log, level, text);
}
