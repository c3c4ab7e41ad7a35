/* Embedding: the same bits on every instruction set; gradients of repeated tokens are summed in
 * ascending order. */
#include "rig.h"

enum { VOCABULARY = 13, POSITIONS = 9, MAX_ROWS = 256, WITH_POSITIONS = 1 };

struct rows {
    int32_t token[MAX_ROWS], position[MAX_ROWS];
};

static void number_rows(int64_t n, struct rows *rows) {
    assert_true(n <= MAX_ROWS);
    for (int32_t i = 0; i < (int32_t)n; i++)
        rows->token[i] = i * 5 % VOCABULARY, rows->position[i] = i % POSITIONS;
}

/* shape: N, C */

static void embed_fwd_case(struct rig *r, const int64_t *shape, int variant) {
    struct rows rows;
    number_rows(shape[0], &rows);
    const void *wte = rig_t(r, VOCABULARY * shape[1]),
               *wpe = variant ? rig_t(r, POSITIONS * shape[1]) : NULL;
    r->k->embed_fwd(shape[0], shape[1], rows.token, rows.position, wte, wpe,
                    rig_f(r, shape[0] * shape[1]));
}

static void embed_bwd_case(struct rig *r, const int64_t *shape, int variant) {
    struct rows rows;
    number_rows(shape[0], &rows);
    const float *dx = rig_f(r, shape[0] * shape[1]);
    float *dwte = rig_f(r, VOCABULARY * shape[1]),
          *dwpe = variant ? rig_f(r, POSITIONS * shape[1]) : NULL;
    r->k->embed_bwd(shape[0], shape[1], dx, rows.token, rows.position, dwte, dwpe);
}

static void test_every_isa(void **state) {
    (void)state;
    const int64_t shapes[][2] = {{0, 8},   {1, 1},     {3, 17},   {64, 63},
                                 {65, 65}, {127, 130}, {193, 260}};
    for (int variant = 0; variant <= WITH_POSITIONS; variant++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            rig_run(&(struct rig_plan){embed_fwd_case, shapes[i], variant, 0, 0, true});
            rig_run(&(struct rig_plan){embed_bwd_case, shapes[i], variant, 0, 0, true});
        }
}

static void test_poison(void **state) {
    (void)state;
    const int64_t shape[2] = {9, 21};
    rig_run_poisons(&(struct rig_plan){embed_fwd_case, shape, WITH_POSITIONS, 0, 0, false}, 2);
    rig_run_poisons(&(struct rig_plan){embed_bwd_case, shape, WITH_POSITIONS, 0, 0, false}, 3);
}

static void test_values(void **state) {
    (void)state;
    const struct hl_kernels *k = rig_kernels(HL_ISA_REF, HL_F32);
    const float wte[] = {1, 2, 3, 4, 5, 6}, wpe[] = {10, 20, 30, 40};
    const int32_t token[] = {2, 0, 2}, position[] = {0, 1, 1};
    float x[6], dwte[6] = {0}, dwpe[4] = {1, 1, 1, 1};
    k->embed_fwd(3, 2, token, position, wte, wpe, x);
    const float want[] = {15, 26, 31, 42, 35, 46};
    assert_memory_equal(x, want, sizeof x);
    k->embed_bwd(3, 2, x, token, position, dwte, dwpe);
    const float want_dwte[] = {31, 42, 0, 0, 50, 72}, want_dwpe[] = {16, 27, 67, 89};
    assert_memory_equal(dwte, want_dwte, sizeof dwte);
    assert_memory_equal(dwpe, want_dwpe, sizeof dwpe);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_isa),
                                       cmocka_unit_test(test_poison),
                                       cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
