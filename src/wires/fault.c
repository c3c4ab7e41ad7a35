/* fault: a rank that breaks at a chosen operation, so that tests see what the others do. See
 * wrappers.h. What cannot be said to others any more is not said: tell and give_up too. */
#include "os/futex.h"
#include "os/signal.h"
#include "wires/wrap.h"

struct fault {
    struct hl_wrap wrap; /* first */
    struct hl_wrap_world world;
    enum hl_fault kind;
    int64_t nth, done;       /* operations: commits and releases */
    struct hl_stream silent; /* drop: the stream that lost a part */
    bool lost;
};

static struct fault *fault_of(struct hl_wire *wire) { return (struct fault *)(void *)wire; }

static bool broken(const struct fault *f) { return f->done >= f->nth; }
static bool mute(const struct fault *f) {
    return broken(f) &&
           (f->kind == HL_FAULT_CUT || f->kind == HL_FAULT_FREEZE || f->kind == HL_FAULT_HALF_OPEN);
}

/* Whom a rank without a network blames; a killed thread knows better. */
static enum hl_status cut_off(struct hl_wire *wire, struct hl_stream s) {
    int other = s.from == wire->rank ? s.to : s.from;
    if (other == HL_EVERYONE) other = wire->rank == 0;
    if (fault_of(wire)->kind == HL_FAULT_KILL) other = wire->rank;
    if (wire->failed_rank < 0) wire->failed_rank = other;
    return HL_E_PEER;
}

/* Before a call: HL_OK lets it through. */
static enum hl_status gate(struct hl_wire *wire, struct hl_stream s) {
    const struct fault *f = fault_of(wire);
    if (!broken(f)) return HL_OK;
    if (f->kind == HL_FAULT_CUT || f->kind == HL_FAULT_KILL) return cut_off(wire, s);
    return f->kind == HL_FAULT_FREEZE ? HL_PENDING : HL_OK;
}

static void one_more(struct fault *f) {
    if (++f->done != f->nth || f->kind != HL_FAULT_KILL) return;
    if (f->world.process) hl_signal_kill_self();
    hl_wrap_give_up(&f->wrap.wire, "killed by the fault wrapper");
}

static bool is_lost(struct fault *f, struct hl_stream s) {
    if (f->kind == HL_FAULT_HALF_OPEN) return broken(f);
    if (f->kind != HL_FAULT_DROP || !broken(f)) return false;
    if (!f->lost) f->silent = s;
    f->lost = true;
    return s.lane == f->silent.lane && s.to == f->silent.to;
}

static enum hl_status reserve(struct hl_wire *wire, struct hl_stream s, void **room_out) {
    enum hl_status status = gate(wire, s);
    return status == HL_OK ? hl_wrap_reserve(wire, s, room_out) : status;
}
/* A lost part's room is simply given out again. */
static enum hl_status commit(struct hl_wire *wire, struct hl_stream s, size_t bytes) {
    struct fault *f = fault_of(wire);
    one_more(f);
    enum hl_status status = gate(wire, s);
    if (status == HL_E_PEER) return status;
    return status == HL_PENDING || is_lost(f, s) ? HL_OK : hl_wrap_commit(wire, s, bytes);
}
static enum hl_status view(struct hl_wire *wire, struct hl_stream s, const void **data_out,
                           size_t *bytes_out) {
    enum hl_status status = gate(wire, s);
    return status == HL_OK ? hl_wrap_view(wire, s, data_out, bytes_out) : status;
}
static enum hl_status release(struct hl_wire *wire, struct hl_stream s) {
    one_more(fault_of(wire));
    enum hl_status status = gate(wire, s);
    if (status == HL_E_PEER) return status;
    return status == HL_PENDING ? HL_OK : hl_wrap_release(wire, s);
}

static enum hl_status wait(struct hl_wire *wire, int64_t timeout_ns) {
    const struct fault *f = fault_of(wire);
    if (!broken(f) || (f->kind != HL_FAULT_FREEZE && f->kind != HL_FAULT_CUT))
        return hl_wrap_wait(wire, timeout_ns);
    hl_sleep_ns(timeout_ns);
    return HL_OK;
}

static void tell(struct hl_wire *wire, enum hl_phase phase, int64_t step) {
    if (!mute(fault_of(wire))) hl_wrap_tell(wire, phase, step);
}
static void give_up(struct hl_wire *wire, const char *why) {
    if (!mute(fault_of(wire))) hl_wrap_give_up(wire, why);
}

const struct hl_wire_ops hl_fault_ops = {.reserve = reserve,
                                         .commit = commit,
                                         .view = view,
                                         .release = release,
                                         .wait = wait,
                                         .tell = tell,
                                         .peer = hl_wrap_peer,
                                         .give_up = give_up,
                                         .close = hl_wrap_close};

enum hl_status hl_wire_fault(struct hl_mem *mem, struct hl_wire *inner, enum hl_fault kind,
                             int64_t nth, const struct hl_wrap_world *world, struct hl_wire **out,
                             struct hl_diag *diag) {
    struct fault *f = hl_alloc(mem, 1, sizeof *f);
    if (!f) return hl_fail_memory(diag, sizeof *f, "the fault of a wire");
    f->world = *world;
    f->kind = kind;
    f->nth = nth;
    hl_wrap_init(&f->wrap, &hl_fault_ops, "fault", mem, inner);
    *out = &f->wrap.wire;
    return HL_OK;
}
