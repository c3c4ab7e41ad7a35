/* The trainer: same seed same bits, for any number of threads; resume after every step gives the
 * bits of the run that never stopped; micro-batches of unequal numbers of tokens give the gradient
 * of the one big batch; what is not finite is not applied; every allocation may fail. */
#include "support/trainer_fixture.h"

static struct hl_step_report step(struct hl_trainer *t) {
    struct hl_step_report r;
    struct hl_diag diag = {0};
    if (hl_trainer_step(t, &r, &diag) != HL_OK) fail_msg("%s", diag.text);
    return r;
}

static size_t bytes_of(struct hl_trainer *t) {
    return (size_t)hl_trainer_model(t)->layout.n_parameters * sizeof(float);
}

static const float *slot(struct hl_trainer *t, enum hl_buffer buffer) {
    return hl_engine_data(t->engine, buffer, hl_layout_all(&t->model->layout));
}

static void assert_same_state(struct hl_trainer *a, struct hl_trainer *b) {
    assert_memory_equal(hl_trainer_params(a), hl_trainer_params(b), bytes_of(a));
    for (int s = 0; s < a->optimizer->n_slots; s++)
        assert_memory_equal(slot(a, (enum hl_buffer)(HL_BUFFER_SLOT0 + s)),
                            slot(b, (enum hl_buffer)(HL_BUFFER_SLOT0 + s)), bytes_of(a));
    assert_int_equal(a->rows_taken, b->rows_taken);
    assert_int_equal(a->tokens_seen, b->tokens_seen);
}

static bool same_report(const struct hl_step_report *a, const struct hl_step_report *b) {
    return a->step == b->step && a->loss == b->loss && a->grad_norm == b->grad_norm &&
           a->learning_rate == b->learning_rate && a->n_supervised == b->n_supervised &&
           a->epoch == b->epoch;
}

static void test_resume_after_every_step(void **state) {
    (void)state;
    static const char *const optimizers[] = {"adamw", "sgd", "lion", "muon"};
    for (size_t o = 0; o < 4; o++) {
        struct world w;
        struct hl_diag diag = {0};
        open_world(&w, optimizers[o]);
        w.train.bf16 = o % 2 == 0;
        struct hl_trainer *straight = new_trainer(&w), *saving = new_trainer(&w);
        struct hl_step_report reports[6];
        for (int i = 0; i < 6; i++) reports[i] = step(straight);
        for (int at = 0; at <= 6; at++) {
            /* saved after `at` steps by a run that evaluates and saves each step, resumed by
             * another */
            double loss;
            int64_t n;
            if (hl_trainer_save(saving, w.folder, NULL, NULL, &diag) != HL_OK)
                fail_msg("%s", diag.text);
            assert_int_equal(hl_trainer_evaluate(saving, &loss, &n, &diag), HL_OK);
            char path[128];
            (void)snprintf(path, sizeof path, "%s/checkpoint-%d", w.folder, at);
            struct hl_trainer *again = new_trainer(&w);
            if (hl_trainer_resume(again, path, &diag) != HL_OK) fail_msg("%s", diag.text);
            for (int i = at; i < 6; i++) {
                struct hl_step_report r = step(again);
                assert_true(same_report(&r, &reports[i]));
            }
            assert_same_state(straight, again);
            hl_trainer_free(again);
            if (at < 6) step(saving);
        }
        struct hl_step_report r;
        assert_int_equal(hl_trainer_step(straight, &r, &diag), HL_END);
        assert_same_state(straight, saving);
        hl_trainer_free(straight);
        hl_trainer_free(saving);
        close_world(&w);
    }
}

static void test_resume_refuses_other_runs(void **state) {
    (void)state;
    struct world w;
    struct hl_diag diag = {0};
    open_world(&w, "adamw");
    struct hl_trainer *t = new_trainer(&w);
    assert_int_equal(hl_trainer_save(t, w.folder, NULL, NULL, &diag), HL_OK);
    hl_trainer_free(t);
    char path[128];
    (void)snprintf(path, sizeof path, "%s/checkpoint-0", w.folder);
    for (int change = 0; change < 3; change++) {
        struct world other;
        open_world(&other, change == 0 ? "lion" : "adamw");
        if (change == 1) other.setup.seed = 6;
        if (change == 2) other.setup.block_size = 12, other.model.hidden_size = 32;
        t = new_trainer(&other);
        assert_int_equal(hl_trainer_resume(t, path, &diag), HL_E_USER);
        assert_non_null(strstr(diag.text, change == 0   ? "optimizer 'adamw'"
                                          : change == 1 ? "seed 5"
                                                        : "block_size 24"));
        assert_non_null(strstr(diag.text, "--model"));
        hl_trainer_free(t);
        close_world(&other);
    }
    close_world(&w);
}

static void test_same_bits_for_any_threads(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "adamw");
    struct hl_trainer *one = new_trainer(&w);
    struct hl_step_report reports[6];
    for (int i = 0; i < 6; i++) reports[i] = step(one);
    struct world two;
    open_world(&two, "adamw");
    two.train.threads = 2;
    struct hl_trainer *other = new_trainer(&two);
    for (int i = 0; i < 6; i++) {
        struct hl_step_report r = step(other);
        assert_true(same_report(&r, &reports[i]));
    }
    assert_same_state(one, other);
    hl_trainer_free(one);
    hl_trainer_free(other);
    close_world(&w);
    close_world(&two);
}

/* 12 rows as 1 x 12, 4 x 3 and 12 x 1: supervised tokens per micro-batch differ, the gradient does
 * not. */
static void test_accumulation_is_the_big_batch(void **state) {
    (void)state;
    double norms[3], losses[3];
    float *params[3];
    for (int i = 0; i < 3; i++) {
        struct world w;
        open_world(&w, "sgd");
        static const int64_t rows[3] = {12, 3, 1};
        w.train.per_device_train_batch_size = rows[i];
        w.train.gradient_accumulation_steps = 12 / rows[i];
        struct hl_trainer *t = new_trainer(&w);
        struct hl_step_report r = step(t);
        norms[i] = r.grad_norm;
        losses[i] = r.loss;
        params[i] = hl_alloc(hl_mem_default(), bytes_of(t), 1);
        memcpy(params[i], hl_trainer_params(t), bytes_of(t));
        if (i) {
            assert_true(fabs(norms[i] - norms[0]) < 1e-6 * norms[0]);
            assert_true(fabs(losses[i] - losses[0]) < 1e-6 * losses[0]);
            for (int64_t k = 0; k < t->model->layout.n_parameters; k++)
                assert_true(fabsf(params[i][k] - params[0][k]) <=
                            1e-6f * (fabsf(params[0][k]) + 0.02f));
        }
        hl_trainer_free(t);
        close_world(&w);
    }
    for (int i = 0; i < 3; i++) hl_free(hl_mem_default(), params[i]);
}

/* num_train_epochs: every row once, the last step takes what is left, steps and rate agree. */
static void test_epoch_takes_every_row(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "adamw");
    w.train.max_steps = -1;
    w.train.num_train_epochs = 1;
    struct hl_trainer *t = new_trainer(&w);
    int64_t rows = hl_dataset_n_rows(w.dataset, HL_SPLIT_TRAIN), steps = hl_trainer_n_steps(t);
    assert_true(rows % 6 != 0); /* otherwise this tests nothing */
    assert_int_equal(steps, (rows + 5) / 6);
    struct hl_step_report r = {0};
    for (int64_t i = 0; i < steps; i++) r = step(t);
    assert_int_equal(t->rows_taken, rows);
    assert_true(r.epoch == 1.0);
    struct hl_diag diag;
    assert_int_equal(hl_trainer_step(t, &r, &diag), HL_END);
    hl_trainer_free(t);
    close_world(&w);
}

static void test_what_is_not_finite_is_not_applied(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "adamw");
    for (int where = 0; where < 2; where++) {
        struct hl_trainer *t = new_trainer(&w);
        step(t);
        const struct hl_tensor *tensor =
            hl_model_tensor(t->model, "model.layers.1.mlp.up_proj.weight");
        assert_non_null(tensor);
        /* a weight that is no number shows in the loss; one that is too large shows in the gradient
         */
        hl_trainer_params(t)[tensor->offset] = where ? 3e38f : NAN;
        hl_trainer_params_changed(t);
        float *before = hl_alloc(hl_mem_default(), bytes_of(t), 1);
        memcpy(before, hl_trainer_params(t), bytes_of(t));
        struct hl_step_report r;
        struct hl_diag diag = {0};
        assert_int_equal(hl_trainer_step(t, &r, &diag), HL_E_NUMERIC);
        assert_non_null(strstr(diag.text, "step 2"));
        assert_non_null(strstr(diag.text, where ? "began in" : "layer 1"));
        assert_memory_equal(before, hl_trainer_params(t), bytes_of(t));
        assert_int_equal(hl_trainer_step_index(t), 1);
        hl_free(hl_mem_default(), before);
        hl_trainer_free(t);
    }
    close_world(&w);
}

static void test_allocations_fail_cleanly(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "muon");
    for (long k = 1;; k++) {
        struct hl_mem_probe probe;
        hl_mem_probe_init(&probe, k);
        struct hl_trainer *t;
        struct hl_diag diag = {0};
        enum hl_status status = hl_trainer_new(&probe.mem, &w.setup, &t, &diag);
        if (status == HL_OK) {
            hl_trainer_free(t);
            assert_int_equal(probe.n_live, 0);
            assert_true(k > 10);
            break;
        }
        assert_int_equal(status, HL_E_MEMORY);
        assert_int_equal(probe.n_live, 0);
    }
    close_world(&w);
}

static void test_steady_steps_do_not_allocate(void **state) {
    (void)state;
    struct world w;
    struct hl_mem_probe probe;
    struct hl_diag diag = {0};
    struct hl_trainer *t;
    open_world(&w, "adamw");
    hl_mem_probe_init(&probe, 0);
    assert_int_equal(hl_trainer_new(&probe.mem, &w.setup, &t, &diag), HL_OK);
    for (int i = 0; i < 3; i++) step(t);
    long before = probe.n_taken;
    for (int i = 0; i < 3; i++) step(t);
    assert_int_equal(probe.n_taken, before);
    hl_trainer_free(t);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume_after_every_step),
        cmocka_unit_test(test_resume_refuses_other_runs),
        cmocka_unit_test(test_same_bits_for_any_threads),
        cmocka_unit_test(test_accumulation_is_the_big_batch),
        cmocka_unit_test(test_epoch_takes_every_row),
        cmocka_unit_test(test_what_is_not_finite_is_not_applied),
        cmocka_unit_test(test_allocations_fail_cleanly),
        cmocka_unit_test(test_steady_steps_do_not_allocate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
