/* See processes.h. */
#include "processes.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "wires/wires.h"

struct world {
    struct rank_context *ranks; /* in memory that the processes share */
    pid_t pids[HL_MAX_RANKS];
    bool ended[HL_MAX_RANKS], stopped[HL_MAX_RANKS];
    int n_ranks;
    struct hl_pool *pool;
};

static void live(struct world *w, int rank, void (*body)(struct rank_context *r)) {
    struct rank_context *r = &w->ranks[rank];
    struct hl_diag diag = {0};
    const struct hl_wire_place place = {
        .rank = rank, .n_ranks = w->n_ranks, .address = w->pool->address};
    if (hl_wire_pool.open(hl_mem_default(), &place, &r->wire, &diag) != HL_OK) {
        ranks_fail(r, "open: %s", diag.text);
        _exit(1);
    }
    body(r);
    if (!r->closed) r->wire->ops->close(r->wire);
    _exit(0);
}

static void start(struct world *w, void (*body)(struct rank_context *r), void *shared) {
    size_t bytes = HL_MAX_RANKS * sizeof *w->ranks;
    w->ranks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(w->ranks != MAP_FAILED);
    (void)fflush(NULL);
    for (int r = 0; r < w->n_ranks; r++) {
        w->ranks[r] = (struct rank_context){.rank = r, .n_ranks = w->n_ranks, .shared = shared};
        w->pids[r] = fork();
        assert_true(w->pids[r] >= 0);
        if (w->pids[r] == 0) live(w, r, body);
    }
}

static int rank_of(const struct world *w, pid_t pid) {
    for (int r = 0; r < w->n_ranks; r++)
        if (w->pids[r] == pid) return r;
    return -1;
}

static bool only_stopped_ones_left(const struct world *w) {
    for (int r = 0; r < w->n_ranks; r++)
        if (!w->ended[r] && !w->stopped[r]) return false;
    return true;
}

static void watch(struct world *w, unsigned may_die) {
    for (int left = w->n_ranks; left > 0;) {
        int status;
        int r = rank_of(w, waitpid(-1, &status, WUNTRACED));
        assert_true(r >= 0);
        if (WIFSTOPPED(status)) w->stopped[r] = true;
        else {
            w->ended[r] = true;
            left--;
            if (WIFSIGNALED(status)) hl_pool_wire_bury(w->pool, r);
            if (WIFSIGNALED(status) && !(may_die & 1u << r))
                ranks_fail(&w->ranks[r], "ended by signal %d", WTERMSIG(status));
        }
        for (int s = 0; left && only_stopped_ones_left(w) && s < w->n_ranks; s++)
            if (w->stopped[s]) (void)kill(w->pids[s], SIGKILL);
    }
}

static void finish(struct world *w) {
    char failure[sizeof w->ranks->failure] = "";
    int rank = -1;
    for (int r = 0; r < w->n_ranks && rank < 0; r++)
        if (*w->ranks[r].failure) rank = r;
    if (rank >= 0) (void)snprintf(failure, sizeof failure, "%s", w->ranks[rank].failure);
    (void)munmap(w->ranks, HL_MAX_RANKS * sizeof *w->ranks);
    if (rank >= 0) fail_msg("rank %d of %d: %s", rank, w->n_ranks, failure);
}

void processes_run(const struct hl_pool_wire_spec *spec, void (*body)(struct rank_context *r),
                   void *shared, unsigned may_die) {
    struct world w = {.n_ranks = spec->n_ranks};
    struct hl_diag diag = {0};
    if (hl_pool_wire_new(hl_mem_default(), spec, &w.pool, &diag) != HL_OK)
        fail_msg("%s", diag.text);
    start(&w, body, shared);
    watch(&w, may_die);
    hl_pool_close(w.pool);
    finish(&w);
}

void processes_run_on(struct hl_pool *pool, void (*body)(struct rank_context *r), void *shared) {
    struct world w = {.n_ranks = (int)pool->head.job.n_ranks, .pool = pool};
    start(&w, body, shared);
    watch(&w, 0);
    finish(&w);
}
