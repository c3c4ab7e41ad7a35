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

/* A terminal or a session that goes sends SIGHUP twice, or beside SIGTERM in either order: none of
 * these is a second wish to stop, so the child lives on to its own exit status. */
static void test_hangup(void **state) {
    (void)state;
    hl_signal_watch();
    assert_int_equal(raise(SIGHUP), 0);
    assert_int_equal(raise(SIGHUP), 0);
    assert_int_equal(hl_signal_pending(), SIGHUP);
    assert_int_equal(raise(SIGTERM), 0);
    assert_int_equal(hl_signal_pending(), SIGTERM);
    assert_int_equal(raise(SIGHUP), 0);
    assert_int_equal(hl_signal_pending(), SIGTERM);
    hl_signal_unwatch();
    assert_int_equal(status_after(SIGHUP, SIGHUP), 1);
    assert_int_equal(status_after(SIGTERM, SIGHUP), 1);
    assert_int_equal(status_after(SIGHUP, SIGTERM), 1);
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

/* Products of the library leave no room for a frame where the stack pointer is. */
static void test_own_stack(void **state) {
    (void)state;
    stack_t before, during, after;
    struct sigaction action;
    assert_int_equal(sigaltstack(NULL, &before), 0);
    hl_signal_watch();
    assert_int_equal(sigaltstack(NULL, &during), 0);
    assert_int_equal(during.ss_flags & SS_DISABLE, 0);
    assert_true(during.ss_size >= 32 * 1024);
    assert_int_equal(sigaction(SIGINT, NULL, &action), 0);
    assert_true(action.sa_flags & SA_ONSTACK);
    hl_signal_unwatch();
    assert_int_equal(sigaltstack(NULL, &after), 0);
    assert_int_equal(after.ss_flags, before.ss_flags);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first), cmocka_unit_test(test_second), cmocka_unit_test(test_ignored),
        cmocka_unit_test(test_hangup), cmocka_unit_test(test_own_stack)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
