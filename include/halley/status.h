/* Outcome of every call that can fail, and the words that explain it.
 *
 * Three kinds of failure, never mixed: a user's mistake or a bad file carries a diagnostic (file,
 * line, the offending key, a hint); the world's failure carries a status that says what broke; our
 * own bug is an assert. The library never exits, aborts or prints. */
#ifndef HALLEY_STATUS_H
#define HALLEY_STATUS_H

#include <stdarg.h>

enum hl_status {
    HL_OK = 0,
    HL_PENDING = 1,        /* started, not finished: poll again */
    HL_END = 2,            /* nothing more will come (end of a stream) */
    HL_E_USER = -1,        /* the user asked for something impossible: fix the configuration */
    HL_E_MEMORY = -2,      /* an allocation failed */
    HL_E_IO = -3,          /* the operating system refused: errno's text is in the diagnostic */
    HL_E_FORMAT = -4,      /* a file is not what it claims to be */
    HL_E_NUMERIC = -5,     /* NaN or infinity where a number was needed */
    HL_E_UNSUPPORTED = -6, /* understood, and refused by name */
    HL_E_AGAIN = -7,       /* no slot right now, nothing changed */
    HL_E_TIMEOUT = -8,     /* a deadline passed */
    HL_E_PEER = -9,        /* a peer failed; its group must be rebuilt */
    HL_E_STOPPED = -10,    /* a signal or a limit asked to stop */
};

#define HL_MUST_CHECK __attribute__((warn_unused_result))
#define HL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* The first finder of an error fills it in; everybody else passes the status on untouched. */
struct hl_diag {
    enum hl_status status;
    char text[1024]; /* one line: "file:line:column: what is wrong; what to do" */
};

/* Record why and return the status, so that `return hl_fail(diag, HL_E_IO, "...: %m")` reads well.
 * diag  may be NULL: then only the status travels. */
enum hl_status hl_fail(struct hl_diag *diag, enum hl_status status, const char *format, ...)
    HL_PRINTF(3, 4);

/* The same, with a place in front of the text. line or column 0 are left out; file NULL leaves out
 * the place. */
enum hl_status hl_fail_at(struct hl_diag *diag, enum hl_status status, const char *file, long line,
                          long column, const char *format, ...) HL_PRINTF(6, 7);

/* HL_E_MEMORY with the size that was wanted. */
enum hl_status hl_fail_memory(struct hl_diag *diag, unsigned long long bytes, const char *what);

/* "ok", "user error", ... : a static string, for logs. */
const char *hl_status_name(enum hl_status status);

#endif
