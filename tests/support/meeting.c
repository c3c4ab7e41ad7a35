/* See meeting.h. */
#include "support/meeting.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/parallel.h"
#include "wires/pool.h"
#include "wires/wires.h"
#include "wires/wrappers.h"

struct host {
    const struct meeting *m;
    void (*body)(struct rank_context *r);
    const struct hl_wire_plugin *plugin;
    struct hl_threads_shared *threads;
    struct hl_pool *pool;
    const char *address;
    struct rank_context *ranks; /* [n_ranks], shared with processes */
    pid_t pids[HL_MAX_RANKS];
};

void *meeting_memory(size_t bytes) {
    void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return m == MAP_FAILED ? NULL : m;
}
void meeting_memory_free(void *memory, size_t bytes) {
    if (memory) (void)munmap(memory, bytes);
}

/* ---- wires ---- */

bool meeting_possible(const char *wire, bool *processes_out) {
    static const char *const known[] = {"threads", "pool"};
    const struct hl_wire_plugin *plugin;
    if (hl_wire_find(wire, &plugin, NULL) != HL_OK || plugin->available(NULL) != HL_OK)
        return false;
    if (processes_out) *processes_out = plugin->processes;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(wire, known[i])) return true;
    return false; /* as mpi: only its own launcher can start the ranks */
}

static enum hl_status open_pool(struct host *h, struct hl_diag *diag) {
    const struct hl_pool_wire_spec spec = {.n_ranks = h->m->n_ranks,
                                           .n_lanes = h->m->n_lanes,
                                           .part_bytes = h->m->part_bytes,
                                           .one_kernel = true,
                                           .dead_after_ns = 60000000000};
    enum hl_status status = hl_pool_wire_new(hl_mem_default(), &spec, &h->pool, diag);
    if (status == HL_OK) h->address = h->pool->address;
    return status;
}

static enum hl_status open_host(struct host *h, struct hl_diag *diag) {
    const struct meeting *m = h->m;
    enum hl_status status = hl_wire_find(m->wire, &h->plugin, diag);
    if (status != HL_OK) return status;
    if (!strcmp(m->wire, "pool")) return open_pool(h, diag);
    return hl_threads_wire_new(hl_mem_default(), m->n_ranks, m->n_lanes, m->part_bytes, &h->threads,
                               diag);
}

static void close_host(struct host *h) {
    hl_threads_wire_free(h->threads);
    hl_pool_close(h->pool);
}

/* As the launcher does. */
static void bury(struct host *h, int rank) {
    if (h->pool) hl_pool_wire_bury(h->pool, rank);
}

static enum hl_status join(struct host *h, struct rank_context *r, struct hl_diag *diag) {
    const struct meeting *m = h->m;
    const struct hl_wire_place place = {.rank = r->rank,
                                        .n_ranks = m->n_ranks,
                                        .n_lanes = m->n_lanes,
                                        .part_bytes = m->part_bytes,
                                        .address = h->address,
                                        .shared = h->threads,
                                        .timeout_ns = 30000000000};
    const struct hl_wrap_world world = {.seed = 7, .process = h->plugin->processes};
    struct hl_mem *mem = m->mem ? m->mem[r->rank] : hl_mem_default();
    enum hl_status status = h->plugin->open(mem, &place, &r->wire, diag);
    if (status != HL_OK) return status;
    status = hl_wire_wrap(mem, m->wrappers, &world, &r->wire, diag);
    if (status != HL_OK) r->wire->ops->close(r->wire);
    return status;
}

/* ---- ranks ---- */

static void live(void *context, int rank) {
    struct host *h = context;
    struct rank_context *r = &h->ranks[rank];
    struct hl_diag diag = {0};
    if (join(h, r, &diag) != HL_OK) {
        ranks_fail(r, "cannot join: %s", diag.text);
        return;
    }
    h->body(r);
    if (!r->closed) r->wire->ops->close(r->wire);
}

static void start_process(struct host *h, int rank) {
    h->pids[rank] = fork();
    if (h->pids[rank] < 0) ranks_fail(&h->ranks[rank], "fork: %m");
    if (h->pids[rank] != 0) return;
    live(h, rank);
    _exit(0);
}

static int rank_of(const struct host *h, pid_t pid) {
    int rank = 0;
    while (rank < h->m->n_ranks && h->pids[rank] != pid) rank++;
    return rank;
}

/* In the order in which they end. */
static unsigned await_processes(struct host *h) {
    unsigned killed = 0;
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, 0)) > 0;) {
        int rank = rank_of(h, pid);
        if (rank == h->m->n_ranks) continue;
        if (WIFSIGNALED(status)) {
            bury(h, rank);
            killed |= 1u << rank;
        } else if (status) ranks_fail(&h->ranks[rank], "its process ended with %d", status);
    }
    return killed;
}

static unsigned run(struct host *h, void *shared) {
    for (int i = 0; i < h->m->n_ranks; i++)
        h->ranks[i] = (struct rank_context){.rank = i, .n_ranks = h->m->n_ranks, .shared = shared};
    if (!h->plugin->processes) return hl_parallel(h->m->n_ranks, live, h), 0;
    (void)fflush(NULL);
    for (int i = 0; i < h->m->n_ranks; i++) start_process(h, i);
    return await_processes(h);
}

bool meeting_run(const struct meeting *m, void (*body)(struct rank_context *r), void *shared,
                 unsigned *killed_out, char why[500]) {
    struct host h = {.m = m, .body = body};
    struct hl_diag diag = {0};
    size_t bytes = (size_t)m->n_ranks * sizeof *h.ranks;
    h.ranks = meeting_memory(bytes);
    *killed_out = 0;
    *why = 0;
    if (!h.ranks || open_host(&h, &diag) != HL_OK) {
        (void)snprintf(why, 500, "no wire '%s': %.400s", m->wire, diag.text);
        meeting_memory_free(h.ranks, bytes);
        return false;
    }
    *killed_out = run(&h, shared);
    close_host(&h);
    for (int i = 0; i < m->n_ranks && !*why; i++)
        if (*h.ranks[i].failure)
            (void)snprintf(why, 500, "rank %d of %d: %s", i, m->n_ranks, h.ranks[i].failure);
    meeting_memory_free(h.ranks, bytes);
    return !*why;
}
