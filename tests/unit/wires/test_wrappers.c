/* Wrappers: sums keep their bits behind them, count counts what the costs say, throttle and delay
 * keep to a clock that the test holds, faults are named by the others, and what a wrapper does not
 * care about is handed on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "halley/collective.h"
#include "support/ranks.h"
#include "wires/wrappers.h"

enum { PART_BYTES = 256, N = 1100, LANES = 2, KINDS = HL_BARRIER + 1, MOST_RANKS = 7 };
static const struct hl_wrap_world real_world = {.seed = 7};

static const struct hl_kernels *kernels(void) {
    const struct hl_kernels *k = NULL;
    struct hl_diag diag;
    if (hl_kernels_get(HL_F32, &k, &diag) != HL_OK) abort();
    return k;
}

/* ---- a wire that leads back to its sender and owns the clock ---- */

struct spy {
    struct hl_wire wire; /* first */
    int64_t now_ns, waited_ns, told_step;
    size_t bytes;
    bool full, closed;
    char why[64];
    _Alignas(64) char part[PART_BYTES];
};
static struct spy *spy_of(struct hl_wire *wire) { return (struct spy *)(void *)wire; }

static enum hl_status spy_reserve(struct hl_wire *wire, struct hl_stream s, void **out) {
    (void)s;
    if (spy_of(wire)->full) return HL_PENDING;
    *out = spy_of(wire)->part;
    return HL_OK;
}
static enum hl_status spy_commit(struct hl_wire *wire, struct hl_stream s, size_t bytes) {
    (void)s;
    spy_of(wire)->bytes = bytes;
    spy_of(wire)->full = true;
    return HL_OK;
}
static enum hl_status spy_view(struct hl_wire *wire, struct hl_stream s, const void **data,
                               size_t *bytes) {
    (void)s;
    if (!spy_of(wire)->full) return HL_PENDING;
    *data = spy_of(wire)->part;
    *bytes = spy_of(wire)->bytes;
    return HL_OK;
}
static enum hl_status spy_release(struct hl_wire *wire, struct hl_stream s) {
    (void)s;
    spy_of(wire)->full = false;
    return HL_OK;
}
static enum hl_status spy_wait(struct hl_wire *wire, int64_t timeout_ns) {
    spy_of(wire)->waited_ns = timeout_ns;
    spy_of(wire)->now_ns += timeout_ns;
    return HL_OK;
}
static void spy_tell(struct hl_wire *wire, enum hl_phase phase, int64_t step) {
    spy_of(wire)->told_step = step + (int64_t)phase;
}
static void spy_peer(struct hl_wire *wire, int rank, struct hl_peer *out) {
    (void)wire;
    *out = (struct hl_peer){.state = HL_PEER_ALIVE, .pid = 1000 + rank};
}
static void spy_give_up(struct hl_wire *wire, const char *why) {
    (void)snprintf(spy_of(wire)->why, sizeof spy_of(wire)->why, "%s", why);
    wire->failed_rank = 1;
}
static void spy_close(struct hl_wire *wire) { spy_of(wire)->closed = true; }

static const struct hl_wire_ops spy_ops = {.reserve = spy_reserve,
                                           .commit = spy_commit,
                                           .view = spy_view,
                                           .release = spy_release,
                                           .wait = spy_wait,
                                           .tell = spy_tell,
                                           .peer = spy_peer,
                                           .give_up = spy_give_up,
                                           .close = spy_close};

static int64_t spy_clock(void *context) { return ((const struct spy *)context)->now_ns; }
static void spy_init(struct spy *spy) {
    *spy = (struct spy){.wire = {.ops = &spy_ops,
                                 .name = "spy",
                                 .n_ranks = 3,
                                 .n_lanes = LANES,
                                 .part_bytes = PART_BYTES,
                                 .failed_rank = -1}};
}
/* Rank 0 of three, behind a list of wrappers. */
static struct hl_wire *wrapped(struct spy *spy, const char *list, uint64_t seed) {
    const struct hl_wrap_world world = {.clock_ns = spy_clock, .clock_context = spy, .seed = seed};
    struct hl_wire *wire = &spy->wire;
    struct hl_diag diag = {0};
    if (hl_wire_wrap(hl_mem_default(), list, &world, &wire, &diag) != HL_OK)
        fail_msg("%s", diag.text);
    return wire;
}

static void test_calls_are_handed_on(void **state) {
    static const char *const lists[] = {"",
                                        "count",
                                        "throttle=1gbit",
                                        "delay=1ms",
                                        "fault=drop:0:1000",
                                        "count,throttle=1gbit,delay=1ms,fault=cut:0:1000,count"};
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        static struct spy spy;
        struct hl_peer p;
        spy_init(&spy);
        struct hl_wire *w = wrapped(&spy, lists[i], 1);
        assert_int_equal(w->n_ranks, 3);
        assert_int_equal(w->n_lanes, LANES);
        w->waits = true;
        w->waits_for = 2;
        w->ops->tell(w, HL_PHASE_BACKWARD, 40);
        assert_int_equal(spy.told_step, 43);
        assert_true(spy.wire.waits && spy.wire.waits_for == 2);
        w->ops->peer(w, 2, &p);
        assert_int_equal(p.pid, 1002);
        assert_int_equal(w->ops->wait(w, 12345), HL_OK);
        assert_int_equal(spy.waited_ns, 12345);
        assert_int_equal(w->failed_rank, -1);
        w->ops->give_up(w, "no more");
        assert_string_equal(spy.why, "no more");
        assert_int_equal(w->ops->wait(w, 1), HL_OK);
        assert_int_equal(w->failed_rank, 1);
        w->ops->close(w);
        assert_true(spy.closed);
    }
}

static void test_names(void **state) {
    static struct spy spy;
    (void)state;
    spy_init(&spy);
    struct hl_wire *w = wrapped(&spy, "count,throttle=8mbit/64kib,delay=2ms/500us,fault=kill:2:9",
                                1); /* another rank's fault */
    assert_string_equal(w->name, "count(throttle(delay(spy)))");
    assert_int_equal(w->part_bytes, PART_BYTES - 64);
    w->ops->close(w);
}

static void test_lists(void **state) {
    static const char *const good[] = {"",
                                       "count",
                                       "count,count",
                                       "throttle=100mbit",
                                       "throttle=2.5gbit/1MiB",
                                       "throttle=9.6kbit/100b",
                                       "delay=2ms",
                                       "delay=1s/20us",
                                       "fault=half-open:0:1",
                                       "trace=a/b"};
    static const struct {
        const char *list, *says;
    } bad[] = {{"cuont", "did you mean count"},
               {"count=1", "write count"},
               {"throttle", "throttle=100mbit"},
               {"throttle=100", "100mbit"},
               {"throttle=mbit", "100mbit"},
               {"throttle=-1mbit", "100mbit"},
               {"throttle=nanmbit", "100mbit"},
               {"throttle=1mbit/0b", "rate/burst"},
               {"count,delay=2", "'delay=2' is not understood"},
               {"delay=2ms/", "latency/jitter"},
               {"delay=2h", "delay=2ms"},
               {"fault=kill", "fault=kill:2:100"},
               {"fault=kill:2", "fault=kill:2:100"},
               {"fault=boom:2:1", "half-open"},
               {"fault=kill:2:0", "operation"},
               {"fault=kill:-1:3", "rank"},
               {"trace=", "FILE-rankR.json"},
               {"count,,count", "there are count"},
               {"count,count,count,count,count,count,count,count,count", "at most 8"}};
    (void)state;
    struct hl_diag diag;
    assert_int_equal(hl_wire_wrap_check(NULL, &diag), HL_OK);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(hl_wire_wrap_check(good[i], &diag), HL_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(hl_wire_wrap_check(bad[i].list, &diag), HL_E_USER);
        if (!strstr(diag.text, bad[i].says)) fail_msg("%s: %s", bad[i].list, diag.text);
    }
}

static void test_throttle(void **state) {
    static struct spy spy;
    static const struct hl_stream to_one = {0, 0, 1}, to_all = {1, 0, HL_EVERYONE};
    void *room;
    (void)state;
    spy_init(&spy);
    struct hl_wire *w = wrapped(&spy, "throttle=8kbit/200b", 1); /* 1000 bytes/s: 1 ms each */
    for (int i = 0; i < 3; i++) { /* 200 saved, and the part that takes it below zero */
        assert_int_equal(w->ops->reserve(w, to_one, &room), HL_OK);
        assert_int_equal(w->ops->commit(w, to_one, 100), HL_OK);
        (void)w->ops->release(w, to_one);
    }
    assert_int_equal(w->ops->wait(w, 7000000000), HL_OK); /* nobody was refused */
    assert_int_equal(spy.waited_ns, 7000000000);
    int64_t sent = 0, from = spy.now_ns;
    for (int i = 0; i < 50; i++) {
        const struct hl_stream s = i % 2 ? to_one : to_all; /* to two readers */
        while (w->ops->reserve(w, s, &room) == HL_PENDING) {
            assert_int_equal(w->ops->wait(w, 7000000000), HL_OK);
            assert_true(spy.waited_ns <= 200000000); /* no longer than the last part takes */
        }
        assert_int_equal(w->ops->commit(w, s, 100), HL_OK);
        (void)w->ops->release(w, s);
        sent += i % 2 ? 100 : 200;
        assert_true((sent - 200 - 200) * 1000000 <= spy.now_ns - from);
        assert_true((sent - 200) * 1000000 >= spy.now_ns - from);
    }
    w->ops->close(w);
}

/* Virtual nanoseconds from commit until a part of k is seen. */
static void delays(const char *list, uint64_t seed, int64_t out[20]) {
    static struct spy spy;
    const void *data;
    size_t bytes;
    void *room;
    spy_init(&spy);
    struct hl_wire *w = wrapped(&spy, list, seed);
    const struct hl_stream there = {1, 0, 2}, here = {1, 2, 0};
    for (int i = 0; i < 20; i++) {
        spy.now_ns += 1000000;
        int64_t from = spy.now_ns;
        assert_int_equal(w->ops->reserve(w, there, &room), HL_OK);
        (void)snprintf(room, 16, "part %d", i);
        assert_int_equal(w->ops->commit(w, there, 16), HL_OK);
        while (w->ops->view(w, here, &data, &bytes) == HL_PENDING)
            assert_int_equal(w->ops->wait(w, 60000000000), HL_OK);
        out[i] = spy.now_ns - from;
        assert_int_equal(bytes, 16);
        assert_string_equal(data, room);
        assert_int_equal(w->ops->release(w, here), HL_OK);
    }
    w->ops->close(w);
}

static void test_delay(void **state) {
    int64_t a[20], b[20], c[20], d[20];
    bool differ = false, other = false;
    (void)state;
    delays("delay=2ms", 1, a);
    for (int i = 0; i < 20; i++) assert_int_equal(a[i], 2000000);
    delays("delay=2ms/1ms", 1, b);
    delays("delay=2ms/1ms", 1, c);
    delays("delay=2ms/1ms", 2, d);
    for (int i = 0; i < 20; i++) {
        assert_true(b[i] >= 2000000 && b[i] < 3000000);
        assert_int_equal(b[i], c[i]);
        differ |= b[i] != b[0];
        other |= b[i] != d[i];
    }
    assert_true(differ && other);
}

/* A clock that is an hour ahead delays by at most latency and jitter once more. */
static void test_delay_with_a_foreign_clock(void **state) {
    static struct spy spy;
    const void *data;
    size_t bytes;
    void *room;
    (void)state;
    spy_init(&spy);
    spy.now_ns = 3600000000000;
    struct hl_wire *w = wrapped(&spy, "delay=2ms/1ms", 1);
    assert_int_equal(w->ops->reserve(w, (struct hl_stream){0, 0, 1}, &room), HL_OK);
    assert_int_equal(w->ops->commit(w, (struct hl_stream){0, 0, 1}, 8), HL_OK);
    spy.now_ns = 5;
    const struct hl_stream here = {0, 1, 0};
    assert_int_equal(w->ops->view(w, here, &data, &bytes), HL_PENDING);
    spy.now_ns += 3000000;
    assert_int_equal(w->ops->view(w, here, &data, &bytes), HL_OK);
    w->ops->close(w);
}

/* ---- collectives behind wrappers ---- */

static float element(int64_t i, int r) {
    uint32_t x = (uint32_t)(i * 2654435761u) ^ ((uint32_t)r * 40503u * 65537u);
    x ^= x >> 15;
    x *= 2246822519u;
    return ((float)(x & 0xffff) - 32768.0f) * (1.0f / (float)(1 << (x >> 28)));
}

struct results {
    const char *list;
    float data[MOST_RANKS][KINDS][N];
    int64_t sent[MOST_RANKS][MOST_RANKS], received[MOST_RANKS][MOST_RANKS];
};

static struct hl_collective_args args_of(enum hl_collective_kind kind, int n_ranks) {
    return (struct hl_collective_args){.kind = kind,
                                       .lane = (int)kind % LANES,
                                       .root = 1,
                                       .n = kind == HL_ALL_TO_ALL ? 32 * n_ranks : N,
                                       .unit = kind == HL_ALL_TO_ALL ? 32 : 0,
                                       .element_bytes = 4,
                                       .wire = kind == HL_REDUCE ? HL_BF16 : HL_F32};
}

static void count_both(struct rank_context *r, const struct hl_collective_args *args,
                       struct hl_traffic before[2]) {
    struct hl_collective_cost cost = hl_collective_cost(args, r->rank, r->n_ranks);
    struct hl_traffic out = hl_wire_traffic(r->wire, HL_SENT, HL_ANY, args->lane, HL_ANY);
    struct hl_traffic in = hl_wire_traffic(r->wire, HL_RECEIVED, HL_ANY, args->lane, HL_ANY);
    if (out.bytes - before[HL_SENT].bytes != cost.bytes_out)
        ranks_fail(r, "kind %d sent %lld bytes, the cost says %lld", args->kind,
                   (long long)(out.bytes - before[HL_SENT].bytes), (long long)cost.bytes_out);
    if (in.bytes - before[HL_RECEIVED].bytes != cost.bytes_in)
        ranks_fail(r, "kind %d received %lld bytes, the cost says %lld", args->kind,
                   (long long)(in.bytes - before[HL_RECEIVED].bytes), (long long)cost.bytes_in);
}

static void all_kinds(struct rank_context *r) {
    struct results *all = r->shared;
    struct hl_group *g = NULL;
    struct hl_collective op;
    struct hl_diag diag = {0};
    static _Thread_local float data[N];
    if (hl_wire_wrap(hl_mem_default(), all->list, &real_world, &r->wire, &diag) != HL_OK)
        ranks_fail(r, "%s", diag.text);
    ranks_check(r, hl_group_new(hl_mem_default(), r->wire, kernels(), 20000000000, &g, &diag) ==
                       HL_OK);
    bool counted = !strncmp(all->list, "count", 5);
    for (int kind = 0; kind < KINDS; kind++) {
        struct hl_collective_args args = args_of((enum hl_collective_kind)kind, r->n_ranks);
        struct hl_traffic before[2];
        for (int way = 0; way < 2; way++)
            before[way] =
                hl_wire_traffic(r->wire, (enum hl_traffic_way)way, HL_ANY, args.lane, HL_ANY);
        for (int64_t i = 0; i < N; i++) data[i] = element(i, r->rank);
        args.data = data;
        args.out = all->data[r->rank][kind];
        args.one_stage = kind == HL_ALL_REDUCE && r->n_ranks == 3;
        hl_collective_start(g, &args, &op);
        if (hl_collective_wait(g, &op, &diag) != HL_OK) ranks_fail(r, "%s", diag.text);
        if (counted) count_both(r, &args, before);
        if (kind != HL_ALL_TO_ALL) memcpy(all->data[r->rank][kind], data, sizeof data);
    }
    for (int p = 0; p < r->n_ranks; p++) {
        all->sent[r->rank][p] = hl_wire_traffic(r->wire, HL_SENT, p, HL_ANY, HL_ANY).parts;
        all->received[r->rank][p] = hl_wire_traffic(r->wire, HL_RECEIVED, p, HL_ANY, HL_ANY).parts;
    }
    hl_group_free(g);
}

static void compare_with_bare(int n_ranks, const char *list) {
    static struct results bare, behind;
    memset(&bare, 0, sizeof bare);
    memset(&behind, 0, sizeof behind);
    bare.list = "";
    behind.list = list;
    ranks_run(n_ranks, LANES, PART_BYTES, all_kinds, &bare);
    ranks_run(n_ranks, LANES, PART_BYTES, all_kinds, &behind);
    assert_memory_equal(bare.data, behind.data, sizeof bare.data);
    for (int r = 0; r < n_ranks; r++)
        for (int p = 0; p < n_ranks; p++) {
            assert_int_equal(bare.sent[r][p], 0);
            assert_int_equal(behind.sent[r][p], behind.received[p][r]);
            if (!strncmp(list, "count", 5)) assert_true(r == p || behind.sent[r][p] > 0);
        }
}

static void test_bits_and_bytes(void **state) {
    static const char *const lists[] = {"count", "throttle=4gbit/2kib", "delay=50us/20us",
                                        "fault=kill:1:1000000",
                                        "count,throttle=4gbit/2kib,delay=50us/20us"};
    static const int ranks[] = {2, 3, 4, 7};
    (void)state;
    for (size_t n = 0; n < sizeof ranks / sizeof *ranks; n++)
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
            compare_with_bare(ranks[n], lists[i]);
}

static void count_apart(struct rank_context *r) {
    const struct hl_stream one = {1, 0, 1}, all = {0, 0, HL_EVERYONE};
    struct hl_diag diag;
    void *room;
    const void *data;
    size_t n;
    ranks_check(r, hl_wire_wrap(hl_mem_default(), "throttle=1gbit,count", &real_world, &r->wire,
                                &diag) == HL_OK);
    if (r->rank == 0) {
        ranks_check(r, r->wire->ops->reserve(r->wire, one, &room) == HL_OK);
        ranks_check(r, r->wire->ops->commit(r->wire, one, 100) == HL_OK);
        ranks_check(r, r->wire->ops->reserve(r->wire, all, &room) == HL_OK);
        ranks_check(r, r->wire->ops->commit(r->wire, all, 10) == HL_OK);
        struct hl_traffic t = hl_wire_traffic(r->wire, HL_SENT, HL_ANY, HL_ANY, HL_ANY);
        ranks_check(r, t.parts == 3 && t.bytes == 120);
        t = hl_wire_traffic(r->wire, HL_SENT, 1, HL_ANY, HL_ANY);
        ranks_check(r, t.parts == 2 && t.bytes == 110);
        t = hl_wire_traffic(r->wire, HL_SENT, HL_ANY, 0, HL_ANY);
        ranks_check(r, t.parts == 2 && t.bytes == 20);
        t = hl_wire_traffic(r->wire, HL_SENT, HL_ANY, HL_ANY, HL_FOR_EVERYONE);
        ranks_check(r, t.parts == 2 && t.bytes == 20);
        t = hl_wire_traffic(r->wire, HL_SENT, HL_ANY, HL_ANY, HL_FOR_ONE);
        ranks_check(r, t.parts == 1 && t.bytes == 100);
        return;
    }
    while (r->wire->ops->view(r->wire, all, &data, &n) == HL_PENDING)
        (void)r->wire->ops->wait(r->wire, 1000000);
    struct hl_traffic t = hl_wire_traffic(r->wire, HL_RECEIVED, 0, HL_ANY, HL_ANY);
    ranks_check(r, t.parts == 0); /* not before it is released */
    (void)r->wire->ops->release(r->wire, all);
    t = hl_wire_traffic(r->wire, HL_RECEIVED, 0, 0, HL_FOR_EVERYONE);
    ranks_check(r, t.parts == 1 && t.bytes == 10);
}

static void test_count_by_peer_lane_and_kind(void **state) {
    (void)state;
    ranks_run(3, LANES, PART_BYTES, count_apart, NULL);
}

/* ---- faults ---- */

struct breakage {
    const char *list;
    bool timed_out_only;
};

static void one_breaks(struct rank_context *r) {
    const struct breakage *b = r->shared;
    static _Thread_local float data[5000];
    struct hl_group *g = NULL;
    struct hl_collective op;
    struct hl_diag diag = {0};
    enum hl_status status = HL_OK;
    ranks_check(r, hl_wire_wrap(hl_mem_default(), b->list, &real_world, &r->wire, &diag) == HL_OK);
    /* the broken one waits longer, so that it is not gone before it is missed */
    int64_t timeout = !b->timed_out_only ? 20000000000 : r->rank == 1 ? 1000000000 : 100000000;
    ranks_check(r, hl_group_new(hl_mem_default(), r->wire, kernels(), timeout, &g, &diag) == HL_OK);
    for (int i = 0; i < 5 && status == HL_OK; i++) {
        const struct hl_collective_args args = {
            .kind = HL_ALL_REDUCE, .data = data, .n = 5000, .element_bytes = 4};
        hl_collective_start(g, &args, &op);
        status = hl_collective_wait(g, &op, &diag);
    }
    if (r->rank != 1) {
        if ((status != HL_E_PEER || b->timed_out_only) && status != HL_E_TIMEOUT)
            ranks_fail(r, "%s: status %d (%s)", b->list, status, diag.text);
        if (!strstr(diag.text, "rank 1 "))
            ranks_fail(r, "%s: the message is: %s", b->list, diag.text);
        r->wire->ops->give_up(r->wire, diag.text);
    } else ranks_check(r, status < 0);
    hl_group_free(g);
}

static void test_faults_are_named(void **state) {
    static const struct breakage all[] = {
        {"fault=drop:1:10", true},   {"fault=cut:1:10", false},
        {"fault=freeze:1:10", true}, {"fault=half-open:1:10", true},
        {"fault=kill:1:10", false},  {"count,fault=kill:1:1", false}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ranks_run(2, 1, PART_BYTES, one_breaks, (void *)&all[i]);
    ranks_run(4, 1, PART_BYTES, one_breaks, (void *)&(struct breakage){"fault=kill:1:50", false});
}

/* The n-th operation, neither earlier nor later. */
static void test_when_faults_begin(void **state) {
    static struct spy spy;
    const struct hl_stream to = {0, 0, 1}, from = {0, 1, 0};
    const void *data;
    size_t n;
    void *room;
    (void)state;
    spy_init(&spy);
    struct hl_wire *w = wrapped(&spy, "fault=half-open:0:3", 1);
    assert_int_equal(w->ops->reserve(w, to, &room), HL_OK);
    assert_int_equal(w->ops->commit(w, to, 1), HL_OK); /* 1 */
    assert_int_equal(w->ops->view(w, from, &data, &n), HL_OK);
    assert_int_equal(w->ops->release(w, from), HL_OK); /* 2 */
    assert_int_equal(w->ops->reserve(w, to, &room), HL_OK);
    assert_int_equal(w->ops->commit(w, to, 1), HL_OK); /* 3: lost */
    assert_false(spy.full);
    w->ops->tell(w, HL_PHASE_SAVE, 5);
    assert_int_equal(spy.told_step, 0);
    w->ops->close(w);

    spy_init(&spy);
    w = wrapped(&spy, "fault=cut:0:1", 1);
    assert_int_equal(w->ops->reserve(w, to, &room), HL_OK);
    assert_int_equal(w->ops->commit(w, to, 1), HL_E_PEER);
    assert_int_equal(w->failed_rank, 1);
    w->ops->give_up(w, "alone");
    assert_string_equal(spy.why, "");
    w->ops->close(w);
}

static void test_kill_is_a_kill(void **state) {
    static struct spy spy;
    const struct hl_wrap_world world = {.process = true};
    const struct hl_stream to = {0, 0, 1};
    int status;
    (void)state;
    spy_init(&spy);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct hl_wire *w = &spy.wire;
        struct hl_diag diag;
        if (hl_wire_wrap(hl_mem_default(), "fault=kill:0:2", &world, &w, &diag) != HL_OK) _exit(1);
        (void)w->ops->commit(w, to, 0);
        (void)w->ops->commit(w, to, 0);
        _exit(2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* ---- trace ---- */

static int count_events(json_t *events, const char *name, int pid) {
    size_t i;
    json_t *e;
    int n = 0;
    json_array_foreach(events, i, e) {
        const char *its = json_string_value(json_object_get(e, "name"));
        assert_non_null(its);
        assert_int_equal(json_integer_value(json_object_get(e, "pid")), pid);
        if (strcmp(its, name) != 0) continue;
        n++;
        assert_true(json_number_value(json_object_get(e, "dur")) >= 0);
    }
    return n;
}

static void test_trace(void **state) {
    char folder[] = "/tmp/halley-trace-XXXXXX", list[64], path[64];
    struct results *all = calloc(1, sizeof *all);
    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(list, sizeof list, "trace=%s/t", folder);
    all->list = list;
    ranks_run(3, LANES, PART_BYTES, all_kinds, all);
    for (int r = 0; r < 3; r++) {
        (void)snprintf(path, sizeof path, "%s/t-rank%d.json", folder, r);
        json_error_t error;
        json_t *events = json_load_file(path, 0, &error);
        if (!events) fail_msg("%s:%d: %s", path, error.line, error.text);
        assert_true(count_events(events, "read", r) > 10);
        assert_true(count_events(events, "send to all", r) > 5);
        assert_true(count_events(events, r == 2 ? "send to 0" : "send to 2", r) > 2);
        json_decref(events);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
    free(all);
}

/* A phase is one event, however often it is told, and ends with the next one or the wire. */
static void test_trace_of_phases(void **state) {
    static struct spy spy;
    char folder[] = "/tmp/halley-trace-XXXXXX", list[64], path[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(list, sizeof list, "trace=%s/t", folder);
    (void)snprintf(path, sizeof path, "%s/t-rank0.json", folder);
    spy_init(&spy);
    struct hl_wire *w = wrapped(&spy, list, 1);
    static const struct {
        enum hl_phase phase;
        int64_t step, ms;
    } told[] = {{HL_PHASE_FORWARD, 1, 3}, {HL_PHASE_FORWARD, 1, 4}, {HL_PHASE_BACKWARD, 1, 5}};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        w->ops->tell(w, told[i].phase, told[i].step);
        spy.now_ns += told[i].ms * 1000000;
    }
    w->ops->close(w);
    json_t *events = json_load_file(path, 0, NULL);
    assert_non_null(events);
    assert_int_equal(count_events(events, "forward, step 1", 0), 1);
    assert_int_equal(count_events(events, "backward, step 1", 0), 1);
    size_t i;
    json_t *e;
    json_array_foreach(events, i, e) {
        if (!strcmp(json_string_value(json_object_get(e, "name")), "forward, step 1"))
            assert_int_equal((int)json_number_value(json_object_get(e, "dur")), 7000);
    }
    json_decref(events);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void test_trace_that_cannot_be_written(void **state) {
    static struct spy spy;
    struct hl_wire *w = &spy.wire;
    struct hl_diag diag;
    (void)state;
    spy_init(&spy);
    assert_int_equal(
        hl_wire_wrap(hl_mem_default(), "count,trace=/nowhere/t", &real_world, &w, &diag), HL_E_IO);
    assert_non_null(strstr(diag.text, "/nowhere/t-rank0.json"));
    assert_ptr_equal(w, &spy.wire);
}

static void test_memory_short(void **state) {
    (void)state;
    for (long k = 1;; k++) {
        static struct spy spy;
        struct hl_mem_probe probe;
        struct hl_diag diag = {0};
        spy_init(&spy);
        struct hl_wire *w = &spy.wire;
        hl_mem_probe_init(&probe, k);
        enum hl_status status = hl_wire_wrap(
            &probe.mem, "count,throttle=1mbit,delay=1ms,fault=cut:0:1,trace=/dev/null/x",
            &real_world, &w, &diag);
        if (status == HL_E_IO) /* the trace is made first: not in the way of the others */
            status = hl_wire_wrap(&probe.mem, "count,throttle=1mbit,delay=1ms,fault=cut:0:1",
                                  &real_world, &w, &diag);
        w->ops->close(w);
        assert_int_equal(probe.n_live, 0);
        if (status == HL_OK) break;
        assert_int_equal(status, HL_E_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_handed_on),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_throttle),
        cmocka_unit_test(test_delay),
        cmocka_unit_test(test_delay_with_a_foreign_clock),
        cmocka_unit_test(test_bits_and_bytes),
        cmocka_unit_test(test_count_by_peer_lane_and_kind),
        cmocka_unit_test(test_faults_are_named),
        cmocka_unit_test(test_when_faults_begin),
        cmocka_unit_test(test_kill_is_a_kill),
        cmocka_unit_test(test_trace),
        cmocka_unit_test(test_trace_of_phases),
        cmocka_unit_test(test_trace_that_cannot_be_written),
        cmocka_unit_test(test_memory_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
