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
};
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
    for (int i = 0; i < N_SHAPES; i++)
        for (long k = 0;; k++) {
            struct counter c = {.fail_at = k};
            c.mem = (struct hl_mem){.take = take, .give = give, .context = &c};
            struct hl_engine *e = NULL;
            struct hl_diag diag = {0};
            enum hl_status status = hl_engine_new(&c.mem, &layout, &shapes[i], &e, &diag);
            if (status == HL_OK) {
                struct hl_engine_bytes b = hl_engine_measure(&layout, &shapes[i]);
                size_t told = b.parameters + b.gradients + b.optimizer;
                assert_true(c.bytes >= told &&
                            c.bytes <=
                                told + 128 * (size_t)c.n); /* records, and headers of blocks */
                hl_engine_free(e);
            } else {
                assert_int_equal(status, HL_E_MEMORY);
                assert_true(*diag.text);
            }
            assert_int_equal(c.live, 0);
            if (status == HL_OK && k > 0) break;
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffers_a_run_has),
        cmocka_unit_test(test_ranges_are_pieces_of_one_vector),
        cmocka_unit_test(test_acquire_and_publish),
        cmocka_unit_test(test_gradients_add_after_the_first),
        cmocka_unit_test(test_measure_is_what_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
