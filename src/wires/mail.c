/* Credits, slots, and who is still there. See mail.h. */
#include "wires/mail.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "halley/text_number.h"

static struct hl_mail *mail_of(struct hl_wire *wire) { return (struct hl_mail *)(void *)wire; }

/* ---- where things lie ---- */

static struct hl_mail_out *out_of(struct hl_mail *m, struct hl_stream s) {
    int to = s.to == HL_EVERYONE ? m->wire.rank : s.to;
    return &m->out[s.lane * m->wire.n_ranks + to];
}
static size_t by_peer(const struct hl_mail *m, int lane, int peer, bool to_everyone) {
    return ((size_t)lane * (size_t)m->wire.n_ranks + (size_t)peer) * 2 + to_everyone;
}
static int64_t *acked_by(struct hl_mail *m, struct hl_stream s, int reader) {
    return &m->acked[by_peer(m, s.lane, reader, s.to == HL_EVERYONE)];
}
static struct hl_mail_in *in_of(struct hl_mail *m, struct hl_stream s) {
    return &m->in[by_peer(m, s.lane, s.from, s.to == HL_EVERYONE)];
}
static bool reads(const struct hl_mail *m, struct hl_stream s, int peer) {
    return peer != m->wire.rank && (s.to == HL_EVERYONE || s.to == peer);
}

enum hl_status hl_mail_init(struct hl_mail *m, struct hl_mem *mem, int n_slots,
                            const struct hl_mail_transport *transport, struct hl_diag *diag) {
    size_t n = (size_t)m->wire.n_lanes * (size_t)m->wire.n_ranks;
    m->transport = transport;
    m->mem = mem;
    m->n_slots = n_slots;
    m->out = hl_alloc(mem, n, sizeof *m->out);
    m->acked = hl_alloc(mem, 2 * n, sizeof *m->acked);
    m->in = hl_alloc(mem, 2 * n, sizeof *m->in);
    bool whole = m->out && m->acked && m->in;
    for (size_t i = 0; whole && i < n; i++)
        whole = (m->out[i].room = hl_alloc(mem, m->wire.part_bytes, 1)) != NULL;
    if (whole) return HL_OK;
    hl_mail_fini(m);
    return hl_fail_memory(diag, n * m->wire.part_bytes, "the room of a wire's streams");
}

void hl_mail_fini(struct hl_mail *m) {
    size_t n = (size_t)m->wire.n_lanes * (size_t)m->wire.n_ranks;
    for (size_t i = 0; m->out && i < n; i++) hl_free(m->mem, m->out[i].room);
    for (size_t i = 0; m->in && i < 2 * n; i++) {
        hl_free(m->mem, m->in[i].slots);
        hl_free(m->mem, m->in[i].bytes);
    }
    hl_free(m->mem, m->out);
    hl_free(m->mem, m->acked);
    hl_free(m->mem, m->in);
    m->out = NULL;
    m->acked = NULL;
    m->in = NULL;
}

/* ---- sending ---- */

bool hl_mail_has(const struct hl_mail *m, int peer) {
    return peer != m->wire.rank && m->peers[peer].state == HL_PEER_ALIVE;
}

static void send_to(struct hl_mail *m, int peer, struct hl_mail_head head, const void *data) {
    if (hl_mail_has(m, peer)) m->transport->send(m, peer, &head, data);
}

void hl_mail_send_all(struct hl_mail *m, enum hl_mail_kind kind, int64_t number, const char *text) {
    const struct hl_mail_head head = {.kind = (uint8_t)kind,
                                      .phase = (uint8_t)m->peers[m->wire.rank].phase,
                                      .bytes = (uint32_t)strlen(text),
                                      .number = number};
    for (int p = 0; p < m->wire.n_ranks; p++) send_to(m, p, head, text);
}

/* Nothing came from a peer that this rank waits for. A dead or failed rank breaks the whole group:
 * whoever we wait for may wait for it. */
static enum hl_status waits_for(struct hl_mail *m, int peer) {
    if (m->wire.failed_rank < 0 && m->peers[peer].state == HL_PEER_LEFT) m->wire.failed_rank = peer;
    return m->wire.failed_rank < 0 ? HL_PENDING : HL_E_PEER;
}

/* The reader that has no room for the next part; -1: none. */
static int laggard(struct hl_mail *m, struct hl_stream s) {
    int64_t sent = out_of(m, s)->sent;
    for (int p = 0; p < m->wire.n_ranks; p++)
        if (reads(m, s, p) && sent - *acked_by(m, s, p) >= m->n_slots) return p;
    return -1;
}

enum hl_status hl_mail_reserve(struct hl_wire *wire, struct hl_stream s, void **room_out) {
    struct hl_mail *m = mail_of(wire);
    assert(s.from == wire->rank && s.to != wire->rank && s.lane < wire->n_lanes);
    int late = laggard(m, s);
    if (late >= 0) m->transport->receive(m, 0);
    if (late >= 0 && (late = laggard(m, s)) >= 0) return waits_for(m, late);
    *room_out = out_of(m, s)->room;
    return HL_OK;
}

enum hl_status hl_mail_commit(struct hl_wire *wire, struct hl_stream s, size_t bytes) {
    struct hl_mail *m = mail_of(wire);
    struct hl_mail_out *out = out_of(m, s);
    assert(bytes <= wire->part_bytes);
    const struct hl_mail_head head = {.kind = HL_MAIL_PART,
                                      .lane = (uint8_t)s.lane,
                                      .to_everyone = s.to == HL_EVERYONE,
                                      .bytes = (uint32_t)bytes,
                                      .number = ++out->sent};
    for (int p = 0; p < wire->n_ranks; p++)
        if (reads(m, s, p)) send_to(m, p, head, out->room);
    return HL_OK;
}

/* ---- reading ---- */

enum hl_status hl_mail_view(struct hl_wire *wire, struct hl_stream s, const void **data_out,
                            size_t *bytes_out) {
    struct hl_mail *m = mail_of(wire);
    struct hl_mail_in *in = in_of(m, s);
    assert(s.from != wire->rank && s.lane < wire->n_lanes);
    if (in->arrived == in->released) m->transport->receive(m, 0);
    if (in->arrived == in->released) return waits_for(m, s.from);
    size_t slot = (size_t)(in->released % m->n_slots);
    *data_out = in->slots + slot * wire->part_bytes;
    *bytes_out = in->bytes[slot];
    return HL_OK;
}

enum hl_status hl_mail_release(struct hl_wire *wire, struct hl_stream s) {
    struct hl_mail *m = mail_of(wire);
    struct hl_mail_in *in = in_of(m, s);
    assert(in->arrived > in->released);
    send_to(m, s.from,
            (struct hl_mail_head){.kind = HL_MAIL_ACK,
                                  .lane = (uint8_t)s.lane,
                                  .to_everyone = s.to == HL_EVERYONE,
                                  .number = ++in->released},
            NULL);
    return HL_OK;
}

enum hl_status hl_mail_wait(struct hl_wire *wire, int64_t timeout_ns) {
    struct hl_mail *m = mail_of(wire);
    m->transport->receive(m, m->news ? 0 : timeout_ns);
    m->news = false;
    return HL_OK;
}

/* ---- what comes ---- */

static void fail(struct hl_mail *m, int peer, enum hl_peer_state state, const char *why) {
    struct hl_peer *p = &m->peers[peer];
    p->state = state;
    (void)snprintf(p->why, sizeof p->why, "%s", why);
    if (m->wire.failed_rank < 0) m->wire.failed_rank = peer;
}

static bool make_slots(struct hl_mail *m, struct hl_mail_in *in) {
    if (in->slots) return true;
    in->bytes = hl_alloc(m->mem, (size_t)m->n_slots, sizeof *in->bytes);
    if (in->bytes) in->slots = hl_alloc(m->mem, (size_t)m->n_slots, m->wire.part_bytes);
    return in->slots != NULL;
}

static const char *take_part(struct hl_mail *m, struct hl_mail_in *in,
                             const struct hl_mail_head *head, const void *data) {
    if (head->number != in->arrived + 1) return "a part is missing";
    if (in->arrived - in->released >= m->n_slots) return "more parts came than there is room for";
    if (head->bytes > m->wire.part_bytes) return "a part is too large";
    if (!make_slots(m, in)) return "there is no memory for its parts";
    size_t slot = (size_t)(in->arrived++ % m->n_slots);
    memcpy(in->slots + slot * m->wire.part_bytes, data, head->bytes);
    in->bytes[slot] = head->bytes;
    return NULL;
}

static const char *take_ack(struct hl_mail *m, int peer, const struct hl_mail_head *head) {
    const struct hl_stream s = {head->lane, m->wire.rank, head->to_everyone ? HL_EVERYONE : peer};
    int64_t *acked = acked_by(m, s, peer);
    if (head->number < *acked || head->number > out_of(m, s)->sent)
        return "it acknowledged what was not sent";
    *acked = head->number;
    return NULL;
}

/* NULL, or what is wrong with it. */
static const char *take(struct hl_mail *m, int peer, const struct hl_mail_head *head,
                        const void *data) {
    struct hl_peer *p = &m->peers[peer];
    char why[sizeof p->why];
    int64_t rank;
    if (head->lane >= m->wire.n_lanes || head->to_everyone > 1) return "no such stream";
    switch (head->kind) {
    case HL_MAIL_PART:
        return take_part(m, &m->in[by_peer(m, head->lane, peer, head->to_everyone)], head, data);
    case HL_MAIL_ACK: return take_ack(m, peer, head);
    case HL_MAIL_LEFT: p->state = HL_PEER_LEFT; return NULL;
    case HL_MAIL_FAILED:
        (void)snprintf(why, sizeof why, "%.*s", (int)head->bytes, (const char *)data);
        fail(m, peer, HL_PEER_FAILED, why);
        return NULL;
    case HL_MAIL_STATE:
        p->phase = (enum hl_phase)head->phase;
        p->step = head->number;
        (void)snprintf(why, sizeof why, "%.*s", (int)head->bytes, (const char *)data);
        p->waits = hl_parse_i64(why, &rank) && rank >= 0 && rank < m->wire.n_ranks;
        p->waits_for = p->waits ? (int)rank : 0;
        return NULL;
    default: return "not a message of ours";
    }
}

void hl_mail_take(struct hl_mail *m, int peer, const struct hl_mail_head *head, const void *data) {
    m->news = true;
    if (!hl_mail_has(m, peer)) return;
    const char *wrong = take(m, peer, head, data);
    char why[sizeof m->peers->why];
    if (!wrong) return;
    (void)snprintf(why, sizeof why, "what it sent is wrong: %s", wrong);
    fail(m, peer, HL_PEER_FAILED, why);
}

void hl_mail_lost(struct hl_mail *m, int peer) {
    m->news = true;
    if (hl_mail_has(m, peer)) fail(m, peer, HL_PEER_DEAD, "");
}

/* ---- peers ---- */

void hl_mail_tell(struct hl_wire *wire, enum hl_phase phase, int64_t step) {
    struct hl_mail *m = mail_of(wire);
    m->peers[wire->rank].phase = phase;
    m->peers[wire->rank].step = step;
    char waits_for[16] = "";
    if (wire->waits) (void)snprintf(waits_for, sizeof waits_for, "%d", wire->waits_for);
    if (!m->failed) hl_mail_send_all(m, HL_MAIL_STATE, step, waits_for);
}

void hl_mail_peer(struct hl_wire *wire, int rank, struct hl_peer *out) {
    *out = mail_of(wire)->peers[rank];
}

void hl_mail_give_up(struct hl_wire *wire, const char *why) {
    struct hl_mail *m = mail_of(wire);
    if (m->failed) return;
    m->failed = true;
    m->peers[wire->rank].state = HL_PEER_FAILED;
    hl_mail_send_all(m, HL_MAIL_FAILED, 0, why);
}
