/* Collectives between processes of this machine: one JSON line for each size.
 * usage: bench_collectives KIND RANKS [MAX_BYTES [PART_BYTES]]      KIND: all-reduce, reduce-scatter, all-gather, barrier
 * Time of one call: that of the slowest rank, the best batch of several. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "halley/collective.h"
#include "pairs.h"
#include "wires/ring.h"

enum { BATCHES = 9, SLOTS = 4, LANES = 1 };
static const size_t most_default = (size_t)256 << 20;

struct world {
    const char *name;
    enum hl_collective_kind kind;
    int n_ranks;
    size_t most, part;
    char *slots;
    struct hl_ring_bed *beds;
};

static int batch_size(size_t bytes) {
    return bytes <= 65536 ? 100 : bytes <= (1 << 20) ? 20 : bytes <= (16 << 20) ? 4 : 1;
}

static void die(const char *what) {
    fprintf(stderr, "bench_collectives: %s\n", what);
    _exit(1);
}

static void run(struct hl_group *g, const struct hl_collective_args *args) {
    struct hl_collective op;
    struct hl_diag diag = {0};
    hl_collective_start(g, args, &op);
    if (hl_collective_wait(g, &op, &diag) != HL_OK) die(diag.text);
}

/* Seconds of one call in the best batch, by the slowest rank. */
static double measure(struct hl_group *g, struct hl_collective_args *args, int n) {
    double best = 1e9;
    for (int b = 0; b < BATCHES; b++) {
        double all[HL_MAX_RANKS] = {0}, slowest = 0;
        run(g, &(struct hl_collective_args){.kind = HL_BARRIER});
        double start = now();
        for (int i = 0; i < n; i++) run(g, args);
        all[hl_group_rank(g)] = (now() - start) / n;
        if (hl_group_share(g, all, 1, NULL) != HL_OK) die("sharing times failed");
        for (int r = 0; r < hl_group_n_ranks(g); r++) slowest = all[r] > slowest ? all[r] : slowest;
        if (slowest < best) best = slowest;
    }
    return best;
}

static void rank_main(const struct world *w, int rank) {
    struct hl_ring_memory memory = {&hl_ring_coherent, w->slots};
    const struct hl_ring_place place = {.name = "pool",
                                        .shape = {w->n_ranks, LANES, SLOTS, w->part},
                                        .rank = rank,
                                        .memory = &memory,
                                        .beds = w->beds,
                                        .incarnation = 1};
    struct hl_wire *wire;
    struct hl_group *g;
    struct hl_diag diag = {0};
    const struct hl_kernels *k;
    if (hl_kernels_get(HL_F32, &k, &diag) != HL_OK ||
        hl_ring_open(hl_mem_default(), &place, &wire, &diag) != HL_OK ||
        hl_group_new(hl_mem_default(), wire, k, 60000000000, &g, &diag) != HL_OK)
        die(diag.text);
    float *data = hl_alloc(hl_mem_default(), w->most, 1);
    if (!data) die("memory is short");
    memset(data, 0, w->most);
    for (size_t bytes = w->kind == HL_BARRIER ? w->most : 4096; bytes <= w->most; bytes *= 4) {
        int64_t n = (int64_t)(bytes / sizeof *data);
        struct hl_collective_args args = {.kind = w->kind, .data = data, .n = n, .element_bytes = sizeof *data, .one_stage = hl_all_reduce_one_stage(n, w->n_ranks)};
        double t = measure(g, &args, w->kind == HL_BARRIER ? 1000 : batch_size(bytes));
        if (rank == 0)
            printf("{\"kind\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"seconds\": %.9f}\n", w->name, w->n_ranks, bytes, t);
    }
    fflush(stdout);
    hl_group_free(g);
    wire->ops->close(wire);
}

int main(int argc, char **argv) {
    static const struct { const char *name; enum hl_collective_kind kind; } kinds[] = {{"all-reduce", HL_ALL_REDUCE}, {"reduce-scatter", HL_REDUCE_SCATTER}, {"all-gather", HL_ALL_GATHER}, {"barrier", HL_BARRIER}};
    struct world w = {.n_ranks = argc > 2 ? atoi(argv[2]) : 0, .most = most_default, .part = 131072};
    for (size_t i = 0; i < 4 && argc > 2; i++)
        if (!strcmp(argv[1], kinds[i].name)) w.name = argv[1], w.kind = kinds[i].kind;
    if (argc > 3) w.most = strtoull(argv[3], NULL, 10);
    if (argc > 4) w.part = strtoull(argv[4], NULL, 10);
    if (!w.name || w.n_ranks < 1 || w.n_ranks > HL_MAX_RANKS) return die("see the head of bench/bench_collectives.c"), 2;
    size_t bytes = hl_ring_bytes(&(struct hl_ring_shape){w.n_ranks, LANES, SLOTS, w.part});
    w.slots = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    w.beds = mmap(NULL, sizeof *w.beds * HL_MAX_RANKS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (w.slots == MAP_FAILED || w.beds == MAP_FAILED) die("no shared memory");
    for (int r = 1; r < w.n_ranks; r++)
        if (fork() == 0) {
            rank_main(&w, r);
            _exit(0);
        }
    rank_main(&w, 0);
    int status, bad = 0;
    while (wait(&status) > 0) bad |= status;
    return bad != 0;
}
