/* The first signal is noted; the second ends the process at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/signal.h"

static void test_first(void **state) {
    (void)state;
    assert_int_equal(hl_signal_pending(), 0);
    hl_signal_watch();
    hl_signal_watch();
    assert_int_equal(raise(SIGTERM), 0);
    assert_int_equal(hl_signal_pending(), SIGTERM);
    hl_signal_unwatch();
    hl_signal_unwatch();
    assert_int_equal(hl_signal_pending(), 0);
    hl_signal_watch();
    assert_int_equal(hl_signal_pending(), 0);
    assert_int_equal(raise(SIGINT), 0);
    assert_int_equal(hl_signal_pending(), SIGINT);
    hl_signal_unwatch();
}

static int status_after(int first, int second) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        hl_signal_watch();
        (void)raise(first);
        (void)raise(second);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_second(void **state) {
    (void)state;
    assert_int_equal(status_after(SIGINT, SIGINT), 130);
    assert_int_equal(status_after(SIGTERM, SIGTERM), 143);
    assert_int_equal(status_after(SIGTERM, SIGINT), 130);
}

/* nohup: what was ignored stays ignored. */
static void test_ignored(void **state) {
    (void)state;
    void (*old)(int) = signal(SIGINT, SIG_IGN);
    hl_signal_watch();
    assert_int_equal(raise(SIGINT), 0);
    assert_int_equal(hl_signal_pending(), 0);
    hl_signal_unwatch();
    (void)signal(SIGINT, old);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_first), cmocka_unit_test(test_second), cmocka_unit_test(test_ignored)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
