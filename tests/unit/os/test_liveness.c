/* A process runs, is stopped, has ended but nobody has asked, is forgotten. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "os/liveness.h"

static void test_gone(void **state) {
    pid_t pid = fork();
    int status;
    (void)state;
    if (pid == 0) {
        (void)pause();
        _exit(0);
    }
    assert_true(pid > 0);
    assert_false(hl_process_gone(pid));
    assert_false(kill(pid, SIGSTOP));
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_false(hl_process_gone(pid));
    siginfo_t info;
    assert_false(kill(pid, SIGKILL));
    assert_false(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT));
    assert_true(hl_process_gone(pid)); /* nobody has asked how it ended */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(hl_process_gone(pid));
    assert_false(hl_process_gone(getpid()));
}

static void test_space(void **state) {
    (void)state;
    assert_true(hl_process_space() != 0);
    assert_int_equal(hl_process_space(), hl_process_space());
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gone), cmocka_unit_test(test_space)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
