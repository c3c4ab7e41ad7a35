/* One operation as flows of parts: what goes out, what is copied in, and at most one sum. Every
 * flow makes progress on its own, so no order of ranks can lock up. See halley/collective.h. */
#include "halley/collective.h"

#include <assert.h>
#include <string.h>

#include "collectives/group.h"

struct hl_range hl_slice(int64_t n, int64_t unit, int rank, int n_ranks) {
    int64_t units = (n + unit - 1) / unit, each = units / n_ranks, more = units % n_ranks;
    int64_t first = (rank * each + (rank < more ? rank : more)) * unit;
    int64_t end = first + (each + (rank < more)) * unit;
    if (first > n) first = n;
    if (end > n) end = n;
    return (struct hl_range){first, end - first};
}

/* ---- who sends what ---- */

struct setup {
    struct hl_collective *op;
    struct hl_part part;
    int rank, n_ranks;
    size_t size;
};

static int64_t cut_at(int64_t n, int share) {
    return share == HL_SHARES ? n : n * share / HL_SHARES / HL_SLICE_UNIT * HL_SLICE_UNIT;
}
/* What of a range this path carries: the same to all ranks. */
static struct hl_range cut(const struct setup *s, struct hl_range range) {
    int64_t from = cut_at(range.n, s->part.from), to = cut_at(range.n, s->part.to);
    return (struct hl_range){range.offset + from, to - from};
}
static struct hl_range whole(const struct setup *s) {
    return cut(s, (struct hl_range){0, s->op->args.n});
}
static struct hl_range slice(const struct setup *s, int rank) {
    return cut(s, hl_slice(s->op->args.n, s->op->args.unit, rank, s->n_ranks));
}
static char *at(const struct setup *s, void *base, struct hl_range range) {
    return (char *)base + (size_t)range.offset * s->size;
}
static void add_out(const struct setup *s, int peer, struct hl_range range) {
    struct hl_collective *op = s->op;
    op->out[op->n_out++] = (struct hl_flow){peer, at(s, op->args.data, range), range.n, 0};
}
static void add_in(const struct setup *s, int peer, void *base, struct hl_range range) {
    struct hl_collective *op = s->op;
    op->in[op->n_in++] = (struct hl_flow){peer, at(s, base, range), range.n, 0};
}
/* The j-th peer in an order that differs for each rank, so that at any time ranks talk in pairs. */
static int peer_after(const struct setup *s, int j) { return (s->rank + j) % s->n_ranks; }
static int peer_before(const struct setup *s, int j) {
    return (s->rank - j + s->n_ranks) % s->n_ranks;
}

/* Slices of data to their owners; own ones are summed. */
static void reduce_scatter(const struct setup *s) {
    struct hl_collective *op = s->op;
    for (int j = 1; j < s->n_ranks; j++) add_out(s, peer_after(s, j), slice(s, peer_after(s, j)));
    struct hl_range own = slice(s, s->rank);
    op->reduces = true;
    op->own = (float *)(void *)at(s, op->args.data, own);
    op->sum = (float *)(void *)at(s, op->args.data, own);
    if (op->args.out)
        op->sum = (float *)op->args.out +
                  (own.offset - hl_slice(op->args.n, op->args.unit, s->rank, s->n_ranks).offset);
    op->sum_n = own.n;
}

static void send(const struct setup *s) {
    struct hl_collective *op = s->op;
    if (op->args.root == op->args.to) return;
    if (s->rank == op->args.root) add_out(s, op->args.to, whole(s));
    if (s->rank == op->args.to) add_in(s, op->args.root, op->args.data, whole(s));
}

static void read_slices(const struct setup *s) {
    for (int j = 1; j < s->n_ranks; j++)
        add_in(s, peer_before(s, j), s->op->args.data, slice(s, peer_before(s, j)));
    s->op->reads_everyone = true;
}

static void all_reduce(const struct setup *s) {
    struct hl_collective *op = s->op;
    if (op->args.one_stage) {
        add_out(s, HL_EVERYONE, whole(s));
        op->reduces = op->reads_everyone = true;
        op->own = op->sum = (float *)(void *)at(s, op->args.data, whole(s));
        op->sum_n = whole(s).n;
        return;
    }
    reduce_scatter(s);
    add_out(s, HL_EVERYONE, slice(s, s->rank)); /* the last one: follows the sum */
    op->forwards = true;
    read_slices(s);
}

static void all_gather(const struct setup *s) {
    add_out(s, HL_EVERYONE, slice(s, s->rank));
    read_slices(s);
}

static void broadcast(const struct setup *s) {
    struct hl_collective *op = s->op;
    op->reads_everyone = true;
    if (s->rank == op->args.root) add_out(s, HL_EVERYONE, whole(s));
    else add_in(s, op->args.root, op->args.data, whole(s));
}

static void gather(const struct setup *s) {
    struct hl_collective *op = s->op;
    if (s->rank != op->args.root) add_out(s, op->args.root, slice(s, s->rank));
    for (int j = 1; j < s->n_ranks && s->rank == op->args.root; j++)
        add_in(s, peer_before(s, j), op->args.data, slice(s, peer_before(s, j)));
}

/* The sums of slices, then those to root: on the same streams, after the slices themselves. */
static void reduce(const struct setup *s) {
    reduce_scatter(s);
    gather(s);
    s->op->forwards = s->rank != s->op->args.root;
}

static void scatter(const struct setup *s) {
    struct hl_collective *op = s->op;
    if (s->rank != op->args.root) add_in(s, op->args.root, op->args.data, slice(s, s->rank));
    for (int j = 1; j < s->n_ranks && s->rank == op->args.root; j++)
        add_out(s, peer_after(s, j), slice(s, peer_after(s, j)));
}

static void all_to_all(const struct setup *s) {
    struct hl_collective *op = s->op;
    assert(op->args.n % (op->args.unit * s->n_ranks) == 0);
    for (int j = 1; j < s->n_ranks; j++) {
        add_out(s, peer_after(s, j), slice(s, peer_after(s, j)));
        add_in(s, peer_before(s, j), op->args.out, slice(s, peer_before(s, j)));
    }
}

void hl_collective_prepare(const struct hl_collective_args *args, struct hl_part part, int rank,
                           int n_ranks, struct hl_collective *op) {
    static void (*const make[])(const struct setup *) = {
        [HL_ALL_REDUCE] = all_reduce, [HL_REDUCE_SCATTER] = reduce_scatter,
        [HL_ALL_GATHER] = all_gather, [HL_BROADCAST] = broadcast,
        [HL_REDUCE] = reduce,         [HL_GATHER] = gather,
        [HL_SCATTER] = scatter,       [HL_ALL_TO_ALL] = all_to_all,
        [HL_BARRIER] = all_gather,    [HL_SEND] = send};
    op->args = *args;
    op->args.one_stage = args->one_stage && args->kind == HL_ALL_REDUCE;
    if (args->kind != HL_ALL_TO_ALL && args->kind != HL_REDUCE_SCATTER) op->args.out = NULL;
    op->status = HL_PENDING;
    op->next = NULL;
    op->n_out = op->n_in = 0;
    op->reduces = op->reads_everyone = op->forwards = false;
    op->own = op->sum = NULL;
    op->sum_n = op->sum_done = 0;
    if (op->args.unit == 0) op->args.unit = HL_SLICE_UNIT;
    if (args->kind == HL_BARRIER) {
        op->args.data = op->token;
        op->args.n = n_ranks;
        op->args.unit = 1;
        op->args.element_bytes = 1;
    }
    assert(op->args.element_bytes > 0 && n_ranks <= HL_MAX_RANKS);
    assert(args->wire == HL_F32 || op->args.element_bytes == 4);
    const struct setup s = {op, part, rank, n_ranks, op->args.element_bytes};
    if (n_ranks > 1) make[args->kind](&s);
}

/* ---- costs ---- */

bool hl_all_reduce_one_stage(int64_t n, int n_ranks) {
    /* Two ranks read as much either way; more read (N-1) n instead of 2 (N-1)/N n, for one wait
     * less. */
    return n_ranks == 2 ? n <= 16384 : n * n_ranks <= 32768;
}

struct hl_load hl_collective_load(const struct hl_collective_args *args, int rank, int n_ranks) {
    struct hl_collective op;
    struct hl_load load = {0};
    if (n_ranks == 1) return load;
    hl_collective_prepare(args, HL_ALL_PARTS, rank, n_ranks, &op);
    int64_t bytes = (int64_t)hl_collective_wire_bytes(&op);
    for (int i = 0; i < op.n_out; i++)
        *(op.out[i].peer == HL_EVERYONE ? &load.out_all : &load.out_each) += op.out[i].n * bytes;
    for (int i = 0; i < op.n_in; i++) load.in += op.in[i].n * bytes;
    if (op.reduces) load.in += op.sum_n * bytes * (n_ranks - 1);
    load.rounds =
        args->kind == HL_REDUCE || (args->kind == HL_ALL_REDUCE && !args->one_stage) ? 2 : 1;
    return load;
}

struct hl_collective_cost hl_collective_cost(const struct hl_collective_args *args, int rank,
                                             int n_ranks) {
    const struct hl_load load = hl_collective_load(args, rank, n_ranks);
    return (struct hl_collective_cost){.rounds = load.rounds,
                                       .bytes_out = load.out_each + load.out_all * (n_ranks - 1),
                                       .bytes_in = load.in};
}

size_t hl_collective_wire_bytes(const struct hl_collective *op) {
    return op->args.wire == HL_BF16 ? sizeof(struct hl_bf16) : op->args.element_bytes;
}
