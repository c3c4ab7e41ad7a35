/* Over pthreads. See thread.h. */
#include "os/thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

struct hl_thread {
    struct hl_mem *mem;
    pthread_t thread;
    void (*work)(void *context);
    void *context;
};

static void *run(void *argument) {
    struct hl_thread *t = argument;
    t->work(t->context);
    return NULL;
}

enum hl_status hl_thread_start(struct hl_mem *mem, void (*work)(void *context), void *context,
                               struct hl_thread **out, struct hl_diag *diag) {
    struct hl_thread *t = hl_alloc(mem, 1, sizeof *t);
    if (!t) return hl_fail_memory(diag, sizeof *t, "a thread");
    *t = (struct hl_thread){.mem = mem, .work = work, .context = context};
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&t->thread, NULL, run, t);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        hl_free(mem, t);
        errno = error;
        return hl_fail(diag, HL_E_IO, "the system gives no further thread: %m; see 'ulimit -u'");
    }
    *out = t;
    return HL_OK;
}

void hl_thread_join(struct hl_thread *t) {
    if (!t) return;
    (void)pthread_join(t->thread, NULL);
    hl_free(t->mem, t);
}

struct hl_mutex {
    struct hl_mem *mem;
    pthread_mutex_t mutex;
};

struct hl_mutex *hl_mutex_new(struct hl_mem *mem) {
    struct hl_mutex *m = hl_alloc(mem, 1, sizeof *m);
    if (!m) return NULL;
    m->mem = mem;
    (void)pthread_mutex_init(&m->mutex, NULL);
    return m;
}

void hl_mutex_free(struct hl_mutex *m) {
    if (!m) return;
    (void)pthread_mutex_destroy(&m->mutex);
    hl_free(m->mem, m);
}

void hl_mutex_lock(struct hl_mutex *m) { (void)pthread_mutex_lock(&m->mutex); }
bool hl_mutex_try(struct hl_mutex *m) { return pthread_mutex_trylock(&m->mutex) == 0; }
void hl_mutex_unlock(struct hl_mutex *m) { (void)pthread_mutex_unlock(&m->mutex); }
