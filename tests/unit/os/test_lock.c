/* A lock has one holder, tells who, ends with its holder, and leaves no file behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/lock.h"

static char folder[64], path[96];

static int begin(void **state) {
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/halley-test-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    (void)snprintf(path, sizeof path, "%s/.lock", folder);
    return 0;
}

static int end(void **state) {
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static void test_one_holder(void **state) {
    (void)state;
    struct hl_lock lock, other;
    long holder = -1;
    assert_int_equal(hl_lock_take(&lock, path, &holder), HL_OK);
    assert_true(lock.file >= 0);
    assert_int_equal(hl_lock_take(&other, path, &holder), HL_E_AGAIN);
    assert_int_equal(other.file, -1);
    assert_int_equal(holder, getpid());
    hl_lock_release(&other); /* not held: nothing happens */
    assert_int_equal(access(path, F_OK), 0);
    hl_lock_release(&lock);
    hl_lock_release(&lock);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(hl_lock_take(&other, path, &holder), HL_OK);
    hl_lock_release(&other);
}

/* Holds the lock in a process of its own until it is killed. */
static pid_t start_holder(void) {
    int pipes[2];
    char ready = 0;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct hl_lock lock;
        long holder;
        if (hl_lock_take(&lock, path, &holder) != HL_OK || write(pipes[1], "x", 1) != 1) _exit(1);
        for (;;) (void)pause();
    }
    assert_int_equal(read(pipes[0], &ready, 1), 1);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
    return child;
}

static void test_ends_with_its_holder(void **state) {
    (void)state;
    struct hl_lock lock;
    long holder = -1;
    pid_t child = start_holder();
    assert_int_equal(hl_lock_take(&lock, path, &holder), HL_E_AGAIN);
    assert_int_equal(holder, child);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(access(path, F_OK), 0); /* what it left is no obstacle */
    assert_int_equal(hl_lock_take(&lock, path, &holder), HL_OK);
    hl_lock_release(&lock);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_nowhere(void **state) {
    (void)state;
    struct hl_lock lock;
    long holder = -1;
    assert_int_equal(hl_lock_take(&lock, "/proc/none/.lock", &holder), HL_END);
    assert_int_equal(lock.file, -1);
    hl_lock_release(&lock);
}

/* The folder was moved away and another made in its place: the other's file stays. */
static void test_other_file_stays(void **state) {
    (void)state;
    struct hl_lock lock, other;
    long holder = -1;
    assert_int_equal(hl_lock_take(&lock, path, &holder), HL_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(hl_lock_take(&other, path, &holder), HL_OK);
    hl_lock_release(&lock);
    assert_int_equal(access(path, F_OK), 0);
    hl_lock_release(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_holder, begin, end),
        cmocka_unit_test_setup_teardown(test_ends_with_its_holder, begin, end),
        cmocka_unit_test_setup_teardown(test_nowhere, begin, end),
        cmocka_unit_test_setup_teardown(test_other_file_stays, begin, end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
