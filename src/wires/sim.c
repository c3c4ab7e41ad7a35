/* A conservative simulation: who is furthest behind runs, and nothing that it does can be seen
 * before its own clock plus the latency, so no rank ever sees its past change. See sim.h. */
#include "wires/sim.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "os/futex.h"

enum { SLOTS = 4 };
static const int64_t NEVER = INT64_MAX, LOOK_NS = 100000000;

/* A part, and when each reader may see it and its sender that the reader is done. */
struct slot {
    size_t bytes;
    int64_t seen_ns[HL_MAX_RANKS], free_ns[HL_MAX_RANKS];
};
struct stream {
    uint64_t sent, released[HL_MAX_RANKS];
    struct slot slots[SLOTS];
};
struct rank {
    int64_t now_ns, wake_ns; /* wake: when it wants to run; NEVER: it has closed */
    int64_t waited_ns;       /* its clock when the last wait returned */
    bool listens;            /* it sleeps, and an event wakes it */
    int64_t link_free_ns;
    struct hl_peer self;
    int64_t told_ns; /* when others may know that it left or failed; 0: it did not */
};
struct hl_sim {
    struct hl_mem *mem;
    struct hl_sim_link link;
    int n_ranks, n_lanes;
    size_t part_bytes;
    uint32_t turn; /* the rank that runs */
    struct rank ranks[HL_MAX_RANKS];
    struct stream *streams; /* [lane][from][to; the diagonal is to everyone] */
    char *parts;            /* [streams][SLOTS][part_bytes] */
};
struct end {
    struct hl_wire wire; /* first */
    struct hl_sim *sim;
    struct hl_mem *mem;
};

/* ---- whose turn it is ---- */

/* A rank's calls begin here. */
static struct hl_sim *enter(const struct hl_wire *wire) {
    struct hl_sim *s = ((const struct end *)(const void *)wire)->sim;
    uint32_t turn;
    while ((turn = __atomic_load_n(&s->turn, __ATOMIC_ACQUIRE)) != (uint32_t)wire->rank)
        hl_futex_wait(&s->turn, turn, LOOK_NS);
    return s;
}

static void next_turn(struct hl_sim *s) {
    int first = 0;
    for (int r = 1; r < s->n_ranks; r++)
        if (s->ranks[r].wake_ns < s->ranks[first].wake_ns) first = r;
    __atomic_store_n(&s->turn, (uint32_t)first, __ATOMIC_RELEASE);
    hl_futex_wake(&s->turn);
}

static void sleep_until(const struct hl_wire *wire, struct hl_sim *s, int64_t ns, bool listens) {
    struct rank *me = &s->ranks[wire->rank];
    me->wake_ns = ns;
    me->listens = listens;
    next_turn(s);
    (void)enter(wire);
    me->listens = false;
    me->now_ns = me->wake_ns;
}

/* At that time something happens that this rank may wait for. */
static void happens(struct hl_sim *s, int rank, int64_t ns) {
    struct rank *r = &s->ranks[rank];
    if (r->listens && ns < r->wake_ns) r->wake_ns = ns;
}

/* ---- streams ---- */

static size_t index_of(const struct hl_sim *s, struct hl_stream t) {
    size_t n = (size_t)s->n_ranks, to = (size_t)(t.to == HL_EVERYONE ? t.from : t.to);
    return ((size_t)t.lane * n + (size_t)t.from) * n + to;
}
static bool reads(struct hl_stream t, int rank) {
    return rank != t.from && (t.to == HL_EVERYONE || t.to == rank);
}
static char *bytes_of(const struct hl_sim *s, struct hl_stream t, uint64_t part) {
    return s->parts + (index_of(s, t) * SLOTS + part % SLOTS) * s->part_bytes;
}

/* What others did is known a latency later. */
static bool knows(const struct hl_sim *s, int rank, int other) {
    int64_t told = s->ranks[other].told_ns;
    return told && told <= s->ranks[rank].now_ns;
}

static enum hl_status waits_for(const struct hl_sim *s, struct hl_wire *wire, int peer) {
    for (int p = 0; p < s->n_ranks && wire->failed_rank < 0; p++)
        if (knows(s, wire->rank, p) && (p == peer || s->ranks[p].self.state == HL_PEER_FAILED))
            wire->failed_rank = p;
    return wire->failed_rank < 0 ? HL_PENDING : HL_E_PEER;
}

static enum hl_status reserve(struct hl_wire *wire, struct hl_stream t, void **room_out) {
    struct hl_sim *s = enter(wire);
    struct stream *stream = &s->streams[index_of(s, t)];
    const struct slot *slot = &stream->slots[stream->sent % SLOTS];
    for (int r = 0; r < s->n_ranks; r++)
        if (reads(t, r) && slot->free_ns[r] > s->ranks[wire->rank].now_ns)
            return waits_for(s, wire, r);
    *room_out = bytes_of(s, t, stream->sent);
    return HL_OK;
}

static enum hl_status commit(struct hl_wire *wire, struct hl_stream t, size_t bytes) {
    struct hl_sim *s = enter(wire);
    struct stream *stream = &s->streams[index_of(s, t)];
    struct slot *slot = &stream->slots[stream->sent++ % SLOTS];
    struct rank *me = &s->ranks[wire->rank];
    assert(bytes <= wire->part_bytes);
    slot->bytes = bytes;
    if (me->link_free_ns < me->now_ns) me->link_free_ns = me->now_ns;
    for (int j = 1; j < s->n_ranks; j++) { /* the next rank first, so that all are first once */
        int r = (wire->rank + j) % s->n_ranks;
        if (!reads(t, r)) continue;
        me->link_free_ns += (int64_t)((double)bytes / s->link.bytes_per_s * 1e9);
        slot->seen_ns[r] = me->link_free_ns + s->link.latency_ns;
        slot->free_ns[r] = NEVER;
        happens(s, r, slot->seen_ns[r]);
    }
    return HL_OK;
}

static enum hl_status view(struct hl_wire *wire, struct hl_stream t, const void **data_out,
                           size_t *bytes_out) {
    struct hl_sim *s = enter(wire);
    struct stream *stream = &s->streams[index_of(s, t)];
    uint64_t part = stream->released[wire->rank];
    const struct slot *slot = &stream->slots[part % SLOTS];
    if (part == stream->sent) return waits_for(s, wire, t.from);
    if (slot->seen_ns[wire->rank] > s->ranks[wire->rank].now_ns) return HL_PENDING;
    *data_out = bytes_of(s, t, part);
    *bytes_out = slot->bytes;
    return HL_OK;
}

static enum hl_status release(struct hl_wire *wire, struct hl_stream t) {
    struct hl_sim *s = enter(wire);
    struct stream *stream = &s->streams[index_of(s, t)];
    uint64_t part = stream->released[wire->rank]++;
    int64_t free_ns = s->ranks[wire->rank].now_ns + s->link.latency_ns;
    stream->slots[part % SLOTS].free_ns[wire->rank] = free_ns;
    happens(s, t.from, free_ns);
    return HL_OK;
}

/* ---- events ---- */

static void sooner(int64_t *best, int64_t ns, int64_t after) {
    if (ns > after && ns < *best) *best = ns;
}

/* Parts that this rank will see, or room that it will get. */
static void events_of(const struct hl_sim *s, int rank, struct hl_stream t, int64_t after,
                      int64_t *best) {
    const struct stream *stream = &s->streams[index_of(s, t)];
    for (int i = 0; i < SLOTS; i++)
        for (int r = 0; r < s->n_ranks; r++) {
            if (!reads(t, r)) continue;
            if (r == rank) sooner(best, stream->slots[i].seen_ns[r], after);
            if (t.from == rank) sooner(best, stream->slots[i].free_ns[r], after);
        }
}

static int64_t next_event(const struct hl_sim *s, int rank) {
    int64_t after = s->ranks[rank].waited_ns, best = NEVER;
    for (int lane = 0; lane < s->n_lanes; lane++)
        for (int p = 0; p < s->n_ranks; p++) {
            events_of(s, rank, (struct hl_stream){lane, p, HL_EVERYONE}, after, &best);
            if (p == rank) continue;
            events_of(s, rank, (struct hl_stream){lane, p, rank}, after, &best);
            events_of(s, rank, (struct hl_stream){lane, rank, p}, after, &best);
        }
    for (int p = 0; p < s->n_ranks; p++)
        if (s->ranks[p].told_ns) sooner(&best, s->ranks[p].told_ns, after);
    return best;
}

static enum hl_status wait(struct hl_wire *wire, int64_t timeout_ns) {
    struct hl_sim *s = enter(wire);
    struct rank *me = &s->ranks[wire->rank];
    int64_t wake = next_event(s, wire->rank);
    if (timeout_ns < wake - me->now_ns) wake = me->now_ns + timeout_ns;
    sleep_until(wire, s, wake < me->now_ns ? me->now_ns : wake, true);
    me->waited_ns = me->now_ns;
    return HL_OK;
}

int64_t hl_sim_now_ns(const struct hl_wire *wire) { return enter(wire)->ranks[wire->rank].now_ns; }

void hl_sim_compute(struct hl_wire *wire, int64_t ns) {
    struct hl_sim *s = enter(wire);
    sleep_until(wire, s, s->ranks[wire->rank].now_ns + ns, false);
}

/* ---- peers ---- */

static void tell(struct hl_wire *wire, enum hl_phase phase, int64_t step) {
    struct hl_peer *self = &enter(wire)->ranks[wire->rank].self;
    self->phase = phase;
    self->step = step;
    self->waits = wire->waits;
    self->waits_for = wire->waits_for;
}

static void peer(struct hl_wire *wire, int rank, struct hl_peer *out) {
    const struct hl_sim *s = enter(wire);
    *out = s->ranks[rank].self;
    if (rank != wire->rank && !knows(s, wire->rank, rank)) out->state = HL_PEER_ALIVE;
}

static void say_the_last(struct hl_sim *s, int rank, enum hl_peer_state state) {
    struct rank *me = &s->ranks[rank];
    if (me->told_ns) return;
    me->self.state = state;
    me->told_ns = me->now_ns + s->link.latency_ns;
    for (int p = 0; p < s->n_ranks; p++) happens(s, p, me->told_ns);
}

static void give_up(struct hl_wire *wire, const char *why) {
    struct hl_sim *s = enter(wire);
    struct hl_peer *self = &s->ranks[wire->rank].self;
    (void)snprintf(self->why, sizeof self->why, "%s", why);
    say_the_last(s, wire->rank, HL_PEER_FAILED);
}

static void close_sim(struct hl_wire *wire) {
    struct hl_sim *s = enter(wire);
    say_the_last(s, wire->rank, HL_PEER_LEFT);
    s->ranks[wire->rank].wake_ns = NEVER;
    next_turn(s);
    hl_free(((struct end *)(void *)wire)->mem, wire);
}

static const struct hl_wire_ops ops = {.reserve = reserve,
                                       .commit = commit,
                                       .view = view,
                                       .release = release,
                                       .wait = wait,
                                       .tell = tell,
                                       .peer = peer,
                                       .give_up = give_up,
                                       .close = close_sim};

/* ---- life ---- */

enum hl_status hl_sim_new(struct hl_mem *mem, int n_ranks, int n_lanes, size_t part_bytes,
                          const struct hl_sim_link *link, struct hl_sim **out,
                          struct hl_diag *diag) {
    size_t n = (size_t)n_lanes * (size_t)n_ranks * (size_t)n_ranks;
    assert(n_ranks <= HL_MAX_RANKS && link->latency_ns > 0 && link->bytes_per_s > 0);
    struct hl_sim *s = hl_alloc(mem, 1, sizeof *s);
    if (!s) return hl_fail_memory(diag, sizeof *s, "a simulated network");
    *s = (struct hl_sim){.mem = mem,
                         .link = *link,
                         .n_ranks = n_ranks,
                         .n_lanes = n_lanes,
                         .part_bytes = part_bytes,
                         .streams = hl_alloc(mem, n, sizeof *s->streams),
                         .parts = hl_alloc(mem, n * SLOTS, part_bytes)};
    for (int r = 0; r < n_ranks; r++) s->ranks[r].self.state = HL_PEER_ALIVE;
    if (s->streams && s->parts) return *out = s, HL_OK;
    hl_sim_free(s);
    return hl_fail_memory(diag, n * SLOTS * part_bytes, "a simulated network");
}

void hl_sim_free(struct hl_sim *s) {
    if (!s) return;
    hl_free(s->mem, s->streams);
    hl_free(s->mem, s->parts);
    hl_free(s->mem, s);
}

enum hl_status hl_sim_open(struct hl_mem *mem, struct hl_sim *sim, int rank, struct hl_wire **out,
                           struct hl_diag *diag) {
    struct end *e = hl_alloc(mem, 1, sizeof *e);
    if (!e) return hl_fail_memory(diag, sizeof *e, "a simulated network");
    *e = (struct end){.wire = {.ops = &ops,
                               .name = "sim",
                               .rank = rank,
                               .n_ranks = sim->n_ranks,
                               .n_lanes = sim->n_lanes,
                               .part_bytes = sim->part_bytes,
                               .failed_rank = -1},
                      .sim = sim,
                      .mem = mem};
    *out = &e->wire;
    return HL_OK;
}
