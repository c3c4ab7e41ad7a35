/* Streams of parts over shared memory. See ring.h. */
#include "wires/ring.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/futex.h"

enum {
    LINE = sizeof(struct hl_line),
    LINE_WORDS = LINE / sizeof(uint64_t),
    SPINS = 16, /* see `keep_looking` */
    YIELDS = 100,
    WATCH_NS = 1000000, /* several kernels: peers are looked at so often, each look costs */
    PEER_LINES = 8,     /* state, heart, grave, host, why: see `peer_line` */
};
static const int64_t LONGEST_SLEEP_NS = 10000000;

/* ---- a rank's end ---- */

/* What this rank knows of one stream it sends on or reads. */
struct end {
    uint64_t next;     /* sequence number of the next part, from 1 */
    size_t bell, slot; /* where it lies */
    uint64_t acked;    /* sending: all readers have released so many */
    const void *viewed;
    size_t viewed_bytes;
};
struct heart {
    uint64_t beat, seen_at; /* seen_at: beats of one's own heart */
};
struct ring {
    struct hl_wire wire; /* first */
    struct hl_mem *mem;
    struct hl_ring_place at;
    struct hl_ring_layout layout;
    struct end *sends, *reads; /* [n_streams] */
    struct heart hearts[HL_MAX_RANKS];
    bool left[HL_MAX_RANKS], dead[HL_MAX_RANKS]; /* as of the last wait */
    uint32_t seen;                               /* of this rank's bed */
    int64_t idle_since_ns, watched_ns;
    int n_looks;   /* of waits, since something came */
    uint64_t told; /* changes of one's own state line */
    bool came;     /* something, since the last wait */
    bool failed;
    bool fenced; /* the memory is another run's now */
    char host[64];
};

/* ---- where lines and slots lie ---- */

/* A stream's index among those of its lane: the diagonal is "to everyone". */
static size_t stream_index(const struct hl_ring_shape *s, struct hl_stream t) {
    size_t n = (size_t)s->n_ranks, to = (size_t)(t.to == HL_EVERYONE ? t.from : t.to);
    return ((size_t)t.lane * n + (size_t)t.from) * n + to;
}
static size_t n_streams(const struct hl_ring_shape *s) {
    return (size_t)s->n_lanes * (size_t)s->n_ranks * (size_t)s->n_ranks;
}

enum peer_line { STATE, HEART, GRAVE, HOST, WHY };
static size_t peer_offset(int rank, enum peer_line line) {
    return ((size_t)rank * PEER_LINES + (size_t)line) * LINE;
}
static size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

/* How many slots lie side by side on all devices: a row of stripes. */
static size_t slots_in_row(const struct hl_ring_shape *s) {
    return (size_t)s->n_devices * (s->stripe_bytes / s->part_bytes);
}

void hl_ring_lay_out(const struct hl_ring_shape *s, struct hl_ring_layout *out) {
    size_t n_slots = n_streams(s) * (size_t)s->n_slots, n = (size_t)s->n_ranks;
    out->bells = n * PEER_LINES * LINE;
    out->acks = out->bells + n_slots * LINE;
    out->lines_end = out->acks + (size_t)s->n_lanes * n * 2 * n * LINE;
    out->slots = round_up(out->lines_end, s->stripe_bytes ? s->stripe_bytes : 4096);
    if (s->stripe_bytes) {
        size_t rows = (n_slots + slots_in_row(s) - 1) / slots_in_row(s);
        out->end = out->slots + rows * (size_t)s->n_devices * s->stripe_bytes;
    } else out->end = out->slots + n_slots * s->part_bytes;
}
size_t hl_ring_bytes(const struct hl_ring_shape *s) {
    struct hl_ring_layout layout;
    hl_ring_lay_out(s, &layout);
    return layout.end;
}

/* Among all slots of all streams. */
static size_t slot_index(const struct hl_ring_shape *s, struct hl_stream t, uint64_t sequence) {
    return stream_index(s, t) * (size_t)s->n_slots + (size_t)(sequence % (uint64_t)s->n_slots);
}
static size_t bell_offset(const struct ring *r, struct hl_stream t, uint64_t sequence) {
    return r->layout.bells + slot_index(&r->at.shape, t, sequence) * LINE;
}
/* For each (lane, from): a line for each reader of its own stream, then for each of everyone's. */
static size_t ack_offset(const struct ring *r, struct hl_stream t, int reader) {
    size_t n = (size_t)r->at.shape.n_ranks, from = (size_t)t.lane * n + (size_t)t.from;
    return r->layout.acks + ((from * 2 + (t.to == HL_EVERYONE)) * n + (size_t)reader) * LINE;
}
static size_t slot_offset(const struct ring *r, struct hl_stream t, uint64_t sequence) {
    const struct hl_ring_shape *s = &r->at.shape;
    size_t index = slot_index(s, t, sequence), devices = (size_t)s->n_devices;
    if (!s->stripe_bytes) return r->layout.slots + index * s->part_bytes;
    size_t row = index / slots_in_row(s), in_row = index % slots_in_row(s);
    return r->layout.slots + (row * devices + in_row % devices) * s->stripe_bytes +
           in_row / devices * s->part_bytes;
}

/* That part is the next one. Called when the one before is on its way: the divisions above cost
 * more than the stores of a small part. */
static void number(const struct ring *r, struct hl_stream t, struct end *end, uint64_t sequence) {
    *end = (struct end){.next = sequence,
                        .bell = bell_offset(r, t, sequence),
                        .slot = slot_offset(r, t, sequence),
                        .acked = end->acked};
}

/* ---- lines ---- */

static_assert(offsetof(struct hl_line, value) == 0, "value is the first word");

void hl_line_store(void *to, const struct hl_line *line) {
    uint64_t *words = to, copy[LINE_WORDS];
    memcpy(copy, line, LINE);
    for (int i = LINE_WORDS; i-- > 0;) __atomic_store_n(&words[i], copy[i], __ATOMIC_RELEASE);
}

void hl_line_load(const void *from, struct hl_line *line_out) {
    const uint64_t *words = from;
    uint64_t copy[LINE_WORDS];
    for (int i = 0; i < LINE_WORDS; i++) copy[i] = __atomic_load_n(&words[i], __ATOMIC_ACQUIRE);
    memcpy(line_out, copy, LINE);
}

/* ---- coherent memory ---- */

static void *coherent_room(struct hl_ring_memory *m, size_t stream, size_t offset, size_t bytes) {
    (void)stream, (void)bytes;
    return m->base + offset;
}
static void coherent_publish(struct hl_ring_memory *m, size_t stream, size_t offset, size_t bytes) {
    (void)m, (void)stream, (void)offset, (void)bytes;
    atomic_thread_fence(memory_order_seq_cst); /* streaming stores too are done after this */
}
static void coherent_ring(struct hl_ring_memory *m, size_t offset, const struct hl_line *line) {
    hl_line_store(m->base + offset, line);
}
static void coherent_look(struct hl_ring_memory *m, size_t offset, struct hl_line *out) {
    hl_line_load(m->base + offset, out);
}
static const void *coherent_fetch(struct hl_ring_memory *m, size_t offset, size_t bytes) {
    (void)bytes;
    return m->base + offset;
}
const struct hl_ring_memory_ops hl_ring_coherent = {.room = coherent_room,
                                                    .publish = coherent_publish,
                                                    .ring = coherent_ring,
                                                    .look = coherent_look,
                                                    .fetch = coherent_fetch};

/* ---- a rank's end ---- */

static struct ring *ring_of(struct hl_wire *wire) { return (struct ring *)(void *)wire; }

static void look(struct ring *r, size_t offset, struct hl_line *out) {
    r->at.memory->ops->look(r->at.memory, offset, out);
    if (out->incarnation != r->at.incarnation) *out = (struct hl_line){0};
}
static void ring_line(struct ring *r, size_t offset, struct hl_line line) {
    line.incarnation = r->at.incarnation;
    r->at.memory->ops->ring(r->at.memory, offset, &line);
}

/* Something came: the next wait begins anew. */
static void progressed(struct ring *r) {
    r->came = true;
    r->idle_since_ns = 0;
    r->n_looks = 0;
}

/* A process that slept for long asks before it writes: its ranks may have been given up and the
 * memory be another run's. */
static bool ours(struct ring *r) {
    struct hl_ring_memory *m = r->at.memory;
    if (!r->fenced && m->ops->ours && !m->ops->ours(m)) {
        r->fenced = true;
        r->wire.failed_rank = r->wire.rank;
    }
    return !r->fenced;
}

static void rouse(struct hl_ring_bed *bed) {
    (void)__atomic_fetch_add(&bed->word, 1, __ATOMIC_SEQ_CST); /* a full fence before the load */
    if (__atomic_load_n(&bed->sleeping, __ATOMIC_SEQ_CST)) hl_futex_wake(&bed->word);
}
static void rouse_all(struct ring *r) {
    for (int p = 0; p < r->wire.n_ranks && r->at.beds; p++)
        if (p != r->wire.rank) rouse(&r->at.beds[p]);
}

/* Nothing came from a peer that this rank waits for. A dead or failed rank breaks the whole group:
 * whoever we wait for may wait for it. What is known of peers is as old as the last wait, so all
 * that a rank rang before it left was seen before this is asked. */
static enum hl_status waits_for(struct ring *r, int peer) {
    if (r->wire.failed_rank < 0 && r->left[peer]) r->wire.failed_rank = peer;
    return r->wire.failed_rank < 0 ? HL_PENDING : HL_E_PEER;
}

static bool reads(const struct ring *r, struct hl_stream t, int peer) {
    return peer != r->wire.rank && (t.to == HL_EVERYONE || t.to == peer);
}

/* Among the streams that this rank sends on. */
static size_t outgoing(const struct ring *r, struct hl_stream t) {
    size_t to = (size_t)(t.to == HL_EVERYONE ? t.from : t.to);
    return (size_t)t.lane * (size_t)r->wire.n_ranks + to;
}

static enum hl_status reserve(struct hl_wire *wire, struct hl_stream t, void **out) {
    struct ring *r = ring_of(wire);
    assert(t.from == wire->rank && t.to != wire->rank && t.lane < wire->n_lanes);
    struct end *end = &r->sends[stream_index(&r->at.shape, t)];
    uint64_t slots = (uint64_t)r->at.shape.n_slots;
    if (end->next > end->acked + slots) {
        uint64_t least = UINT64_MAX;
        for (int p = 0; p < wire->n_ranks; p++) {
            struct hl_line ack;
            if (!reads(r, t, p)) continue;
            look(r, ack_offset(r, t, p), &ack);
            if (ack.value + slots < end->next) return waits_for(r, p);
            if (ack.value < least) least = ack.value;
        }
        end->acked = least;
        progressed(r);
    }
    *out = r->at.memory->ops->room(r->at.memory, outgoing(r, t), end->slot, r->at.shape.part_bytes);
    return HL_OK;
}

static enum hl_status commit(struct hl_wire *wire, struct hl_stream t, size_t bytes) {
    struct ring *r = ring_of(wire);
    assert(bytes <= wire->part_bytes);
    if (!ours(r)) return HL_E_PEER;
    struct end *end = &r->sends[stream_index(&r->at.shape, t)];
    r->at.memory->ops->publish(r->at.memory, outgoing(r, t), end->slot, bytes);
    ring_line(r, end->bell, (struct hl_line){.value = end->next, .bytes = (uint32_t)bytes});
    for (int p = 0; p < wire->n_ranks && r->at.beds; p++)
        if (reads(r, t, p)) rouse(&r->at.beds[p]);
    number(r, t, end, end->next + 1);
    return HL_OK;
}

static enum hl_status view(struct hl_wire *wire, struct hl_stream t, const void **data_out,
                           size_t *bytes_out) {
    struct ring *r = ring_of(wire);
    assert(t.from != wire->rank && t.lane < wire->n_lanes);
    struct end *end = &r->reads[stream_index(&r->at.shape, t)];
    if (!end->viewed) {
        struct hl_line bell;
        look(r, end->bell, &bell);
        if (bell.value < end->next) return waits_for(r, t.from);
        if (bell.value > end->next || bell.bytes > wire->part_bytes) return HL_E_FORMAT;
        progressed(r);
        end->viewed_bytes = bell.bytes;
        end->viewed = r->at.memory->ops->fetch(r->at.memory, end->slot, bell.bytes);
    }
    *data_out = end->viewed;
    *bytes_out = end->viewed_bytes;
    return HL_OK;
}

static enum hl_status release(struct hl_wire *wire, struct hl_stream t) {
    struct ring *r = ring_of(wire);
    struct end *end = &r->reads[stream_index(&r->at.shape, t)];
    assert(end->viewed);
    if (!ours(r)) return HL_E_PEER;
    ring_line(r, ack_offset(r, t, wire->rank), (struct hl_line){.value = end->next});
    if (r->at.beds) rouse(&r->at.beds[t.from]);
    number(r, t, end, end->next + 1);
    return HL_OK;
}

/* ---- waiting ---- */

static void pause_briefly(void) {
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#endif
}

/* Before a wait sleeps, as falling asleep and being woken takes longer than ten small parts: look
 * at once for half a microsecond; then let others run between two looks, for the awaited rank may
 * need this processor. False: nothing came for so many looks. */
static bool keep_looking(struct ring *r) {
    if (r->n_looks >= SPINS + YIELDS) return false;
    if (r->n_looks++ < SPINS) pause_briefly();
    else hl_let_others_run();
    return true;
}

/* One kernel: the one who rings wakes the one who sleeps. True: it slept. The flag is set before
 * the word is looked at again, and the word is changed before the flag is looked at: one of them
 * sees the other. */
static bool sleep_in_bed(struct ring *r, int64_t timeout_ns) {
    struct hl_ring_bed *bed = &r->at.beds[r->wire.rank];
    while (__atomic_load_n(&bed->word, __ATOMIC_ACQUIRE) == r->seen && keep_looking(r)) continue;
    bool sleeps = __atomic_load_n(&bed->word, __ATOMIC_ACQUIRE) == r->seen;
    if (sleeps) {
        __atomic_store_n(&bed->sleeping, 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&bed->word, __ATOMIC_SEQ_CST) == r->seen)
            hl_futex_wait(&bed->word, r->seen,
                          timeout_ns < LONGEST_SLEEP_NS ? timeout_ns : LONGEST_SLEEP_NS);
        __atomic_store_n(&bed->sleeping, 0, __ATOMIC_RELAXED);
    }
    r->seen = __atomic_load_n(&bed->word, __ATOMIC_ACQUIRE);
    return sleeps;
}

/* Several kernels: nobody can wake us. Short sleeps, and long ones after ten milliseconds. */
static bool sleep_and_look(struct ring *r, int64_t timeout_ns) {
    if (keep_looking(r)) return false;
    int64_t now = hl_clock_ns();
    if (!r->idle_since_ns) r->idle_since_ns = now;
    int64_t idle = now - r->idle_since_ns, ns = idle / 8;
    if (ns < 1000) ns = 1000;
    if (ns > 50000) ns = idle > LONGEST_SLEEP_NS ? 500000 : 50000;
    hl_sleep_ns(timeout_ns < ns ? timeout_ns : ns);
    return true;
}

/* Counted in beats of one's own heart: whoever was stopped himself knows nothing of the others. */
static bool heart_stopped(struct ring *r, int peer) {
    struct heart *heart = &r->hearts[peer];
    struct hl_line line, own;
    if (!r->at.dead_after_ns) return false;
    look(r, peer_offset(peer, HEART), &line);
    look(r, peer_offset(r->wire.rank, HEART), &own);
    if (line.value != heart->beat) *heart = (struct heart){line.value, own.value};
    uint64_t silent = own.value - heart->seen_at;
    return heart->beat && silent > (uint64_t)(r->at.dead_after_ns / HL_RING_BEAT_NS);
}

/* Who left, failed or died since we looked last. */
static void watch_peers(struct ring *r) {
    int64_t now = hl_clock_ns();
    if (!r->at.beds && now - r->watched_ns < WATCH_NS) return;
    r->watched_ns = now;
    int dead = -1, failed = -1;
    for (int p = 0; p < r->wire.n_ranks; p++) {
        struct hl_line state, grave;
        if (p == r->wire.rank) continue;
        look(r, peer_offset(p, STATE), &state);
        look(r, peer_offset(p, GRAVE), &grave);
        r->left[p] = state.value && state.rest[0] == HL_PEER_LEFT;
        r->dead[p] = !r->left[p] && (grave.value || heart_stopped(r, p));
        if (dead < 0 && r->dead[p]) dead = p;
        if (failed < 0 && state.value && state.rest[0] == HL_PEER_FAILED) failed = p;
    }
    /* whoever failed may have done so because of the dead one */
    if (r->wire.failed_rank < 0) r->wire.failed_rank = dead >= 0 ? dead : failed;
}

static enum hl_status wait(struct hl_wire *wire, int64_t timeout_ns) {
    struct ring *r = ring_of(wire);
    bool slept = r->at.beds ? sleep_in_bed(r, timeout_ns) : sleep_and_look(r, timeout_ns);
    if (slept || !r->came) watch_peers(r);
    r->came = false;
    return HL_OK;
}

/* ---- peers ---- */

static void write_state(struct ring *r, enum hl_peer_state state, enum hl_phase phase,
                        int64_t step) {
    struct hl_line line = {.value = ++r->told};
    line.rest[0] = (uint64_t)state;
    line.rest[1] = (uint64_t)phase;
    line.rest[2] = (uint64_t)step;
    line.rest[3] = (uint64_t)getpid();
    line.rest[4] = r->wire.waits ? (uint64_t)r->wire.waits_for + 1 : 0;
    ring_line(r, peer_offset(r->wire.rank, STATE), line);
}

static void write_text(struct ring *r, enum peer_line at, const char *text, size_t n_lines) {
    size_t left = strlen(text);
    for (size_t i = 0; i < n_lines; i++) {
        struct hl_line line = {.value = 1};
        size_t n = left < sizeof line.rest ? left : sizeof line.rest;
        memcpy(line.rest, text, n);
        ring_line(r, peer_offset(r->wire.rank, at) + i * LINE, line);
        text += n;
        left -= n;
    }
}

static void read_text(struct ring *r, int rank, enum peer_line at, char *out, size_t capacity) {
    memset(out, 0, capacity);
    for (size_t used = 0; used + 1 < capacity; used += sizeof((struct hl_line *)0)->rest) {
        struct hl_line line;
        look(r, peer_offset(rank, at) + used / sizeof line.rest * LINE, &line);
        size_t n = capacity - 1 - used;
        memcpy(out + used, line.rest, n < sizeof line.rest ? n : sizeof line.rest);
    }
}

static void tell(struct hl_wire *wire, enum hl_phase phase, int64_t step) {
    struct ring *r = ring_of(wire);
    if (!r->failed && ours(r)) write_state(r, HL_PEER_ALIVE, phase, step);
}

static void peer(struct hl_wire *wire, int rank, struct hl_peer *out) {
    struct ring *r = ring_of(wire);
    struct hl_line state;
    *out = (struct hl_peer){0};
    look(r, peer_offset(rank, STATE), &state);
    if (state.value) {
        out->state = (enum hl_peer_state)state.rest[0];
        out->phase = (enum hl_phase)state.rest[1];
        out->step = (int64_t)state.rest[2];
        out->pid = (int64_t)state.rest[3];
        out->waits = state.rest[4] != 0;
        out->waits_for = (int)state.rest[4] - 1;
        read_text(r, rank, HOST, out->host, sizeof(uint64_t) * 6 + 1);
        if (out->state == HL_PEER_FAILED)
            read_text(r, rank, WHY, out->why, 3 * sizeof state.rest + 1);
    }
    if (r->dead[rank] && out->state != HL_PEER_FAILED) out->state = HL_PEER_DEAD;
    if (r->fenced && rank == wire->rank) {
        out->state = HL_PEER_FAILED;
        (void)snprintf(out->why, sizeof out->why,
                       "it was stopped for so long that its memory has been given to another run");
    }
}

static void give_up(struct hl_wire *wire, const char *why) {
    struct ring *r = ring_of(wire);
    struct hl_peer me;
    if (r->failed || !ours(r)) return;
    peer(wire, wire->rank, &me);
    write_text(r, WHY, why, 3);
    write_state(r, HL_PEER_FAILED, me.phase, me.step);
    r->failed = true;
    rouse_all(r);
}

static void close_ring(struct hl_wire *wire) {
    struct ring *r = ring_of(wire);
    struct hl_peer me;
    peer(wire, wire->rank, &me);
    if (!r->failed && ours(r)) write_state(r, HL_PEER_LEFT, me.phase, me.step);
    rouse_all(r);
    if (r->at.memory->ops->close) r->at.memory->ops->close(r->at.memory);
    hl_free(r->mem, r->sends);
    hl_free(r->mem, r->reads);
    hl_free(r->mem, r);
}

static const struct hl_wire_ops ops = {.reserve = reserve,
                                       .commit = commit,
                                       .view = view,
                                       .release = release,
                                       .wait = wait,
                                       .tell = tell,
                                       .peer = peer,
                                       .give_up = give_up,
                                       .close = close_ring};

/* The first part of every stream. */
static void number_all(struct ring *r) {
    for (int lane = 0; lane < r->wire.n_lanes; lane++)
        for (int from = 0; from < r->wire.n_ranks; from++)
            for (int to = 0; to < r->wire.n_ranks; to++) {
                struct hl_stream t = {lane, from, to == from ? HL_EVERYONE : to};
                size_t i = stream_index(&r->at.shape, t);
                number(r, t, &r->sends[i], 1);
                number(r, t, &r->reads[i], 1);
            }
}

enum hl_status hl_ring_open(struct hl_mem *mem, const struct hl_ring_place *place,
                            struct hl_wire **out, struct hl_diag *diag) {
    size_t n = n_streams(&place->shape);
    struct ring *r = hl_alloc(mem, 1, sizeof *r);
    struct end *sends = hl_alloc(mem, n, sizeof *sends), *reads_ = hl_alloc(mem, n, sizeof *reads_);
    if (!r || !sends || !reads_) {
        hl_free(mem, r);
        hl_free(mem, sends);
        hl_free(mem, reads_);
        if (place->memory->ops->close) place->memory->ops->close(place->memory);
        return hl_fail_memory(diag, 2 * n * sizeof *sends, "the ends of a wire's streams");
    }
    assert(place->shape.n_ranks <= HL_MAX_RANKS && place->shape.n_lanes <= HL_MAX_LANES);
    assert(place->shape.part_bytes % LINE == 0 && place->incarnation != 0);
    assert(!place->shape.stripe_bytes || place->shape.part_bytes <= place->shape.stripe_bytes);
    r->wire = (struct hl_wire){.ops = &ops,
                               .name = place->name,
                               .rank = place->rank,
                               .n_ranks = place->shape.n_ranks,
                               .n_lanes = place->shape.n_lanes,
                               .part_bytes = place->shape.part_bytes,
                               .failed_rank = -1};
    r->mem = mem;
    r->at = *place;
    hl_ring_lay_out(&place->shape, &r->layout);
    r->sends = sends;
    r->reads = reads_;
    number_all(r);
    if (gethostname(r->host, sizeof r->host - 1)) (void)snprintf(r->host, sizeof r->host, "?");
    write_text(r, HOST, r->host, 1);
    write_state(r, HL_PEER_ALIVE, HL_PHASE_START, 0);
    rouse_all(r);
    *out = &r->wire;
    return HL_OK;
}

void hl_ring_beat(struct hl_ring_memory *memory, const struct hl_ring_shape *shape, int rank,
                  uint32_t incarnation, uint64_t beat) {
    (void)shape;
    memory->ops->ring(memory, peer_offset(rank, HEART),
                      &(struct hl_line){.value = beat, .incarnation = incarnation});
}

void hl_ring_bury(struct hl_ring_memory *memory, const struct hl_ring_shape *shape, int rank,
                  uint32_t incarnation, struct hl_ring_bed *beds) {
    memory->ops->ring(memory, peer_offset(rank, GRAVE),
                      &(struct hl_line){.value = 1, .incarnation = incarnation});
    for (int p = 0; p < shape->n_ranks && beds; p++) rouse(&beds[p]);
}
