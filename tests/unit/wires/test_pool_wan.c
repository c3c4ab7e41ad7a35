/* Two wires as one: parts arrive on either way; who fails on one way has failed; and addresses of
 * pool+wan. Its ranks themselves meet in tests/suites. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "support/two_paths.h"
#include "support/wire_case.h"

static void run(int n_ranks, void (*body)(struct rank_context *r)) {
    two_paths_run(n_ranks, WIRE_PART_BYTES, false, body);
}

static void every_stream(struct rank_context *r) {
    (void)two_paths_open(r);
    ranks_check(r, r->wire->n_lanes == 2 * TWO_PATHS_LANES && r->wire->n_paths == 2);
    ranks_check(r, r->wire->part_bytes == WIRE_PART_BYTES);
    ranks_check(r, !strcmp(r->wire->name, "threads+threads"));
    wire_every_stream(r);
}

static void test_parts_arrive_in_order(void **state) {
    (void)state;
    for (int n = 2; n <= 4; n++) run(n, every_stream);
}

/* Rank 1 fails on the second way only; rank 0 waits for it on the first, rank 2 for rank 0. */
static void one_path_fails(struct rank_context *r) {
    const void *data;
    size_t bytes;
    struct hl_peer p;
    struct hl_wire *second = two_paths_open(r);
    r->wire->waits = r->rank == 1;
    r->wire->waits_for = 2;
    r->wire->ops->tell(r->wire, HL_PHASE_BACKWARD, 17);
    if (r->rank == 1) {
        second->ops->give_up(second, "the cable is cut");
        return;
    }
    ranks_check(r, wire_next_part(r->wire, (struct hl_stream){0, r->rank == 0 ? 1 : 0, r->rank},
                                  &data, &bytes) == HL_E_PEER);
    ranks_check(r, r->wire->failed_rank == 1);
    r->wire->ops->peer(r->wire, 1, &p);
    ranks_check(r, p.state == HL_PEER_FAILED && p.phase == HL_PHASE_BACKWARD && p.step == 17);
    ranks_check(r, strstr(p.why, "cable") && p.waits && p.waits_for == 2 && p.pid > 0);
}

static void test_a_failure_on_one_path(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) run(3, one_path_fails);
}

static void one_leaves(struct rank_context *r) {
    const void *data;
    size_t bytes;
    (void)two_paths_open(r);
    for (int lane = 0; lane < 2 * TWO_PATHS_LANES && r->rank == 0; lane += TWO_PATHS_LANES)
        (void)wire_send_part(r->wire, (struct hl_stream){lane, 0, 1}, "bye", 3);
    for (int lane = TWO_PATHS_LANES; lane >= 0 && r->rank == 1; lane -= TWO_PATHS_LANES) {
        struct hl_stream s = {lane, 0, 1};
        ranks_check(r, wire_next_part(r->wire, s, &data, &bytes) == HL_OK && bytes == 3);
        (void)r->wire->ops->release(r->wire, s);
    }
    if (r->rank == 0) return;
    ranks_check(r,
                wire_next_part(r->wire, (struct hl_stream){0, 0, 1}, &data, &bytes) == HL_E_PEER);
    struct hl_peer p;
    r->wire->ops->peer(r->wire, 0, &p);
    ranks_check(r, p.state == HL_PEER_LEFT && r->wire->failed_rank == 0);
}

static void test_what_was_sent_before_leaving_arrives(void **state) {
    (void)state;
    for (int i = 0; i < 50; i++) run(2, one_leaves);
}

static void no_memory(struct rank_context *r) {
    struct hl_mem_probe probe;
    struct hl_wire *none = NULL;
    struct hl_diag diag = {0};
    hl_mem_probe_init(&probe, 1);
    ranks_check(r, hl_wire_pair(&probe.mem, r->wire, r->wire, &none, &diag) == HL_E_MEMORY);
    ranks_check(r, !none && *diag.text);
}

static void test_memory_short(void **state) {
    (void)state;
    run(1, no_memory);
}

static void test_addresses(void **state) {
    static const char *const bad[] = {NULL, "", "/dev/shm/p", "+host:1", "/dev/shm/p+"};
    struct hl_wire_place place = {.n_ranks = 2, .n_lanes = 1, .part_bytes = 64, .timeout_ns = 1};
    struct hl_wire *wire = NULL;
    struct hl_diag diag;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        diag = (struct hl_diag){0};
        place.address = bad[i];
        assert_int_equal(hl_wire_pool_wan.open(hl_mem_default(), &place, &wire, &diag), HL_E_USER);
        assert_non_null(strstr(diag.text, "POOL+HOST:PORT"));
    }
    place.address = "/dev/shm/no-such-pool+127.0.0.1:1";
    assert_true(hl_wire_pool_wan.open(hl_mem_default(), &place, &wire, &diag) < 0);
    assert_non_null(strstr(diag.text, "no-such-pool"));
    assert_null(wire);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_arrive_in_order),
        cmocka_unit_test(test_a_failure_on_one_path),
        cmocka_unit_test(test_what_was_sent_before_leaving_arrives),
        cmocka_unit_test(test_memory_short),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
