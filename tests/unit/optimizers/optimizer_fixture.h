/* A layout of one matrix and one vector, and one call that updates both; for tests of update rules.
 */
#ifndef HALLEY_TESTS_OPTIMIZER_FIXTURE_H
#define HALLEY_TESTS_OPTIMIZER_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "halley/rng.h"
#include "optimizers/optimizers.h"

enum { ROWS = 6, COLS = 10, MATRIX = ROWS * COLS, VECTOR = 12, ALL = MATRIX + VECTOR };

struct rule {
    struct hl_tensor tensors[2];
    struct hl_range block;
    struct hl_layout layout;
    const struct hl_kernels *kernels;
    struct hl_products *products;
    struct hl_optimizer_options options;
    const struct hl_optimizer *optimizer;
    float grad[ALL], master[ALL], slots[2][ALL], scratch[1000];
    struct hl_bf16 copy[ALL];
};

static void rule_init(struct rule *r, const char *name) {
    struct hl_diag diag;
    memset(r, 0, sizeof *r);
    r->tensors[0] = (struct hl_tensor){.name = "w",
                                       .n = MATRIX,
                                       .rows = ROWS,
                                       .cols = COLS,
                                       .padded_rows = ROWS,
                                       .n_dims = 2,
                                       .decay = true,
                                       .hidden_matrix = true};
    r->tensors[1] = (struct hl_tensor){.name = "b",
                                       .offset = MATRIX,
                                       .n = VECTOR,
                                       .rows = 1,
                                       .cols = VECTOR,
                                       .padded_rows = 1,
                                       .n_dims = 1};
    r->block = (struct hl_range){0, ALL};
    r->layout = (struct hl_layout){.n_parameters = ALL,
                                   .n_weights = ALL,
                                   .n_blocks = 1,
                                   .blocks = &r->block,
                                   .n_tensors = 2,
                                   .tensors = r->tensors};
    r->options = (struct hl_optimizer_options){.weight_decay = 0.1,
                                               .adam_beta1 = 0.9,
                                               .adam_beta2 = 0.95,
                                               .adam_epsilon = 1e-8,
                                               .momentum = 0.9,
                                               .lion_beta1 = 0.9,
                                               .lion_beta2 = 0.99,
                                               .muon_momentum = 0.95,
                                               .muon_steps = 5};
    assert_int_equal(hl_kernels_get(HL_F32, &r->kernels, &diag), HL_OK);
    assert_int_equal(hl_products_new(hl_mem_default(), &r->products, &diag), HL_OK);
    assert_int_equal(hl_optimizer_find(name, &r->optimizer, &diag), HL_OK);
    assert_true(hl_optimizer_scratch(r->optimizer, &r->layout) <= 1000);
    for (uint64_t i = 0; i < ALL; i++) {
        r->master[i] = (float)hl_rng_normal(1, HL_RNG_INIT, i);
        r->grad[i] = (float)hl_rng_normal(2, HL_RNG_INIT, i);
    }
}

static void rule_free(struct rule *r) { hl_products_free(r->products); }

/* Apply to [first, first + n), as a shard would. */
static void rule_step(struct rule *r, int64_t step, double lr, float scale, int64_t first,
                      int64_t n) {
    struct hl_diag diag;
    struct hl_update common = {.kernels = r->kernels,
                               .options = &r->options,
                               .step = step,
                               .learning_rate = lr,
                               .grad_scale = scale,
                               .grad = r->grad + first,
                               .master = r->master + first,
                               .slots = {r->slots[0] + first, r->slots[1] + first},
                               .copy = r->copy + first,
                               .products = r->products,
                               .scratch = r->scratch};
    assert_int_equal(
        hl_optimizer_apply(r->optimizer, &common, &r->layout, (struct hl_range){first, n}, &diag),
        HL_OK);
}

/* The same bits whether the range is updated whole or cut in three. */
static inline void rule_check_cuts(const char *name) {
    struct rule whole, cut;
    rule_init(&whole, name);
    rule_init(&cut, name);
    for (int64_t step = 1; step <= 3; step++) {
        rule_step(&whole, step, 0.01, 0.5f, 0, ALL);
        rule_step(&cut, step, 0.01, 0.5f, 0, 7);
        rule_step(&cut, step, 0.01, 0.5f, 7, MATRIX - 5);
        rule_step(&cut, step, 0.01, 0.5f, MATRIX + 2, VECTOR - 2);
    }
    assert_memory_equal(whole.master, cut.master, sizeof whole.master);
    assert_memory_equal(whole.slots, cut.slots, sizeof whole.slots);
    assert_memory_equal(whole.copy, cut.copy, sizeof whole.copy);
    rule_free(&whole);
    rule_free(&cut);
}

static inline void rule_check_near(double got, double want) {
    if (fabs(got - want) > 1e-6 * (1 + fabs(want))) fail_msg("%g, expected %g", got, want);
}

#endif
