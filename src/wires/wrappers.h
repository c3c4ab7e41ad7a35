/* Wires in front of another wire, which count, slow down, break or record what passes. They stack:
 * "count,throttle=100mbit,delay=2ms" is count(throttle(delay(wire))).
 *
 * A wrapper owns the wire that it stands in front of and closes it with itself. All ranks of a run
 * need the same list, since delay takes 64 bytes of every part for itself. */
#ifndef HALLEY_WIRES_WRAPPERS_H
#define HALLEY_WIRES_WRAPPERS_H

#include "halley/wire.h"
#include "os/fs.h"

/* What wrappers need of the world. A zeroed one is the real world. */
struct hl_wrap_world {
    int64_t (*clock_ns)(void *context); /* monotonic; NULL: the machine's */
    void *clock_context;
    uint64_t seed;    /* of jitter; equal on all ranks */
    bool process;     /* this rank is a process of its own: fault=kill sends it SIGKILL */
    struct hl_fs *fs; /* where traces are written; NULL: the real one */
};

/* Put the wrappers of a list in front of *wire; the first word becomes the outermost. Empty list or
 * NULL: nothing. On failure *wire is what was reached, to be closed as ever.
 * errors HL_E_USER a word that is none, with the list of words; HL_E_MEMORY; HL_E_IO no trace file
 */
enum hl_status hl_wire_wrap(struct hl_mem *mem, const char *list, const struct hl_wrap_world *world,
                            struct hl_wire **wire, struct hl_diag *diag) HL_MUST_CHECK;
/* Is the list one? For an option's check, before there is a wire. errors HL_E_USER */
enum hl_status hl_wire_wrap_check(const char *list, struct hl_diag *diag) HL_MUST_CHECK;

/* ---- one by one: inner to *out; on failure inner is still the caller's ---- */

/* count: parts and bytes of each peer and lane. */
enum hl_status hl_wire_count(struct hl_mem *mem, struct hl_wire *inner, struct hl_wire **out,
                             struct hl_diag *diag) HL_MUST_CHECK;
enum { HL_ANY = -1 };
enum hl_traffic_way { HL_SENT, HL_RECEIVED };
enum hl_traffic_kind { HL_FOR_ONE, HL_FOR_EVERYONE };
struct hl_traffic {
    int64_t parts, bytes;
};
/* What passed since the wire was opened, as the outermost count in front of `wire` saw it; zeros
 * where there is none. A part for everyone counts once for each reader; a received one when it is
 * released. peer, lane, kind: HL_ANY adds them up. */
struct hl_traffic hl_wire_traffic(const struct hl_wire *wire, enum hl_traffic_way way, int peer,
                                  int lane, int kind);

/* throttle: this rank sends at most bytes_per_s, after at most burst_bytes at once (0: what a
 * millisecond takes, at least 64 KiB). A part for everyone costs its bytes once for each reader. */
enum hl_status hl_wire_throttle(struct hl_mem *mem, struct hl_wire *inner, double bytes_per_s,
                                double burst_bytes, const struct hl_wrap_world *world,
                                struct hl_wire **out, struct hl_diag *diag) HL_MUST_CHECK;

/* delay: a part is seen latency + [0, jitter) after it was committed; acknowledgements are not
 * delayed. Parts of a stream stay in order. Needs one monotonic clock for all ranks, as on one
 * machine; where clocks differ a part is late by at most the same again. */
enum hl_status hl_wire_delay(struct hl_mem *mem, struct hl_wire *inner, int64_t latency_ns,
                             int64_t jitter_ns, const struct hl_wrap_world *world,
                             struct hl_wire **out, struct hl_diag *diag) HL_MUST_CHECK;

/* fault: from this rank's n-th operation on (a commit or a release; 1 is the first) it is broken.
 */
enum hl_fault {
    HL_FAULT_DROP,      /* that part, and all later ones of its stream, never arrive */
    HL_FAULT_CUT,       /* the network is gone: own calls fail, nothing gets out */
    HL_FAULT_FREEZE,    /* the rank stands still: nothing gets out, nothing moves, no call fails */
    HL_FAULT_HALF_OPEN, /* what others send arrives, what it sends does not */
    HL_FAULT_KILL,      /* SIGKILL, or give_up where ranks are threads */
};
enum hl_status hl_wire_fault(struct hl_mem *mem, struct hl_wire *inner, enum hl_fault fault,
                             int64_t nth, const struct hl_wrap_world *world, struct hl_wire **out,
                             struct hl_diag *diag) HL_MUST_CHECK;

/* trace: a JSON file for chrome://tracing and Perfetto: parts while they are written and read, and
 * sleeps; process = rank, thread = lane. Written in blocks and closed with the wire; when the disk
 * refuses, the trace ends there and the run goes on. */
enum hl_status hl_wire_trace(struct hl_mem *mem, struct hl_wire *inner, const char *path,
                             const struct hl_wrap_world *world, struct hl_wire **out,
                             struct hl_diag *diag) HL_MUST_CHECK;

#endif
