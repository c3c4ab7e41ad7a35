/* Two paths at once: the model's choices at given rates, and that no bit and no byte depends on
 * them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "halley/collective.h"
#include "support/collective_case.h"
#include "support/two_paths.h"
#include "wires/wrappers.h"

enum { PART_BYTES = 4096, MOST = 9000 };

/* ---- the model ---- */

static struct hl_collective_args of_bytes(enum hl_collective_kind kind, int64_t bytes) {
    return (struct hl_collective_args){.kind = kind, .n = bytes / 4, .element_bytes = 4};
}
/* A pool is written once for everyone; a NIC sends each reader its own. */
static struct hl_path a_pool(double latency_s, double rate) {
    return (struct hl_path){latency_s, rate, rate};
}
static struct hl_path a_nic(double latency_s, double rate, int n_ranks) {
    return (struct hl_path){latency_s, rate, rate / (n_ranks - 1)};
}
static void near(double got, double want) {
    if (got < 0.98 * want || got > 1.02 * want) fail_msg("%g is not %g", got, want);
}

/* Seconds for a gigabyte: what arithmetic on links says. */
static void test_seconds(void **state) {
    static const struct {
        enum hl_collective_kind kind;
        int n;
        double pool, nic;
    } rows[] = {{HL_ALL_GATHER, 2, 0.025, 0.0333},
                {HL_ALL_GATHER, 3, 0.0333, 0.0444},
                {HL_ALL_GATHER, 8, 0.04375, 0.0583},
                {HL_ALL_REDUCE, 2, 0.05, 0.0667},
                {HL_ALL_REDUCE, 3, 0.0667, 0.0889},
                {HL_ALL_REDUCE, 4, 0.075, 0.1},
                {HL_REDUCE_SCATTER, 3, 0.0333, 0.0444},
                {HL_REDUCE, 3, 0.0667, 0.0889},
                {HL_BROADCAST, 3, 0.05, 0.1333},
                {HL_GATHER, 4, 0.0375, 0.05},
                {HL_SCATTER, 4, 0.0375, 0.05},
                {HL_ALL_TO_ALL, 4, 0.0375, 0.05},
                {HL_SEND, 3, 0.05, 0.0667}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hl_collective_args args = of_bytes(rows[i].kind, 960000000);
        struct hl_path pool = a_pool(1e-9, 20e9), nic = a_nic(1e-9, 15e9, rows[i].n);
        args.to = args.kind == HL_SEND;
        near(hl_path_seconds(&pool, &args, rows[i].n) / 0.96, rows[i].pool);
        near(hl_path_seconds(&nic, &args, rows[i].n) / 0.96, rows[i].nic);
    }
}

static int share_of(struct hl_path pool, struct hl_path nic, double together,
                    enum hl_collective_kind kind, int64_t bytes, int n_ranks) {
    const struct hl_paths paths = {{pool, nic}, together};
    const struct hl_collective_args args = of_bytes(kind, bytes);
    return hl_path_share(&paths, &args, n_ranks);
}

static void test_choices(void **state) {
    enum { N = 3 };
    const int64_t small = 4096, large = 1 << 30;
    struct hl_path pool = a_pool(2e-6, 20e9), slow_pool = a_pool(60e-6, 20e9),
                   nic = a_nic(5e-6, 23e9, N), slow_nic = a_nic(50e-6, 0.1e9, N);
    (void)state;
    /* the bytes of both end at once: three hosts whose NIC is faster than the pool */
    assert_in_range(share_of(pool, nic, 1, HL_ALL_GATHER, large, N), 28, 31);
    assert_in_range(share_of(pool, nic, 1.2, HL_REDUCE_SCATTER, large, N), 28, 31);
    /* what both want at once is worth nothing: the faster one alone */
    assert_int_equal(share_of(pool, nic, 2, HL_ALL_GATHER, large, N), 0);
    /* but a broadcast leaves a pool once, and a NIC twice */
    assert_int_equal(share_of(pool, nic, 2, HL_BROADCAST, large, N), HL_SHARES);
    /* few bytes: the shorter latency */
    assert_int_equal(share_of(pool, nic, 1, HL_REDUCE_SCATTER, small, N), HL_SHARES);
    assert_int_equal(share_of(slow_pool, nic, 1, HL_REDUCE_SCATTER, small, N), 0);
    assert_int_equal(share_of(slow_pool, nic, 1, HL_BARRIER, 0, N), 0);
    /* a NIC that adds less than a tenth */
    assert_int_equal(share_of(pool, slow_nic, 1, HL_ALL_TO_ALL, 960 << 20, N), HL_SHARES);
    assert_int_equal(share_of(pool, nic, 1, HL_ALL_GATHER, 0, N), HL_SHARES);
}

/* Never slower than the better one, as far as the model knows. */
static void test_choices_cost_nothing(void **state) {
    uint32_t seed = 7;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        double x[6];
        for (int k = 0; k < 6; k++) x[k] = (double)((seed = seed * 1664525u + 1013904223u) >> 8);
        const struct hl_paths paths = {
            {{1e-12 * x[0], 1 + 500 * x[1], 1 + 300 * x[2]}, {1e-12 * x[3], 1 + 500 * x[4], 1e9}},
            1 + 1e-8 * x[5]};
        int n = 2 + i % 5;
        const struct hl_collective_args args =
            of_bytes((enum hl_collective_kind)(i % HL_BARRIER), (int64_t)(64 * n) << i % 20);
        int share = hl_path_share(&paths, &args, n);
        double first = hl_path_seconds(&paths.path[0], &args, n),
               second = hl_path_seconds(&paths.path[1], &args, n);
        assert_in_range(share, 0, HL_SHARES);
        if (share == HL_SHARES) assert_true(first <= second);
        if (share == 0) assert_true(second <= first);
    }
}

/* ---- what passes ---- */

static const struct hl_kernels *kernels(void) {
    const struct hl_kernels *k = NULL;
    if (hl_kernels_get(HL_F32, &k, NULL) != HL_OK) abort();
    return k;
}

static void compare(struct rank_context *r, const struct hl_collective_args *a, int share,
                    const float *data) {
    for (int64_t i = 0; i < a->n; i++) {
        float want = case_expected(a, i, r->rank, r->n_ranks);
        if (memcmp(&want, &data[i], sizeof want) != 0)
            ranks_fail(r, "kind %d, n %lld, root %d, wire %d, one stage %d, share %d: element %lld",
                       a->kind, (long long)a->n, a->root, a->wire, a->one_stage, share,
                       (long long)i);
    }
}

/* One operation over so much of the first path; the bytes that pass are those of its cost. */
static void try_one(struct rank_context *r, struct hl_group *g, struct hl_collective_args *a,
                    int share) {
    static _Thread_local float data[MOST];
    struct hl_collective op;
    struct hl_diag diag = {0};
    for (int64_t i = 0; i < a->n; i++) data[i] = case_element(i, r->rank);
    a->data = data;
    hl_group_set_share(g, share);
    hl_collective_start(g, a, &op);
    if (hl_collective_wait(g, &op, &diag) != HL_OK) ranks_fail(r, "%s", diag.text);
    compare(r, a, share, data);
}

static void try_all(struct rank_context *r) {
    static const int64_t sizes[] = {0, 1, 17, 64, 129, 1000, 8192 + 33};
    static const int shares[] = {0, 1, 23, 63, HL_SHARES, -1};
    enum { N_SIZES = sizeof sizes / sizeof *sizes, N_SHARES = sizeof shares / sizeof *shares };
    struct hl_group *g = NULL;
    struct hl_diag diag = {0};
    (void)two_paths_open(r);
    if (hl_wire_wrap(hl_mem_default(), "count", &(struct hl_wrap_world){0}, &r->wire, &diag) ||
        hl_group_new(hl_mem_default(), r->wire, kernels(), 20000000000, &g, &diag))
        ranks_fail(r, "%s", diag.text);
    ranks_check(r, hl_group_n_lanes(g) == TWO_PATHS_LANES && hl_group_paths(g));
    int64_t sent = hl_wire_traffic(r->wire, HL_SENT, HL_ANY, HL_ANY, HL_ANY).bytes, cost = 0;
    for (int kind = HL_ALL_REDUCE; kind <= HL_SCATTER; kind++)
        for (int i = 0; i < 2 * N_SIZES * N_SHARES; i++) {
            struct hl_collective_args args = {.kind = (enum hl_collective_kind)kind,
                                              .lane = i % TWO_PATHS_LANES,
                                              .root = i % 5 % r->n_ranks,
                                              .n = sizes[i / 2 % N_SIZES],
                                              .element_bytes = 4,
                                              .wire = (enum hl_dtype)(i % 2),
                                              .one_stage = i % 3 == 0};
            try_one(r, g, &args, shares[i / 2 / N_SIZES]);
            cost += hl_collective_cost(&args, r->rank, r->n_ranks).bytes_out;
        }
    sent = hl_wire_traffic(r->wire, HL_SENT, HL_ANY, HL_ANY, HL_ANY).bytes - sent;
    if (sent != cost)
        ranks_fail(r, "%lld bytes went out, costs say %lld", (long long)sent, (long long)cost);
    hl_group_free(g);
}

static void test_bits_and_bytes(void **state) {
    (void)state;
    for (int n = 1; n <= 4; n++) two_paths_run(n, PART_BYTES, n % 2, try_all);
}

/* Kinds with an out, a send, a barrier, and shared numbers; many at once on both lanes. */
static void try_others(struct rank_context *r) {
    enum { EACH = 777, OPS = 10 };
    static _Thread_local float data[EACH * 4], out[EACH * 4], many[OPS][EACH];
    static _Thread_local struct hl_collective ops[OPS], op;
    struct hl_group *g = NULL;
    struct hl_diag diag = {0};
    int n = r->n_ranks;
    double all[4] = {0};
    (void)two_paths_open(r);
    ranks_check(r, hl_group_new(hl_mem_default(), r->wire, kernels(), 20000000000, &g, &diag) ==
                       HL_OK);
    for (int share = 0; share <= HL_SHARES; share += 16) {
        hl_group_set_share(g, share);
        for (int i = 0; i < EACH * n; i++) data[i] = case_element(i, r->rank);
        struct hl_collective_args args = {.kind = HL_ALL_TO_ALL,
                                          .data = data,
                                          .out = out,
                                          .n = EACH * n,
                                          .element_bytes = 4,
                                          .unit = EACH};
        hl_collective_start(g, &args, &op);
        ranks_check(r, hl_collective_wait(g, &op, &diag) == HL_OK);
        for (int i = 0; i < EACH * n; i++)
            ranks_check(r, out[i] == case_element(r->rank * EACH + i % EACH, i / EACH));
        args.kind = HL_REDUCE_SCATTER;
        hl_collective_start(g, &args, &op);
        ranks_check(r, hl_collective_wait(g, &op, &diag) == HL_OK);
        for (int i = 0; i < EACH; i++)
            ranks_check(r, out[i] == case_sum_of(r->rank * EACH + i, n, HL_F32));
        args.kind = HL_SEND;
        args.to = n - 1;
        hl_collective_start(g, &args, &op);
        ranks_check(r, hl_collective_wait(g, &op, &diag) == HL_OK);
        int has = r->rank == n - 1 ? 0 : r->rank;
        for (int i = 0; i < EACH * n; i++) ranks_check(r, data[i] == case_element(i, has));
        for (int o = 0; o < OPS; o++) {
            for (int i = 0; i < EACH; i++) many[o][i] = case_element(i + o, r->rank);
            args = (struct hl_collective_args){.kind = HL_ALL_REDUCE,
                                               .lane = o % TWO_PATHS_LANES,
                                               .data = many[o],
                                               .n = EACH,
                                               .element_bytes = 4};
            hl_group_set_share(g, o % 3 ? share : HL_SHARES - share);
            hl_collective_start(g, &args, &ops[o]);
        }
        for (int o = OPS - 1; o >= 0; o--) {
            ranks_check(r, hl_collective_wait(g, &ops[o], &diag) == HL_OK);
            for (int i = 0; i < EACH; i++)
                ranks_check(r, many[o][i] == case_sum_of(i + o, n, HL_F32));
        }
        all[r->rank] = r->rank + share;
        ranks_check(r, hl_group_barrier(g, &diag) == HL_OK &&
                           hl_group_share(g, all, 1, &diag) == HL_OK);
        for (int p = 0; p < n; p++) ranks_check(r, all[p] == p + share);
    }
    hl_group_free(g);
}

static void test_other_kinds(void **state) {
    (void)state;
    for (int n = 1; n <= 4; n++) two_paths_run(n, PART_BYTES, n % 2 == 0, try_others);
}

/* ---- failures ---- */

static void one_is_silent(struct rank_context *r) {
    static _Thread_local float data[5000];
    struct hl_group *g = NULL;
    struct hl_collective op;
    struct hl_diag diag = {0};
    (void)two_paths_open(r);
    ranks_check(r,
                hl_group_new(hl_mem_default(), r->wire, kernels(), 500000000, &g, &diag) == HL_OK);
    hl_group_set_share(g, 40);
    if (r->rank != 1) {
        const struct hl_collective_args args = {
            .kind = HL_ALL_GATHER, .data = data, .n = 5000, .element_bytes = 4};
        hl_collective_start(g, &args, &op);
        enum hl_status status = hl_collective_wait(g, &op, &diag);
        ranks_check(r, status == HL_E_TIMEOUT || status == HL_E_PEER);
        if (!strstr(diag.text, status == HL_E_TIMEOUT ? "for rank 1" : "rank "))
            ranks_fail(r, "the message is: %s", diag.text);
        hl_group_give_up(g, "timed out");
    } else {
        struct hl_peer p = {0};
        while (p.state != HL_PEER_FAILED) {
            hl_group_sleep(g, 1000000);
            r->wire->ops->peer(r->wire, 0, &p);
            if (p.state != HL_PEER_FAILED) r->wire->ops->peer(r->wire, 2, &p);
        }
    }
    hl_group_free(g);
}

static void test_a_silent_rank_is_named(void **state) {
    (void)state;
    two_paths_run(3, PART_BYTES, false, one_is_silent);
    two_paths_run(3, PART_BYTES, true, one_is_silent);
}

/* All ranks are short of memory at the same place. */
static void short_of_memory(struct rank_context *r) {
    (void)two_paths_open(r);
    for (long k = 1;; k++) {
        struct hl_mem_probe probe;
        struct hl_group *g = NULL;
        struct hl_diag diag = {0};
        hl_mem_probe_init(&probe, k);
        enum hl_status status =
            hl_group_new(&probe.mem, r->wire, kernels(), 20000000000, &g, &diag);
        if (status == HL_OK) {
            hl_group_free(g);
            ranks_check(r, probe.n_live == 0 && k > 3);
            return;
        }
        ranks_check(r, status == HL_E_MEMORY && probe.n_live == 0 && !g);
        if (status != HL_E_MEMORY) return;
    }
}

static void test_memory_short(void **state) {
    (void)state;
    two_paths_run(2, PART_BYTES, false, short_of_memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seconds),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_choices_cost_nothing),
        cmocka_unit_test(test_bits_and_bytes),
        cmocka_unit_test(test_other_kinds),
        cmocka_unit_test(test_a_silent_rank_is_named),
        cmocka_unit_test(test_memory_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
