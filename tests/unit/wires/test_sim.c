/* sim: streams and sums are those of threads; clocks show what the latency and the rate say, and
 * the same in every run, whatever the machine does meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "halley/collective.h"
#include "os/futex.h"
#include "os/parallel.h"
#include "support/collective_case.h"
#include "support/ranks.h"
#include "support/wire_case.h"
#include "wires/sim.h"

enum { N = 1500, LANES = 2, MOST_RANKS = 7, KINDS = HL_BARRIER + 1 };
static const struct hl_sim_link link_1ms = {1000000, 1e6}; /* 1 byte takes a microsecond */

static const struct hl_kernels *kernels(void) {
    const struct hl_kernels *k = NULL;
    struct hl_diag diag;
    if (hl_kernels_get(HL_F32, &k, &diag) != HL_OK) abort();
    return k;
}

struct world {
    struct rank_context ranks[MOST_RANKS];
    void (*body)(struct rank_context *r);
    int64_t ended_ns[MOST_RANKS];
    float results[MOST_RANKS][KINDS][N];
};

static void run_rank(void *context, int i) {
    struct world *w = context;
    struct rank_context *r = &w->ranks[i];
    w->body(r);
    w->ended_ns[i] = hl_sim_now_ns(r->wire);
    r->wire->ops->close(r->wire);
}

static void run(struct world *w, int n_ranks, void (*body)(struct rank_context *r)) {
    struct hl_sim *sim;
    struct hl_diag diag;
    w->body = body;
    assert_int_equal(
        hl_sim_new(hl_mem_default(), n_ranks, LANES, WIRE_PART_BYTES, &link_1ms, &sim, &diag),
        HL_OK);
    for (int r = 0; r < n_ranks; r++) {
        w->ranks[r] = (struct rank_context){.rank = r, .n_ranks = n_ranks, .shared = w};
        assert_int_equal(hl_sim_open(hl_mem_default(), sim, r, &w->ranks[r].wire, &diag), HL_OK);
    }
    hl_parallel(n_ranks, run_rank, w);
    hl_sim_free(sim);
    for (int r = 0; r < n_ranks; r++)
        if (*w->ranks[r].failure) fail_msg("rank %d of %d: %s", r, n_ranks, w->ranks[r].failure);
}

static void test_parts_arrive_in_order(void **state) {
    static struct world w;
    (void)state;
    for (int n = 2; n <= 5; n++) run(&w, n, wire_every_stream);
}

/* ---- bits ---- */

static void all_kinds(struct rank_context *r) {
    struct world *w = r->shared;
    struct hl_group *g = NULL;
    struct hl_collective op;
    struct hl_diag diag = {0};
    ranks_check(r, hl_group_new(hl_mem_default(), r->wire, kernels(), 60000000000, &g, &diag) ==
                       HL_OK);
    for (int kind = 0; kind < KINDS && !*r->failure; kind++) {
        float *data = w->results[r->rank][kind], out[N];
        const struct hl_collective_args args = {.kind = (enum hl_collective_kind)kind,
                                                .lane = kind % LANES,
                                                .root = 1,
                                                .data = data,
                                                .out = kind == HL_ALL_TO_ALL ? out : NULL,
                                                .n = kind == HL_ALL_TO_ALL ? 48 * r->n_ranks : N,
                                                .unit = kind == HL_ALL_TO_ALL ? 48 : 0,
                                                .wire = kind == HL_REDUCE ? HL_BF16 : HL_F32,
                                                .element_bytes = 4};
        for (int64_t i = 0; i < N; i++) data[i] = out[i] = case_element(i, r->rank);
        hl_collective_start(g, &args, &op);
        if (hl_collective_wait(g, &op, &diag) != HL_OK) ranks_fail(r, "%s", diag.text);
        if (kind == HL_ALL_TO_ALL) memcpy(data, out, sizeof out);
        if ((kind + r->rank) % 3 == 0) hl_sleep_ns(1000000); /* the machine is busy elsewhere */
    }
    hl_group_free(g);
}

static void test_bits_and_clocks(void **state) {
    static struct world threads, sim, again;
    static const int ranks[] = {2, 3, 4, 7};
    (void)state;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        memset(&threads, 0, sizeof threads);
        memset(&sim, 0, sizeof sim);
        memset(&again, 0, sizeof again);
        ranks_run(ranks[i], LANES, WIRE_PART_BYTES, all_kinds, &threads);
        run(&sim, ranks[i], all_kinds);
        run(&again, ranks[i], all_kinds);
        assert_memory_equal(threads.results, sim.results, sizeof sim.results);
        assert_memory_equal(sim.ended_ns, again.ended_ns, sizeof sim.ended_ns);
        assert_true(sim.ended_ns[0] > 0);
    }
}

/* ---- clocks ---- */

static void expect_now(struct rank_context *r, int64_t us, const char *when) {
    int64_t now = hl_sim_now_ns(r->wire);
    if (now != us * 1000)
        ranks_fail(r, "%s: %lld ns, not %lld us", when, (long long)now, (long long)us);
}

static void times(struct rank_context *r) {
    const struct hl_stream one = {0, 0, 1}, all = {1, 0, HL_EVERYONE};
    struct hl_wire *w = r->wire;
    const void *data;
    size_t n;
    void *room;
    if (r->rank == 0) {
        hl_sim_compute(w, 5000000);
        ranks_check(r, wire_send_part(w, one, "x", 1) == HL_OK); /* leaves at 5001 us */
        ranks_check(r, w->ops->reserve(w, all, &room) == HL_OK);
        memset(room, 0, 100);
        ranks_check(r, w->ops->commit(w, all, 100) == HL_OK); /* to 1 at 5101, to 2 at 5201 */
        expect_now(r, 5000, "sending takes no time of the rank's");
        for (int i = 0; i < 4; i++) ranks_check(r, wire_send_part(w, one, "", 0) == HL_OK);
        /* the fifth had to wait: 1 saw the first at 6001 and released it at once */
        expect_now(r, 7001, "an acknowledgement");
        ranks_check(r, w->ops->wait(w, 10000000) == HL_OK);
        return;
    }
    if (r->rank == 1) {
        ranks_check(r, wire_next_part(w, one, &data, &n) == HL_OK && n == 1);
        expect_now(r, 6001, "one byte");
        ranks_check(r, w->ops->release(w, one) == HL_OK);
    }
    ranks_check(r, wire_next_part(w, all, &data, &n) == HL_OK && n == 100);
    expect_now(r, r->rank == 1 ? 6101 : 6201, "100 bytes for everyone");
    ranks_check(r, w->ops->release(w, all) == HL_OK);
    if (r->rank == 1) return;
    ranks_check(r, w->ops->wait(w, 50000) == HL_OK);
    expect_now(r, 6251, "a wait in which nothing comes");
}

static void test_times(void **state) {
    static struct world w;
    (void)state;
    run(&w, 3, times);
}

/* What comes while a rank computes is there at once when it looks. */
static void overlap(struct rank_context *r) {
    const struct hl_stream s = {0, 0, 1};
    const void *data;
    size_t n;
    if (r->rank == 0) {
        ranks_check(r, wire_send_part(r->wire, s, "abc", 3) == HL_OK);
        return;
    }
    hl_sim_compute(r->wire, 9000000);
    ranks_check(r, r->wire->ops->wait(r->wire, 1000000000) == HL_OK);
    expect_now(r, 9000, "it had come before");
    ranks_check(r, wire_next_part(r->wire, s, &data, &n) == HL_OK && n == 3);
    ranks_check(r, r->wire->ops->release(r->wire, s) == HL_OK);
    expect_now(r, 9000, "looking takes no time");
}

static void test_computing_overlaps(void **state) {
    static struct world w;
    (void)state;
    run(&w, 2, overlap);
}

/* ---- ends ---- */

static void one_fails(struct rank_context *r) {
    const void *data;
    size_t n;
    struct hl_peer p;
    r->wire->ops->tell(r->wire, HL_PHASE_BACKWARD, 17);
    if (r->rank == 1) {
        hl_sim_compute(r->wire, 3000000);
        r->wire->ops->give_up(r->wire, "the disk is full");
        return;
    }
    /* rank 2 waits for 0, which waits for 1 */
    ranks_check(r, wire_next_part(r->wire, (struct hl_stream){0, r->rank == 0 ? 1 : 0, r->rank},
                                  &data, &n) == HL_E_PEER);
    expect_now(r, 4000, "the news");
    ranks_check(r, r->wire->failed_rank == 1);
    r->wire->ops->peer(r->wire, 1, &p);
    ranks_check(r, p.state == HL_PEER_FAILED && p.step == 17 && strstr(p.why, "disk is full"));
}

static void one_leaves(struct rank_context *r) {
    const struct hl_stream s = {0, 0, 1};
    const void *data;
    size_t n;
    if (r->rank == 0) {
        ranks_check(r, wire_send_part(r->wire, s, "bye", 3) == HL_OK);
        return;
    }
    ranks_check(r, wire_next_part(r->wire, s, &data, &n) == HL_OK && n == 3);
    ranks_check(r, r->wire->ops->release(r->wire, s) == HL_OK);
    ranks_check(r, wire_next_part(r->wire, s, &data, &n) == HL_E_PEER);
    ranks_check(r, r->wire->failed_rank == 0);
}

static void test_ends(void **state) {
    static struct world w;
    (void)state;
    run(&w, 3, one_fails);
    run(&w, 2, one_leaves);
}

static void test_memory_short(void **state) {
    (void)state;
    for (long k = 1;; k++) {
        struct hl_mem_probe probe;
        struct hl_sim *sim = NULL;
        struct hl_wire *w = NULL;
        struct hl_diag diag;
        hl_mem_probe_init(&probe, k);
        enum hl_status status = hl_sim_new(&probe.mem, 1, 1, 64, &link_1ms, &sim, &diag);
        if (status == HL_OK) status = hl_sim_open(&probe.mem, sim, 0, &w, &diag);
        if (w) w->ops->close(w);
        hl_sim_free(sim);
        assert_int_equal(probe.n_live, 0);
        if (status == HL_OK) break;
        assert_int_equal(status, HL_E_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_arrive_in_order),
        cmocka_unit_test(test_bits_and_clocks),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_computing_overlaps),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_memory_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
