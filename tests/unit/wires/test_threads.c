/* threads, and with it the protocol of rings: parts arrive whole, once and in order, also to
 * everyone; a slot is not used again before its readers are done; who left, failed or is absent is
 * told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "support/ranks.h"
#include "support/wire_case.h"
#include "wires/wires.h"

enum { PART_BYTES = WIRE_PART_BYTES };

static void test_parts_arrive_in_order(void **state) {
    (void)state;
    for (int n = 2; n <= 5; n++) ranks_run(n, 2, PART_BYTES, wire_every_stream, NULL);
}

static void full_ring(struct rank_context *r) {
    struct hl_stream s = {0, 0, HL_EVERYONE};
    unsigned char part[PART_BYTES];
    void *room;
    int n = 0;
    if (r->rank == 0) {
        while (r->wire->ops->reserve(r->wire, s, &room) == HL_OK) {
            ranks_check(r, n < 100);
            if (n == 100) break;
            memset(room, n, 8);
            (void)r->wire->ops->commit(r->wire, s, 8);
            n++;
        }
        ranks_check(r, n > 0);
        *(int *)r->shared = n;
        (void)wire_send_part(r->wire, (struct hl_stream){0, 0, 1}, part, 0); /* go */
        (void)wire_send_part(r->wire, (struct hl_stream){0, 0, 2}, part, 0);
        ranks_check(r, wire_send_part(r->wire, s, part, 0) == HL_OK); /* waits for both readers */
    } else {
        const void *data;
        size_t bytes;
        struct hl_stream go = {0, 0, r->rank};
        ranks_check(r, wire_next_part(r->wire, go, &data, &bytes) == HL_OK && bytes == 0);
        for (int i = 0; i < *(int *)r->shared; i++) {
            ranks_check(r, wire_next_part(r->wire, s, &data, &bytes) == HL_OK && bytes == 8);
            ranks_check(r, ((const unsigned char *)data)[7] == i);
            (void)r->wire->ops->release(r->wire, s);
        }
        ranks_check(r, wire_next_part(r->wire, s, &data, &bytes) == HL_OK && bytes == 0);
    }
}

static void test_no_room_until_all_have_read(void **state) {
    int n = 0;
    (void)state;
    ranks_run(3, 1, PART_BYTES, full_ring, &n);
}

static void one_fails(struct rank_context *r) {
    const void *data;
    size_t bytes;
    struct hl_peer p;
    r->wire->waits = r->rank == 1;
    r->wire->waits_for = 2;
    r->wire->ops->tell(r->wire, HL_PHASE_BACKWARD, 17);
    if (r->rank == 1) {
        r->wire->ops->give_up(r->wire,
                              "the disk is full, and this sentence is longer than one line of "
                              "the ring holds, on purpose");
        return;
    }
    /* rank 2 waits for 0, which waits for 1: the failure of 1 reaches both */
    ranks_check(r, wire_next_part(r->wire, (struct hl_stream){0, r->rank == 0 ? 1 : 0, r->rank},
                                  &data, &bytes) == HL_E_PEER);
    ranks_check(r, r->wire->failed_rank == 1);
    r->wire->ops->peer(r->wire, 1, &p);
    ranks_check(r, p.state == HL_PEER_FAILED && p.phase == HL_PHASE_BACKWARD && p.step == 17);
    ranks_check(r, strstr(p.why, "disk is full") && strstr(p.why, "on purpose"));
    ranks_check(r, p.pid > 0 && *p.host);
    ranks_check(r, p.waits && p.waits_for == 2);
}

static void test_a_failure_reaches_all(void **state) {
    (void)state;
    ranks_run(3, 1, PART_BYTES, one_fails, NULL);
}

static void one_leaves(struct rank_context *r) {
    struct hl_stream s = {0, 0, 1};
    const void *data;
    size_t bytes;
    if (r->rank == 0) {
        (void)wire_send_part(r->wire, s, "bye", 3);
        return;
    }
    ranks_check(r, wire_next_part(r->wire, s, &data, &bytes) == HL_OK && bytes == 3);
    (void)r->wire->ops->release(r->wire, s);
    ranks_check(r, wire_next_part(r->wire, s, &data, &bytes) == HL_E_PEER);
    struct hl_peer p;
    r->wire->ops->peer(r->wire, 0, &p);
    ranks_check(r, p.state == HL_PEER_LEFT);
}

static void test_what_was_sent_before_leaving_arrives(void **state) {
    (void)state;
    for (int i = 0; i < 50; i++) ranks_run(2, 1, PART_BYTES, one_leaves, NULL);
}

static void test_names(void **state) {
    struct hl_diag diag;
    const struct hl_wire_plugin *w;
    (void)state;
    assert_int_equal(hl_wire_find("threads", &w, &diag), HL_OK);
    assert_int_equal(w->available(&diag), HL_OK);
    assert_int_equal(hl_wire_find("thread", &w, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "did you mean threads"));
    assert_string_equal(hl_phase_name(HL_PHASE_SHUTDOWN), "shutdown");
}

static void test_memory_short(void **state) {
    (void)state;
    for (long k = 1;; k++) {
        struct hl_mem_probe probe;
        struct hl_threads_shared *s = NULL;
        struct hl_wire *w = NULL;
        struct hl_diag diag = {0};
        hl_mem_probe_init(&probe, k);
        enum hl_status status = hl_threads_wire_new(&probe.mem, 2, 1, 64, &s, &diag);
        const struct hl_wire_place place = {.rank = 0, .n_ranks = 2, .shared = s};
        if (status == HL_OK) status = hl_wire_threads.open(&probe.mem, &place, &w, &diag);
        if (w) w->ops->close(w);
        hl_threads_wire_free(s);
        assert_int_equal(probe.n_live, 0);
        if (status == HL_OK) break;
        assert_int_equal(status, HL_E_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_arrive_in_order),
        cmocka_unit_test(test_no_room_until_all_have_read),
        cmocka_unit_test(test_a_failure_reaches_all),
        cmocka_unit_test(test_what_was_sent_before_leaving_arrives),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_memory_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
