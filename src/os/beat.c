/* One thread that sleeps on a condition with a deadline. See beat.h. */
#include "os/beat.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include "os/clock.h"

struct hl_beat {
    struct hl_mem *mem;
    int64_t period_ns;
    void (*beat)(void *context);
    void *context;
    pthread_t thread;
    pthread_mutex_t mutex; /* of stop */
    pthread_cond_t wake;
    bool stop;
};

static void *run(void *argument) {
    struct hl_beat *b = argument;
    int64_t next = hl_clock_ns() + b->period_ns;
    pthread_mutex_lock(&b->mutex);
    while (!b->stop) {
        const struct timespec at = {.tv_sec = next / 1000000000, .tv_nsec = next % 1000000000};
        if (pthread_cond_timedwait(&b->wake, &b->mutex, &at) != ETIMEDOUT) continue;
        pthread_mutex_unlock(&b->mutex);
        b->beat(b->context);
        next += b->period_ns;
        int64_t now = hl_clock_ns();
        if (next < now) next = now + b->period_ns; /* it was stopped: beats are not made up for */
        pthread_mutex_lock(&b->mutex);
    }
    pthread_mutex_unlock(&b->mutex);
    return NULL;
}

/* Signals go to the threads that know them. */
static int start_quietly(struct hl_beat *b) {
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&b->thread, NULL, run, b);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

enum hl_status hl_beat_start(struct hl_mem *mem, int64_t period_ns, void (*beat)(void *context),
                             void *context, struct hl_beat **out, struct hl_diag *diag) {
    struct hl_beat *b = hl_alloc(mem, 1, sizeof *b);
    pthread_condattr_t monotonic;
    if (!b) return hl_fail_memory(diag, sizeof *b, "a heart");
    b->mem = mem;
    b->period_ns = period_ns;
    b->beat = beat;
    b->context = context;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&b->wake, &monotonic);
    (void)pthread_mutex_init(&b->mutex, NULL);
    (void)pthread_condattr_destroy(&monotonic);
    errno = start_quietly(b);
    if (errno) {
        hl_free(mem, b);
        return hl_fail(diag, HL_E_IO, "cannot start the thread of a heart: %m");
    }
    *out = b;
    return HL_OK;
}

void hl_beat_stop(struct hl_beat *b) {
    if (!b) return;
    pthread_mutex_lock(&b->mutex);
    b->stop = true;
    pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->mutex);
    pthread_join(b->thread, NULL);
    pthread_cond_destroy(&b->wake);
    pthread_mutex_destroy(&b->mutex);
    hl_free(b->mem, b);
}
