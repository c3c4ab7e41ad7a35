/* A signal handler can only reach a writable global: this file holds the library's only ones. */
#include "os/signal.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
enum { N_WATCHED = sizeof watched / sizeof *watched };

static int pending; /* atomic: ranks that are threads ask while the main one's handler writes */
static struct sigaction before[N_WATCHED];
static bool watching;

/* The handler runs on a stack of its own. It must: while oneDNN (2.6 and 3.6) multiplies small f32
 * matrices, its stack pointer lies inside a heap block, and a signal frame written there would
 * overwrite whatever comes before that block. 64 KiB: a frame with AMX state takes about 11. */
static _Alignas(64) char stack[64 * 1024];
static stack_t stack_before;

static void on_signal(int number) {
    number = number == SIGUSR1 ? SIGTERM : number == SIGUSR2 ? SIGINT : number;
    int first = hl_signal_pending();
    if (first && number == SIGHUP) return;
    if (first && first != SIGHUP) _exit(128 + number);
    __atomic_store_n(&pending, number, __ATOMIC_RELAXED);
}

void hl_signal_watch(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    if (watching) return;
    __atomic_store_n(&pending, 0, __ATOMIC_RELAXED);
    (void)sigaltstack(&own, &stack_before);
    (void)sigemptyset(&action.sa_mask);
    for (int i = 0; i < N_WATCHED; i++) (void)sigaddset(&action.sa_mask, watched[i]);
    for (int i = 0; i < N_WATCHED; i++) {
        (void)sigaction(watched[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) (void)sigaction(watched[i], &action, NULL);
    }
    watching = true;
}

void hl_signal_unwatch(void) {
    if (!watching) return;
    for (int i = 0; i < N_WATCHED; i++) (void)sigaction(watched[i], &before[i], NULL);
    (void)sigaltstack(&stack_before, NULL);
    __atomic_store_n(&pending, 0, __ATOMIC_RELAXED);
    watching = false;
}

void hl_signal_kill_self(void) {
    (void)raise(SIGKILL);
    _exit(137);
}

void hl_signal_raise(int number) { (void)raise(number); }

void hl_signal_avoid(void) {
    sigset_t set;
    (void)sigemptyset(&set);
    for (int i = 0; i < N_WATCHED; i++) (void)sigaddset(&set, watched[i]);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void hl_signal_ignore_pipe(void) { (void)signal(SIGPIPE, SIG_IGN); }

int hl_signal_pending(void) { return __atomic_load_n(&pending, __ATOMIC_RELAXED); }
