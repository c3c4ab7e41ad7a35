/* Calls that a wrapper hands on as they are. See wrap.h. */
#include "wires/wrap.h"

#include <stdio.h>

#include "os/clock.h"

void hl_wrap_init(struct hl_wrap *w, const struct hl_wire_ops *ops, const char *kind,
                  struct hl_mem *mem, struct hl_wire *inner) {
    w->wire = *inner;
    w->wire.ops = ops;
    w->wire.name = w->name;
    w->inner = inner;
    w->mem = mem;
    (void)snprintf(w->name, sizeof w->name, "%s(%s)", kind, inner->name);
}

const struct hl_wire *hl_wrap_inner(const struct hl_wire *wire) {
    const struct hl_wire_ops *known[] = {&hl_count_ops, &hl_throttle_ops, &hl_delay_ops,
                                         &hl_fault_ops, &hl_trace_ops};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (wire->ops == known[i]) return ((const struct hl_wrap *)(const void *)wire)->inner;
    return NULL;
}

int64_t hl_wrap_now(const struct hl_wrap_world *world) {
    return world->clock_ns ? world->clock_ns(world->clock_context) : hl_clock_ns();
}

size_t hl_wrap_stream(const struct hl_wire *w, struct hl_stream s) {
    size_t n = (size_t)w->n_ranks, to = (size_t)(s.to == HL_EVERYONE ? s.from : s.to);
    return ((size_t)s.lane * n + (size_t)s.from) * n + to;
}
size_t hl_wrap_n_streams(const struct hl_wire *w) {
    return (size_t)w->n_lanes * (size_t)w->n_ranks * (size_t)w->n_ranks;
}

static enum hl_status note(struct hl_wrap *w, enum hl_status status) {
    w->wire.failed_rank = w->inner->failed_rank;
    return status;
}

enum hl_status hl_wrap_reserve(struct hl_wire *wire, struct hl_stream stream, void **room_out) {
    struct hl_wrap *w = hl_wrap_of(wire);
    return note(w, w->inner->ops->reserve(w->inner, stream, room_out));
}
enum hl_status hl_wrap_commit(struct hl_wire *wire, struct hl_stream stream, size_t bytes) {
    struct hl_wrap *w = hl_wrap_of(wire);
    return note(w, w->inner->ops->commit(w->inner, stream, bytes));
}
enum hl_status hl_wrap_view(struct hl_wire *wire, struct hl_stream stream, const void **data_out,
                            size_t *bytes_out) {
    struct hl_wrap *w = hl_wrap_of(wire);
    return note(w, w->inner->ops->view(w->inner, stream, data_out, bytes_out));
}
enum hl_status hl_wrap_release(struct hl_wire *wire, struct hl_stream stream) {
    struct hl_wrap *w = hl_wrap_of(wire);
    return note(w, w->inner->ops->release(w->inner, stream));
}
enum hl_status hl_wrap_wait(struct hl_wire *wire, int64_t timeout_ns) {
    struct hl_wrap *w = hl_wrap_of(wire);
    return note(w, w->inner->ops->wait(w->inner, timeout_ns));
}
void hl_wrap_tell(struct hl_wire *wire, enum hl_phase phase, int64_t step) {
    struct hl_wrap *w = hl_wrap_of(wire);
    w->inner->waits = wire->waits;
    w->inner->waits_for = wire->waits_for;
    w->inner->ops->tell(w->inner, phase, step);
}
void hl_wrap_peer(struct hl_wire *wire, int rank, struct hl_peer *out) {
    struct hl_wrap *w = hl_wrap_of(wire);
    w->inner->ops->peer(w->inner, rank, out);
}
void hl_wrap_give_up(struct hl_wire *wire, const char *why) {
    struct hl_wrap *w = hl_wrap_of(wire);
    w->inner->ops->give_up(w->inner, why);
}
void hl_wrap_close(struct hl_wire *wire) {
    struct hl_wrap *w = hl_wrap_of(wire);
    w->inner->ops->close(w->inner);
    hl_free(w->mem, w);
}
