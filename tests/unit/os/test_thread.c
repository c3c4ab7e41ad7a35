/* A helper thread takes no signals, shares a lock, and ends; memory that is short is told. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "os/futex.h"
#include "os/thread.h"

struct counter {
    struct hl_mutex *lock;
    int n, blocked;
};

static void count(void *context) {
    struct counter *c = context;
    sigset_t now;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (int i = 0; i < 10000; i++) {
        hl_mutex_lock(c->lock);
        c->n++;
        c->blocked = sigismember(&now, SIGTERM) && sigismember(&now, SIGINT);
        hl_mutex_unlock(c->lock);
    }
}

static void test_lock(void **state) {
    (void)state;
    struct counter c = {.lock = hl_mutex_new(hl_mem_default())};
    struct hl_thread *helpers[3];
    struct hl_diag diag = {0};
    for (int i = 0; i < 3; i++)
        assert_int_equal(hl_thread_start(hl_mem_default(), count, &c, &helpers[i], &diag), HL_OK);
    count(&c);
    for (int i = 0; i < 3; i++) hl_thread_join(helpers[i]);
    hl_thread_join(NULL);
    assert_int_equal(c.n, 40000);
    c.blocked = 0;
    assert_int_equal(hl_thread_start(hl_mem_default(), count, &c, &helpers[0], &diag), HL_OK);
    hl_thread_join(helpers[0]);
    assert_true(c.blocked);
    assert_true(hl_mutex_try(c.lock));
    hl_mutex_unlock(c.lock);
    hl_mutex_free(c.lock);
    hl_mutex_free(NULL);
}

static void test_memory_short(void **state) {
    (void)state;
    struct hl_mem_probe probe;
    struct hl_thread *t;
    struct hl_diag diag = {0};
    hl_mem_probe_init(&probe, 1);
    assert_null(hl_mutex_new(&probe.mem));
    hl_mem_probe_init(&probe, 1);
    assert_int_equal(hl_thread_start(&probe.mem, count, NULL, &t, &diag), HL_E_MEMORY);
    assert_int_equal(probe.n_live, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lock),
        cmocka_unit_test(test_memory_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
