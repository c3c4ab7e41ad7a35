/* Linux futexes, shared between processes. See futex.h. */
#include "os/futex.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct timespec duration(int64_t ns) {
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

void hl_futex_wait(const uint32_t *word, uint32_t seen, int64_t timeout_ns) {
    const struct timespec timeout = duration(timeout_ns);
    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

void hl_futex_wake(const uint32_t *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void hl_sleep_ns(int64_t ns) {
    const struct timespec time = duration(ns);
    (void)nanosleep(&time, NULL);
}

void hl_let_others_run(void) { (void)sched_yield(); }
