/* Terminal size and abilities, over ioctl and the environment. No terminfo: a carriage return,
 * "erase to the end of line" and a few colours are all that halley uses, and every terminal of the
 * last thirty years has them. Source: no-color.org. */
#include "os/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool hl_terminal_is(int fd) {
    const char *kind = getenv("TERM");
    return isatty(fd) == 1 && kind && strcmp(kind, "dumb") != 0;
}

int hl_terminal_columns(int fd) {
    const char *text = getenv("COLUMNS");
    long columns = text ? strtol(text, NULL, 10) : 0;
    if (columns > 0 && columns < 10000) return (int)columns;
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

bool hl_terminal_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

bool hl_terminal_colour(void) {
    const char *value = getenv("NO_COLOR");
    return !value || !*value;
}

void hl_terminal_write(int fd, const char *bytes, size_t n) {
    while (n) {
        ssize_t done = write(fd, bytes, n);
        if (done > 0) {
            bytes += done;
            n -= (size_t)done;
        } else if (done < 0 && errno == EAGAIN) {
            struct pollfd room = {fd, POLLOUT, 0};
            if (poll(&room, 1, 1000) <= 0) return;
        } else if (done >= 0 || errno != EINTR) return;
    }
}

void hl_standard_streams_open(void) {
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= 2);
    if (fd > 2) (void)close(fd);
}
