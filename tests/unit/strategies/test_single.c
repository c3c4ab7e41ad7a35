/* single: token-weighted mean, clipping by the global norm reported before it, refusal of bad
 * gradients with the block in which backward met them first, refusal of several ranks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "halley/model.h"
#include "memory/engine.h"
#include "strategies/update.h"

struct world {
    struct hl_model *model;
    struct hl_strategy_env env;
    struct hl_optimizer_options options;
    const struct hl_strategy *strategy;
    void *state;
    float *grad, *master;
};

static void open_world(struct world *w, struct hl_mem *mem) {
    struct hl_diag diag;
    struct hl_model_config c = {.family = HL_FAMILY_LLAMA,
                                .vocab_size = 64,
                                .hidden_size = 16,
                                .num_hidden_layers = 2,
                                .num_attention_heads = 2,
                                .intermediate_size = 24,
                                .max_position_embeddings = 8,
                                .tie_word_embeddings = true};
    memset(w, 0, sizeof *w);
    w->options = (struct hl_optimizer_options){.momentum = 0};
    assert_int_equal(hl_model_new(mem, &c, &w->model, &diag), HL_OK);
    w->env = (struct hl_strategy_env){
        .mem = mem, .layout = &w->model->layout, .optimizer_options = &w->options, .n_ranks = 1};
    assert_int_equal(hl_kernels_get(HL_F32, &w->env.kernels, &diag), HL_OK);
    assert_int_equal(hl_optimizer_find("sgd", &w->env.optimizer, &diag), HL_OK);
    struct hl_engine_shape shape = {.train = true, .n_slots = 1};
    assert_int_equal(hl_engine_new(mem, &w->model->layout, &shape, &w->env.engine, &diag), HL_OK);
    assert_int_equal(hl_strategy_find("single", &w->strategy, &diag), HL_OK);
    assert_int_equal(w->strategy->check(&w->env, &diag), HL_OK);
    assert_int_equal(w->strategy->init(&w->env, &w->state, &diag), HL_OK);
    w->grad = hl_engine_data(w->env.engine, HL_BUFFER_GRAD, hl_layout_all(&w->model->layout));
    w->master = hl_engine_data(w->env.engine, HL_BUFFER_MASTER, hl_layout_all(&w->model->layout));
}

static void close_world(struct world *w) {
    w->strategy->fini(w->state);
    hl_engine_free(w->env.engine);
    hl_model_free(w->model);
}

static struct hl_step_result end_step(struct world *w, int64_t n, double clip) {
    struct hl_diag diag;
    struct hl_step step = {
        .index = 0, .n_supervised = n, .learning_rate = 1, .max_grad_norm = clip};
    struct hl_step_result result;
    for (int b = w->model->layout.n_blocks - 1; b >= 0; b--)
        assert_int_equal(w->strategy->grad_ready(w->state, b, true, &diag), HL_OK);
    assert_int_equal(w->strategy->step_end(w->state, &step, &result, &diag), HL_OK);
    return result;
}

static void test_mean_and_clip(void **state) {
    (void)state;
    for (int clipped = 0; clipped < 2; clipped++) {
        struct world w;
        open_world(&w, hl_mem_default());
        w.grad[5] = 30;
        w.grad[w.model->layout.blocks[2].offset] = -40;
        struct hl_step_result r = end_step(&w, 10, clipped ? 1.0 : 0.0);
        assert_true(r.applied && r.bad_block == -1);
        assert_true(fabs(r.grad_norm - 5) < 1e-12); /* |(3, -4)|, before clipping */
        float factor = clipped ? 0.2f : 1.0f;
        assert_true(fabsf(w.master[5] + 3 * factor) < 1e-6f);
        assert_true(fabsf(w.master[w.model->layout.blocks[2].offset] - 4 * factor) < 1e-6f);
        close_world(&w);
    }
}

static void test_bad_gradient(void **state) {
    (void)state;
    struct world w;
    open_world(&w, hl_mem_default());
    w.grad[w.model->layout.blocks[1].offset + 3] = INFINITY;
    w.grad[w.model->layout.blocks[2].offset + 3] = NAN;
    w.grad[0] = 1;
    struct hl_step_result r = end_step(&w, 10, 1);
    assert_false(r.applied);
    assert_int_equal(r.bad_block, 2); /* backward comes to it before block 1 */
    assert_true(isnan(r.grad_norm) || isinf(r.grad_norm));
    for (int64_t i = 0; i < w.model->layout.n_parameters; i++) assert_true(w.master[i] == 0);
    close_world(&w);
}

static void test_ranks(void **state) {
    (void)state;
    struct world w;
    struct hl_diag diag;
    open_world(&w, hl_mem_default());
    w.env.n_ranks = 2;
    assert_int_equal(w.strategy->check(&w.env, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "--strategy"));
    close_world(&w);
}

static void test_allocations(void **state) {
    (void)state;
    struct world w;
    struct hl_diag diag;
    open_world(&w, hl_mem_default());
    for (long k = 1; k <= 3; k++) {
        struct hl_mem_probe probe;
        hl_mem_probe_init(&probe, k);
        struct hl_strategy_env env = w.env;
        env.mem = &probe.mem;
        assert_int_equal(hl_optimizer_find("muon", &env.optimizer, &diag), HL_OK);
        void *state_out = NULL;
        assert_int_equal(w.strategy->init(&env, &state_out, &diag), HL_E_MEMORY);
        assert_null(state_out);
        assert_int_equal(probe.n_live, 0);
    }
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean_and_clip), cmocka_unit_test(test_bad_gradient),
        cmocka_unit_test(test_ranks), cmocka_unit_test(test_allocations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
