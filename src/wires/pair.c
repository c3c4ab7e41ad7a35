/* One wire of two. Streams keep to their lane's wire; what is known of peers, and sleep, are
 * shared. See pair.h. */
#include "wires/pair.h"

#include <assert.h>
#include <stdio.h>

#include "os/clock.h"

enum { PATHS = 2 };
/* Naps while both ways are awaited double from SHORT to LONG; on one way alone, to ALONE. A way on
 * which nothing is awaited is looked at every LOOK, for peers that end. */
static const int64_t SHORT_NS = 20000, LONG_NS = 500000, ALONE_NS = 8000000, LOOK_NS = 1000000;

struct pair {
    struct hl_wire wire; /* first */
    struct hl_wire *path[PATHS];
    struct hl_mem *mem;
    bool refused[PATHS]; /* since the last wait */
    int64_t nap_ns, looked_ns[PATHS];
    char name[40];
};

static struct pair *pair_of(struct hl_wire *wire) { return (struct pair *)(void *)wire; }

static int path_of(const struct hl_wire *wire, struct hl_stream *s) {
    int lanes = wire->n_lanes / PATHS, path = s->lane / lanes;
    s->lane %= lanes;
    return path;
}

/* How much a path has to say against the rank that it names. */
static int blame(struct pair *p, int path) {
    struct hl_wire *w = p->path[path];
    struct hl_peer peer;
    if (w->failed_rank < 0) return 0;
    w->ops->peer(w, w->failed_rank, &peer);
    return peer.state == HL_PEER_DEAD ? 3 : peer.state == HL_PEER_FAILED ? 2 : 1;
}

/* Whoever left or failed may have done so because of one that died or failed on the other way: look
 * at both before one is named. */
static void note_failed(struct pair *p) {
    if (p->wire.failed_rank >= 0 || !(blame(p, 0) || blame(p, 1))) return;
    for (int i = 0; i < PATHS; i++) (void)p->path[i]->ops->wait(p->path[i], 0);
    p->wire.failed_rank = p->path[blame(p, 1) > blame(p, 0)]->failed_rank;
}

/* A rank that ended on the other way sends nothing here either. */
static enum hl_status note(struct pair *p, int path, enum hl_status status) {
    if (status == HL_OK) p->nap_ns = SHORT_NS;
    if (status == HL_PENDING) p->refused[path] = true;
    if (status == HL_E_PEER) note_failed(p);
    return status == HL_PENDING && p->wire.failed_rank >= 0 ? HL_E_PEER : status;
}

static enum hl_status reserve(struct hl_wire *wire, struct hl_stream s, void **out) {
    struct pair *p = pair_of(wire);
    int i = path_of(wire, &s);
    return note(p, i, p->path[i]->ops->reserve(p->path[i], s, out));
}
static enum hl_status commit(struct hl_wire *wire, struct hl_stream s, size_t bytes) {
    struct pair *p = pair_of(wire);
    int i = path_of(wire, &s);
    return note(p, i, p->path[i]->ops->commit(p->path[i], s, bytes));
}
static enum hl_status view(struct hl_wire *wire, struct hl_stream s, const void **data_out,
                           size_t *bytes_out) {
    struct pair *p = pair_of(wire);
    int i = path_of(wire, &s);
    return note(p, i, p->path[i]->ops->view(p->path[i], s, data_out, bytes_out));
}
static enum hl_status release(struct hl_wire *wire, struct hl_stream s) {
    struct pair *p = pair_of(wire);
    int i = path_of(wire, &s);
    return note(p, i, p->path[i]->ops->release(p->path[i], s));
}

static void sleep_on(struct pair *p, int path, int64_t ns) {
    (void)p->path[path]->ops->wait(p->path[path], ns);
    p->looked_ns[path] = hl_clock_ns();
}

/* On the way that something is awaited on; on both, see pair.h. */
static enum hl_status wait_on_both(struct hl_wire *wire, int64_t timeout_ns) {
    struct pair *p = pair_of(wire);
    bool alone = p->refused[0] != p->refused[1];
    int path = alone && p->refused[1];
    int64_t nap = alone && p->nap_ns < LOOK_NS ? LOOK_NS : p->nap_ns;
    if (nap > timeout_ns) nap = timeout_ns;
    if (!alone || hl_clock_ns() - p->looked_ns[!path] >= LOOK_NS) sleep_on(p, !path, 0);
    sleep_on(p, path, nap);
    p->nap_ns *= 2;
    if (p->nap_ns > (alone ? ALONE_NS : LONG_NS)) p->nap_ns = alone ? ALONE_NS : LONG_NS;
    p->refused[0] = p->refused[1] = false;
    note_failed(p);
    return HL_OK;
}

static void tell(struct hl_wire *wire, enum hl_phase phase, int64_t step) {
    struct pair *p = pair_of(wire);
    for (int i = 0; i < PATHS; i++) {
        p->path[i]->waits = wire->waits;
        p->path[i]->waits_for = wire->waits_for;
        p->path[i]->ops->tell(p->path[i], phase, step);
    }
}

/* The one who knows worse; a rank that said why it failed has said more than its death. */
static void peer(struct hl_wire *wire, int rank, struct hl_peer *out) {
    static const int weight[] = {[HL_PEER_ABSENT] = 0,
                                 [HL_PEER_ALIVE] = 1,
                                 [HL_PEER_LEFT] = 2,
                                 [HL_PEER_DEAD] = 3,
                                 [HL_PEER_FAILED] = 4};
    struct pair *p = pair_of(wire);
    struct hl_peer other;
    p->path[0]->ops->peer(p->path[0], rank, out);
    p->path[1]->ops->peer(p->path[1], rank, &other);
    if (weight[other.state] > weight[out->state]) *out = other;
}

static void give_up(struct hl_wire *wire, const char *why) {
    struct pair *p = pair_of(wire);
    for (int i = 0; i < PATHS; i++) p->path[i]->ops->give_up(p->path[i], why);
}

static void close_both(struct hl_wire *wire) {
    struct pair *p = pair_of(wire);
    for (int i = 0; i < PATHS; i++) p->path[i]->ops->close(p->path[i]);
    hl_free(p->mem, p);
}

static const struct hl_wire_ops ops = {.reserve = reserve,
                                       .commit = commit,
                                       .view = view,
                                       .release = release,
                                       .wait = wait_on_both,
                                       .tell = tell,
                                       .peer = peer,
                                       .give_up = give_up,
                                       .close = close_both};

enum hl_status hl_wire_pair(struct hl_mem *mem, struct hl_wire *first, struct hl_wire *second,
                            struct hl_wire **out, struct hl_diag *diag) {
    struct pair *p = hl_alloc(mem, 1, sizeof *p);
    if (!p) return hl_fail_memory(diag, sizeof *p, "a wire of two");
    assert(first->rank == second->rank && first->n_ranks == second->n_ranks);
    assert(first->n_lanes == second->n_lanes && PATHS * first->n_lanes <= HL_MAX_LANES);
    size_t least = first->part_bytes < second->part_bytes ? first->part_bytes : second->part_bytes;
    *p = (struct pair){.path = {first, second}, .mem = mem, .nap_ns = SHORT_NS};
    (void)snprintf(p->name, sizeof p->name, "%s+%s", first->name, second->name);
    p->wire = (struct hl_wire){.ops = &ops,
                               .name = p->name,
                               .rank = first->rank,
                               .n_ranks = first->n_ranks,
                               .n_lanes = PATHS * first->n_lanes,
                               .n_paths = PATHS,
                               .part_bytes = least,
                               .failed_rank = -1,
                               .slow = first->slow || second->slow};
    *out = &p->wire;
    return HL_OK;
}
