/* See meeting.h. */
#include "support/meeting.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/net.h"
#include "os/parallel.h"
#include "wires/pool.h"
#include "wires/sim.h"
#include "wires/wires.h"
#include "wires/wrappers.h"

struct host {
    const struct meeting *m;
    void (*body)(struct rank_context *r);
    const struct kind *kind;
    struct hl_threads_shared *threads; /* that of its kind; the others NULL */
    struct hl_pool *pool;
    struct hl_sim *sim;
    char address[HL_PATH_CAPACITY];
    int port_socket;            /* keeps the address's port; 0: none */
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

static enum hl_status open_threads(struct host *h, struct hl_diag *diag) {
    const struct meeting *m = h->m;
    return hl_threads_wire_new(hl_mem_default(), m->n_ranks, m->n_lanes, m->part_bytes, &h->threads,
                               diag);
}

static enum hl_status open_pool(struct host *h, struct hl_diag *diag) {
    const struct hl_pool_wire_spec spec = {.n_ranks = h->m->n_ranks,
                                           .n_lanes = h->m->n_lanes,
                                           .part_bytes = h->m->part_bytes,
                                           .one_kernel = true,
                                           .dead_after_ns = 60000000000};
    enum hl_status status = hl_pool_wire_new(hl_mem_default(), &spec, &h->pool, diag);
    if (status == HL_OK) (void)snprintf(h->address, sizeof h->address, "%s", h->pool->address);
    return status;
}

static enum hl_status open_wan(struct host *h, struct hl_diag *diag) {
    struct hl_net_address at = {.ip = "127.0.0.1"};
    h->port_socket = hl_net_reserve(&at, diag);
    if (h->port_socket < 0) return HL_E_IO;
    (void)snprintf(h->address, sizeof h->address, "127.0.0.1:%d", at.port);
    return HL_OK;
}

static enum hl_status open_pool_wan(struct host *h, struct hl_diag *diag) {
    char meeting[64];
    enum hl_status status = open_wan(h, diag);
    (void)snprintf(meeting, sizeof meeting, "+%.60s", h->address);
    if (status == HL_OK) status = open_pool(h, diag);
    if (status == HL_OK) (void)strncat(h->address, meeting, sizeof h->address - 200);
    return status;
}

static enum hl_status open_sim(struct host *h, struct hl_diag *diag) {
    const struct meeting *m = h->m;
    const struct hl_sim_link link = {.latency_ns = 20000, .bytes_per_s = 1e8};
    return hl_sim_new(hl_mem_default(), m->n_ranks, m->n_lanes, m->part_bytes, &link, &h->sim,
                      diag);
}

static const struct kind {
    const char *name;
    bool processes;
    enum hl_status (*open)(struct host *h, struct hl_diag *diag);
} kinds[] = {{"threads", false, open_threads},
             {"pool", true, open_pool},
             {"wan", true, open_wan},
             {"pool+wan", true, open_pool_wan},
             {"sim", false, open_sim}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

const char *const *meeting_wires(void) {
    static const char *names[N_KINDS + 1];
    int n = 0;
    for (int i = 0; i < N_KINDS; i++) {
        const struct hl_wire_plugin *plugin;
        bool listed = hl_wire_find(kinds[i].name, &plugin, NULL) == HL_OK;
        if (!listed || plugin->available(NULL) == HL_OK) names[n++] = kinds[i].name;
    }
    names[n] = NULL;
    return names;
}

bool meeting_is_slow(const char *wire) { return strstr(wire, "wan") != NULL; }
bool meeting_is_elsewhere(const char *wire) { return !strcmp(wire, "mpi"); }

static enum hl_status open_host(struct host *h, struct hl_diag *diag) {
    for (int i = 0; i < N_KINDS; i++)
        if (!strcmp(h->m->wire, kinds[i].name)) h->kind = &kinds[i];
    if (!h->kind) return hl_fail(diag, HL_E_USER, "tests/support/meeting.c does not know it");
    return h->kind->open(h, diag);
}

static void close_host(struct host *h) {
    hl_threads_wire_free(h->threads);
    hl_pool_close(h->pool);
    hl_sim_free(h->sim);
    if (h->port_socket > 0) (void)close(h->port_socket);
}

/* As the launcher does. */
static void bury(struct host *h, int rank) {
    if (h->pool) hl_pool_wire_bury(h->pool, rank);
}

static enum hl_status open_end(struct host *h, struct hl_mem *mem, struct rank_context *r,
                               struct hl_diag *diag) {
    const struct meeting *m = h->m;
    const struct hl_wire_plugin *plugin;
    const struct hl_wire_place place = {.rank = r->rank,
                                        .n_ranks = m->n_ranks,
                                        .n_lanes = m->n_lanes,
                                        .part_bytes = m->part_bytes,
                                        .address = h->address,
                                        .token = "a token of the tests",
                                        .shared = h->threads,
                                        .timeout_ns = 30000000000};
    if (h->sim) return hl_sim_open(mem, h->sim, r->rank, &r->wire, diag);
    enum hl_status status = hl_wire_find(m->wire, &plugin, diag);
    return status == HL_OK ? plugin->open(mem, &place, &r->wire, diag) : status;
}

static enum hl_status join(struct host *h, struct rank_context *r, struct hl_diag *diag) {
    const struct hl_wrap_world world = {.seed = 7, .process = h->kind->processes};
    struct hl_mem *mem = h->m->mem ? h->m->mem[r->rank] : hl_mem_default();
    enum hl_status status = open_end(h, mem, r, diag);
    if (status != HL_OK) return status;
    status = hl_wire_wrap(mem, h->m->wrappers, &world, &r->wire, diag);
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
    if (!h->kind->processes) return hl_parallel(h->m->n_ranks, live, h), 0;
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
