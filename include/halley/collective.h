/* Collective operations of a group of ranks over any wire.
 *
 * Sums are f32, ranks left to right: every rank, wire and run gets the same bits. With a bf16 wire
 * every rank's part, one's own too, is rounded to bf16 before the sum, and the sum once after it.
 * The owner of a slice gets the other ranks' parts directly (one exchange, not a ring), adds them
 * in order and hands the result on.
 *
 * Operations are asynchronous: start, poll, until they are done. Those on one lane end one after
 * the other, in the order of their start, which must be the same on all ranks; lanes are
 * independent. What one makes may be given to another only when it is done. Nothing is allocated
 * after hl_group_new.
 *
 * On a slow wire operations of a lane overlap, and a helper thread keeps them going while the
 * caller computes; whoever waits drives them itself. A group belongs to one thread. */
#ifndef HALLEY_COLLECTIVE_H
#define HALLEY_COLLECTIVE_H

#include "halley/kernels.h"
#include "halley/layout.h"
#include "halley/wire.h"

enum hl_collective_kind {
    HL_ALL_REDUCE,     /* data f32 [n]: becomes the sum, on all */
    HL_REDUCE_SCATTER, /* data f32 [n]: this rank's slice becomes the sum; the rest is unchanged.
                          With out: the sum goes there, [n of the slice], data is only read */
    HL_ALL_GATHER,     /* data [n]: all slices but one's own are filled in */
    HL_BROADCAST,      /* data [n] of root, to all */
    HL_REDUCE,     /* data f32 [n]: at root it becomes the sum; elsewhere one's own slice does */
    HL_GATHER,     /* data [n]: at root all slices are filled in */
    HL_SCATTER,    /* data [n]: each rank's slice comes from root */
    HL_ALL_TO_ALL, /* data [n] to out [n]: slice p of data goes to p; slice p of out is from p.
                      unit * n_ranks must divide n */
    HL_BARRIER,    /* done when all have started it */
    HL_SEND,       /* data [n] of root goes to rank `to`, into its data; others take no part */
};

/* Slice r of n elements: contiguous, cut at multiples of `unit` elements, sizes differ by at most
 * one unit, larger ones first. A slice may be empty. */
struct hl_range hl_slice(int64_t n, int64_t unit, int rank, int n_ranks);
/* 64 bytes of f32: the cut of parameters, gradients and optimizer state, in all strategies. */
enum { HL_SLICE_UNIT = 16 };

struct hl_collective_args {
    enum hl_collective_kind kind;
    int lane, root, to;
    void *data, *out; /* out: all-to-all, reduce-scatter. Borrowed until the operation is done */
    int64_t n;        /* elements */
    size_t element_bytes; /* 4: f32 where sums are made; others are moved as they are */
    int64_t unit;         /* of slices, elements; 0: HL_SLICE_UNIT */
    enum hl_dtype wire;   /* HL_BF16: f32 data travels rounded */
    bool one_stage; /* all-reduce: each reads all of each (small n), instead of slices in two steps.
                       Same bits. hl_all_reduce_one_stage says when it is faster */
};

struct hl_group;
/* One operation in flight; the caller's memory, which must stay until it is done. */
struct hl_flow {
    int peer; /* rank or HL_EVERYONE */
    char *data;
    int64_t n, done; /* elements */
};
struct hl_collective {
    struct hl_collective_args args;
    int lane, share;       /* the wire's lane; with two paths: see hl_path_share */
    enum hl_status status; /* of hl_collective_status */
    struct hl_collective *next;
    int n_out, n_in;
    struct hl_flow out[HL_MAX_RANKS], in[HL_MAX_RANKS];
    bool reduces, reads_everyone, forwards; /* forwards: what is summed goes to everyone at once */
    float *sum;                             /* where the sum goes, and this rank's own part of it */
    const float *own;
    int64_t sum_n, sum_done;
    char token[HL_MAX_RANKS]; /* a barrier's data */
};

/* wire NULL: a group of one. The wire is borrowed. timeout_ns: how long an operation may make no
 * progress. On a wire with two paths all ranks must come, and measure both (some 10 MiB each).
 * errors HL_E_MEMORY; with two paths also those of hl_group_poll */
enum hl_status hl_group_new(struct hl_mem *mem, struct hl_wire *wire,
                            const struct hl_kernels *kernels, int64_t timeout_ns,
                            struct hl_group **out, struct hl_diag *diag) HL_MUST_CHECK;
void hl_group_free(struct hl_group *group);
int hl_group_rank(const struct hl_group *group); /* a NULL group has one rank, 0 */
int hl_group_n_ranks(const struct hl_group *group);
int hl_group_n_lanes(const struct hl_group *group);
/* For the messages of those who wait for this rank, and ours. */
void hl_group_tell(struct hl_group *group, enum hl_phase phase, int64_t step);
/* told(context, ...) with every change that hl_group_tell brings: for those who are not on the
 * wire.
 */
void hl_group_on_tell(struct hl_group *group,
                      void (*told)(void *context, enum hl_phase phase, int64_t step),
                      void *context);

/* A group of one is done at once. Sizes that do not fit are our own mistake: asserts. */
void hl_collective_start(struct hl_group *group, const struct hl_collective_args *args,
                         struct hl_collective *op);
/* HL_PENDING, HL_OK, or why it failed; HL_OK for one that was never started (zeroed). */
enum hl_status hl_collective_status(const struct hl_collective *op);
/* Are n operations all HL_OK? */
bool hl_collectives_done(const struct hl_collective *ops, int n);
/* Progress of all lanes. HL_OK: nothing is in flight; HL_PENDING; errors HL_E_PEER and HL_E_TIMEOUT
 * name the rank that failed or is waited for, its host, phase and step; the group is broken then.
 */
enum hl_status hl_group_poll(struct hl_group *group, struct hl_diag *diag) HL_MUST_CHECK;
/* Poll and sleep until op is done. errors as above */
enum hl_status hl_collective_wait(struct hl_group *group, struct hl_collective *op,
                                  struct hl_diag *diag) HL_MUST_CHECK;
/* This rank cannot go on: the others get HL_E_PEER with its words, unless the group broke before.
 */
void hl_group_give_up(struct hl_group *group, const char *why);
/* Sleep until something may have changed, at most timeout_ns. */
void hl_group_sleep(struct hl_group *group, int64_t timeout_ns);
/* All have come here. Waits, as the next two. */
enum hl_status hl_group_barrier(struct hl_group *group, struct hl_diag *diag) HL_MUST_CHECK;
/* Rank 0's bytes, to all. */
enum hl_status hl_group_broadcast(struct hl_group *group, void *data, size_t bytes,
                                  struct hl_diag *diag) HL_MUST_CHECK;
/* Each rank's k values, in rank order: all [n_ranks * k], own values in place. Waits. */
enum hl_status hl_group_share(struct hl_group *group, double *all, int64_t k,
                              struct hl_diag *diag) HL_MUST_CHECK;

/* What passed since the group was made, and how long this rank slept for others. */
struct hl_group_counts {
    int64_t bytes_out, bytes_in; /* a part for everyone counts once for each reader */
    int64_t wait_ns;
};
struct hl_group_counts hl_group_counted(struct hl_group *group); /* NULL group: zeros */

/* ---- costs: what `plan`, the choice of algorithm and a test read ---- */
struct hl_collective_cost {
    int rounds;                  /* exchanges that wait for one another */
    int64_t bytes_out, bytes_in; /* of this rank, summed over peers; a part for everyone counts
                                    once for each reader */
};
struct hl_collective_cost hl_collective_cost(const struct hl_collective_args *args, int rank,
                                             int n_ranks);
bool hl_all_reduce_one_stage(int64_t n, int n_ranks);

/* ---- two paths: a wire such as pool+wan ----
 * Each operation goes over the path that is faster for it, or over both: each slice is cut in two.
 * The bits are the same. */

/* As measured when the group was made; of each number the slowest rank's. */
struct hl_path {
    double latency_s; /* of a round */
    double
        each_bytes_per_s;   /* that a rank sends to the others, a part for one each, while all do */
    double all_bytes_per_s; /* that one rank sends, parts for everyone, until all have them */
};
struct hl_paths {
    struct hl_path path[2];
    double together; /* how much longer both at once take than the model says, from 1 */
};
enum { HL_SHARES = 64 };
/* Seconds that an operation takes over one path: rounds and the bytes of the busiest rank. */
double hl_path_seconds(const struct hl_path *path, const struct hl_collective_args *args,
                       int n_ranks);
/* How much of each slice goes over the first path, of HL_SHARES: all, nothing, or what makes both
 * end at once where that is a tenth faster than the better one. Pure, and equal on all ranks. */
int hl_path_share(const struct hl_paths *paths, const struct hl_collective_args *args, int n_ranks);
/* NULL: the wire has one path. */
const struct hl_paths *hl_group_paths(const struct hl_group *group);
/* From now on so much of every operation; -1: as hl_path_share says. All ranks alike; nothing may
 * be in flight. */
void hl_group_set_share(struct hl_group *group, int share);

#endif
