/* Operations in flight on the lanes of a wire: progress, waiting, and whom to blame. */
#include "collectives/group.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "kernels/threads.h"
#include "os/clock.h"
#include "os/futex.h"
#include "os/thread.h"

/* Parts of a flow: large ones pass through a cache-sized slot piece by piece, smaller ones are cut
 * so that sending, adding and copying overlap. Elements. */
enum { PIECES = 4, LEAST_PIECE = 8192 };
/* Before the first sleep of a wait: small parts of ranks in step arrive while one still polls. */
enum { POLLS = 4 };

struct lane {
    struct hl_collective *first, *last;
    /* Two paths: what the second one carries of the first operation, when that is split. */
    struct hl_collective *rest, *rest_of; /* rest_of NULL: nothing */
};

struct hl_group {
    struct hl_mem *mem;
    struct hl_wire *wire; /* NULL: one rank */
    const struct hl_kernels *kernels;
    int64_t timeout_ns, idle_ns; /* idle: slept since something moved */
    int rank, n_ranks, n_lanes;
    struct lane lanes[HL_MAX_LANES];
    struct hl_collective *rests; /* [n_lanes]; NULL: one path */
    struct hl_paths paths;
    int by_hand;         /* of hl_group_set_share */
    struct hl_bf16 *own; /* [part_bytes]: this rank's part, rounded */
    enum hl_phase phase;
    int64_t step;
    void (*told)(void *context, enum hl_phase phase, int64_t step);
    void *told_context;
    struct hl_group_counts counts;
    struct hl_collective share;
    struct hl_diag broke; /* status not HL_OK: why nothing works any more */

    /* Slow wires. Who holds the lock may use the wire, the lanes and what stands above. */
    struct hl_thread *helper; /* NULL: none */
    struct hl_mutex *lock;
    uint32_t n_in_flight;      /* operations in lanes; the helper sleeps on it while it is 0 */
    uint32_t wanted, stopping; /* the caller wants the lock; the helper shall end */
};

/* ---- the helper ---- */

/* Waits of the helper double while nothing moves: a short one costs as much as a long one. */
struct span {
    int64_t least_ns, most_ns;
};
static const struct span WAIT = {200000, 2000000}, POLITE = {20000, 500000};
static const int64_t HELPER_SLEEP_NS = 100000000;

static int64_t longer(int64_t ns, const struct span *span) {
    return 2 * ns < span->most_ns ? 2 * ns : span->most_ns;
}

static uint32_t get(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
static void set(uint32_t *word, uint32_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

static void take(struct hl_group *g) {
    if (!g->helper) return;
    set(&g->wanted, 1);
    hl_mutex_lock(g->lock);
}
static void yield(struct hl_group *g) {
    if (!g->helper) return;
    set(&g->wanted, 0);
    hl_mutex_unlock(g->lock);
}

static bool advance_all(struct hl_group *g, struct hl_collective **oldest_out);

/* False when nothing moved, and nothing came for wait_ns. */
static bool help_once(struct hl_group *g, int64_t wait_ns) {
    struct hl_collective *oldest;
    hl_mutex_lock(g->lock);
    bool moved = advance_all(g, &oldest);
    if (!moved) (void)g->wire->ops->wait(g->wire, wait_ns);
    hl_mutex_unlock(g->lock);
    return moved;
}

static void help(void *context) {
    struct hl_group *g = context;
    int64_t wait_ns = WAIT.least_ns, polite_ns = POLITE.least_ns;
    hl_threads_set(1);
    hl_denormals_off(); /* sums have the caller's bits */
    while (!get(&g->stopping)) {
        if (!get(&g->n_in_flight)) hl_futex_wait(&g->n_in_flight, 0, HELPER_SLEEP_NS);
        else if (get(&g->wanted)) {
            hl_sleep_ns(polite_ns);
            polite_ns = longer(polite_ns, &POLITE);
        } else {
            wait_ns = help_once(g, wait_ns) ? WAIT.least_ns : longer(wait_ns, &WAIT);
            polite_ns = POLITE.least_ns;
        }
    }
}

static enum hl_status start_helper(struct hl_group *g, struct hl_diag *diag) {
    g->lock = hl_mutex_new(g->mem);
    if (!g->lock) return hl_fail_memory(diag, 64, "the group of ranks");
    return hl_thread_start(g->mem, help, g, &g->helper, diag);
}

/* ---- life ---- */

/* One for each lane: only the first operation has a second half under way. */
static enum hl_status make_rests(struct hl_group *g, struct hl_diag *diag) {
    size_t n = (size_t)g->n_lanes;
    g->rests = hl_alloc(g->mem, n, sizeof *g->rests);
    if (!g->rests) return hl_fail_memory(diag, n * sizeof *g->rests, "operations on two paths");
    for (int l = 0; l < g->n_lanes; l++) g->lanes[l].rest = &g->rests[l];
    return HL_OK;
}

enum hl_status hl_group_new(struct hl_mem *mem, struct hl_wire *wire,
                            const struct hl_kernels *kernels, int64_t timeout_ns,
                            struct hl_group **out, struct hl_diag *diag) {
    struct hl_group *g = hl_alloc(mem, 1, sizeof *g);
    if (!g) return hl_fail_memory(diag, sizeof *g, "the group of ranks");
    *g = (struct hl_group){.mem = mem,
                           .wire = wire,
                           .kernels = kernels,
                           .timeout_ns = timeout_ns,
                           .rank = wire ? wire->rank : 0,
                           .n_ranks = wire ? wire->n_ranks : 1,
                           .n_lanes = wire ? wire->n_lanes : 1,
                           .by_hand = -1};
    bool two_paths = wire && wire->n_paths == 2;
    if (two_paths) g->n_lanes /= 2;
    enum hl_status status = HL_OK;
    if (wire && !(g->own = hl_alloc(mem, wire->part_bytes, 1)))
        status = hl_fail_memory(diag, wire->part_bytes, "the group of ranks");
    if (status == HL_OK && two_paths) status = make_rests(g, diag);
    if (status == HL_OK && wire && wire->slow) status = start_helper(g, diag);
    if (status == HL_OK && two_paths) status = hl_paths_measure(mem, g, &g->paths, diag);
    if (status == HL_OK) *out = g;
    else hl_group_free(g);
    return status;
}

void hl_group_free(struct hl_group *g) {
    if (!g) return;
    set(&g->stopping, 1);
    hl_futex_wake(&g->n_in_flight);
    hl_thread_join(g->helper);
    hl_mutex_free(g->lock);
    hl_free(g->mem, g->own);
    hl_free(g->mem, g->rests);
    hl_free(g->mem, g);
}

int hl_group_rank(const struct hl_group *g) { return g ? g->rank : 0; }
int hl_group_n_ranks(const struct hl_group *g) { return g ? g->n_ranks : 1; }
int hl_group_n_lanes(const struct hl_group *g) { return g ? g->n_lanes : 1; }
const struct hl_paths *hl_group_paths(const struct hl_group *g) {
    return g && g->rests ? &g->paths : NULL;
}
void hl_group_set_share(struct hl_group *g, int share) { g->by_hand = share; }

void hl_group_tell(struct hl_group *g, enum hl_phase phase, int64_t step) {
    if (!g || (g->phase == phase && g->step == step)) return;
    take(g);
    g->phase = phase;
    g->step = step;
    if (g->wire) g->wire->ops->tell(g->wire, phase, step);
    yield(g);
    if (g->told) g->told(g->told_context, phase, step);
}

void hl_group_on_tell(struct hl_group *g,
                      void (*told)(void *context, enum hl_phase phase, int64_t step),
                      void *context) {
    g->told = told;
    g->told_context = context;
}

static void end_all(struct hl_group *g, enum hl_status status);

void hl_group_give_up(struct hl_group *g, const char *why) {
    if (!g || !g->wire) return;
    take(g);
    g->wire->ops->give_up(g->wire, why);
    if (g->broke.status == HL_OK)
        end_all(g, hl_fail(&g->broke, HL_E_PEER, "rank %d gave up: %s", g->rank, why));
    yield(g);
}

struct hl_group_counts hl_group_counted(struct hl_group *g) {
    if (!g) return (struct hl_group_counts){0};
    take(g);
    struct hl_group_counts counts = g->counts;
    yield(g);
    return counts;
}

/* ---- whom we wait for ---- */

static const char *kind_name(enum hl_collective_kind kind) {
    static const char *const names[] = {
        "all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce",
        "gather",     "scatter",        "all-to-all", "barrier",   "send"};
    return names[kind];
}

static enum hl_status explain(struct hl_group *g, enum hl_status status,
                              const struct hl_collective *op, int rank, struct hl_diag *diag) {
    char who[HL_PEER_TEXT];
    long long seconds = (long long)(g->timeout_ns / 1000000000);
    if (rank < 0)
        return hl_fail(diag, status, "rank %d waited %lld s for others to take its part of a %s",
                       g->rank, seconds, kind_name(op->args.kind));
    enum hl_peer_state state = hl_peer_describe(g->wire, rank, status, who);
    if (status == HL_E_TIMEOUT)
        return hl_fail(
            diag, status,
            "waited %lld s for %s in %s, in the phase %s of step %lld; a larger --timeout "
            "waits longer",
            seconds, who, kind_name(op->args.kind), hl_phase_name(g->phase), (long long)g->step);
    if (state == HL_PEER_FAILED) return hl_fail(diag, status, "%s", who);
    return hl_fail(diag, status, "%s; noticed in the phase %s of step %lld", who,
                   hl_phase_name(g->phase), (long long)g->step);
}

static struct hl_stream read_stream(const struct hl_group *g, const struct hl_collective *op,
                                    int from) {
    return (struct hl_stream){op->lane, from, op->reads_everyone ? HL_EVERYONE : g->rank};
}
/* Sums of slices come directly, those of whole arrays through everyone's stream. */
static struct hl_stream sum_stream(const struct hl_group *g, const struct hl_collective *op,
                                   int from) {
    return (struct hl_stream){op->lane, from, op->args.one_stage ? HL_EVERYONE : g->rank};
}

static bool lacks_for_sum(struct hl_group *g, const struct hl_collective *op, int rank) {
    const void *data;
    size_t bytes;
    return op->reduces && op->sum_done < op->sum_n &&
           g->wire->ops->view(g->wire, sum_stream(g, op, rank), &data, &bytes) != HL_OK;
}

/* Of those whose parts we lack, the one that sent least; else the one that does not take ours; -1:
 * it may be any. */
static int first_lacking(struct hl_group *g, const struct hl_collective *op) {
    const struct hl_flow *least = NULL;
    for (int p = 0; p < g->n_ranks; p++)
        if (p != g->rank && lacks_for_sum(g, op, p)) return p;
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i].done < op->in[i].n && (!least || op->in[i].done < least->done))
            least = &op->in[i];
    for (int i = 0; i < op->n_out && !least; i++)
        if (op->out[i].done < op->out[i].n) least = &op->out[i];
    return least && least->peer != HL_EVERYONE ? least->peer : -1;
}

/* Do we lack a part of that rank, or may it not have taken one of ours? */
static bool concerns(struct hl_group *g, const struct hl_collective *op, int rank) {
    bool yes = lacks_for_sum(g, op, rank);
    for (int i = 0; i < op->n_in && !yes; i++)
        yes = op->in[i].peer == rank && op->in[i].done < op->in[i].n;
    for (int i = 0; i < op->n_out && !yes; i++)
        yes = (op->out[i].peer == rank || op->out[i].peer == HL_EVERYONE) &&
              op->out[i].done < op->out[i].n;
    return yes;
}

/* Its other half on the second path; NULL: it has none. */
static const struct hl_collective *rest_of(const struct hl_group *g,
                                           const struct hl_collective *op) {
    const struct lane *lane = &g->lanes[op->args.lane];
    return lane->rest_of == op ? lane->rest : NULL;
}

/* The rank that holds the operation up. Others that we wait for may wait too, even for us when a
 * third one does not take what is for everyone: so it is one that waits for nobody, and of several
 * the one that is furthest behind. */
static int awaited(struct hl_group *g, const struct hl_collective *op) {
    const struct hl_collective *rest = rest_of(g, op);
    int64_t least = INT64_MAX;
    int rank = -1;
    for (int p = 0; p < g->n_ranks; p++) {
        struct hl_peer peer;
        if (p == g->rank || !(concerns(g, op, p) || (rest && concerns(g, rest, p)))) continue;
        g->wire->ops->peer(g->wire, p, &peer);
        int64_t at = peer.waits ? INT64_MAX : peer.step * (HL_PHASE_SHUTDOWN + 1) + peer.phase;
        if (at == least) rank = -1;
        if (at < least) least = at, rank = p;
    }
    if (rank < 0) rank = first_lacking(g, op);
    return rank < 0 && rest ? first_lacking(g, rest) : rank;
}

/* ---- progress ---- */

/* Streams of a lane that earlier operations have not done with. Bits of ranks; of out, one's own
 * stands for everyone. */
struct busy {
    uint64_t out, in, in_everyone;
};
static_assert(HL_MAX_RANKS <= 64, "a bit for each rank");

static uint64_t bit_out(const struct hl_group *g, int peer) {
    return UINT64_C(1) << (peer == HL_EVERYONE ? g->rank : peer);
}
static uint64_t *busy_in(struct busy *busy, bool everyone) {
    return everyone ? &busy->in_everyone : &busy->in;
}

/* Adds what this operation still needs. */
static void occupy(const struct hl_group *g, const struct hl_collective *op, struct busy *busy) {
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i].done < op->out[i].n) busy->out |= bit_out(g, op->out[i].peer);
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i].done < op->in[i].n)
            *busy_in(busy, op->reads_everyone) |= UINT64_C(1) << op->in[i].peer;
    if (op->reduces && op->sum_done < op->sum_n) *busy_in(busy, op->args.one_stage) = UINT64_MAX;
}

static int64_t piece(const struct hl_group *g, const struct hl_collective *op, int64_t n) {
    int64_t most = (int64_t)(g->wire->part_bytes / hl_collective_wire_bytes(op));
    int64_t size = (n / PIECES + HL_SLICE_UNIT - 1) / HL_SLICE_UNIT * HL_SLICE_UNIT;
    if (size < LEAST_PIECE) size = LEAST_PIECE;
    return size < most ? size : most;
}

static enum hl_status send(struct hl_group *g, struct hl_collective *op, struct hl_flow *flow,
                           int64_t limit, bool *moved) {
    struct hl_stream stream = {op->lane, g->rank, flow->peer};
    size_t size = op->args.element_bytes;
    int64_t step = piece(g, op, flow->n);
    while (flow->done < limit) {
        void *room;
        enum hl_status status = g->wire->ops->reserve(g->wire, stream, &room);
        if (status != HL_OK) return status == HL_PENDING ? HL_OK : status;
        int64_t n = limit - flow->done < step ? limit - flow->done : step;
        const char *from = flow->data + (size_t)flow->done * size;
        if (op->args.wire == HL_BF16)
            g->kernels->to_bf16(n, (const float *)(const void *)from, room);
        else memcpy(room, from, (size_t)n * size);
        status = g->wire->ops->commit(g->wire, stream, (size_t)n * hl_collective_wire_bytes(op));
        if (status != HL_OK) return status;
        g->counts.bytes_out += n * (int64_t)hl_collective_wire_bytes(op) *
                               (flow->peer == HL_EVERYONE ? g->n_ranks - 1 : 1);
        flow->done += n;
        *moved = true;
    }
    return HL_OK;
}

static enum hl_status send_all(struct hl_group *g, struct hl_collective *op,
                               const struct busy *busy, bool *moved) {
    bool earlier_done = true;
    enum hl_status status = HL_OK;
    for (int i = 0; i < op->n_out && status == HL_OK; i++) {
        struct hl_flow *flow = &op->out[i];
        if (busy->out & bit_out(g, flow->peer)) continue;
        int64_t limit = flow->n;
        if (op->forwards && i == op->n_out - 1) {
            limit = op->sum_done;
            if (op->args.kind == HL_REDUCE && !earlier_done) limit = 0; /* the same stream */
        }
        status = send(g, op, flow, limit, moved);
        earlier_done &= flow->done == flow->n;
    }
    return status;
}

/* A part that does not fit is not of this operation: the ranks run different programs. */
static enum hl_status check_part(const struct hl_flow *flow, size_t bytes, size_t wire_bytes) {
    bool fits = bytes > 0 && bytes % wire_bytes == 0 &&
                (int64_t)(bytes / wire_bytes) <= flow->n - flow->done;
    return fits ? HL_OK : HL_E_FORMAT;
}

static enum hl_status receive(struct hl_group *g, struct hl_collective *op, struct hl_flow *flow,
                              bool *moved) {
    struct hl_stream stream = read_stream(g, op, flow->peer);
    size_t wire_bytes = hl_collective_wire_bytes(op);
    while (flow->done < flow->n) {
        const void *data;
        size_t bytes;
        enum hl_status status = g->wire->ops->view(g->wire, stream, &data, &bytes);
        if (status != HL_OK) return status == HL_PENDING ? HL_OK : status;
        if ((status = check_part(flow, bytes, wire_bytes)) != HL_OK) return status;
        char *to = flow->data + (size_t)flow->done * op->args.element_bytes;
        int64_t n = (int64_t)(bytes / wire_bytes);
        if (op->args.wire == HL_BF16) g->kernels->from_bf16(n, data, (float *)(void *)to);
        else memcpy(to, data, bytes);
        if ((status = g->wire->ops->release(g->wire, stream)) != HL_OK) return status;
        g->counts.bytes_in += (int64_t)bytes;
        flow->done += n;
        *moved = true;
    }
    return HL_OK;
}

static void add_up(struct hl_group *g, struct hl_collective *op, const void **parts, int64_t n) {
    const float *own = op->own + op->sum_done;
    float *to = op->sum + op->sum_done;
    if (op->args.wire == HL_BF16) {
        g->kernels->to_bf16(n, own, g->own);
        parts[g->rank] = g->own;
        g->kernels->sum_parts_bf16(n, g->n_ranks, (const struct hl_bf16 *const *)parts, to);
    } else {
        parts[g->rank] = own;
        g->kernels->sum_parts(n, g->n_ranks, (const float *const *)parts, to);
    }
}

static enum hl_status sum(struct hl_group *g, struct hl_collective *op, bool *moved) {
    const struct hl_flow whole = {.n = op->sum_n, .done = op->sum_done};
    const void *parts[HL_MAX_RANKS];
    size_t bytes = 0, first = 0;
    enum hl_status status;
    bool all = true;
    if (op->args.one_stage && op->out[0].done <= op->sum_done) return HL_OK; /* not yet sent */
    for (int p = 0; p < g->n_ranks; p++) { /* all are asked for: bytes may set out only then */
        if (p == g->rank) continue;
        status = g->wire->ops->view(g->wire, sum_stream(g, op, p), &parts[p], &bytes);
        if (status < 0) return status;
        all &= status == HL_OK;
        if (first == 0 && status == HL_OK) first = bytes;
        if (status == HL_OK && bytes != first) return HL_E_FORMAT;
    }
    if (!all) return HL_PENDING;
    status = check_part(&whole, first, hl_collective_wire_bytes(op));
    if (status != HL_OK) return status;
    int64_t n = (int64_t)(first / hl_collective_wire_bytes(op));
    if (op->args.one_stage && op->out[0].done < op->sum_done + n) return HL_OK;
    add_up(g, op, parts, n);
    for (int p = 0; p < g->n_ranks; p++)
        if (p != g->rank &&
            (status = g->wire->ops->release(g->wire, sum_stream(g, op, p))) != HL_OK)
            return status;
    g->counts.bytes_in += (int64_t)first * (g->n_ranks - 1);
    op->sum_done += n;
    *moved = true;
    return HL_OK;
}

static bool done(const struct hl_collective *op) {
    if (op->reduces && op->sum_done < op->sum_n) return false;
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i].done < op->out[i].n) return false;
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i].done < op->in[i].n) return false;
    return true;
}

static enum hl_status advance(struct hl_group *g, struct hl_collective *op, struct busy *busy,
                              bool *moved) {
    enum hl_status status = send_all(g, op, busy, moved);
    bool sums = op->reduces && op->sum_done < op->sum_n && !*busy_in(busy, op->args.one_stage);
    if (status == HL_OK && sums) status = sum(g, op, moved);
    if (status == HL_PENDING) status = HL_OK;
    bool held = op->args.kind == HL_REDUCE && op->sum_done < op->sum_n; /* the same streams */
    uint64_t others = *busy_in(busy, op->reads_everyone);
    for (int i = 0; i < op->n_in && status == HL_OK && !held; i++)
        if (!(others >> op->in[i].peer & 1)) status = receive(g, op, &op->in[i], moved);
    return status;
}

static void finish(struct hl_group *g, struct hl_collective *op, enum hl_status status) {
    (void)__atomic_fetch_sub(&g->n_in_flight, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&op->status, status, __ATOMIC_RELEASE); /* the caller's memory again */
}

/* As far as it goes now. */
static enum hl_status advance_far(struct hl_group *g, struct hl_collective *op, struct busy *busy,
                                  bool *moved) {
    bool step;
    do {
        step = false;
        enum hl_status status = advance(g, op, busy, &step);
        *moved |= step;
        if (status != HL_OK) return status;
    } while (step && !done(op));
    return HL_OK;
}

/* The first operation of a lane gets its second half, if it is split. */
static void begin_rest(const struct hl_group *g, struct lane *lane) {
    struct hl_collective *op = lane->first;
    if (op->share == HL_SHARES || lane->rest_of == op) return;
    const struct hl_part part = {op->share, HL_SHARES};
    hl_collective_prepare(&op->args, part, g->rank, g->n_ranks, lane->rest);
    lane->rest->lane = op->lane + g->n_lanes;
    lane->rest_of = op;
}

/* busy: of each path. A second half that has not begun comes before all that is behind it. */
static void occupy_paths(const struct hl_group *g, const struct lane *lane,
                         const struct hl_collective *op, struct busy busy[2]) {
    occupy(g, op, &busy[op->lane >= g->n_lanes]);
    if (lane->rest_of == op) occupy(g, lane->rest, &busy[1]);
    else if (op->share < HL_SHARES) busy[1] = (struct busy){UINT64_MAX, UINT64_MAX, UINT64_MAX};
}

/* Operations end in order. On a slow wire later ones begin in streams that earlier ones have done
 * with: while one waits for sums, the next one's parts fill the link. */
static enum hl_status advance_lane(struct hl_group *g, struct lane *lane, bool *moved) {
    struct busy busy[2] = {{0}};
    for (struct hl_collective *op = lane->first, *next; op; op = next) {
        next = op->next;
        if (op == lane->first) begin_rest(g, lane);
        enum hl_status status = advance_far(g, op, &busy[op->lane >= g->n_lanes], moved);
        if (status == HL_OK && lane->rest_of == op)
            status = advance_far(g, lane->rest, &busy[1], moved);
        if (status != HL_OK) return status;
        if (op == lane->first && done(op) && (!lane->rest_of || done(lane->rest))) {
            lane->first = next;
            lane->rest_of = NULL;
            finish(g, op, HL_OK);
        } else if (g->wire->slow) occupy_paths(g, lane, op, busy);
        else break;
    }
    return lane->first ? HL_PENDING : HL_OK;
}

/* Operations in flight end: their memory is the caller's again. */
static void end_all(struct hl_group *g, enum hl_status status) {
    for (int l = 0; l < g->n_lanes; l++) {
        g->lanes[l].rest_of = NULL;
        while (g->lanes[l].first) {
            struct hl_collective *lost = g->lanes[l].first;
            g->lanes[l].first = lost->next;
            finish(g, lost, status);
        }
    }
}

/* Nothing works any more: operations in flight end with the status, and so does every later one. */
static void give_up(struct hl_group *g, enum hl_status status, const struct hl_collective *op) {
    if (status == HL_E_PEER) status = explain(g, status, op, g->wire->failed_rank, &g->broke);
    else if (status == HL_E_TIMEOUT) status = explain(g, status, op, awaited(g, op), &g->broke);
    else
        status = hl_fail(&g->broke, status,
                         "rank %d got a part that does not belong to its %s: the ranks do not run "
                         "the same configuration",
                         g->rank, kind_name(op->args.kind));
    end_all(g, status);
}

/* So that who waits for us can say for whom we wait. rank -1: for nobody. */
static void tell_waiting(struct hl_group *g, int rank) {
    bool waits = rank >= 0;
    struct hl_wire *wire = g->wire;
    if (waits == wire->waits && (!waits || rank == wire->waits_for)) return;
    wire->waits = waits;
    wire->waits_for = rank;
    wire->ops->tell(wire, g->phase, g->step);
}

/* False when nothing moved. *oldest_out: what is still in flight on the first lane that has
 * something; NULL: nothing is. */
static bool advance_all(struct hl_group *g, struct hl_collective **oldest_out) {
    bool moved = false;
    *oldest_out = NULL;
    for (int l = 0; l < g->n_lanes && g->broke.status == HL_OK; l++) {
        enum hl_status status = advance_lane(g, &g->lanes[l], &moved);
        if (status < 0) give_up(g, status, g->lanes[l].first);
        else if (status == HL_PENDING && !*oldest_out) *oldest_out = g->lanes[l].first;
    }
    if (moved) g->idle_ns = 0, tell_waiting(g, -1);
    return moved;
}

static enum hl_status poll(struct hl_group *g, struct hl_diag *diag) {
    struct hl_collective *oldest = NULL;
    (void)advance_all(g, &oldest);
    if (oldest && g->idle_ns > g->timeout_ns / 2) tell_waiting(g, awaited(g, oldest));
    if (oldest && g->broke.status == HL_OK && g->idle_ns > g->timeout_ns)
        give_up(g, HL_E_TIMEOUT, oldest);
    if (g->broke.status != HL_OK && diag) *diag = g->broke;
    return g->broke.status != HL_OK ? g->broke.status : oldest ? HL_PENDING : HL_OK;
}

enum hl_status hl_group_poll(struct hl_group *g, struct hl_diag *diag) {
    if (!g || !g->wire) return HL_OK;
    if (g->helper && !hl_mutex_try(g->lock)) /* it is at work */
        return get(&g->n_in_flight) ? HL_PENDING : HL_OK;
    enum hl_status status = poll(g, diag);
    if (g->helper) hl_mutex_unlock(g->lock);
    return status;
}

enum hl_status hl_collective_status(const struct hl_collective *op) {
    return __atomic_load_n(&op->status, __ATOMIC_ACQUIRE);
}

bool hl_collectives_done(const struct hl_collective *ops, int n) {
    for (int i = 0; i < n; i++)
        if (hl_collective_status(&ops[i]) != HL_OK) return false;
    return true;
}

/* What does not travel of an operation with an out. */
static void copy_own(const struct hl_collective_args *args, int rank, int n_ranks) {
    bool apart = args->kind == HL_REDUCE_SCATTER && args->out && n_ranks == 1;
    if (args->kind != HL_ALL_TO_ALL && !apart) return;
    int64_t unit = args->unit ? args->unit : HL_SLICE_UNIT;
    struct hl_range own = hl_slice(args->n, unit, rank, n_ranks);
    size_t at = (size_t)own.offset * args->element_bytes;
    memcpy((char *)args->out + at, (char *)args->data + at, (size_t)own.n * args->element_bytes);
}

/* Its flows, for the first path that it takes. */
static void prepare(const struct hl_group *g, const struct hl_collective_args *args,
                    struct hl_collective *op) {
    struct hl_part part = HL_ALL_PARTS;
    int share = HL_SHARES;
    if (g && g->rests)
        share = g->by_hand >= 0 ? g->by_hand : hl_path_share(&g->paths, args, g->n_ranks);
    if (args->kind == HL_BARRIER && share < HL_SHARES) share = 0; /* nothing to split */
    if (share > 0) part.to = share;
    hl_collective_prepare(args, part, hl_group_rank(g), hl_group_n_ranks(g), op);
    op->share = part.to;
    op->lane = args->lane + (share > 0 ? 0 : g->n_lanes);
}

void hl_collective_start(struct hl_group *g, const struct hl_collective_args *args,
                         struct hl_collective *op) {
    prepare(g, args, op);
    copy_own(args, hl_group_rank(g), hl_group_n_ranks(g));
    if (hl_group_n_ranks(g) == 1) {
        op->status = HL_OK;
        return;
    }
    assert(args->lane >= 0 && args->lane < g->n_lanes);
    take(g);
    op->status = g->broke.status != HL_OK ? g->broke.status : HL_PENDING;
    if (op->status == HL_PENDING) {
        struct lane *lane = &g->lanes[args->lane];
        if (lane->first) lane->last->next = op;
        else lane->first = op;
        lane->last = op;
        if (__atomic_fetch_add(&g->n_in_flight, 1, __ATOMIC_RELEASE) == 0 && g->helper)
            hl_futex_wake(&g->n_in_flight);
    }
    yield(g);
}

static void sleep_inside(struct hl_group *g, int64_t timeout_ns) {
    int64_t before = hl_clock_ns();
    (void)g->wire->ops->wait(g->wire, timeout_ns);
    int64_t slept = hl_clock_ns() - before;
    g->idle_ns += slept < timeout_ns ? slept : timeout_ns; /* longer: all stood still (Ctrl-Z) */
    g->counts.wait_ns += slept;
}

void hl_group_sleep(struct hl_group *g, int64_t timeout_ns) {
    if (!g || !g->wire) return;
    take(g);
    sleep_inside(g, timeout_ns);
    yield(g);
}

enum hl_status hl_collective_wait(struct hl_group *g, struct hl_collective *op,
                                  struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    if (hl_collective_status(op) == HL_OK) return HL_OK;
    take(g);
    for (int n_polls = 0;; n_polls++) {
        status = poll(g, diag);
        if (status < 0 || hl_collective_status(op) == HL_OK) break;
        if (n_polls >= POLLS) sleep_inside(g, HELPER_SLEEP_NS);
    }
    yield(g);
    return status < 0 ? status : HL_OK;
}

enum hl_status hl_group_barrier(struct hl_group *g, struct hl_diag *diag) {
    struct hl_collective op;
    hl_collective_start(g, &(struct hl_collective_args){.kind = HL_BARRIER}, &op);
    return hl_collective_wait(g, &op, diag);
}

enum hl_status hl_group_broadcast(struct hl_group *g, void *data, size_t bytes,
                                  struct hl_diag *diag) {
    struct hl_collective op;
    const struct hl_collective_args args = {
        .kind = HL_BROADCAST, .data = data, .n = (int64_t)bytes, .element_bytes = 1};
    hl_collective_start(g, &args, &op);
    return hl_collective_wait(g, &op, diag);
}

enum hl_status hl_group_share(struct hl_group *g, double *all, int64_t k, struct hl_diag *diag) {
    const struct hl_collective_args args = {.kind = HL_ALL_GATHER,
                                            .data = all,
                                            .n = k * hl_group_n_ranks(g),
                                            .element_bytes = sizeof *all,
                                            .unit = k};
    if (hl_group_n_ranks(g) == 1) return HL_OK;
    hl_collective_start(g, &args, &g->share);
    return hl_collective_wait(g, &g->share, diag);
}
