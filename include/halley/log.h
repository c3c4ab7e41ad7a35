/* Where lines for people go. The library never prints: the program (or an embedding) passes a sink.
 */
#ifndef HALLEY_LOG_H
#define HALLEY_LOG_H

#include "halley/status.h"

enum hl_log_level { HL_LOG_DEBUG, HL_LOG_INFO, HL_LOG_WARN, HL_LOG_ERROR };

struct hl_log {
    void (*line)(struct hl_log *log, enum hl_log_level level,
                 const char *text); /* text without newline */
    enum hl_log_level least;        /* lines below it are dropped before formatting */
    void *context;
};

/* log may be NULL: then nothing happens. */
void hl_log(struct hl_log *log, enum hl_log_level level, const char *format, ...) HL_PRINTF(3, 4);

#endif
