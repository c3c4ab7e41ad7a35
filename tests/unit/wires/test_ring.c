/* Where lines and slots of a ring lie: golden offsets, no two in one place, none across a stripe,
 * and slots of one stream on different devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "halley/mem.h"
#include "wires/ring.h"

/* A memory that notes where the wire reads and writes. */
struct spy {
    struct hl_ring_memory memory; /* first */
    size_t rooms[64], lines[64], looks[64];
    size_t n_rooms, n_lines, n_looks;
    struct hl_line bell;
    char room[4096];
};

static struct spy *of(struct hl_ring_memory *m) { return (struct spy *)(void *)m; }
static void *spy_room(struct hl_ring_memory *m, size_t stream, size_t offset, size_t bytes) {
    (void)stream, (void)bytes;
    of(m)->rooms[of(m)->n_rooms++ % 64] = offset;
    return of(m)->room;
}
static void spy_publish(struct hl_ring_memory *m, size_t stream, size_t offset, size_t bytes) {
    (void)m, (void)stream, (void)offset, (void)bytes;
}
static void spy_ring(struct hl_ring_memory *m, size_t offset, const struct hl_line *line) {
    (void)line;
    of(m)->lines[of(m)->n_lines++ % 64] = offset;
}
static void spy_look(struct hl_ring_memory *m, size_t offset, struct hl_line *out) {
    of(m)->looks[of(m)->n_looks++ % 64] = offset;
    *out = of(m)->bell;
}
static const void *spy_fetch(struct hl_ring_memory *m, size_t offset, size_t bytes) {
    (void)offset, (void)bytes;
    return of(m)->room;
}
static const struct hl_ring_memory_ops spy_ops = {.room = spy_room,
                                                  .publish = spy_publish,
                                                  .ring = spy_ring,
                                                  .look = spy_look,
                                                  .fetch = spy_fetch};

static struct hl_wire *open_spy(struct spy *spy, struct hl_ring_shape shape, int rank) {
    struct hl_wire *wire = NULL;
    struct hl_diag diag;
    *spy = (struct spy){.memory = {.ops = &spy_ops}};
    const struct hl_ring_place place = {
        .name = "spy", .shape = shape, .rank = rank, .memory = &spy->memory, .incarnation = 7};
    assert_int_equal(hl_ring_open(hl_mem_default(), &place, &wire, &diag), HL_OK);
    spy->n_lines = spy->n_rooms = spy->n_looks = 0;
    return wire;
}

static void test_golden_layout(void **state) {
    struct hl_ring_layout l;
    struct hl_ring_shape shape = {.n_ranks = 4, .n_lanes = 3, .n_slots = 4, .part_bytes = 131072};
    (void)state;
    hl_ring_lay_out(&shape, &l);
    assert_int_equal(l.bells, 4 * 8 * 64);
    assert_int_equal(l.acks, l.bells + 3 * 16 * 4 * 64);
    assert_int_equal(l.lines_end, l.acks + 3 * 4 * 8 * 64);
    assert_int_equal(l.slots, 20480);
    assert_int_equal(l.end, l.slots + 3 * 16 * 4 * 131072);
    shape.stripe_bytes = 2 << 20;
    shape.n_devices = 2;
    hl_ring_lay_out(&shape, &l);
    assert_int_equal(l.slots, 2 << 20);
    assert_int_equal(l.end, l.slots + 3 * 16 * 4 * 131072);
    shape.n_devices = 5; /* rows are full */
    hl_ring_lay_out(&shape, &l);
    assert_int_equal(l.end, l.slots + 3 * 5 * (2 << 20));
}

/* One stream's first parts: bells and slots in their order, over two devices. */
static void test_golden_places(void **state) {
    struct spy spy;
    const struct hl_ring_shape shape = {.n_ranks = 2,
                                        .n_lanes = 1,
                                        .n_slots = 2,
                                        .part_bytes = 1 << 20,
                                        .stripe_bytes = 2 << 20,
                                        .n_devices = 2};
    struct hl_wire *w = open_spy(&spy, shape, 0);
    const struct hl_stream s = {0, 0, 1};
    void *room;
    (void)state;
    /* streams 0>all, 0>1, 1>0, 1>all; slots 2 and 3 are ours: sequence 1 takes the second */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w->ops->reserve(w, s, &room), HL_OK);
        assert_int_equal(w->ops->commit(w, s, 100), HL_OK);
    }
    const size_t slots = 2 << 20;
    assert_int_equal(spy.rooms[0], slots + (2 << 20) + (1 << 20)); /* device 1, second in stripe */
    assert_int_equal(spy.rooms[1], slots + (1 << 20));             /* device 0, second in stripe */
    assert_int_equal(spy.lines[0], 2 * 8 * 64 + 3 * 64);
    assert_int_equal(spy.lines[1], 2 * 8 * 64 + 2 * 64);
    w->ops->close(w);
}

/* All slots of all streams of all ranks, for parts that fill a stripe and parts that do not. */
static void check_shape(struct hl_ring_shape shape) {
    struct hl_ring_layout l;
    hl_ring_lay_out(&shape, &l);
    size_t n = (l.end - l.slots) / 64;
    unsigned char *used = calloc(n, 1);
    for (int rank = 0; rank < shape.n_ranks; rank++) {
        struct spy spy;
        struct hl_wire *w = open_spy(&spy, shape, rank);
        for (int lane = 0; lane < shape.n_lanes; lane++)
            for (int to = HL_EVERYONE; to < shape.n_ranks; to++) {
                if (to == rank) continue;
                size_t devices = 0; /* bits */
                for (int slot = 0; slot < shape.n_slots; slot++) {
                    void *room;
                    const struct hl_stream s = {lane, rank, to};
                    assert_int_equal(w->ops->reserve(w, s, &room), HL_OK);
                    assert_int_equal(w->ops->commit(w, s, 0), HL_OK);
                    size_t at = spy.rooms[(spy.n_rooms - 1) % 64] - l.slots;
                    size_t stripe = at / shape.stripe_bytes;
                    size_t device = stripe % (size_t)shape.n_devices;
                    assert_int_equal((at + shape.part_bytes - 1) / shape.stripe_bytes, stripe);
                    devices |= (size_t)1 << device;
                    for (size_t b = 0; b < shape.part_bytes / 64; b++)
                        assert_int_equal(used[at / 64 + b]++, 0);
                }
                if (shape.n_devices > 1) assert_true(devices & (devices - 1));
            }
        w->ops->close(w);
    }
    free(used);
}

static void test_every_slot_has_its_place(void **state) {
    static const int devices[] = {1, 2, 3, 6};
    static const size_t parts[] = {64, 4096, 1600, 8192};
    (void)state;
    for (size_t d = 0; d < 4; d++)
        for (size_t p = 0; p < 4; p++)
            check_shape((struct hl_ring_shape){.n_ranks = 3,
                                               .n_lanes = 2,
                                               .n_slots = 3,
                                               .part_bytes = parts[p],
                                               .stripe_bytes = 8192,
                                               .n_devices = devices[d]});
}

static void test_a_bell_that_cannot_be(void **state) {
    struct spy spy;
    const struct hl_ring_shape shape = {
        .n_ranks = 2, .n_lanes = 1, .n_slots = 2, .part_bytes = 128};
    struct hl_wire *w = open_spy(&spy, shape, 0);
    const struct hl_stream s = {0, 1, 0};
    const void *data;
    size_t n;
    (void)state;
    spy.bell = (struct hl_line){.value = 1, .bytes = 129, .incarnation = 7};
    assert_int_equal(w->ops->view(w, s, &data, &n), HL_E_FORMAT); /* longer than a part */
    spy.bell = (struct hl_line){.value = 2, .bytes = 5, .incarnation = 7};
    assert_int_equal(w->ops->view(w, s, &data, &n), HL_E_FORMAT); /* one was lost */
    spy.bell = (struct hl_line){.value = 1, .bytes = 5, .incarnation = 8};
    assert_int_equal(w->ops->view(w, s, &data, &n), HL_PENDING); /* another run's */
    spy.bell.incarnation = 7;
    assert_int_equal(w->ops->view(w, s, &data, &n), HL_OK);
    assert_int_equal(n, 5);
    w->ops->close(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_layout),
        cmocka_unit_test(test_golden_places),
        cmocka_unit_test(test_every_slot_has_its_place),
        cmocka_unit_test(test_a_bell_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
