/* Collectives between processes of this machine over a pool. Answers questions, as bench_worker
 * does: usage: bench_collectives RANKS [PART_BYTES [MODE | HOST CARD LATENCY_US]] prints "ready
 * ...", then for each line "KIND BYTES" the seconds of one call: by the slowest rank, the median of
 * a few batches. KIND: see `kinds`. BYTES: of the whole vector, which is cut to a multiple of 16
 * floats for each rank. KIND copy and pass are limits: each rank copies so many of its own bytes;
 * each reads so many that another one has just written. With MODE write-back the pool is used as
 * one without coherence. With HOST (bytes/s of a host's link to the pool, each way), CARD (bytes/s
 * of one of six cards) and LATENCY_US the pool is that of an emulated rack: rack.h, without
 * coherence. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "halley/collective.h"
#include "pairs.h"
#include "rack.h"
#include "wires/pool.h"
#include "wires/wires.h"

enum { BATCHES = 5, MOST_BYTES = 256 << 20 };
struct question {
    int64_t kind, bytes; /* kind -1: the end */
};
static const struct {
    const char *name;
    enum hl_collective_kind kind;
} kinds[] = {{"all-reduce", HL_ALL_REDUCE}, {"reduce-scatter", HL_REDUCE_SCATTER},
             {"all-gather", HL_ALL_GATHER}, {"broadcast", HL_BROADCAST},
             {"reduce", HL_REDUCE},         {"gather", HL_GATHER},
             {"scatter", HL_SCATTER},       {"all-to-all", HL_ALL_TO_ALL},
             {"barrier", HL_BARRIER}};
enum { N_KINDS = sizeof kinds / sizeof *kinds, COPY = N_KINDS, PASS };
struct setting {
    const struct hl_pool *pool;
    struct rack_card *cards; /* NULL: the pool as it is */
    struct rack_spec rack;
    int n_ranks;
    char *passed; /* [n_ranks][MOST_BYTES], shared */
};

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

static int batch_size(int64_t bytes) {
    return bytes <= 65536 ? 100 : bytes <= (1 << 20) ? 20 : bytes <= (16 << 20) ? 4 : 1;
}

static double measure(struct hl_group *g, const struct question *q, float *data) {
    int ranks = hl_group_n_ranks(g), times = batch_size(q->bytes);
    int64_t n = q->bytes / (int64_t)sizeof *data, unit = (int64_t)HL_SLICE_UNIT * ranks;
    n = n / unit * unit;
    const struct hl_collective_args args = {.kind = kinds[q->kind].kind,
                                            .data = data,
                                            .out = data + MOST_BYTES / sizeof *data,
                                            .n = n,
                                            .element_bytes = sizeof *data,
                                            .one_stage = hl_all_reduce_one_stage(n, ranks)};
    double batches[BATCHES];
    run(g, &args);
    for (int b = 0; b < BATCHES; b++) {
        double all[HL_MAX_RANKS] = {0};
        run(g, &(struct hl_collective_args){.kind = HL_BARRIER});
        double start = now();
        for (int i = 0; i < times; i++) run(g, &args);
        all[hl_group_rank(g)] = (now() - start) / times;
        if (hl_group_share(g, all, 1, NULL) != HL_OK) die("sharing times failed");
        batches[b] = 0;
        for (int r = 0; r < ranks; r++)
            if (all[r] > batches[b]) batches[b] = all[r];
    }
    return median(batches, BATCHES);
}

/* What a collective cannot be faster than: copies of this rank's own bytes, and reads of what the
 * rank before has just written. All ranks at once. */
static double limit(const struct setting *x, struct hl_group *g, const struct question *q,
                    float *data) {
    int rank = hl_group_rank(g), times = q->kind == COPY ? batch_size(q->bytes) : 1;
    size_t n = (size_t)q->bytes;
    char *own = x->passed + (size_t)rank * MOST_BYTES,
         *other = x->passed + (size_t)((rank + 1) % x->n_ranks) * MOST_BYTES;
    float *out = data + MOST_BYTES / sizeof *data;
    double batches[BATCHES];
    for (int b = 0; b < BATCHES; b++) {
        double all[HL_MAX_RANKS] = {0};
        if (q->kind == PASS) memset(own, b + 1, n);
        run(g, &(struct hl_collective_args){.kind = HL_BARRIER});
        double start = now();
        for (int i = 0; i < times; i++) memcpy(out, q->kind == PASS ? (void *)other : data, n);
        all[rank] = (now() - start) / times;
        if (hl_group_share(g, all, 1, NULL) != HL_OK) die("sharing times failed");
        batches[b] = 0;
        for (int r = 0; r < x->n_ranks; r++)
            if (all[r] > batches[b]) batches[b] = all[r];
    }
    return median(batches, BATCHES);
}

/* Rank 0 reads the question and tells the others. */
static struct question next_question(struct hl_group *g) {
    struct question q = {-1, 0};
    char line[64], word[32];
    long long bytes;
    if (hl_group_rank(g) == 0 && fgets(line, sizeof line, stdin) &&
        sscanf(line, "%31s %lld", word, &bytes) == 2 && bytes >= 0 && bytes <= MOST_BYTES) {
        for (int k = 0; k < N_KINDS; k++)
            if (!strcmp(word, kinds[k].name)) q = (struct question){k, bytes};
        if (!strcmp(word, "copy")) q = (struct question){COPY, bytes};
        if (!strcmp(word, "pass")) q = (struct question){PASS, bytes};
    }
    run(g, &(struct hl_collective_args){
               .kind = HL_BROADCAST, .data = &q, .n = sizeof q, .element_bytes = 1});
    return q;
}

static struct hl_wire *open_wire(const struct setting *x, int rank) {
    const struct hl_wire_place place = {.rank = rank,
                                        .n_ranks = x->n_ranks,
                                        .address = x->pool->address,
                                        .timeout_ns = 20000000000};
    struct hl_wire *wire;
    struct hl_diag diag = {0};
    if (hl_wire_pool.open(hl_mem_default(), &place, &wire, &diag) != HL_OK) die(diag.text);
    if (!x->cards) return wire;
    int slots = (int)x->pool->head.job.n_slots;
    wire = rack_new(hl_mem_default(), wire, &x->rack, x->cards, slots);
    if (!wire) die("memory is short");
    return wire;
}

static void rank_main(const struct setting *x, int rank) {
    struct hl_wire *wire = open_wire(x, rank);
    struct hl_group *g;
    struct hl_diag diag = {0};
    const struct hl_kernels *k;
    if (hl_kernels_get(HL_F32, &k, &diag) != HL_OK ||
        hl_group_new(hl_mem_default(), wire, k, 3600000000000, &g, &diag) != HL_OK)
        die(diag.text);
    float *data = hl_alloc(hl_mem_default(), 2 * (size_t)MOST_BYTES, 1);
    if (!data) die("memory is short");
    memset(data, 0, MOST_BYTES);
    run(g, &(struct hl_collective_args){.kind = HL_BARRIER});
    if (rank == 0)
        printf("ready %d processes, parts of %zu KiB\n", x->n_ranks,
               x->pool->head.job.part_bytes >> 10);
    for (;;) {
        (void)fflush(stdout);
        struct question q = next_question(g);
        if (q.kind < 0) break;
        double seconds = q.kind < N_KINDS ? measure(g, &q, data) : limit(x, g, &q, data);
        if (rank == 0) printf("%.9f\n", seconds);
    }
    hl_group_free(g);
    wire->ops->close(wire);
}

static void read_rack(char **words, struct setting *x) {
    size_t bytes = RACK_CARDS * sizeof *x->cards;
    x->rack = (struct rack_spec){.host_bytes_per_s = strtod(words[0], NULL),
                                 .card_bytes_per_s = strtod(words[1], NULL),
                                 .burst_bytes = 512 << 10, /* as tc's */
                                 .latency_ns = (int64_t)(strtod(words[2], NULL) * 1e3)};
    if (!(x->rack.host_bytes_per_s >= 1) || !(x->rack.card_bytes_per_s >= 1)) die("rates from 1");
    x->cards = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (x->cards == MAP_FAILED) die("memory is short");
}

int main(int argc, char **argv) {
    struct setting x = {.n_ranks = argc > 1 ? atoi(argv[1]) : 0};
    int n = x.n_ranks, bad = 0, status;
    struct hl_pool *pool;
    struct hl_diag diag = {0};
    bool write_back = argc == 4 && !strcmp(argv[3], "write-back");
    if (n < 2 || n > HL_MAX_RANKS || (argc > 3 && argc != 6 && !write_back))
        die("see the head of bench/bench_collectives.c");
    if (argc == 6) read_rack(argv + 3, &x);
    x.passed = mmap(NULL, (size_t)n * MOST_BYTES, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (x.passed == MAP_FAILED) die("memory is short");
    const struct hl_pool_wire_spec spec = {
        .n_ranks = n,
        .n_lanes = 1,
        .part_bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 131072,
        .n_devices = x.cards ? RACK_CARDS : 1,
        .mode = x.cards || write_back ? HL_POOL_WRITE_BACK : HL_POOL_COHERENT,
        .one_kernel = !x.cards};
    if (hl_pool_wire_new(hl_mem_default(), &spec, &pool, &diag) != HL_OK) die(diag.text);
    x.pool = pool;
    for (int r = 1; r < n; r++)
        if (fork() == 0) {
            rank_main(&x, r);
            _exit(0);
        }
    rank_main(&x, 0);
    while (wait(&status) > 0) bad |= status;
    hl_pool_close(pool);
    return bad != 0;
}
