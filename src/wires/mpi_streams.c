/* Streams of parts over MPI's messages.
 *
 * Each stream is a ring of slots at either end. Receives for all slots of a stream are posted ahead
 * under one tag; MPI matches them in the order of posting, so parts come in order. Sends are
 * synchronous: one is done when its receive was matched, which is the acknowledgement. So at most
 * twice the slots of a stream are under way, and nothing piles up in MPI's own buffers. A part for
 * everyone is one slot and n - 1 sends of it.
 *
 * What ranks say of themselves travels under a tag of its own (struct words). Their last words,
 * when they leave or fail, carry how many parts they sent on each stream: what is still on its way
 * then is waited for, the rest will not come.
 *
 * No call into MPI waits, but MPI_Init and MPI_Finalize: ranks beyond the cores would spin. */
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/futex.h"
#include "os/liveness.h"
#include "wires/mpi_streams.h"

enum { SLOTS = 4, WORDS_TAG = 2 * HL_MAX_LANES, WORDS_VERSION = 1, LOOKS = 16 };
static const int64_t LONGEST_SLEEP_NS = 500000, WATCH_EVERY_NS = 20000000,
                     LAST_WORDS_NS = 2000000000, CANCEL_NS = 100000000, CAUSE_NS = 100000000,
                     SETTLE_NS = 100000000;

/* A rank about itself. */
struct words {
    uint32_t version;
    int32_t state, phase, n_lanes,
        cause;         /* cause, FAILED: the rank whose failure it was; -1: own */
    int32_t waits_for; /* for a long time; -1: nobody */
    int64_t step, pid;
    uint64_t part_bytes, space;     /* space: hl_process_space */
    uint64_t sent[HL_MAX_LANES][2]; /* parts, to the one who reads this and to everyone */
    char host[64], why[160];
};
struct peer {
    struct words words;
    bool untold, dead;
    char lost[160]; /* MPI's words, when it lost the peer */
};
struct request {
    bool pending, lost; /* lost: and so pending for ever */
    size_t bytes;
};

struct mpi {
    struct hl_wire wire; /* first */
    struct hl_mem *mem;
    const struct hl_mpi_table *table;
    struct hl_mpi_world world;
    void *state; /* the table's */
    int n_requests;
    struct request *requests; /* [n_requests] */
    struct hl_mpi_done *done; /* [n_requests] */
    uint64_t *sends, *reads;  /* [lanes][ranks + 1], [lanes][ranks][2]: parts so far */
    char *send_slots, *read_slots;
    struct words me, *inbox, *outbox; /* [ranks], [ranks][2]: news and last words */
    struct peer *peers;               /* [ranks] */
    int64_t watched_ns, timeout_ns;
    int suspect; /* failed because of another, of which we have not heard yet; -1: nobody */
    int64_t suspected_ns;
    bool cancelled; /* what is done from now on is of no interest */
};

static struct mpi *mpi_of(struct hl_wire *wire) { return (struct mpi *)(void *)wire; }

/* ---- where things lie ---- */

static bool is_reader(const struct mpi *m, struct hl_stream t, int rank) {
    return rank != m->wire.rank && (t.to == HL_EVERYONE || t.to == rank);
}
static int tag_of(struct hl_stream t) { return t.lane * 2 + (t.to == HL_EVERYONE); }
static int send_index(const struct mpi *m, struct hl_stream t) {
    return t.lane * (m->wire.n_ranks + 1) + (t.to == HL_EVERYONE ? m->wire.n_ranks : t.to);
}
static int read_index(const struct mpi *m, struct hl_stream t) {
    return tag_of(t) * m->wire.n_ranks + t.from;
}
static char *slot_at(const struct mpi *m, char *slots, int index, uint64_t part) {
    return slots + ((size_t)index * SLOTS + (size_t)(part % SLOTS)) * m->wire.part_bytes;
}

/* Numbers of messages: 0 joins; then receives: words [ranks], parts [lanes][2][ranks][slots]; then
 * sends: words [ranks][2], parts [lanes][2][ranks][slots]. */
static int n_part_requests(const struct mpi *m) {
    return m->wire.n_lanes * 2 * m->wire.n_ranks * SLOTS;
}
static int words_in(int peer) { return 1 + peer; }
static int part_in(const struct mpi *m, struct hl_stream t, uint64_t part) {
    return 1 + m->wire.n_ranks + read_index(m, t) * SLOTS + (int)(part % SLOTS);
}
static int first_send(const struct mpi *m) { return 1 + m->wire.n_ranks + n_part_requests(m); }
static int words_out(const struct mpi *m, int peer, bool last) {
    return first_send(m) + peer * 2 + last;
}
static int part_out(const struct mpi *m, struct hl_stream t, uint64_t part, int reader) {
    int index = tag_of(t) * m->wire.n_ranks + reader;
    return first_send(m) + 2 * m->wire.n_ranks + index * SLOTS + (int)(part % SLOTS);
}
static int n_all_requests(const struct mpi *m) {
    return first_send(m) + 2 * m->wire.n_ranks + n_part_requests(m);
}
static int peer_of(const struct mpi *m, int request) {
    int n = m->wire.n_ranks, sent = request - first_send(m);
    if (sent >= 0) return sent < 2 * n ? sent / 2 : (sent - 2 * n) / SLOTS % n;
    return request <= n ? request - 1 : (request - 1 - n) / SLOTS % n;
}

/* ---- messages ---- */

/* MPI says that it lost a message; it will hardly find the peer again. */
static void lose(struct mpi *m, int request, int error) {
    struct peer *p = &m->peers[peer_of(m, request)];
    m->requests[request] = (struct request){.pending = true, .lost = true};
    if (!p->dead) m->table->explain(error, p->lost, sizeof p->lost);
    p->dead = true;
    if (m->wire.failed_rank < 0) m->wire.failed_rank = peer_of(m, request);
}

static void post(struct mpi *m, int request, int error) {
    if (error) lose(m, request, error);
    else m->requests[request] = (struct request){.pending = true};
}

static void post_words(struct mpi *m, int peer) {
    post(m, words_in(peer),
         m->table->receive(m->state, words_in(peer), peer, WORDS_TAG, &m->inbox[peer],
                           sizeof *m->inbox));
}

static void post_part(struct mpi *m, struct hl_stream t, uint64_t part) {
    int request = part_in(m, t, part);
    post(m, request,
         m->table->receive(m->state, request, t.from, tag_of(t),
                           slot_at(m, m->read_slots, read_index(m, t), part), m->wire.part_bytes));
}

static void say(struct mpi *m, int peer, bool last) {
    struct words *words = &m->outbox[peer * 2 + last];
    int request = words_out(m, peer, last);
    *words = m->me;
    for (int lane = 0; lane < m->wire.n_lanes; lane++) {
        words->sent[lane][0] = m->sends[send_index(m, (struct hl_stream){lane, 0, peer})];
        words->sent[lane][1] = m->sends[send_index(m, (struct hl_stream){lane, 0, HL_EVERYONE})];
    }
    post(m, request, m->table->send(m->state, request, peer, WORDS_TAG, words, sizeof *words));
}

/* Newer words replace those that could not be sent before. */
static void say_news(struct mpi *m) {
    for (int p = 0; p < m->wire.n_ranks && m->me.state == HL_PEER_ALIVE; p++) {
        struct peer *peer = &m->peers[p];
        if (!peer->untold || peer->dead || m->requests[words_out(m, p, false)].pending) continue;
        peer->untold = false;
        say(m, p, false);
    }
}

static void hear(struct mpi *m, int peer) {
    struct words *words = &m->peers[peer].words;
    *words = m->inbox[peer];
    words->host[sizeof words->host - 1] = words->why[sizeof words->why - 1] = 0;
    if (words->state == HL_PEER_ALIVE) post_words(m, peer);
    if (words->state != HL_PEER_FAILED || m->wire.failed_rank >= 0) return;
    if (words->cause < 0 || words->cause >= m->wire.n_ranks || words->cause == m->wire.rank)
        m->wire.failed_rank = peer;
    else if (m->suspect < 0) m->suspect = peer, m->suspected_ns = hl_clock_ns();
}

static void finish(struct mpi *m, const struct hl_mpi_done *done) {
    int i = done->request;
    m->requests[i] = (struct request){.bytes = done->bytes};
    if (m->cancelled || i == 0) return;
    if (done->error) lose(m, i, done->error);
    else if (i <= m->wire.n_ranks) hear(m, i - 1);
}

static bool is_pending(struct mpi *m, int request) {
    struct request *r = &m->requests[request];
    struct hl_mpi_done done;
    if (r->pending && !r->lost && m->table->test(m->state, request, &done)) finish(m, &done);
    return r->pending;
}

/* true: something was done since this was asked last */
static bool look(struct mpi *m) {
    int n = m->table->test_all(m->state, m->done);
    for (int i = 0; i < n; i++) finish(m, &m->done[i]);
    say_news(m);
    return n > 0;
}

/* ---- streams ---- */

/* Nothing comes from a peer that this rank waits for. A dead or failed rank breaks the whole group:
 * whoever we wait for may wait for it. */
static enum hl_status waits_for(struct mpi *m, int peer, bool left) {
    if (m->wire.failed_rank < 0 && left) m->wire.failed_rank = peer;
    return m->wire.failed_rank < 0 ? HL_PENDING : HL_E_PEER;
}

static enum hl_status reserve(struct hl_wire *wire, struct hl_stream t, void **out) {
    struct mpi *m = mpi_of(wire);
    assert(t.from == wire->rank && t.to != wire->rank && t.lane < wire->n_lanes);
    uint64_t part = m->sends[send_index(m, t)];
    for (int p = 0; p < wire->n_ranks; p++) {
        if (!is_reader(m, t, p)) continue;
        if (is_pending(m, part_out(m, t, part, p)))
            return waits_for(m, p, m->peers[p].words.state == HL_PEER_LEFT);
    }
    *out = slot_at(m, m->send_slots, send_index(m, t), part);
    return HL_OK;
}

static enum hl_status commit(struct hl_wire *wire, struct hl_stream t, size_t bytes) {
    struct mpi *m = mpi_of(wire);
    assert(bytes <= wire->part_bytes);
    uint64_t *part = &m->sends[send_index(m, t)];
    const char *data = slot_at(m, m->send_slots, send_index(m, t), *part);
    for (int p = 0; p < wire->n_ranks; p++) {
        int request = part_out(m, t, *part, p);
        if (is_reader(m, t, p))
            post(m, request, m->table->send(m->state, request, p, tag_of(t), data, bytes));
    }
    ++*part;
    return HL_OK;
}

static bool will_come(const struct mpi *m, struct hl_stream t, uint64_t part) {
    const struct words *words = &m->peers[t.from].words;
    return words->state != HL_PEER_LEFT || part < words->sent[t.lane][t.to == HL_EVERYONE];
}

static enum hl_status view(struct hl_wire *wire, struct hl_stream t, const void **data_out,
                           size_t *bytes_out) {
    struct mpi *m = mpi_of(wire);
    assert(t.from != wire->rank && t.lane < wire->n_lanes);
    uint64_t part = m->reads[read_index(m, t)];
    int request = part_in(m, t, part);
    if (is_pending(m, request)) return waits_for(m, t.from, !will_come(m, t, part));
    *data_out = slot_at(m, m->read_slots, read_index(m, t), part);
    *bytes_out = m->requests[request].bytes;
    return HL_OK;
}

static enum hl_status release(struct hl_wire *wire, struct hl_stream t) {
    struct mpi *m = mpi_of(wire);
    uint64_t *part = &m->reads[read_index(m, t)];
    assert(!m->requests[part_in(m, t, *part)].pending);
    post_part(m, t, (*part)++);
    return HL_OK;
}

/* ---- waiting ---- */

/* Whose process ended? Only ranks of one machine see each other's. What it said before is heard
 * first: it may have failed because of another. true: there is news */
static bool watch(struct mpi *m, int64_t now) {
    bool news = false;
    m->watched_ns = now;
    for (int p = 0; p < m->wire.n_ranks; p++) {
        struct peer *peer = &m->peers[p];
        if (p == m->wire.rank || peer->dead || peer->words.state != HL_PEER_ALIVE) continue;
        if (peer->words.space != m->me.space || !m->me.space) continue;
        if (!hl_process_gone(peer->words.pid)) continue;
        for (int i = 0; i < LOOKS; i++) (void)look(m);
        news = true;
        peer->dead = peer->words.state == HL_PEER_ALIVE;
        if (peer->dead && m->wire.failed_rank < 0) m->wire.failed_rank = p;
    }
    if (m->wire.failed_rank >= 0 || m->suspect < 0 || now - m->suspected_ns <= CAUSE_NS)
        return news;
    m->wire.failed_rank = m->suspect;
    return true;
}

/* false: a signal cut it short */
static bool slept(int64_t ns) {
    int64_t from = hl_clock_ns();
    hl_sleep_ns(ns);
    return hl_clock_ns() - from >= ns;
}

/* Looks, then sleeps that grow, until there is news. mpirun's SIGTERM follows a death, so that
 * after a signal the dead are looked for at once: Open MPI 5 leaves the survivors half a second. */
static enum hl_status wait(struct hl_wire *wire, int64_t timeout_ns) {
    struct mpi *m = mpi_of(wire);
    int64_t now = hl_clock_ns(), until = now + timeout_ns, ns = 1000;
    bool woken = false;
    for (int looks = 1; !look(m) && !woken && now < until; looks++) {
        if (looks > LOOKS) {
            woken = !slept(until - now < ns ? until - now : ns);
            ns = ns < LONGEST_SLEEP_NS ? ns + ns / 2 : LONGEST_SLEEP_NS;
        }
        now = hl_clock_ns();
        if (woken || now - m->watched_ns > WATCH_EVERY_NS) woken |= watch(m, now);
    }
    return HL_OK;
}

/* ---- peers ---- */

static void tell(struct hl_wire *wire, enum hl_phase phase, int64_t step) {
    struct mpi *m = mpi_of(wire);
    m->me.phase = (int32_t)phase;
    m->me.step = step;
    m->me.waits_for = wire->waits ? wire->waits_for : -1;
    for (int p = 0; p < wire->n_ranks; p++) m->peers[p].untold = p != wire->rank;
    say_news(m);
}

static void peer(struct hl_wire *wire, int rank, struct hl_peer *out) {
    struct mpi *m = mpi_of(wire);
    const struct peer *p = &m->peers[rank];
    const struct words *words = rank == wire->rank ? &m->me : &p->words;
    *out = (struct hl_peer){.state = (enum hl_peer_state)words->state,
                            .phase = (enum hl_phase)words->phase,
                            .step = words->step,
                            .pid = words->pid,
                            .waits = words->waits_for >= 0,
                            .waits_for = words->waits_for};
    memcpy(out->host, words->host, sizeof out->host);
    memcpy(out->why, words->why, sizeof out->why);
    if (!p->dead || out->state == HL_PEER_FAILED) return;
    out->state = HL_PEER_DEAD;
    memcpy(out->why, p->lost, sizeof out->why);
}

static void say_last(struct mpi *m, enum hl_peer_state state, const char *why) {
    if (m->me.state != HL_PEER_ALIVE) return;
    m->me.state = (int32_t)state;
    m->me.cause = m->wire.failed_rank;
    (void)snprintf(m->me.why, sizeof m->me.why, "%s", why);
    for (int p = 0; p < m->wire.n_ranks; p++)
        if (p != m->wire.rank && !m->peers[p].dead) say(m, p, true);
}

static void give_up(struct hl_wire *wire, const char *why) {
    struct mpi *m = mpi_of(wire);
    say_last(m, HL_PEER_FAILED, why);
    (void)look(m);
}

/* ---- the end ---- */

static bool is_broken(const struct mpi *m) {
    bool broken = m->me.state == HL_PEER_FAILED;
    for (int p = 0; p < m->wire.n_ranks; p++)
        broken |= m->peers[p].dead || m->peers[p].words.state == HL_PEER_FAILED;
    return broken;
}

/* Parts that nobody asked for are taken all the same: their senders wait for that. */
static bool drain(struct mpi *m, struct hl_stream t) {
    uint64_t *part = &m->reads[read_index(m, t)];
    while (will_come(m, t, *part) && !is_pending(m, part_in(m, t, *part)))
        (void)release(&m->wire, t);
    return !will_come(m, t, *part);
}

static bool drain_all(struct mpi *m) {
    bool empty = true;
    for (int lane = 0; lane < m->wire.n_lanes; lane++)
        for (int p = 0; p < m->wire.n_ranks; p++) {
            if (p == m->wire.rank) continue;
            empty &= drain(m, (struct hl_stream){lane, p, m->wire.rank});
            empty &= drain(m, (struct hl_stream){lane, p, HL_EVERYONE});
        }
    return empty;
}

static bool sends_are_done(const struct mpi *m) {
    for (int i = first_send(m); i < m->n_requests; i++)
        if (m->requests[i].pending) return false;
    return true;
}

/* All ranks leave, and what they sent has come: MPI_Finalize will not wait for anybody. */
static bool leave(struct mpi *m) {
    int64_t until = hl_clock_ns() + m->timeout_ns;
    while (!is_broken(m) && hl_clock_ns() < until) {
        bool empty = drain_all(m);
        if (empty && sends_are_done(m)) return true;
        (void)wait(&m->wire, LONGEST_SLEEP_NS);
    }
    return false;
}

/* Ask MPI a little longer for what it has to do by itself. In MPICH before 4.2 over UCX a rank that
 * has come through MPI_Finalize's disconnecting listens no more while others may still need it;
 * with nothing left to do nobody needs anybody (MPICH's pull request 6596). */
static void settle(struct mpi *m) {
    int64_t until = hl_clock_ns() + SETTLE_NS;
    while (m->wire.n_ranks > 1 && hl_clock_ns() < until) {
        (void)look(m);
        hl_sleep_ns(LONGEST_SLEEP_NS);
    }
}

static bool are_told(const struct mpi *m) {
    for (int p = 0; p < m->wire.n_ranks; p++)
        if (m->requests[words_out(m, p, true)].pending && !m->peers[p].dead &&
            m->peers[p].words.state == HL_PEER_ALIVE)
            return false;
    return true;
}

/* MPI must not write into memory that is about to be freed. */
static void cancel_receives(struct mpi *m) {
    int64_t until = hl_clock_ns() + CANCEL_NS;
    m->cancelled = true;
    for (int i = 1; i < first_send(m); i++)
        if (m->requests[i].pending) m->table->cancel(m->state, i);
    for (int i = 1; i < first_send(m); i++)
        while (is_pending(m, i) && hl_clock_ns() < until) hl_sleep_ns(1000);
}

static void free_mpi(struct mpi *m) {
    void *const blocks[] = {m->state,      m->requests,   m->done,  m->sends,  m->reads,
                            m->send_slots, m->read_slots, m->inbox, m->outbox, m->peers};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) hl_free(m->mem, blocks[i]);
    hl_free(m->mem, m);
}

/* After a failure MPI_Finalize would wait for ranks that never call it. The process is expected to
 * end with a status that is not 0: mpirun then ends the others, who have been told why. */
static void close_mpi(struct hl_wire *wire) {
    struct mpi *m = mpi_of(wire);
    int64_t until = hl_clock_ns() + LAST_WORDS_NS;
    say_last(m, HL_PEER_LEFT, "");
    bool in_order = leave(m);
    while (!in_order && !are_told(m) && hl_clock_ns() < until) (void)wait(wire, LONGEST_SLEEP_NS);
    cancel_receives(m);
    if (in_order) {
        settle(m);
        m->table->end(m->state);
    }
    free_mpi(m);
}

static const struct hl_wire_ops ops = {.reserve = reserve,
                                       .commit = commit,
                                       .view = view,
                                       .release = release,
                                       .wait = wait,
                                       .tell = tell,
                                       .peer = peer,
                                       .give_up = give_up,
                                       .close = close_mpi};

/* ---- the beginning ---- */

static enum hl_status new_mpi(struct hl_mem *mem, const struct hl_wire_place *place,
                              const struct hl_mpi_table *table, struct mpi **out,
                              struct hl_diag *diag) {
    size_t n = (size_t)place->n_ranks, lanes = (size_t)place->n_lanes;
    struct mpi *m = hl_alloc(mem, 1, sizeof *m);
    if (!m) return hl_fail_memory(diag, sizeof *m, "the mpi wire");
    assert(n <= HL_MAX_RANKS && lanes <= HL_MAX_LANES && place->part_bytes <= INT_MAX);
    *m = (struct mpi){.mem = mem, .table = table, .timeout_ns = place->timeout_ns, .suspect = -1};
    m->wire = (struct hl_wire){.ops = &ops,
                               .name = "mpi",
                               .rank = place->rank,
                               .n_ranks = place->n_ranks,
                               .n_lanes = place->n_lanes,
                               .part_bytes = place->part_bytes,
                               .failed_rank = -1};
    m->n_requests = n_all_requests(m);
    size_t requests = (size_t)m->n_requests;
    m->state = hl_alloc(mem, 1, table->state_bytes(m->n_requests));
    m->requests = hl_alloc(mem, requests, sizeof *m->requests);
    m->done = hl_alloc(mem, requests, sizeof *m->done);
    m->sends = hl_alloc(mem, lanes * (n + 1), sizeof *m->sends);
    m->reads = hl_alloc(mem, lanes * 2 * n, sizeof *m->reads);
    m->send_slots = hl_alloc(mem, lanes * (n + 1) * SLOTS, place->part_bytes);
    m->read_slots = hl_alloc(mem, lanes * 2 * n * SLOTS, place->part_bytes);
    m->inbox = hl_alloc(mem, n, sizeof *m->inbox);
    m->outbox = hl_alloc(mem, 2 * n, sizeof *m->outbox);
    m->peers = hl_alloc(mem, n, sizeof *m->peers);
    *out = m;
    if (m->state && m->requests && m->done && m->sends && m->reads && m->send_slots &&
        m->read_slots && m->inbox && m->outbox && m->peers)
        return HL_OK;
    free_mpi(m);
    return hl_fail_memory(diag, lanes * (3 * n + 1) * SLOTS * place->part_bytes,
                          "the mpi wire's slots");
}

static enum hl_status check_world(struct mpi *m, struct hl_diag *diag) {
    const struct hl_mpi_world *world = &m->world;
    if (world->rank == m->wire.rank && world->n_ranks == m->wire.n_ranks) return HL_OK;
    if (world->n_ranks == 1) m->table->end(m->state);
    return hl_fail(diag, HL_E_USER,
                   "wire mpi: %s says that this is rank %d of %d, the environment that it is rank "
                   "%d of %d; another MPI's mpirun has started it: use that of %s, or set "
                   "HALLEY_MPI to openmpi or mpich",
                   m->table->library, world->rank, world->n_ranks, m->wire.rank, m->wire.n_ranks,
                   m->table->library);
}

static enum hl_status start(struct mpi *m, struct hl_diag *diag) {
    enum hl_mpi_start start = m->table->start(m->state, m->n_requests, &m->world);
    if (start == HL_MPI_OVER)
        return hl_fail(diag, HL_E_UNSUPPORTED,
                       "wire mpi: MPI was ended in this process before and cannot start again");
    if (start == HL_MPI_NO_THREADS)
        return hl_fail(diag, HL_E_UNSUPPORTED,
                       "wire mpi: %s was started without MPI_THREAD_FUNNELED, which programs with "
                       "threads need",
                       m->table->library);
    int64_t until = hl_clock_ns() + m->timeout_ns;
    m->requests[0].pending = true;
    while (is_pending(m, 0)) {
        if (hl_clock_ns() > until)
            return hl_fail(diag, HL_E_TIMEOUT, "wire mpi: not all ranks joined within %lld s",
                           (long long)(m->timeout_ns / 1000000000));
        hl_sleep_ns(100000);
    }
    return check_world(m, diag);
}

static void introduce(struct mpi *m) {
    m->me = (struct words){.version = WORDS_VERSION,
                           .state = HL_PEER_ALIVE,
                           .phase = HL_PHASE_START,
                           .n_lanes = m->wire.n_lanes,
                           .waits_for = -1,
                           .pid = getpid(),
                           .part_bytes = m->wire.part_bytes,
                           .space = hl_process_space()};
    if (gethostname(m->me.host, sizeof m->me.host - 1)) m->me.host[0] = '?';
    for (int p = 0; p < m->wire.n_ranks; p++) {
        if (p == m->wire.rank) continue;
        for (int lane = 0; lane < m->wire.n_lanes; lane++)
            for (uint64_t i = 0; i < SLOTS; i++) {
                post_part(m, (struct hl_stream){lane, p, m->wire.rank}, i);
                post_part(m, (struct hl_stream){lane, p, HL_EVERYONE}, i);
            }
        post_words(m, p);
        say(m, p, false);
    }
}

static enum hl_status check_peer(const struct mpi *m, int peer, struct hl_diag *diag) {
    const struct words *words = &m->peers[peer].words;
    if (words->version == WORDS_VERSION && words->n_lanes == m->wire.n_lanes &&
        words->part_bytes == m->wire.part_bytes)
        return HL_OK;
    return hl_fail(diag, HL_E_USER,
                   "wire mpi: rank %d has %d lanes with parts of %llu bytes, version %u; this is "
                   "rank %d with %d, %zu and %d: all ranks need the same program and configuration",
                   peer, words->n_lanes, (unsigned long long)words->part_bytes, words->version,
                   m->wire.rank, m->wire.n_lanes, m->wire.part_bytes, WORDS_VERSION);
}

static int n_absent(const struct mpi *m, int *first_out) {
    int n = 0;
    for (int p = m->wire.n_ranks - 1; p >= 0; p--)
        if (p != m->wire.rank && m->peers[p].words.state == HL_PEER_ABSENT) n++, *first_out = p;
    return n;
}

static enum hl_status meet(struct mpi *m, struct hl_diag *diag) {
    int64_t until = hl_clock_ns() + m->timeout_ns;
    int absent = 0, n;
    enum hl_status status = HL_OK;
    introduce(m);
    while ((n = n_absent(m, &absent)) > 0 && m->wire.failed_rank < 0) {
        if (hl_clock_ns() > until)
            return hl_fail(diag, HL_E_TIMEOUT,
                           "wire mpi: %d of %d ranks did not answer within %lld s, the first is "
                           "rank %d",
                           n, m->wire.n_ranks, (long long)(m->timeout_ns / 1000000000), absent);
        (void)wait(&m->wire, LONGEST_SLEEP_NS);
    }
    int failed = m->wire.failed_rank;
    if (failed >= 0)
        return hl_fail(diag, HL_E_PEER, "wire mpi: rank %d failed at the start: %s%s", failed,
                       m->peers[failed].words.why, m->peers[failed].lost);
    for (int p = 0; p < m->wire.n_ranks && status == HL_OK; p++) {
        if (p == m->wire.rank) continue;
        status = check_peer(m, p, diag);
        /* a network lies between hosts; within one, MPI copies when it is called */
        m->wire.slow |= m->world.any_thread && strcmp(m->peers[p].words.host, m->me.host) != 0;
    }
    return status;
}

enum hl_status hl_mpi_streams_open(struct hl_mem *mem, const struct hl_wire_place *place,
                                   const struct hl_mpi_table *table, struct hl_wire **out,
                                   struct hl_diag *diag) {
    struct mpi *m = NULL;
    struct hl_diag why = {0};
    enum hl_status status = new_mpi(mem, place, table, &m, diag);
    if (status != HL_OK) return status;
    if ((status = start(m, diag)) != HL_OK) {
        free_mpi(m);
        return status;
    }
    if ((status = meet(m, &why)) != HL_OK) {
        if (diag) *diag = why;
        give_up(&m->wire, why.text);
        close_mpi(&m->wire);
        return status;
    }
    *out = &m->wire;
    return HL_OK;
}
