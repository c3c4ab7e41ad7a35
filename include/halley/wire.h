/* A wire moves bytes between the ranks of one run: threads, a memory pool, MPI, TCP.
 *
 * All wires speak in streams of parts. A stream goes from one rank to another, or to everyone, on
 * one lane; its parts arrive whole, once and in order. The sender asks for room, writes a part into
 * it and commits; the reader views the oldest part where it lies and releases it, which is the
 * acknowledgement that lets the sender use the room again. Nothing blocks but `wait`. Where bytes
 * really lie, and which flushes make them visible, is the wire's own business; hence a wrapper that
 * counts, throttles or breaks these few calls does so for every wire, the pool included.
 *
 * A wire is used by one thread of its rank at a time (not always the same one). Order between
 * streams is not promised. */
#ifndef HALLEY_WIRE_H
#define HALLEY_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halley/mem.h"
#include "halley/status.h"

enum { HL_EVERYONE = -1, HL_MAX_RANKS = 64, HL_MAX_LANES = 16 };

/* to: a rank, or HL_EVERYONE: all ranks but `from`. The sender's rank in `from` when it reserves
 * and commits; the reader's own rank or HL_EVERYONE in `to` when it views and releases. */
struct hl_stream {
    int lane, from, to;
};

/* What a rank is doing, for those who wait for it. */
enum hl_phase {
    HL_PHASE_START,
    HL_PHASE_DATA,
    HL_PHASE_FORWARD,
    HL_PHASE_BACKWARD,
    HL_PHASE_UPDATE,
    HL_PHASE_EVALUATION,
    HL_PHASE_SAVE,
    HL_PHASE_SHUTDOWN,
};
const char *hl_phase_name(enum hl_phase phase); /* "forward", ... */

enum hl_peer_state {
    HL_PEER_ABSENT, /* not yet attached */
    HL_PEER_ALIVE,
    HL_PEER_LEFT,   /* closed in good order: what it sent can still be read */
    HL_PEER_FAILED, /* gave up, and said why */
    HL_PEER_DEAD,   /* its process is gone, or its heart stopped */
};
struct hl_peer {
    enum hl_peer_state state;
    enum hl_phase phase;
    int64_t step, pid; /* pid 0: not known */
    bool waits;        /* for a long time already, for rank waits_for */
    int waits_for;
    char host[64];
    char why[160]; /* FAILED: its own words; DEAD: what the wire knows, if anything; else empty */
};

struct hl_wire;
struct hl_wire_ops {
    /* Room for one part of up to part_bytes. HL_PENDING: readers still hold the older ones.
     * A second call before commit gives the same room. errors HL_E_PEER */
    enum hl_status (*reserve)(struct hl_wire *wire, struct hl_stream stream, void **room_out);
    /* Send the first `bytes` of the room; 0 is a part too. */
    enum hl_status (*commit)(struct hl_wire *wire, struct hl_stream stream, size_t bytes);
    /* The oldest part that was not released: the same again until release. The pointer holds until
     * then; it is read only. HL_PENDING: not here yet. errors HL_E_PEER: it will not come */
    enum hl_status (*view)(struct hl_wire *wire, struct hl_stream stream, const void **data_out,
                           size_t *bytes_out);
    enum hl_status (*release)(struct hl_wire *wire, struct hl_stream stream);
    /* Sleep until a part or an acknowledgement came since the last wait returned, or a peer
     * changed, or timeout_ns passed; always HL_OK then. It may return early for no reason. */
    enum hl_status (*wait)(struct hl_wire *wire, int64_t timeout_ns);
    /* What this rank does now, how far it is, and wire->waits. */
    void (*tell)(struct hl_wire *wire, enum hl_phase phase, int64_t step);
    void (*peer)(struct hl_wire *wire, int rank, struct hl_peer *out);
    /* This rank cannot go on: peers get HL_E_PEER with `why`. */
    void (*give_up)(struct hl_wire *wire, const char *why);
    /* Leave in good order (unless failed before) and free the wire. */
    void (*close)(struct hl_wire *wire);
};
enum { HL_PEER_TEXT = 480 };
/* Whom to blame, for people: "rank 2 (host a, pid 5; last seen: save of step 3)". status
 * HL_E_TIMEOUT: and for whom it waits itself; HL_E_PEER: and how it ended, " gave up: WHY", " is
 * gone", " has left the run". returns its state */
enum hl_peer_state hl_peer_describe(struct hl_wire *wire, int rank, enum hl_status status,
                                    char out[HL_PEER_TEXT]);

/* Wires and wrappers embed this first. */
struct hl_wire {
    const struct hl_wire_ops *ops;
    const char *name; /* "pool", or with wrappers "count(pool)" */
    int rank, n_ranks, n_lanes;
    int n_paths; /* 2: the first half of the lanes goes one way, the second half another; 0: one way
                  */
    size_t part_bytes; /* multiple of 64; equal on all ranks */
    int failed_rank;   /* after HL_E_PEER: who failed; else -1 */
    bool waits;        /* set by whoever uses the wire, then told: for rank waits_for */
    int waits_for;
    bool slow; /* bytes travel while nobody copies them: worth a thread that keeps them going */
};

/* ---- wires by name: src/wires/wires.def ---- */
struct hl_wire_place {
    int rank, n_ranks, n_lanes; /* lanes: of each path */
    size_t part_bytes;
    const char *address;   /* the pool's folder, a rendezvous "host:port", "POOL+HOST:PORT"; NULL
                              where none is needed */
    const char *token;     /* the job's shared secret; NULL where none is needed */
    const char *interface; /* wan: the network interface to listen on; NULL: that of the route to
                              the rendezvous */
    void *shared;          /* threads: what hl_threads_wire_new made; else NULL */
    int64_t timeout_ns;    /* for peers to appear */
};
struct hl_wire_plugin {
    const char *name, *summary;
    bool processes; /* ranks may be processes */
    /* HL_E_UNSUPPORTED with the reason when this machine cannot have it; pure */
    enum hl_status (*available)(struct hl_diag *diag);
    enum hl_status (*open)(struct hl_mem *mem, const struct hl_wire_place *place,
                           struct hl_wire **out, struct hl_diag *diag);
};
enum hl_status hl_wire_find(const char *name, const struct hl_wire_plugin **out,
                            struct hl_diag *diag) HL_MUST_CHECK;
const struct hl_wire_plugin *const *hl_wires(void); /* NULL-terminated */

/* The memory in which the ranks of one process meet; free it after the last rank closed its wire.
 */
struct hl_threads_shared;
enum hl_status hl_threads_wire_new(struct hl_mem *mem, int n_ranks, int n_lanes, size_t part_bytes,
                                   struct hl_threads_shared **out,
                                   struct hl_diag *diag) HL_MUST_CHECK;
void hl_threads_wire_free(struct hl_threads_shared *shared);

#endif
