/* throttle: a token bucket in front of a wire, kept as the time at which what was sent is paid for
 * (the "virtual scheduling" form of the leaky bucket, ITU-T I.371). See wrappers.h. */
#include "wires/wrap.h"

struct throttle {
    struct hl_wrap wrap; /* first */
    struct hl_wrap_world world;
    double ns_per_byte;
    int64_t burst_ns; /* how long a silent rank may save */
    int64_t paid_ns;  /* until then nothing more may be sent */
    bool refused;     /* room, since the last wait */
};

static struct throttle *throttle_of(struct hl_wire *wire) {
    return (struct throttle *)(void *)wire;
}

static enum hl_status reserve(struct hl_wire *wire, struct hl_stream s, void **out) {
    struct throttle *t = throttle_of(wire);
    if (hl_wrap_now(&t->world) < t->paid_ns) {
        t->refused = true;
        return HL_PENDING;
    }
    return hl_wrap_reserve(wire, s, out);
}

static enum hl_status commit(struct hl_wire *wire, struct hl_stream s, size_t bytes) {
    struct throttle *t = throttle_of(wire);
    enum hl_status status = hl_wrap_commit(wire, s, bytes);
    int64_t saved_from = hl_wrap_now(&t->world) - t->burst_ns;
    int readers = s.to == HL_EVERYONE ? wire->n_ranks - 1 : 1;
    if (t->paid_ns < saved_from) t->paid_ns = saved_from;
    t->paid_ns += (int64_t)((double)bytes * readers * t->ns_per_byte);
    return status;
}

static enum hl_status wait(struct hl_wire *wire, int64_t timeout_ns) {
    struct throttle *t = throttle_of(wire);
    int64_t left = t->paid_ns - hl_wrap_now(&t->world);
    if (left < 0) left = 0;
    if (t->refused && left < timeout_ns) timeout_ns = left;
    t->refused = false;
    return hl_wrap_wait(wire, timeout_ns);
}

const struct hl_wire_ops hl_throttle_ops = {.reserve = reserve,
                                            .commit = commit,
                                            .view = hl_wrap_view,
                                            .release = hl_wrap_release,
                                            .wait = wait,
                                            .tell = hl_wrap_tell,
                                            .peer = hl_wrap_peer,
                                            .give_up = hl_wrap_give_up,
                                            .close = hl_wrap_close};

enum hl_status hl_wire_throttle(struct hl_mem *mem, struct hl_wire *inner, double bytes_per_s,
                                double burst_bytes, const struct hl_wrap_world *world,
                                struct hl_wire **out, struct hl_diag *diag) {
    struct throttle *t = hl_alloc(mem, 1, sizeof *t);
    if (!t) return hl_fail_memory(diag, sizeof *t, "the throttle of a wire");
    if (burst_bytes <= 0) burst_bytes = bytes_per_s / 1000 > 65536 ? bytes_per_s / 1000 : 65536;
    t->world = *world;
    t->ns_per_byte = 1e9 / bytes_per_s;
    t->burst_ns = (int64_t)(burst_bytes * t->ns_per_byte);
    t->paid_ns = hl_wrap_now(world) - t->burst_ns;
    hl_wrap_init(&t->wrap, &hl_throttle_ops, "throttle", mem, inner);
    t->wrap.wire.slow = true;
    *out = &t->wrap.wire;
    return HL_OK;
}
