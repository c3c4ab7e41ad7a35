/* Streams over messages: credits are spent and come back, and a peer that sends what does not
 * belong is named instead of believed. The other rank is played by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "wires/mail.h"

enum { PART_BYTES = 64, SLOTS = 4 };

/* What rank 0 sent, last. */
struct hand {
    struct hl_mail mail; /* first */
    struct hl_mem_probe probe;
    int n_sent, last_peer, n_receives;
    int64_t waited_ns;
    struct hl_mail_head last;
    char data[PART_BYTES];
};
static struct hand *hand_of(struct hl_mail *m) { return (struct hand *)(void *)m; }

static void keep(struct hl_mail *m, int peer, const struct hl_mail_head *head, const void *data) {
    struct hand *h = hand_of(m);
    h->n_sent++;
    h->last = *head;
    h->last_peer = peer;
    if (head->bytes) memcpy(h->data, data, head->bytes);
}
static void receive(struct hl_mail *m, int64_t timeout_ns) {
    hand_of(m)->n_receives++;
    hand_of(m)->waited_ns = timeout_ns;
}
static const struct hl_mail_transport by_hand = {keep, receive};

static void set_up(struct hand *h, int n_ranks) {
    struct hl_diag diag;
    *h = (struct hand){.mail.wire = {.name = "hand",
                                     .n_ranks = n_ranks,
                                     .n_lanes = 2,
                                     .part_bytes = PART_BYTES,
                                     .failed_rank = -1}};
    hl_mem_probe_init(&h->probe, 0);
    assert_int_equal(hl_mail_init(&h->mail, &h->probe.mem, SLOTS, &by_hand, &diag), HL_OK);
    for (int p = 0; p < n_ranks; p++) h->mail.peers[p].state = HL_PEER_ALIVE;
}
static void tear_down(struct hand *h) {
    hl_mail_fini(&h->mail);
    assert_int_equal(h->probe.n_live, 0);
}
static void take(struct hand *h, int peer, enum hl_mail_kind kind, int lane, int all,
                 int64_t number, uint32_t bytes) {
    static const char text[2 * PART_BYTES] = "what it says";
    const struct hl_mail_head head = {.kind = (uint8_t)kind,
                                      .lane = (uint8_t)lane,
                                      .to_everyone = (uint8_t)all,
                                      .bytes = bytes,
                                      .number = number};
    hl_mail_take(&h->mail, peer, &head, text);
}

static void test_credits(void **state) {
    static struct hand h;
    const struct hl_stream s = {1, 0, HL_EVERYONE};
    void *room;
    (void)state;
    set_up(&h, 3);
    struct hl_wire *w = &h.mail.wire;
    for (int i = 0; i < SLOTS; i++) {
        assert_int_equal(hl_mail_reserve(w, s, &room), HL_OK);
        assert_int_equal(hl_mail_commit(w, s, 5), HL_OK);
    }
    assert_int_equal(h.n_sent, 2 * SLOTS);
    assert_true(h.last.kind == HL_MAIL_PART && h.last.lane == 1 && h.last.to_everyone == 1 &&
                h.last.bytes == 5 && h.last.number == SLOTS);
    assert_int_equal(hl_mail_reserve(w, s, &room), HL_PENDING);
    assert_int_equal(hl_mail_reserve(w, (struct hl_stream){0, 0, 1}, &room), HL_OK); /* another */
    take(&h, 1, HL_MAIL_ACK, 1, 1, 2, 0);
    assert_int_equal(hl_mail_reserve(w, s, &room), HL_PENDING); /* 2 has not read */
    take(&h, 2, HL_MAIL_ACK, 1, 1, 1, 0);
    assert_int_equal(hl_mail_reserve(w, s, &room), HL_OK);
    assert_int_equal(hl_mail_commit(w, s, 0), HL_OK);
    assert_int_equal(hl_mail_reserve(w, s, &room), HL_PENDING);
    take(&h, 2, HL_MAIL_LEFT, 0, 0, 0, 0);
    assert_int_equal(hl_mail_reserve(w, s, &room), HL_E_PEER); /* will never read */
    assert_int_equal(w->failed_rank, 2);
    tear_down(&h);
}

static void test_reading(void **state) {
    static struct hand h;
    const struct hl_stream s = {0, 1, 0};
    const void *data, *again;
    size_t n;
    (void)state;
    set_up(&h, 2);
    struct hl_wire *w = &h.mail.wire;
    assert_int_equal(hl_mail_view(w, s, &data, &n), HL_PENDING);
    assert_int_equal(h.n_receives, 1); /* it looked */
    take(&h, 1, HL_MAIL_PART, 0, 0, 1, 6);
    take(&h, 1, HL_MAIL_PART, 0, 0, 2, 0);
    assert_int_equal(hl_mail_wait(w, 1000), HL_OK);
    assert_int_equal(h.waited_ns, 0); /* something came since the last wait */
    assert_int_equal(hl_mail_wait(w, 1000), HL_OK);
    assert_int_equal(h.waited_ns, 1000);
    assert_int_equal(hl_mail_view(w, s, &data, &n), HL_OK);
    assert_int_equal(hl_mail_view(w, s, &again, &n), HL_OK);
    assert_true(data == again && n == 6 && !memcmp(data, "what i", 6));
    assert_int_equal(hl_mail_release(w, s), HL_OK);
    assert_true(h.last.kind == HL_MAIL_ACK && h.last.number == 1 && h.last.to_everyone == 0);
    hl_mail_lost(&h.mail, 1); /* what came before is still there */
    assert_int_equal(hl_mail_view(w, s, &data, &n), HL_OK);
    assert_int_equal(n, 0);
    assert_int_equal(hl_mail_release(w, s), HL_OK);
    assert_int_equal(h.n_sent, 1); /* nobody to acknowledge to */
    assert_int_equal(hl_mail_view(w, s, &data, &n), HL_E_PEER);
    tear_down(&h);
}

static void test_what_does_not_belong(void **state) {
    static const struct {
        int kind, lane, all;
        int64_t number;
        uint32_t bytes;
        const char *says;
    } bad[] = {{HL_MAIL_PART, 2, 0, 1, 4, "no such stream"},
               {HL_MAIL_PART, 255, 0, 1, 4, "no such stream"},
               {HL_MAIL_PART, 0, 2, 1, 4, "no such stream"},
               {HL_MAIL_PART, 0, 0, 2, 4, "a part is missing"},
               {HL_MAIL_PART, 0, 0, 0, 4, "a part is missing"},
               {HL_MAIL_PART, 0, 0, 1, PART_BYTES + 1, "too large"},
               {HL_MAIL_ACK, 0, 0, 1, 0, "not sent"},
               {HL_MAIL_ACK, 0, 0, -1, 0, "not sent"},
               {HL_MAIL_ACK, 0, 1, INT64_MAX, 0, "not sent"},
               {HL_MAIL_HELLO, 0, 0, 0, 0, "not a message"},
               {77, 0, 0, 0, 0, "not a message"}};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        static struct hand h;
        struct hl_peer p;
        set_up(&h, 3);
        take(&h, 2, (enum hl_mail_kind)bad[i].kind, bad[i].lane, bad[i].all, bad[i].number,
             bad[i].bytes);
        hl_mail_peer(&h.mail.wire, 2, &p);
        assert_int_equal(p.state, HL_PEER_FAILED);
        assert_non_null(strstr(p.why, bad[i].says));
        assert_int_equal(h.mail.wire.failed_rank, 2);
        take(&h, 2, HL_MAIL_STATE, 0, 0, 5, 0); /* nothing of it counts any more */
        hl_mail_peer(&h.mail.wire, 2, &p);
        assert_int_equal(p.step, 0);
        tear_down(&h);
    }
}

static void test_more_than_there_is_room_for(void **state) {
    static struct hand h;
    (void)state;
    set_up(&h, 2);
    for (int i = 1; i <= SLOTS; i++) take(&h, 1, HL_MAIL_PART, 0, 1, i, 1);
    assert_int_equal(h.mail.wire.failed_rank, -1);
    take(&h, 1, HL_MAIL_PART, 0, 1, SLOTS + 1, 1);
    assert_int_equal(h.mail.wire.failed_rank, 1);
    tear_down(&h);
}

static void test_what_ranks_tell(void **state) {
    static struct hand h;
    struct hl_peer p;
    (void)state;
    set_up(&h, 3);
    struct hl_wire *w = &h.mail.wire;
    hl_mail_tell(w, HL_PHASE_SAVE, 9);
    assert_true(h.n_sent == 2 && h.last.kind == HL_MAIL_STATE && h.last.number == 9 &&
                h.last.phase == HL_PHASE_SAVE);
    hl_mail_peer(w, 0, &p);
    assert_true(p.state == HL_PEER_ALIVE && p.step == 9 && p.phase == HL_PHASE_SAVE);
    take(&h, 1, HL_MAIL_STATE, 0, 0, 12, 0);
    hl_mail_peer(w, 1, &p);
    assert_int_equal(p.step, 12);
    assert_false(p.waits);
    static const char *const said[] = {"2", "3", "x", ""};
    for (size_t i = 0; i < 4; i++) {
        const struct hl_mail_head head = {
            .kind = HL_MAIL_STATE, .number = 12, .bytes = (uint32_t)strlen(said[i])};
        hl_mail_take(&h.mail, 1, &head, said[i]);
        hl_mail_peer(w, 1, &p);
        assert_true(p.waits == (i == 0) && p.waits_for == (i == 0 ? 2 : 0));
    }
    w->waits = true;
    w->waits_for = 1;
    hl_mail_tell(w, HL_PHASE_SAVE, 9);
    assert_true(h.last.kind == HL_MAIL_STATE && h.last.bytes == 1);
    assert_memory_equal(h.data, "1", 1);
    take(&h, 1, HL_MAIL_FAILED, 0, 0, 0, 12);
    hl_mail_peer(w, 1, &p);
    assert_int_equal(p.state, HL_PEER_FAILED);
    assert_string_equal(p.why, "what it says");
    h.n_sent = 0;
    hl_mail_give_up(w, "enough");
    assert_true(h.n_sent == 1 && h.last_peer == 2 && h.last.kind == HL_MAIL_FAILED);
    assert_memory_equal(h.data, "enough", 6);
    hl_mail_give_up(w, "again");
    hl_mail_tell(w, HL_PHASE_SAVE, 10);
    assert_int_equal(h.n_sent, 1);
    tear_down(&h);
}

static void test_memory_short(void **state) {
    (void)state;
    for (long k = 1;; k++) {
        static struct hand h;
        struct hl_diag diag;
        h = (struct hand){.mail.wire = {.name = "hand",
                                        .n_ranks = 2,
                                        .n_lanes = 2,
                                        .part_bytes = PART_BYTES,
                                        .failed_rank = -1}};
        hl_mem_probe_init(&h.probe, k);
        enum hl_status status = hl_mail_init(&h.mail, &h.probe.mem, SLOTS, &by_hand, &diag);
        if (status == HL_OK) {
            h.mail.peers[1].state = HL_PEER_ALIVE;
            take(&h, 1, HL_MAIL_PART, 1, 0, 1, 1);
            bool kept = h.mail.peers[1].state == HL_PEER_ALIVE;
            if (!kept) assert_non_null(strstr(h.mail.peers[1].why, "memory"));
            tear_down(&h);
            if (kept) break;
        } else assert_int_equal(status, HL_E_MEMORY);
        assert_int_equal(h.probe.n_live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_credits),
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_what_does_not_belong),
        cmocka_unit_test(test_more_than_there_is_room_for),
        cmocka_unit_test(test_what_ranks_tell),
        cmocka_unit_test(test_memory_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
