/* What the file descriptor at the other end can show. Asked again at each draw: windows are
 * resized. */
#ifndef HALLEY_OS_TERMINAL_H
#define HALLEY_OS_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

bool hl_terminal_is(int fd);     /* a terminal that can move its cursor (TERM=dumb cannot) */
int hl_terminal_columns(int fd); /* COLUMNS, else the window's width, else 80; at least 1 */
bool hl_terminal_utf8(
    void); /* the locale of the environment is UTF-8: LC_ALL, LC_CTYPE, LANG, first one set */
bool hl_terminal_colour(void); /* false when NO_COLOR is set to anything but the empty string */
/* Write all bytes, going on after signals and on full pipes. Errors are dropped: a closed terminal
 * must not stop a run. */
void hl_terminal_write(int fd, const char *bytes, size_t n);

/* A program may be started with its standard streams closed; the next file opened would then get
 * what is meant for them. Fills the gaps with /dev/null. */
void hl_standard_streams_open(void);

#endif
