/* count: parts and bytes that pass, by peer, lane and kind of stream. See wrappers.h. */
#include "wires/wrap.h"

struct count {
    struct hl_wrap wrap; /* first */
    /* [way][peer][lane][kind] */
    struct hl_traffic seen[2][HL_MAX_RANKS][HL_MAX_LANES][2];
};

static void add(struct hl_wire *wire, enum hl_traffic_way way, int peer, struct hl_stream s,
                size_t bytes) {
    struct count *c = (struct count *)(void *)wire;
    struct hl_traffic *t = &c->seen[way][peer][s.lane][s.to == HL_EVERYONE];
    t->parts++;
    t->bytes += (int64_t)bytes;
}

static enum hl_status commit(struct hl_wire *wire, struct hl_stream s, size_t bytes) {
    enum hl_status status = hl_wrap_commit(wire, s, bytes);
    for (int p = 0; p < wire->n_ranks && status == HL_OK; p++)
        if (p != wire->rank && (s.to == HL_EVERYONE || s.to == p)) add(wire, HL_SENT, p, s, bytes);
    return status;
}

static enum hl_status release(struct hl_wire *wire, struct hl_stream s) {
    const void *data;
    size_t bytes = 0;
    enum hl_status status = hl_wrap_view(wire, s, &data, &bytes); /* its size once more */
    if (status == HL_OK) status = hl_wrap_release(wire, s);
    if (status == HL_OK) add(wire, HL_RECEIVED, s.from, s, bytes);
    return status;
}

const struct hl_wire_ops hl_count_ops = {.reserve = hl_wrap_reserve,
                                         .commit = commit,
                                         .view = hl_wrap_view,
                                         .release = release,
                                         .wait = hl_wrap_wait,
                                         .tell = hl_wrap_tell,
                                         .peer = hl_wrap_peer,
                                         .give_up = hl_wrap_give_up,
                                         .close = hl_wrap_close};

enum hl_status hl_wire_count(struct hl_mem *mem, struct hl_wire *inner, struct hl_wire **out,
                             struct hl_diag *diag) {
    struct count *c = hl_alloc(mem, 1, sizeof *c);
    if (!c) return hl_fail_memory(diag, sizeof *c, "the count of a wire's parts");
    hl_wrap_init(&c->wrap, &hl_count_ops, "count", mem, inner);
    *out = &c->wrap.wire;
    return HL_OK;
}

static const struct count *find(const struct hl_wire *wire) {
    while (wire && wire->ops != &hl_count_ops) wire = hl_wrap_inner(wire);
    return (const struct count *)(const void *)wire;
}

struct hl_traffic hl_wire_traffic(const struct hl_wire *wire, enum hl_traffic_way way, int peer,
                                  int lane, int kind) {
    const struct count *c = find(wire);
    struct hl_traffic sum = {0};
    for (int p = 0; c && p < wire->n_ranks; p++)
        for (int l = 0; l < wire->n_lanes; l++)
            for (int k = 0; k < 2; k++)
                if ((peer == HL_ANY || peer == p) && (lane == HL_ANY || lane == l) &&
                    (kind == HL_ANY || kind == k)) {
                    sum.parts += c->seen[way][p][l][k].parts;
                    sum.bytes += c->seen[way][p][l][k].bytes;
                }
    return sum;
}
