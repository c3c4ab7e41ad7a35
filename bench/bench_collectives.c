/* Collectives between processes of this machine over a pool. Answers questions, as bench_worker
 * does: usage: bench_collectives RANKS [PART_BYTES [MODE | HOST CARD LATENCY_US [HOST:PORT]]]
 * prints "ready
 * ...", then for each line "KIND BYTES" the seconds of one call: by the slowest rank, the median of
 * a few batches. KIND: see `kinds`. BYTES: of the whole vector, which is cut to a multiple of 16
 * floats for each rank. KIND copy and pass are limits: each rank copies so many of its own bytes;
 * each reads so many that another one has just written. With MODE write-back the pool is used as
 * one without coherence. With HOST (bytes/s of a host's link to the pool, each way), CARD (bytes/s
 * of one of six cards) and LATENCY_US the pool is that of an emulated rack: rack.h, without
 * coherence. With HOST:PORT rank r lives in the network namespace hr (hosts.py) and has two paths:
 * that pool, and wan, whose ranks meet there; "share-KIND BYTES" then answers how much the pool
 * carries, of HL_SHARES. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "halley/collective.h"
#include "pairs.h"
#include "rack.h"
#include "wires/pair.h"
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
    const char *meeting; /* on the NICs; NULL: the pool alone */
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

static struct hl_collective_args args_of(const struct question *q, int ranks, float *data) {
    int64_t n = q->bytes / (int64_t)sizeof *data, unit = (int64_t)HL_SLICE_UNIT * ranks;
    n = n / unit * unit;
    return (struct hl_collective_args){.kind = kinds[q->kind].kind,
                                       .data = data,
                                       .out = data + MOST_BYTES / sizeof *data,
                                       .n = n,
                                       .element_bytes = sizeof *data,
                                       .one_stage = hl_all_reduce_one_stage(n, ranks)};
}

static double measure(struct hl_group *g, const struct question *q, float *data) {
    int ranks = hl_group_n_ranks(g), times = batch_size(q->bytes);
    const struct hl_collective_args args = args_of(q, ranks, data);
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

static struct question parse(const char *word, long long bytes) {
    struct question q = {-1, 0};
    for (int k = 0; k < N_KINDS; k++)
        if (!strcmp(word, kinds[k].name)) q = (struct question){k, bytes};
    if (!strcmp(word, "copy")) q = (struct question){COPY, bytes};
    if (!strcmp(word, "pass")) q = (struct question){PASS, bytes};
    return q;
}

/* What needs no other rank is answered here. */
static struct question read_question(struct hl_group *g) {
    static const char share[] = "share-";
    const size_t n_share = sizeof share - 1;
    struct question q = {-1, 0};
    char line[64], word[32];
    long long bytes;
    while (fgets(line, sizeof line, stdin) && sscanf(line, "%31s %lld", word, &bytes) == 2 &&
           bytes >= 0 && bytes <= MOST_BYTES) {
        if (strncmp(word, share, n_share) != 0) return parse(word, bytes);
        q = parse(word + n_share, bytes);
        if (q.kind < 0 || q.kind >= N_KINDS || !hl_group_paths(g)) die("no such share");
        const struct hl_collective_args args = args_of(&q, hl_group_n_ranks(g), NULL);
        printf("%d\n", hl_path_share(hl_group_paths(g), &args, hl_group_n_ranks(g)));
        (void)fflush(stdout);
    }
    return (struct question){-1, 0};
}

/* Rank 0 tells the others. */
static struct question next_question(struct hl_group *g) {
    struct question q = {-1, 0};
    if (hl_group_rank(g) == 0) q = read_question(g);
    run(g, &(struct hl_collective_args){
               .kind = HL_BROADCAST, .data = &q, .n = sizeof q, .element_bytes = 1});
    return q;
}

/* From here on this process's network is that of its host. */
static void enter_host(int rank) {
    char path[64];
    (void)snprintf(path, sizeof path, "/run/netns/h%d", rank);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || setns(file, CLONE_NEWNET)) die(path);
    (void)close(file);
}

static struct hl_wire *add_nic(const struct setting *x, struct hl_wire *pool) {
    const struct hl_wire_place place = {.rank = pool->rank,
                                        .n_ranks = pool->n_ranks,
                                        .n_lanes = pool->n_lanes,
                                        .part_bytes = x->pool->head.job.part_bytes,
                                        .address = x->meeting,
                                        .token = "of a benchmark, no secret",
                                        .timeout_ns = 20000000000};
    struct hl_wire *wan, *both;
    struct hl_diag diag = {0};
    enter_host(pool->rank);
    if (hl_wire_wan.open(hl_mem_default(), &place, &wan, &diag) != HL_OK ||
        hl_wire_pair(hl_mem_default(), pool, wan, &both, &diag) != HL_OK)
        die(diag.text);
    return both;
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
    return x->meeting ? add_nic(x, wire) : wire;
}

static void print_ready(const struct setting *x, const struct hl_group *g) {
    const struct hl_paths *p = hl_group_paths(g);
    printf("ready %d processes, parts of %zu KiB", x->n_ranks, x->pool->head.job.part_bytes >> 10);
    for (int i = 0; i < 2 && p; i++)
        printf(", %s: %.0f us, %.0f MB/s to one, %.0f to all", i ? "wan" : "pool",
               p->path[i].latency_s * 1e6, p->path[i].each_bytes_per_s * 1e-6,
               p->path[i].all_bytes_per_s * 1e-6);
    if (p) printf(", both at once %.2f times as long as they should", p->together);
    printf("\n");
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
    if (rank == 0) print_ready(x, g);
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
    if (n < 2 || n > HL_MAX_RANKS || (argc > 3 && argc != 6 && argc != 7 && !write_back))
        die("see the head of bench/bench_collectives.c");
    if (argc >= 6) read_rack(argv + 3, &x);
    if (argc == 7) x.meeting = argv[6];
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
