/* The progress line through a pseudo-terminal and through a pipe. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "halley/report.h"

static const struct hl_progress_state middle = {.step = 120,
                                                .max_steps = 5000,
                                                .loss = 3.21456,
                                                .grad_norm = 0.8249,
                                                .learning_rate = 3e-4,
                                                .tokens_per_second = 12345,
                                                .peak_share = 0.714,
                                                .eta_seconds = 134,
                                                .eval_loss = NAN};

struct screen {
    int master, slave;
    char text[1 << 16];
    size_t n;
};

static void screen_open(struct screen *screen, unsigned short columns) {
    memset(screen, 0, sizeof *screen);
    screen->master = posix_openpt(O_RDWR | O_NOCTTY);
    if (screen->master < 0) {
        print_message("SKIP: no pseudo-terminals here (is /dev/pts mounted?)\n");
        skip();
    }
    assert_int_equal(grantpt(screen->master), 0);
    assert_int_equal(unlockpt(screen->master), 0);
    screen->slave = open(ptsname(screen->master), O_RDWR | O_NOCTTY);
    assert_true(screen->slave >= 0);
    struct winsize size = {.ws_row = 24, .ws_col = columns};
    assert_int_equal(ioctl(screen->slave, TIOCSWINSZ, &size), 0);
}

static const char *screen_read(struct screen *screen) {
    screen->n = 0;
    for (struct pollfd ready = {screen->master, POLLIN, 0}; poll(&ready, 1, 20) > 0;) {
        ssize_t got =
            read(screen->master, screen->text + screen->n, sizeof screen->text - 1 - screen->n);
        if (got <= 0) break;
        screen->n += (size_t)got;
    }
    screen->text[screen->n] = 0;
    return screen->text;
}

static void screen_close(struct screen *screen) {
    close(screen->slave);
    close(screen->master);
}

static void plain_environment(void) {
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    setenv("LC_ALL", "C", 1);
    unsetenv("COLUMNS");
}

static struct hl_progress *progress_new(int fd) {
    struct hl_progress *progress;
    assert_int_equal(hl_progress_new(hl_mem_default(), fd, &progress, NULL), HL_OK);
    return progress;
}

static void test_pipe(void **state) {
    (void)state;
    plain_environment();
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct hl_progress *progress = progress_new(ends[1]);
    hl_progress_show(progress, &middle, false);
    hl_progress_show(progress, &middle, true);
    hl_progress_line(progress, "saved checkpoint-120");
    hl_progress_free(progress);
    char text[1024];
    ssize_t n = read(ends[0], text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = 0;
    assert_string_equal(
        text,
        "step  120/5000  loss 3.2146  lr 3.00e-04  norm 0.82  tok/s 12.3k  peak 71%  ETA 2:14\n"
        "saved checkpoint-120\n");
    close(ends[0]);
    close(ends[1]);
}

static void test_terminal(void **state) {
    (void)state;
    plain_environment();
    struct screen screen;
    screen_open(&screen, 100);
    struct hl_progress *progress = progress_new(screen.slave);
    hl_progress_show(progress, &middle, false);
    assert_string_equal(
        screen_read(&screen),
        "\r 120/5000 -------------------  loss 3.2146  lr 3.00e-04  norm 0.82  tok/s 12.3k"
        "  peak 71%  ETA 2:14\033[K");
    hl_progress_line(progress, "a line\twith \033[2J and \x9b");
    const char *text = screen_read(&screen);
    assert_int_equal(strncmp(text, "\r\033[Ka line    with ?[2J and ?\r\n\r 120/5000 ", 42), 0);
    hl_progress_free(progress);
    assert_string_equal(screen_read(&screen), "\r\n");
    screen_close(&screen);
}

/* Whatever the window, the line never reaches its last column. */
static void test_widths(void **state) {
    (void)state;
    plain_environment();
    struct hl_progress_state wide = middle;
    wide.eval_loss = 3.5;
    for (unsigned short columns = 1; columns < 140; columns++) {
        struct screen screen;
        screen_open(&screen, columns);
        struct hl_progress *progress = progress_new(screen.slave);
        hl_progress_show(progress, &wide, false);
        const char *text = screen_read(&screen);
        assert_int_equal(text[0], '\r');
        const char *end = strstr(text, "\033[K");
        assert_non_null(end);
        assert_true(end - text - 1 < columns);
        if (columns >= 60) assert_non_null(strstr(text, "ETA 2:14"));
        hl_progress_free(progress);
        screen_close(&screen);
    }
}

static void test_looks(void **state) {
    (void)state;
    plain_environment();
    unsetenv("NO_COLOR");
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    setenv("COLUMNS", "120", 1);
    struct screen screen;
    screen_open(&screen, 20);
    struct hl_progress *progress = progress_new(screen.slave);
    struct hl_progress_state bad = middle;
    bad.loss = NAN;
    bad.grad_norm = INFINITY;
    bad.peak_share = -1;
    bad.eta_seconds = -1;
    bad.step = 2500;
    hl_progress_show(progress, &bad, false);
    const char *text = screen_read(&screen);
    assert_non_null(strstr(text, "\033[36m━━━"));
    assert_non_null(strstr(text, "\033[1;31mNaN\033[0m"));
    assert_non_null(strstr(text, "\033[1;31mInfinity\033[0m"));
    assert_non_null(strstr(text, "n/a"));
    hl_progress_free(progress);
    screen_close(&screen);
    setenv("TERM", "dumb", 1);
    screen_open(&screen, 80);
    progress = progress_new(screen.slave);
    hl_progress_show(progress, &bad, false);
    assert_string_equal(screen_read(&screen), "");
    hl_progress_free(progress);
    screen_close(&screen);
}

/* Extremes of every number, and no more than one draw in a short time, with the last state shown at
 * the end. */
static void test_extremes(void **state) {
    (void)state;
    plain_environment();
    struct screen screen;
    screen_open(&screen, 200);
    struct hl_progress *progress = progress_new(screen.slave);
    const double values[] = {0,        1e300,     -1e300, 1e-300,    NAN,
                             INFINITY, -INFINITY, 999.5,  9.9999e-5, 123456789};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        double v = values[i];
        struct hl_progress_state s = {INT64_MAX, i % 2 ? INT64_MAX : 0, v, v, v, v, v, v, v};
        hl_progress_show(progress, &s, false);
    }
    struct hl_progress_state last = {7, 7, 1, 1, 1, 1, 1, 0, 1};
    hl_progress_show(progress, &last, true);
    hl_progress_free(progress);
    const char *text = screen_read(&screen);
    assert_non_null(
        strstr(text, "7/7 ========================  loss 1.0000  eval 1.0000  lr 1.00e+00"));
    screen_close(&screen);
}

static void test_allocations(void **state) {
    (void)state;
    plain_environment();
    for (long k = 1; k < 6; k++) {
        struct hl_mem_probe probe;
        hl_mem_probe_init(&probe, k);
        struct hl_progress *progress = NULL;
        int null = open("/dev/null", O_WRONLY);
        if (hl_progress_new(&probe.mem, null, &progress, NULL) == HL_OK) {
            hl_progress_show(progress, &middle, true);
            hl_progress_line(progress, "x");
            hl_progress_free(progress);
        } else assert_int_equal(k, 1);
        close(null);
        assert_int_equal(probe.n_live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipe),     cmocka_unit_test(test_terminal),
        cmocka_unit_test(test_widths),   cmocka_unit_test(test_looks),
        cmocka_unit_test(test_extremes), cmocka_unit_test(test_allocations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
