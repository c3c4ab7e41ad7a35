/* Every collective over ranks, sizes around each boundary, lanes and types: results are those of a
 * serial loop over ranks, to the bit; costs are what a spy on the wire counts; failures name the
 * rank. */
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
#include "support/ranks.h"

enum { PART_BYTES = 256, MOST = 9000, LANES = 3 };

struct job {
    struct hl_collective_args args;
};

/* The helper thread of slow wires must not change anything. */
static bool slow;
static enum hl_status new_group(struct rank_context *r, struct hl_wire *wire, int64_t timeout_ns,
                                const struct hl_kernels *k, struct hl_group **out,
                                struct hl_diag *diag) {
    r->wire->slow = slow;
    return hl_group_new(hl_mem_default(), wire, k, timeout_ns, out, diag);
}

static const struct hl_kernels *kernels(void) {
    const struct hl_kernels *k = NULL;
    struct hl_diag diag;
    if (hl_kernels_get(HL_F32, &k, &diag) != HL_OK) abort();
    return k;
}

static void run_one(struct rank_context *r) {
    const struct job *job = r->shared;
    static _Thread_local float data[MOST];
    struct hl_collective op;
    struct hl_group *g = NULL;
    struct hl_diag diag = {0};
    struct hl_collective_args args = job->args;
    ranks_check(r, new_group(r, r->n_ranks > 1 ? r->wire : NULL, 5000000000, kernels(), &g,
                             &diag) == HL_OK);
    for (int again = 0; again < 2; again++) { /* slots and sequence numbers go on */
        for (int64_t i = 0; i < args.n; i++) data[i] = case_element(i, r->rank);
        args.data = data;
        hl_collective_start(g, &args, &op);
        struct hl_group_counts before = hl_group_counted(g), after;
        if (hl_collective_wait(g, &op, &diag) != HL_OK) ranks_fail(r, "%s", diag.text);
        struct hl_collective_cost cost = hl_collective_cost(&args, r->rank, r->n_ranks);
        after = hl_group_counted(g);
        if (!slow)
            ranks_check(r, after.bytes_out - before.bytes_out == cost.bytes_out &&
                               after.bytes_in - before.bytes_in == cost.bytes_in);
        for (int64_t i = 0; i < args.n; i++) {
            float want = case_expected(&args, i, r->rank, r->n_ranks);
            if (memcmp(&want, &data[i], sizeof want) != 0)
                ranks_fail(
                    r,
                    "kind %d, n %lld, root %d, wire %d, one stage %d: element %lld is %a, not %a",
                    args.kind, (long long)args.n, args.root, args.wire, args.one_stage,
                    (long long)i, (double)data[i], (double)want);
        }
    }
    hl_group_free(g);
}

static const int64_t sizes[] = {0,  1,   15,  16,  17,   63,       64,
                                65, 127, 128, 129, 1000, 4096 + 7, 8192 * 1 + 33};

static void try_kind(enum hl_collective_kind kind, bool one_stage) {
    static const int ranks[] = {1, 2, 3, 4, 7, 8};
    for (size_t k = 0; k < sizeof ranks / sizeof *ranks; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int wire = 0; wire < 2; wire++) {
                struct job job = {{.kind = kind,
                                   .lane = (int)s % LANES,
                                   .root = ranks[k] - 1 - (int)s % 2 * (ranks[k] > 1),
                                   .n = sizes[s],
                                   .element_bytes = 4,
                                   .one_stage = one_stage,
                                   .wire = (enum hl_dtype)wire}};
                ranks_run(ranks[k], LANES, PART_BYTES, run_one, &job);
            }
}

static void test_all_reduce(void **state) {
    (void)state;
    try_kind(HL_ALL_REDUCE, false);
    try_kind(HL_ALL_REDUCE, true);
}
static void test_reduce_scatter(void **state) {
    (void)state;
    try_kind(HL_REDUCE_SCATTER, false);
}
static void test_reduce(void **state) {
    (void)state;
    try_kind(HL_REDUCE, false);
}
static void test_moves(void **state) {
    (void)state;
    try_kind(HL_ALL_GATHER, false);
    try_kind(HL_BROADCAST, false);
    try_kind(HL_GATHER, false);
    try_kind(HL_SCATTER, false);
}

static void exchange(struct rank_context *r) {
    enum { EACH = 333 };
    static _Thread_local uint16_t data[EACH * 8], out[EACH * 8];
    struct hl_group *g = NULL;
    struct hl_collective op;
    struct hl_diag diag;
    ranks_check(r, new_group(r, r->wire, 5000000000, kernels(), &g, &diag) == HL_OK);
    for (int i = 0; i < EACH * r->n_ranks; i++) data[i] = (uint16_t)(r->rank * 10000 + i);
    const struct hl_collective_args args = {.kind = HL_ALL_TO_ALL,
                                            .data = data,
                                            .out = out,
                                            .n = EACH * r->n_ranks,
                                            .element_bytes = 2,
                                            .unit = EACH};
    hl_collective_start(g, &args, &op);
    ranks_check(r, hl_collective_wait(g, &op, &diag) == HL_OK);
    for (int p = 0; p < r->n_ranks; p++)
        for (int i = 0; i < EACH; i++)
            ranks_check(r, out[p * EACH + i] == (uint16_t)(p * 10000 + r->rank * EACH + i));
    hl_group_free(g);
}

static void test_all_to_all(void **state) {
    (void)state;
    for (int n = 2; n <= 6; n++) ranks_run(n, 1, PART_BYTES, exchange, NULL);
}

/* The sum of a slice goes elsewhere, and what it is made of stays. */
static void reduce_apart(struct rank_context *r) {
    enum { N = 5000 };
    static _Thread_local float data[N], out[N];
    const enum hl_dtype *wire = r->shared;
    struct hl_group *g = NULL;
    struct hl_collective op;
    struct hl_diag diag;
    ranks_check(r, new_group(r, r->wire, 5000000000, kernels(), &g, &diag) == HL_OK);
    struct hl_range own = hl_slice(N, HL_SLICE_UNIT, r->rank, r->n_ranks);
    for (int i = 0; i < N; i++) data[i] = case_element(i, r->rank), out[i] = -1;
    const struct hl_collective_args args = {.kind = HL_REDUCE_SCATTER,
                                            .data = data,
                                            .out = out,
                                            .n = N,
                                            .element_bytes = 4,
                                            .wire = *wire};
    hl_collective_start(g, &args, &op);
    ranks_check(r, hl_collective_wait(g, &op, &diag) == HL_OK);
    for (int i = 0; i < N; i++) ranks_check(r, data[i] == case_element(i, r->rank));
    for (int64_t i = 0; i < own.n; i++)
        ranks_check(
            r, out[i] == case_sum_of(own.offset + i, r->n_ranks, r->n_ranks > 1 ? *wire : HL_F32));
    ranks_check(r, out[own.n < N ? own.n : 0] == -1 || own.n == N);
    hl_group_free(g);
}

static void test_reduce_scatter_apart(void **state) {
    (void)state;
    for (int n = 1; n <= 4; n++)
        for (int wire = 0; wire < 2; wire++) {
            enum hl_dtype w = (enum hl_dtype)wire;
            ranks_run(n, LANES, PART_BYTES, reduce_apart, &w);
        }
}

/* From each rank to each: it arrives there, and nobody else's data changes. */
static void send_each(struct rank_context *r) {
    enum { N = 700 };
    static _Thread_local float data[N];
    struct hl_group *g = NULL;
    struct hl_collective op;
    struct hl_diag diag;
    ranks_check(r, new_group(r, r->wire, 5000000000, kernels(), &g, &diag) == HL_OK);
    for (int from = 0; from < r->n_ranks; from++)
        for (int to = 0; to < r->n_ranks; to++) {
            const struct hl_collective_args args = {
                .kind = HL_SEND, .root = from, .to = to, .data = data, .n = N, .element_bytes = 4};
            int has = r->rank == to ? from : r->rank;
            for (int i = 0; i < N; i++) data[i] = case_element(i, r->rank);
            hl_collective_start(g, &args, &op);
            ranks_check(r, hl_collective_wait(g, &op, &diag) == HL_OK);
            for (int i = 0; i < N; i++) ranks_check(r, data[i] == case_element(i, has));
            struct hl_collective_cost cost = hl_collective_cost(&args, r->rank, r->n_ranks);
            bool moves = from != to;
            ranks_check(r, cost.bytes_out == (moves && r->rank == from ? N * 4 : 0) &&
                               cost.bytes_in == (moves && r->rank == to ? N * 4 : 0));
        }
    hl_group_free(g);
}

static void test_send(void **state) {
    (void)state;
    for (int n = 2; n <= 4; n++) ranks_run(n, 1, PART_BYTES, send_each, NULL);
}

/* Operations of three lanes at once, several on each, started before any is waited for; then a
 * barrier and shared numbers. */
static void many(struct rank_context *r) {
    enum { OPS = 12, N = 700 };
    static _Thread_local float data[OPS][N];
    static _Thread_local struct hl_collective ops[OPS];
    struct hl_group *g = NULL;
    struct hl_collective barrier;
    struct hl_diag diag = {0};
    double all[16] = {0};
    ranks_check(r, new_group(r, r->wire, 5000000000, kernels(), &g, &diag) == HL_OK);
    for (int o = 0; o < OPS; o++) {
        for (int i = 0; i < N; i++) data[o][i] = case_element(i + o, r->rank);
        const struct hl_collective_args args = {.kind = HL_ALL_REDUCE,
                                                .lane = o % LANES,
                                                .data = data[o],
                                                .n = N,
                                                .element_bytes = 4,
                                                .one_stage = o % 2};
        hl_collective_start(g, &args, &ops[o]);
    }
    for (int o = OPS - 1; o >= 0; o--) {
        ranks_check(r, hl_collective_wait(g, &ops[o], &diag) == HL_OK);
        for (int i = 0; i < N; i++)
            ranks_check(r, data[o][i] == case_sum_of(i + o, r->n_ranks, HL_F32));
    }
    ranks_check(r, hl_group_poll(g, &diag) == HL_OK);
    hl_collective_start(g, &(struct hl_collective_args){.kind = HL_BARRIER}, &barrier);
    ranks_check(r, hl_collective_wait(g, &barrier, &diag) == HL_OK);
    all[r->rank * 2] = r->rank + 0.5;
    all[r->rank * 2 + 1] = -r->rank;
    ranks_check(r, hl_group_share(g, all, 2, &diag) == HL_OK);
    for (int p = 0; p < r->n_ranks; p++)
        ranks_check(r, all[2 * p] == p + 0.5 && all[2 * p + 1] == -p);
    hl_group_free(g);
}

static void test_many_at_once(void **state) {
    (void)state;
    for (int n = 2; n <= 4; n++) ranks_run(n, LANES, PART_BYTES, many, NULL);
}

/* All kinds one after the other on one lane, started before any is waited for: on a slow wire they
 * overlap, and streams of one are those of the next. */
static void mixed(struct rank_context *r) {
    enum { ROUNDS = 3, OPS = ROUNDS * HL_BARRIER, N = 1000 };
    static _Thread_local float data[OPS][N];
    static _Thread_local struct hl_collective ops[OPS];
    struct hl_group *g = NULL;
    struct hl_diag diag = {0};
    ranks_check(r, new_group(r, r->wire, 5000000000, kernels(), &g, &diag) == HL_OK);
    for (int o = 0; o < OPS; o++) {
        enum hl_collective_kind kind = (enum hl_collective_kind)(o % HL_BARRIER);
        bool one_stage = kind == HL_ALL_TO_ALL; /* that one needs two arrays */
        if (one_stage) kind = HL_ALL_REDUCE;
        for (int i = 0; i < N; i++) data[o][i] = case_element(i + o, r->rank);
        const struct hl_collective_args args = {.kind = kind,
                                                .root = o % r->n_ranks,
                                                .data = data[o],
                                                .n = N - o,
                                                .element_bytes = 4,
                                                .one_stage = one_stage};
        hl_collective_start(g, &args, &ops[o]);
    }
    ranks_check(r, hl_collective_wait(g, &ops[OPS - 1], &diag) == HL_OK);
    ranks_check(r, hl_collectives_done(ops, OPS));
    for (int o = 0; o < OPS; o++)
        for (int i = 0; i < ops[o].args.n; i++)
            ranks_check(r,
                        data[o][i] == case_expected_from(&ops[o].args, i, o, r->rank, r->n_ranks));
    hl_group_free(g);
}

static void test_mixed_on_one_lane(void **state) {
    (void)state;
    for (int n = 2; n <= 4; n++) ranks_run(n, 1, PART_BYTES, mixed, NULL);
}

/* An all-reduce waits for a rank that has not come: the next one's parts leave all the same where
 * the wire is slow. */
static void one_comes_late(struct rank_context *r) {
    enum { N = 96, SENT = 2 * 2 * 32 * 4 }; /* two operations, a slice for each of two peers */
    static _Thread_local float data[2][N];
    struct hl_collective ops[2];
    struct hl_group *g = NULL;
    struct hl_diag diag = {0};
    int *may_come = r->shared;
    ranks_check(r, new_group(r, r->wire, 5000000000, kernels(), &g, &diag) == HL_OK);
    while (r->rank == 2 && !__atomic_load_n(may_come, __ATOMIC_ACQUIRE)) hl_group_sleep(g, 1000000);
    for (int o = 0; o < 2; o++) {
        for (int i = 0; i < N; i++) data[o][i] = case_element(i + o, r->rank);
        const struct hl_collective_args args = {
            .kind = HL_ALL_REDUCE, .data = data[o], .n = N, .element_bytes = 4};
        hl_collective_start(g, &args, &ops[o]);
    }
    for (int tries = 0; r->rank == 1 && slow && tries < 5000; tries++) {
        if (hl_group_counted(g).bytes_out >= SENT) break;
        ranks_check(r, hl_group_poll(g, &diag) == HL_PENDING && tries < 4999);
        hl_group_sleep(g, 1000000);
    }
    if (r->rank == 1) __atomic_store_n(may_come, 1, __ATOMIC_RELEASE);
    for (int o = 0; o < 2; o++) {
        ranks_check(r, hl_collective_wait(g, &ops[o], &diag) == HL_OK);
        for (int i = 0; i < N; i++)
            ranks_check(r, data[o][i] == case_sum_of(i + o, r->n_ranks, HL_F32));
    }
    hl_group_free(g);
}

static void test_the_next_one_fills_the_link(void **state) {
    (void)state;
    int may_come = 0;
    ranks_run(3, 1, PART_BYTES, one_comes_late, &may_come);
}

/* ---- costs against what passes ---- */

static int64_t bytes_between(const struct hl_collective_args *a, int rank, int n) {
    return hl_collective_cost(a, rank, n).bytes_out;
}

static void test_costs_balance(void **state) {
    (void)state;
    for (int kind = HL_ALL_REDUCE; kind <= HL_SCATTER; kind++)
        for (int n = 1; n <= 7; n++)
            for (int wire = 0; wire < 2; wire++) {
                struct hl_collective_args a = {.kind = (enum hl_collective_kind)kind,
                                               .n = 1000,
                                               .element_bytes = 4,
                                               .wire = (enum hl_dtype)wire};
                static float data[1000];
                int64_t out = 0, in = 0;
                a.data = data;
                for (int r = 0; r < n; r++) {
                    out += bytes_between(&a, r, n);
                    in += hl_collective_cost(&a, r, n).bytes_in;
                }
                assert_int_equal(out, in);
                int64_t all = 1000 * (wire ? 2 : 4);
                if (kind == HL_ALL_REDUCE) assert_int_equal(out, 2 * (n - 1) * all);
                if (kind == HL_REDUCE_SCATTER || kind == HL_ALL_GATHER || kind == HL_BROADCAST)
                    assert_int_equal(out, (n - 1) * all);
            }
}

/* ---- failures ---- */

static void one_gives_up(struct rank_context *r) {
    static _Thread_local float data[5000];
    struct hl_group *g = NULL;
    struct hl_collective op;
    struct hl_diag diag = {0};
    ranks_check(r, new_group(r, r->wire, 5000000000, kernels(), &g, &diag) == HL_OK);
    hl_group_tell(g, HL_PHASE_FORWARD, 3);
    if (r->rank == 2) r->wire->ops->give_up(r->wire, "no space left");
    else {
        const struct hl_collective_args args = {
            .kind = HL_ALL_REDUCE, .data = data, .n = 5000, .element_bytes = 4};
        hl_collective_start(g, &args, &op);
        ranks_check(r, hl_collective_wait(g, &op, &diag) == HL_E_PEER);
        if (!strstr(diag.text, "rank 2 (host ") || !strstr(diag.text, "forward of step 3") ||
            !strstr(diag.text, "no space left"))
            ranks_fail(r, "the message is: %s", diag.text);
    }
    hl_group_free(g);
}

static void one_is_silent(struct rank_context *r) {
    static _Thread_local float data[5000];
    struct hl_group *g = NULL;
    struct hl_collective op;
    struct hl_diag diag = {0};
    ranks_check(r, new_group(r, r->wire, 50000000, kernels(), &g, &diag) == HL_OK);
    if (r->rank != 1) {
        const struct hl_collective_args args = {
            .kind = HL_ALL_GATHER, .data = data, .n = 5000, .element_bytes = 4};
        hl_collective_start(g, &args, &op);
        enum hl_status status = hl_collective_wait(g, &op, &diag);
        ranks_check(r, status == HL_E_TIMEOUT || status == HL_E_PEER);
        if (!strstr(diag.text, status == HL_E_TIMEOUT ? "for rank 1" : "rank "))
            ranks_fail(r, "the message is: %s", diag.text);
        r->wire->ops->give_up(r->wire, "timed out");
    } else {
        struct hl_peer p = {0};
        while (p.state != HL_PEER_FAILED) {
            (void)r->wire->ops->wait(r->wire, 1000000);
            r->wire->ops->peer(r->wire, 0, &p);
            if (p.state != HL_PEER_FAILED) r->wire->ops->peer(r->wire, 2, &p);
        }
    }
    hl_group_free(g);
}

static void test_failures_are_named(void **state) {
    (void)state;
    ranks_run(3, 1, PART_BYTES, one_gives_up, NULL);
    ranks_run(3, 1, PART_BYTES, one_is_silent, NULL);
}

/* Whoever gives up may free what its operations point to. */
static void leave(struct rank_context *r) {
    static _Thread_local float data[MOST];
    struct hl_group *g = NULL;
    struct hl_diag diag = {0};
    struct hl_collective ops[2];
    ranks_check(r, new_group(r, r->wire, 5000000000, kernels(), &g, &diag) == HL_OK);
    for (int i = 0; i < 2 && r->rank == 0; i++)
        hl_collective_start(g,
                            &(struct hl_collective_args){.kind = HL_ALL_REDUCE,
                                                         .lane = i,
                                                         .data = data,
                                                         .n = MOST,
                                                         .element_bytes = sizeof *data},
                            &ops[i]);
    if (r->rank == 0) {
        hl_group_give_up(g, "no room");
        for (int i = 0; i < 2; i++) ranks_check(r, hl_collective_status(&ops[i]) == HL_E_PEER);
        ranks_check(r, hl_group_poll(g, &diag) == HL_E_PEER && strstr(diag.text, "no room"));
    } else {
        ranks_check(r, hl_group_barrier(g, &diag) == HL_E_PEER && strstr(diag.text, "no room"));
    }
    hl_group_free(g);
}

static void test_giving_up_ends_operations(void **state) {
    (void)state;
    ranks_run(2, LANES, PART_BYTES, leave, NULL);
}

static void test_slices(void **state) {
    (void)state;
    for (int64_t n = 0; n < 300; n++)
        for (int ranks = 1; ranks <= 9; ranks++) {
            int64_t at = 0, least = INT64_MAX, most = 0;
            for (int r = 0; r < ranks; r++) {
                struct hl_range s = hl_slice(n, 16, r, ranks);
                assert_int_equal(s.offset, at);
                assert_true(s.offset % 16 == 0 || s.offset == n);
                at += s.n;
                if (s.n < least) least = s.n;
                if (s.n > most) most = s.n;
            }
            assert_int_equal(at, n);
            assert_true(most - least <= 16 + 15);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_all_reduce),
        cmocka_unit_test(test_reduce_scatter),
        cmocka_unit_test(test_reduce_scatter_apart),
        cmocka_unit_test(test_send),
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_all_to_all),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_mixed_on_one_lane),
        cmocka_unit_test(test_the_next_one_fills_the_link),
        cmocka_unit_test(test_costs_balance),
        cmocka_unit_test(test_failures_are_named),
        cmocka_unit_test(test_giving_up_ends_operations),
    };
    int failed = cmocka_run_group_tests_name("alone", tests, NULL, NULL);
    slow = true;
    return failed + cmocka_run_group_tests_name("with a helper", tests, NULL, NULL);
}
