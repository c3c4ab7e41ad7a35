/* What wrappers of wires have in common: a wire in front of another one. */
#ifndef HALLEY_WIRES_WRAP_H
#define HALLEY_WIRES_WRAP_H

#include "wires/wrappers.h"

/* Embedded first in every wrapper. */
struct hl_wrap {
    struct hl_wire wire; /* first */
    struct hl_wire *inner;
    struct hl_mem *mem;
    char name[64];
};

/* Stand in front of inner: its ranks, lanes, part size; "kind(inner's name)". */
void hl_wrap_init(struct hl_wrap *w, const struct hl_wire_ops *ops, const char *kind,
                  struct hl_mem *mem, struct hl_wire *inner);
static inline struct hl_wrap *hl_wrap_of(struct hl_wire *wire) {
    return (struct hl_wrap *)(void *)wire;
}

/* The tables by which a wrapper is known. */
extern const struct hl_wire_ops hl_count_ops, hl_throttle_ops, hl_delay_ops, hl_fault_ops,
    hl_trace_ops;
/* What a wrapper stands in front of; NULL: wire is none. */
const struct hl_wire *hl_wrap_inner(const struct hl_wire *wire);

int64_t hl_wrap_now(const struct hl_wrap_world *world);

/* A stream's index in [0, lanes * ranks^2). */
size_t hl_wrap_stream(const struct hl_wire *wire, struct hl_stream stream);
size_t hl_wrap_n_streams(const struct hl_wire *wire);

/* inner's own calls: what a wrapper that does not care about a call puts into its table. They keep
 * failed_rank equal to inner's. */
enum hl_status hl_wrap_reserve(struct hl_wire *wire, struct hl_stream stream, void **room_out);
enum hl_status hl_wrap_commit(struct hl_wire *wire, struct hl_stream stream, size_t bytes);
enum hl_status hl_wrap_view(struct hl_wire *wire, struct hl_stream stream, const void **data_out,
                            size_t *bytes_out);
enum hl_status hl_wrap_release(struct hl_wire *wire, struct hl_stream stream);
enum hl_status hl_wrap_wait(struct hl_wire *wire, int64_t timeout_ns);
void hl_wrap_tell(struct hl_wire *wire, enum hl_phase phase, int64_t step);
void hl_wrap_peer(struct hl_wire *wire, int rank, struct hl_peer *out);
void hl_wrap_give_up(struct hl_wire *wire, const char *why);
/* Closes inner, then frees the wrapper itself. */
void hl_wrap_close(struct hl_wire *wire);

#endif
