/* The pool of an emulated rack, as a wire in front of the pool wire: what a host reads and writes
 * passes its link, what all hosts read and write at one card passes that card, and every request
 * takes a latency. Links and cards are token buckets (see throttle.c), those of the cards in memory
 * that the ranks share and that is no part of the pool. A part takes its turn at the link and at
 * its card at once and is there when the later of the two has let it through: the sender writes
 * that time into the first 64 bytes of the part (see delay.c), the reader adds its own link and the
 * card once more. A part for everyone is written once and read by each. Needs one clock for all
 * ranks. */
#ifndef HALLEY_BENCH_RACK_H
#define HALLEY_BENCH_RACK_H

#include <stdatomic.h>

#include "os/clock.h"
#include "os/futex.h"
#include "wires/pool.h"
#include "wires/ring.h"
#include "wires/wrap.h"

enum { RACK_CARDS = 6, RACK_HEADER = 64, RACK_MOST_STREAMS = 1024 };

struct rack_spec {
    double host_bytes_per_s,
        card_bytes_per_s; /* of a host's link, each way; of a card, both ways */
    double burst_bytes;
    int64_t latency_ns;
};
/* A bucket that ranks share: when what passed is paid for. */
struct rack_card {
    _Alignas(64) _Atomic int64_t paid_ns;
};
struct rack {
    struct hl_wrap wrap; /* first */
    struct rack_spec spec;
    struct rack_card *cards; /* [RACK_CARDS] */
    int n_slots;             /* of a stream */
    int64_t read_paid_ns, write_paid_ns;
    bool read_refused, write_refused; /* since the last wait */
    uint64_t sent[RACK_MOST_STREAMS], got[RACK_MOST_STREAMS];
    int64_t ready_ns[RACK_MOST_STREAMS]; /* of the oldest part; 0: it was not asked for */
};

static inline struct rack *rack_of(struct hl_wire *wire) { return (struct rack *)(void *)wire; }

/* A bucket that saved burst at most lets `bytes` through; returns when. */
static inline int64_t rack_pay(int64_t paid, int64_t now, double bytes, double rate, double burst) {
    int64_t saved_from = now - (int64_t)(burst / rate * 1e9);
    return (paid > saved_from ? paid : saved_from) + (int64_t)(bytes / rate * 1e9);
}

/* As ring.c lays slots out: consecutive ones on consecutive cards. Parts are numbered from 1. */
static inline struct rack_card *rack_card_of(struct rack *r, size_t stream, uint64_t part) {
    uint64_t slots = (uint64_t)r->n_slots;
    return &r->cards[(stream * slots + part % slots) % RACK_CARDS];
}

/* When a part has passed link and card. */
static inline int64_t rack_pass(struct rack *r, int64_t *link, struct rack_card *card,
                                size_t bytes) {
    const struct rack_spec *s = &r->spec;
    int64_t now = hl_clock_ns(), old = atomic_load(&card->paid_ns), paid;
    *link = rack_pay(*link, now, (double)bytes, s->host_bytes_per_s, s->burst_bytes);
    do paid = rack_pay(old, now, (double)bytes, s->card_bytes_per_s, s->burst_bytes);
    while (!atomic_compare_exchange_weak(&card->paid_ns, &old, paid));
    if (paid < *link) paid = *link;
    return (paid > now ? paid : now) + s->latency_ns;
}

static inline enum hl_status rack_reserve(struct hl_wire *wire, struct hl_stream s, void **out) {
    struct rack *r = rack_of(wire);
    void *room;
    if (hl_clock_ns() < r->write_paid_ns) {
        r->write_refused = true;
        return HL_PENDING;
    }
    enum hl_status status = hl_wrap_reserve(wire, s, &room);
    if (status == HL_OK) *out = (char *)room + RACK_HEADER;
    return status;
}

static inline enum hl_status rack_commit(struct hl_wire *wire, struct hl_stream s, size_t bytes) {
    struct rack *r = rack_of(wire);
    size_t stream = hl_wrap_stream(wire, s);
    void *room;
    enum hl_status status = hl_wrap_reserve(wire, s, &room); /* the same room once more */
    if (status != HL_OK) return status;
    struct rack_card *card = rack_card_of(r, stream, ++r->sent[stream]);
    *(int64_t *)room = rack_pass(r, &r->write_paid_ns, card, bytes);
    return hl_wrap_commit(wire, s, bytes + RACK_HEADER);
}

static inline enum hl_status rack_view(struct hl_wire *wire, struct hl_stream s,
                                       const void **data_out, size_t *bytes_out) {
    struct rack *r = rack_of(wire);
    size_t stream = hl_wrap_stream(wire, s), bytes;
    const void *data;
    enum hl_status status = hl_wrap_view(wire, s, &data, &bytes);
    if (status != HL_OK) return status;
    int64_t *ready = &r->ready_ns[stream], now = hl_clock_ns(), there = *(const int64_t *)data;
    if (!*ready && (now < there || now < r->read_paid_ns)) {
        r->read_refused = true;
        return HL_PENDING;
    }
    if (!*ready) {
        struct rack_card *card = rack_card_of(r, stream, ++r->got[stream]);
        *ready = rack_pass(r, &r->read_paid_ns, card, bytes - RACK_HEADER);
    }
    if (hl_clock_ns() < *ready) {
        r->read_refused = true;
        return HL_PENDING;
    }
    *data_out = (const char *)data + RACK_HEADER;
    *bytes_out = bytes - RACK_HEADER;
    return HL_OK;
}

static inline enum hl_status rack_release(struct hl_wire *wire, struct hl_stream s) {
    rack_of(wire)->ready_ns[hl_wrap_stream(wire, s)] = 0;
    return hl_wrap_release(wire, s);
}

/* While something is under way nobody rings for it: look again soon. */
static inline enum hl_status rack_wait(struct hl_wire *wire, int64_t timeout_ns) {
    struct rack *r = rack_of(wire);
    if (r->read_refused || r->write_refused) {
        r->read_refused = r->write_refused = false;
        if (timeout_ns > 20000) hl_sleep_ns(20000), timeout_ns = 0;
    }
    return hl_wrap_wait(wire, timeout_ns);
}

static const struct hl_wire_ops rack_ops = {.reserve = rack_reserve,
                                            .commit = rack_commit,
                                            .view = rack_view,
                                            .release = rack_release,
                                            .wait = rack_wait,
                                            .tell = hl_wrap_tell,
                                            .peer = hl_wrap_peer,
                                            .give_up = hl_wrap_give_up,
                                            .close = hl_wrap_close};

/* cards: shared by all ranks, zeroed, borrowed. NULL when memory is short; inner is the caller's
 * then. */
static inline struct hl_wire *rack_new(struct hl_mem *mem, struct hl_wire *inner,
                                       const struct rack_spec *spec, struct rack_card *cards,
                                       int n_slots) {
    if (hl_wrap_n_streams(inner) > RACK_MOST_STREAMS) return NULL;
    struct rack *r = hl_alloc(mem, 1, sizeof *r);
    if (!r) return NULL;
    r->spec = *spec;
    r->cards = cards;
    r->n_slots = n_slots;
    hl_wrap_init(&r->wrap, &rack_ops, "rack", mem, inner);
    r->wrap.wire.part_bytes -= RACK_HEADER;
    return &r->wrap.wire;
}

#endif
