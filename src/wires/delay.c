/* delay: parts carry the time from which they may be seen in 64 bytes in front of them. See
 * wrappers.h. */
#include <stdint.h>

#include "halley/rng.h"
#include "wires/wrap.h"

enum { HEADER = 64 };

struct header {
    int64_t visible_ns;
};
/* One stream: parts sent on it, or the oldest part that lies there unreleased. */
struct end {
    uint64_t sent;
    int64_t visible_ns; /* 0: none was looked at */
};
struct delay {
    struct hl_wrap wrap; /* first */
    struct hl_wrap_world world;
    int64_t latency_ns, jitter_ns;
    size_t n_ends;
    struct end *ends; /* [streams] */
};

static struct delay *delay_of(struct hl_wire *wire) { return (struct delay *)(void *)wire; }

static enum hl_status reserve(struct hl_wire *wire, struct hl_stream s, void **out) {
    void *room;
    enum hl_status status = hl_wrap_reserve(wire, s, &room);
    if (status == HL_OK) *out = (char *)room + HEADER;
    return status;
}

static int64_t jitter(const struct delay *d, size_t stream, uint64_t part) {
    uint64_t index = ((uint64_t)stream << 40) + part;
    return (int64_t)((double)d->jitter_ns * hl_rng_uniform(d->world.seed, HL_RNG_WIRE, index));
}

static enum hl_status commit(struct hl_wire *wire, struct hl_stream s, size_t bytes) {
    struct delay *d = delay_of(wire);
    void *room;
    size_t stream = hl_wrap_stream(wire, s);
    enum hl_status status = hl_wrap_reserve(wire, s, &room); /* the same room once more */
    if (status != HL_OK) return status;
    struct header *header = room;
    header->visible_ns =
        hl_wrap_now(&d->world) + d->latency_ns + jitter(d, stream, d->ends[stream].sent++);
    return hl_wrap_commit(wire, s, bytes + HEADER);
}

static enum hl_status view(struct hl_wire *wire, struct hl_stream s, const void **data_out,
                           size_t *bytes_out) {
    struct delay *d = delay_of(wire);
    struct end *end = &d->ends[hl_wrap_stream(wire, s)];
    const void *data;
    size_t bytes;
    enum hl_status status = hl_wrap_view(wire, s, &data, &bytes);
    if (status != HL_OK) return status;
    if (bytes < HEADER) return HL_E_FORMAT; /* the sender has no delay in its list */
    int64_t now = hl_wrap_now(&d->world), latest = now + d->latency_ns + d->jitter_ns;
    if (!end->visible_ns) end->visible_ns = ((const struct header *)data)->visible_ns;
    if (end->visible_ns > latest) end->visible_ns = latest; /* another machine's clock */
    if (now < end->visible_ns) return HL_PENDING;
    *data_out = (const char *)data + HEADER;
    *bytes_out = bytes - HEADER;
    return HL_OK;
}

static enum hl_status release(struct hl_wire *wire, struct hl_stream s) {
    delay_of(wire)->ends[hl_wrap_stream(wire, s)].visible_ns = 0;
    return hl_wrap_release(wire, s);
}

static enum hl_status wait(struct hl_wire *wire, int64_t timeout_ns) {
    struct delay *d = delay_of(wire);
    int64_t now = hl_wrap_now(&d->world);
    for (size_t i = 0; i < d->n_ends; i++) {
        int64_t left = d->ends[i].visible_ns - now;
        if (d->ends[i].visible_ns && left > 0 && left < timeout_ns) timeout_ns = left;
    }
    return hl_wrap_wait(wire, timeout_ns);
}

static void close_delay(struct hl_wire *wire) {
    struct delay *d = delay_of(wire);
    hl_free(d->wrap.mem, d->ends);
    hl_wrap_close(wire);
}

const struct hl_wire_ops hl_delay_ops = {.reserve = reserve,
                                         .commit = commit,
                                         .view = view,
                                         .release = release,
                                         .wait = wait,
                                         .tell = hl_wrap_tell,
                                         .peer = hl_wrap_peer,
                                         .give_up = hl_wrap_give_up,
                                         .close = close_delay};

enum hl_status hl_wire_delay(struct hl_mem *mem, struct hl_wire *inner, int64_t latency_ns,
                             int64_t jitter_ns, const struct hl_wrap_world *world,
                             struct hl_wire **out, struct hl_diag *diag) {
    size_t n = hl_wrap_n_streams(inner);
    if (inner->part_bytes <= HEADER)
        return hl_fail(diag, HL_E_USER, "delay takes %d bytes of a part, and %s has parts of %zu",
                       HEADER, inner->name, inner->part_bytes);
    struct delay *d = hl_alloc(mem, 1, sizeof *d);
    struct end *ends = hl_alloc(mem, n, sizeof *ends);
    if (!d || !ends) {
        hl_free(mem, d);
        hl_free(mem, ends);
        return hl_fail_memory(diag, sizeof *d + n * sizeof *ends, "the delay of a wire");
    }
    d->world = *world;
    d->latency_ns = latency_ns;
    d->jitter_ns = jitter_ns;
    d->n_ends = n;
    d->ends = ends;
    hl_wrap_init(&d->wrap, &hl_delay_ops, "delay", mem, inner);
    d->wrap.wire.slow = true;
    d->wrap.wire.part_bytes -= HEADER;
    *out = &d->wrap.wire;
    return HL_OK;
}
