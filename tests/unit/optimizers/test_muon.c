/* Muon: the step of a matrix is nearly orthogonal whatever the gradient's scale, tall and wide give
 * the transposed step, and vectors follow AdamW to the bit. */
#include "optimizer_fixture.h"

/* The direction of the first step: (w - w') / (lr 0.2 sqrt(max side)), with decay off. */
static void direction(struct rule *r, double D[MATRIX]) {
    float before[MATRIX];
    r->options.weight_decay = 0;
    memcpy(before, r->master, sizeof before);
    rule_step(r, 1, 0.01, 1.0f, 0, ALL);
    for (int i = 0; i < MATRIX; i++)
        D[i] = ((double)before[i] - (double)r->master[i]) / (0.01 * 0.2 * sqrt(10.0));
}

static void test_orthogonal(void **state) {
    (void)state;
    struct rule r;
    rule_init(&r, "muon");
    double D[MATRIX];
    direction(&r, D);
    /* rows of a wide matrix: norms in the range the quintic leaves (0.7 .. 1.2), nearly
     * perpendicular */
    for (int a = 0; a < ROWS; a++)
        for (int b = 0; b <= a; b++) {
            double dot = 0;
            for (int c = 0; c < COLS; c++) dot += D[a * COLS + c] * D[b * COLS + c];
            if (a == b) assert_true(dot > 0.4 && dot < 1.6);
            else assert_true(fabs(dot) < 0.4);
        }
    rule_free(&r);
}

static void test_tall_is_transposed_wide(void **state) {
    (void)state;
    struct rule wide, tall;
    rule_init(&wide, "muon");
    rule_init(&tall, "muon");
    tall.tensors[0].rows = COLS, tall.tensors[0].cols = ROWS;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++) tall.grad[j * ROWS + i] = wide.grad[i * COLS + j];
    double W[MATRIX], T[MATRIX];
    direction(&wide, W);
    direction(&tall, T);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++) assert_true(fabs(W[i * COLS + j] - T[j * ROWS + i]) < 1e-3);
    rule_free(&wide);
    rule_free(&tall);
}

static void test_scale_does_not_matter(void **state) {
    (void)state;
    struct rule a, b;
    rule_init(&a, "muon");
    rule_init(&b, "muon");
    for (int i = 0; i < ALL; i++) b.grad[i] *= 1000;
    double A[MATRIX], B[MATRIX];
    direction(&a, A);
    direction(&b, B);
    for (int i = 0; i < MATRIX; i++) assert_true(fabs(A[i] - B[i]) < 2e-3);
    rule_free(&a);
    rule_free(&b);
}

static void test_vectors_follow_adamw(void **state) {
    (void)state;
    struct rule muon, adamw;
    rule_init(&muon, "muon");
    rule_init(&adamw, "adamw");
    for (int64_t step = 1; step <= 3; step++) {
        rule_step(&muon, step, 0.01, 1.0f, 0, ALL);
        rule_step(&adamw, step, 0.01, 1.0f, 0, ALL);
    }
    assert_memory_equal(muon.master + MATRIX, adamw.master + MATRIX, VECTOR * sizeof(float));
    assert_true(muon.optimizer->whole_matrices);
    rule_free(&muon);
    rule_free(&adamw);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orthogonal), cmocka_unit_test(test_tall_is_transposed_wide),
        cmocka_unit_test(test_scale_does_not_matter), cmocka_unit_test(test_vectors_follow_adamw)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
