/* The engine: ranges of one flat vector in up to four buffers and a bf16 copy; gradients that know
 * whether something is there to add to; bytes told before are the bytes taken; no allocation may
 * fail uncleanly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "memory/engine.h"

enum { N = 70 };
static struct hl_range blocks[3] = {{0, 33}, {33, 1}, {34, 36}};
static const struct hl_layout layout = {
    .n_parameters = N, .n_weights = N, .n_blocks = 3, .blocks = blocks};
static const struct hl_engine_shape shapes[] = {
    {.train = false},
    {.train = false, .bf16_copy = true},
    {.train = true, .n_slots = 0},
    {.train = true, .n_slots = 1},
    {.train = true, .n_slots = 2, .bf16_copy = true},
    {.train = true, .n_slots = 2, .sliced = HL_SLICED_WEIGHTS, .rank = 1, .n_ranks = 1},
    {.train = true, .n_slots = 1, .grad_windows = true, .rank = 1, .n_ranks = 2},
};
/* Of several ranks: measured as the others, but ranges are slices. */
static const struct hl_engine_shape sliced[] = {
    {.train = true, .n_slots = 1, .sliced = HL_SLICED_STATE, .rank = 1, .n_ranks = 2},
    {.train = true, .n_slots = 2, .bf16_copy = true, .sliced = HL_SLICED_GRADIENTS, .n_ranks = 3},
    {.train = true, .n_slots = 2, .sliced = HL_SLICED_WEIGHTS, .rank = 2, .n_ranks = 3},
    {.train = true,
     .n_slots = 1,
     .bf16_copy = true,
     .sliced = HL_SLICED_WEIGHTS,
     .whole_gradient = true,
     .rank = 1,
     .n_ranks = 7},
};
enum { N_SLICED = sizeof sliced / sizeof *sliced };
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static struct hl_engine *engine(const struct hl_engine_shape *shape) {
    struct hl_engine *e;
    struct hl_diag diag = {0};
    if (hl_engine_new(hl_mem_default(), &layout, shape, &e, &diag) != HL_OK)
        fail_msg("%s", diag.text);
    return e;
}

static void test_buffers_a_run_has(void **state) {
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        const struct hl_engine_shape *s = &shapes[i];
        struct hl_engine *e = engine(s);
        assert_non_null(hl_engine_data(e, HL_BUFFER_MASTER, blocks[0]));
        assert_true((hl_engine_data(e, HL_BUFFER_GRAD, blocks[0]) != NULL) == s->train);
        assert_true((hl_engine_data(e, HL_BUFFER_SLOT0, blocks[0]) != NULL) == (s->n_slots > 0));
        assert_true((hl_engine_data(e, HL_BUFFER_SLOT1, blocks[0]) != NULL) == (s->n_slots > 1));
        assert_true((hl_engine_copy(e, blocks[0]) != NULL) == s->bf16_copy);
        for (int b = 0; b < 4; b++) {
            const float *data = hl_engine_data(e, (enum hl_buffer)b, hl_layout_all(&layout));
            for (int k = 0; data && k < N; k++) assert_true(data[k] == 0);
        }
        hl_engine_free(e);
    }
    hl_engine_free(NULL);
}

static void test_ranges_are_pieces_of_one_vector(void **state) {
    (void)state;
    struct hl_engine *e = engine(&shapes[4]);
    for (int b = 0; b < 4; b++) {
        float *all = hl_engine_data(e, (enum hl_buffer)b, hl_layout_all(&layout));
        for (int k = 0; k < 3; k++)
            assert_ptr_equal(hl_engine_data(e, (enum hl_buffer)b, blocks[k]),
                             all + blocks[k].offset);
        (void)hl_engine_data(e, (enum hl_buffer)b, (struct hl_range){N, 0}); /* empty, at the end */
    }
    assert_ptr_equal(hl_engine_copy(e, blocks[2]), hl_engine_copy(e, blocks[0]) + 34);
    hl_engine_free(e);
}

/* What compute reads: the master itself in f32; in bf16 a copy that changes when it is published,
 * and only there. */
static void test_acquire_and_publish(void **state) {
    (void)state;
    const struct hl_kernels *k;
    struct hl_diag diag;
    assert_int_equal(hl_kernels_get(HL_BF16, &k, &diag), HL_OK);
    struct hl_engine *e = engine(&shapes[3]);
    float *master = hl_engine_data(e, HL_BUFFER_MASTER, blocks[1]);
    assert_ptr_equal(hl_engine_acquire(e, blocks[1]), master);
    hl_engine_publish(e, k, blocks[1]); /* nothing to do, and nothing done */
    hl_engine_free(e);

    e = engine(&shapes[4]);
    master = hl_engine_data(e, HL_BUFFER_MASTER, hl_layout_all(&layout));
    const struct hl_bf16 *copy = hl_engine_acquire(e, hl_layout_all(&layout));
    const struct hl_bf16 zero = {0};
    for (int i = 0; i < N; i++) master[i] = 1.5f;
    assert_memory_equal(&copy[33], &zero, sizeof zero);
    hl_engine_publish(e, k, blocks[1]);
    assert_memory_equal(&copy[32], &zero, sizeof zero);
    assert_memory_not_equal(&copy[33], &zero, sizeof zero);
    assert_memory_equal(&copy[34], &zero, sizeof zero);
    assert_ptr_equal(hl_engine_acquire(e, blocks[1]), copy + 33);
    hl_engine_free(e);
}

static void test_gradients_add_after_the_first(void **state) {
    (void)state;
    struct hl_engine *e = engine(&shapes[2]);
    for (int round = 0; round < 2; round++) {
        assert_false(hl_engine_grad_adds(e, 2));
        assert_true(hl_engine_grad_adds(e, 2));
        assert_false(hl_engine_grad_adds(e, 0)); /* each block for itself */
        assert_true(hl_engine_grad_adds(e, 2));
        hl_engine_grad_clear(e);
    }
    hl_engine_free(e);
}

/* Counts bytes; fails the k-th allocation. */
struct counter {
    struct hl_mem mem;
    size_t bytes;
    long n, fail_at;
    long live;
};

static void *take(struct hl_mem *mem, size_t bytes) {
    struct counter *c = mem->context;
    if (++c->n == c->fail_at) return NULL;
    void *data = hl_mem_default()->take(hl_mem_default(), bytes);
    if (data) c->live++, c->bytes += bytes;
    return data;
}

static void give(struct hl_mem *mem, void *data, size_t bytes) {
    struct counter *c = mem->context;
    c->live--;
    hl_mem_default()->give(hl_mem_default(), data, bytes);
}

static void test_measure_is_what_is_taken(void **state) {
    (void)state;
    for (int i = 0; i < N_SHAPES + N_SLICED; i++)
        for (long k = 0;; k++) {
            const struct hl_engine_shape *shape = i < N_SHAPES ? &shapes[i] : &sliced[i - N_SHAPES];
            struct counter c = {.fail_at = k};
            c.mem = (struct hl_mem){.take = take, .give = give, .context = &c};
            struct hl_engine *e = NULL;
            struct hl_diag diag = {0};
            enum hl_status status = hl_engine_new(&c.mem, &layout, shape, &e, &diag);
            if (status == HL_OK) {
                struct hl_engine_bytes b = hl_engine_measure(&layout, shape);
                size_t told = b.parameters + b.gradients + b.optimizer;
                assert_true(c.bytes >= told &&
                            c.bytes <= told + 1024 +
                                           128 * (size_t)c.n); /* records, and headers of blocks */
                hl_engine_free(e);
            } else {
                assert_int_equal(status, HL_E_MEMORY);
                assert_true(*diag.text);
            }
            assert_int_equal(c.live, 0);
            if (status == HL_OK && k > 0) break;
        }
}

/* What is written to this rank's slices stays there and nowhere else; windows come and go. */
static void test_slices(void **state) {
    (void)state;
    for (int i = 0; i < N_SLICED; i++) {
        struct hl_engine *e = engine(&sliced[i]);
        for (int pass = 0; pass < 2; pass++)
            for (int b = 0; b < 3; b++) {
                struct hl_range held = hl_engine_held(e, HL_BUFFER_SLOT0, b);
                struct hl_range slice =
                    hl_slice(blocks[b].n, HL_SLICE_UNIT, sliced[i].rank, sliced[i].n_ranks);
                assert_int_equal(held.offset, blocks[b].offset + slice.offset);
                assert_int_equal(held.n, slice.n);
                float *data = held.n ? hl_engine_data(e, HL_BUFFER_SLOT0, held) : NULL;
                for (int64_t k = 0; k < held.n; k++) {
                    if (pass) assert_true(data[k] == (float)(held.offset + k + 1));
                    data[k] = (float)(held.offset + k + 1);
                }
            }
        hl_engine_free(e);
    }
}

static void test_gradient_windows(void **state) {
    (void)state;
    struct hl_engine *e = engine(&sliced[1]);
    for (int b = 0; b < 3; b++) {
        assert_true(hl_engine_grad_room(e, b));
        float *window = hl_engine_grad_open(e, b);
        for (int64_t k = 0; k < blocks[b].n; k++) window[k] = (float)(blocks[b].offset + k);
        assert_ptr_equal(hl_engine_grad_open(e, b), window);
    }
    for (int b = 0; b < 3; b++) {
        struct hl_range held = hl_engine_held(e, HL_BUFFER_GRAD, b);
        hl_engine_grad_close(e, b);
        hl_engine_grad_close(e, b); /* once more changes nothing */
        const float *data = held.n ? hl_engine_data(e, HL_BUFFER_GRAD, held) : NULL;
        for (int64_t k = 0; k < held.n; k++) assert_true(data[k] == (float)(held.offset + k));
    }
    hl_engine_free(e);
}

/* Micro-batches are reduced one by one: what the windows gave is added up, in slices or whole. */
static void test_gradient_windows_add(void **state) {
    const struct hl_engine_shape *const both[] = {&sliced[1], &shapes[N_SHAPES - 1]};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct hl_engine *e = engine(both[i]);
        for (int pass = 0; pass < 2; pass++, hl_engine_grad_clear(e))
            for (int micro = 0; micro < 3; micro++)
                for (int b = 0; b < 3; b++) {
                    struct hl_range held = hl_engine_held(e, HL_BUFFER_GRAD, b);
                    if (both[i]->grad_windows) assert_int_equal(held.n, blocks[b].n);
                    float *window = hl_engine_grad_open(e, b);
                    assert_false(hl_engine_grad_adds(e, b));
                    for (int64_t k = 0; k < blocks[b].n; k++) window[k] = (float)(micro + k + 1);
                    assert_true(hl_engine_grad_adds(e, b)); /* of the same micro-batch */
                    hl_engine_grad_close(e, b);
                    const float *kept = held.n ? hl_engine_data(e, HL_BUFFER_GRAD, held) : NULL;
                    int64_t skip = held.offset - blocks[b].offset;
                    for (int64_t k = 0; k < held.n; k++) {
                        int64_t want = (micro + 1) * (skip + k + 1) + micro * (micro + 1) / 2;
                        assert_true(kept[k] == (float)want);
                    }
                }
        hl_engine_free(e);
    }
}

/* Five layers pass through three windows; what is held stays; after an update all are void. */
static void test_weight_windows(void **state) {
    (void)state;
    static struct hl_range many[7];
    for (int b = 0; b < 7; b++) many[b] = (struct hl_range){b * 64, 64};
    const struct hl_layout seven = {
        .n_parameters = 448, .n_weights = 448, .n_blocks = 7, .blocks = many};
    struct hl_engine *e;
    struct hl_diag diag = {0};
    bool fresh;
    assert_int_equal(hl_engine_new(hl_mem_default(), &seven, &sliced[2], &e, &diag), HL_OK);
    for (int b = 0; b < 7; b++) {
        struct hl_range held = hl_engine_held_weights(e, b);
        for (int64_t k = 0; k < held.n; k++)
            hl_engine_data(e, HL_BUFFER_MASTER, held)[k] = (float)(held.offset + k);
        assert_null(hl_engine_acquire(e, many[b]));
        const float *window = hl_engine_weights_open(e, b, &fresh);
        assert_true(fresh && hl_engine_acquire(e, many[b]) == window);
        for (int64_t k = held.offset; k < held.offset + held.n; k++)
            assert_true(window[k - many[b].offset] == (float)k);
    }
    assert_non_null(hl_engine_weights_open(e, 0, &fresh));
    assert_false(fresh);
    for (int b = 3; b < 6; b++) hl_engine_weights_hold(e, b, true);
    assert_null(hl_engine_weights_open(e, 1, &fresh));
    hl_engine_weights_hold(e, 4, false);
    assert_non_null(hl_engine_weights_open(e, 1, &fresh));
    assert_true(fresh && !hl_engine_acquire(e, many[4]));
    hl_engine_weights_stale(e);
    for (int b = 0; b < 7; b++) assert_null(hl_engine_acquire(e, many[b]));
    hl_engine_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffers_a_run_has),
        cmocka_unit_test(test_ranges_are_pieces_of_one_vector),
        cmocka_unit_test(test_acquire_and_publish),
        cmocka_unit_test(test_gradients_add_after_the_first),
        cmocka_unit_test(test_measure_is_what_is_taken),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_gradient_windows),
        cmocka_unit_test(test_gradient_windows_add),
        cmocka_unit_test(test_weight_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
