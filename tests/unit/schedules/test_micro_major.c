/* micro_major: the whole list for 0, 1 and n micro-batches, with and without recompute, and that an
 * operation is a function of its index alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "halley/schedule.h"

static const struct hl_schedule *schedule(void) {
    const struct hl_schedule *s;
    struct hl_diag diag;
    assert_int_equal(hl_schedule_find("micro_major", &s, &diag), HL_OK);
    return s;
}

/* "S" step, "M" micro-batch, "m" its end, "E" step's end; F B R with the block. */
static void spell(const struct hl_schedule_shape *shape, char *out, size_t capacity) {
    size_t n = 0;
    struct hl_op op;
    for (int64_t i = 0; schedule()->op(shape, i, &op) == HL_OK; i++) {
        assert_true(n + 16 < capacity);
        assert_true(op.lane == 0 && op.segment == 0 && op.version == 0 && op.after[0] == -1 &&
                    op.after[1] == -1);
        if (op.kind == HL_OP_MARK) {
            assert_int_equal(op.block, -1);
            out[n++] = "SMmE"[op.mark];
            continue;
        }
        assert_true(op.kind == HL_OP_FWD || op.kind == HL_OP_BWD || op.kind == HL_OP_RECOMPUTE);
        assert_true(op.grad_final == (op.kind == HL_OP_BWD));
        n += (size_t)snprintf(out + n, capacity - n, "%c%d",
                              op.kind == HL_OP_FWD   ? 'F'
                              : op.kind == HL_OP_BWD ? 'B'
                                                     : 'R',
                              op.block);
    }
    out[n] = 0;
}

static void test_lists(void **state) {
    (void)state;
    static const bool none[3] = {0}, middle[3] = {false, true, false},
                      every[3] = {true, true, true};
    static const struct {
        int n_micro;
        const bool *recompute;
        const char *list;
    } cases[] = {
        {0, none, "SE"},
        {1, none, "SMF0F1F2B2B1B0mE"},
        {1, NULL, "SMF0F1F2B2B1B0mE"},
        {1, middle, "SMF0F1F2B2R1B1B0mE"},
        {1, every, "SMF0F1F2R2B2R1B1R0B0mE"},
        {3, middle, "SMF0F1F2B2R1B1B0mMF0F1F2B2R1B1B0mMF0F1F2B2R1B1B0mE"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char list[256];
        struct hl_schedule_shape shape = {
            .n_blocks = 3, .n_micro = cases[i].n_micro, .recompute = cases[i].recompute};
        spell(&shape, list, sizeof list);
        assert_string_equal(list, cases[i].list);
    }
    struct hl_schedule_shape one = {.n_blocks = 1, .n_micro = 1};
    char list[64];
    spell(&one, list, sizeof list);
    assert_string_equal(list, "SMF0B0mE");
}

static void test_micro_of_each_operation(void **state) {
    (void)state;
    struct hl_schedule_shape shape = {.n_blocks = 4, .n_micro = 5};
    struct hl_op op;
    int micro = -1;
    for (int64_t i = 0; schedule()->op(&shape, i, &op) == HL_OK; i++) {
        if (op.kind == HL_OP_MARK && op.mark == HL_MARK_MICRO_BEGIN) micro++;
        if (op.kind != HL_OP_MARK) assert_int_equal(op.micro, micro);
    }
    assert_int_equal(micro, 4);
}

static bool same(const struct hl_op *a, const struct hl_op *b) {
    return a->kind == b->kind && a->block == b->block && a->micro == b->micro &&
           a->grad_final == b->grad_final && (a->kind != HL_OP_MARK || a->mark == b->mark);
}

/* Backwards, twice, and far behind the end. */
static void test_function_of_the_index(void **state) {
    (void)state;
    static const bool recompute[4] = {false, true, true, false};
    struct hl_schedule_shape shape = {.n_blocks = 4, .n_micro = 3, .recompute = recompute};
    struct hl_op list[64], again;
    int64_t n = 0;
    while (schedule()->op(&shape, n, &list[n]) == HL_OK) n++;
    assert_int_equal(n, 2 + 3 * (2 + 2 * 4 + 2));
    for (int64_t i = n - 1; i >= 0; i--) {
        assert_int_equal(schedule()->op(&shape, i, &again), HL_OK);
        assert_true(same(&again, &list[i]));
    }
    for (int64_t i = n; i < n + 100; i++)
        assert_int_equal(schedule()->op(&shape, i, &again), HL_END);
    assert_int_equal(schedule()->op(&shape, INT64_MAX, &again), HL_END);
    /* more micro-batches continue the list: what is behind stays as it was */
    shape.n_micro = 4;
    for (int64_t i = 0; i < n - 1; i++) {
        assert_int_equal(schedule()->op(&shape, i, &again), HL_OK);
        assert_true(same(&again, &list[i]));
    }
}

static void test_names(void **state) {
    (void)state;
    const struct hl_schedule *s;
    struct hl_diag diag;
    assert_int_equal(hl_schedule_find("micro_mayor", &s, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "did you mean micro_major"));
    assert_int_equal(hl_schedule_find("", &s, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "micro_major"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_micro_of_each_operation),
        cmocka_unit_test(test_function_of_the_index),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
