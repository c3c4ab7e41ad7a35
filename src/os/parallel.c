/* Fork and join over pthreads. See parallel.h. */
#include "os/parallel.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>

enum { MOST = 256 };

struct part {
    void (*work)(void *context, int i);
    void *context;
    int i;
    bool started;
    pthread_t thread;
};

static void *run_part(void *argument) {
    struct part *part = argument;
    part->work(part->context, part->i);
    return NULL;
}

void hl_parallel(int n, void (*work)(void *context, int i), void *context) {
    assert(n <= MOST);
    struct part parts[MOST];
    for (int i = 1; i < n; i++) {
        parts[i] = (struct part){.work = work, .context = context, .i = i};
        parts[i].started = !pthread_create(&parts[i].thread, NULL, run_part, &parts[i]);
    }
    if (n > 0) work(context, 0);
    for (int i = 1; i < n; i++) {
        if (parts[i].started) pthread_join(parts[i].thread, NULL);
        else work(context, i);
    }
}
