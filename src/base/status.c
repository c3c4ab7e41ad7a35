/* Statuses and diagnostics. See halley/status.h. */
#include "halley/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static enum hl_status fail_v(struct hl_diag *diag, enum hl_status status, size_t used,
                             const char *format, va_list args) {
    diag->status = status;
    (void)vsnprintf(diag->text + used, sizeof diag->text - used, format, args);
    for (char *c = diag->text; *c; c++)
        if (*c == '\n' || *c == '\r') *c = ' ';
    return status;
}

enum hl_status hl_fail(struct hl_diag *diag, enum hl_status status, const char *format, ...) {
    if (!diag) return status;
    va_list args;
    va_start(args, format);
    fail_v(diag, status, 0, format, args);
    va_end(args);
    return status;
}

enum hl_status hl_fail_at(struct hl_diag *diag, enum hl_status status, const char *file, long line,
                          long column, const char *format, ...) {
    if (!diag) return status;
    int saved = errno; /* so that %m in format still names the caller's error */
    int used = 0;
    size_t capacity = sizeof diag->text / 2;
    if (file && line && column)
        used = snprintf(diag->text, capacity, "%s:%ld:%ld: ", file, line, column);
    else if (file && line) used = snprintf(diag->text, capacity, "%s:%ld: ", file, line);
    else if (file) used = snprintf(diag->text, capacity, "%s: ", file);
    if (used < 0) used = 0;
    if ((size_t)used >= capacity) used = (int)capacity - 1;
    errno = saved;
    va_list args;
    va_start(args, format);
    fail_v(diag, status, (size_t)used, format, args);
    va_end(args);
    return status;
}

enum hl_status hl_fail_memory(struct hl_diag *diag, unsigned long long bytes, const char *what) {
    return hl_fail(diag, HL_E_MEMORY, "out of memory: %llu bytes for %s", bytes, what);
}

const char *hl_status_name(enum hl_status status) {
    switch (status) {
    case HL_OK: return "ok";
    case HL_PENDING: return "pending";
    case HL_END: return "end";
    case HL_E_USER: return "user error";
    case HL_E_MEMORY: return "out of memory";
    case HL_E_IO: return "input/output error";
    case HL_E_FORMAT: return "bad format";
    case HL_E_NUMERIC: return "not a finite number";
    case HL_E_UNSUPPORTED: return "unsupported";
    case HL_E_AGAIN: return "try again";
    case HL_E_TIMEOUT: return "timed out";
    case HL_E_PEER: return "peer failed";
    case HL_E_STOPPED: return "stopped";
    }
    return "unknown status";
}
