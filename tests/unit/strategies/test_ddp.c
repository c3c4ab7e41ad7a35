/* ddp: with one rank it is `single`, to the bit; records are allocated cleanly; it takes muon. What
 * several ranks do is in tests/suites. */
#include "support/trainer_fixture.h"

#include "strategies/data_parallel.h"

static void run(struct world *w, const char *strategy, float **params_out, double *norm_out) {
    set_word(w, "strategy", strategy);
    struct hl_trainer *t = new_trainer(w);
    struct hl_step_report report;
    struct hl_diag diag = {0};
    for (int i = 0; i < 4; i++) assert_int_equal(hl_trainer_step(t, &report, &diag), HL_OK);
    size_t bytes = (size_t)t->model->layout.n_parameters * sizeof(float);
    *params_out = malloc(bytes);
    memcpy(*params_out, hl_trainer_params(t), bytes);
    *norm_out = report.grad_norm;
    hl_trainer_free(t);
}

static void test_one_rank_is_single(void **state) {
    static const char *const optimizers[] = {"adamw", "muon"};
    (void)state;
    for (int o = 0; o < 2; o++) {
        struct world w;
        float *a, *b;
        double norm_a, norm_b;
        open_world(&w, optimizers[o]);
        run(&w, "single", &a, &norm_a);
        run(&w, "ddp", &b, &norm_b);
        struct hl_trainer *t = new_trainer(&w);
        assert_memory_equal(a, b, (size_t)t->model->layout.n_parameters * sizeof *a);
        assert_true(norm_a == norm_b);
        hl_trainer_free(t);
        free(a);
        free(b);
        close_world(&w);
    }
}

static void test_memory_short(void **state) {
    struct world w;
    (void)state;
    open_world(&w, "muon");
    set_word(&w, "strategy", "ddp");
    for (long k = 1;; k++) {
        struct hl_mem_probe probe;
        struct hl_trainer *t = NULL;
        struct hl_diag diag = {0};
        hl_mem_probe_init(&probe, k);
        enum hl_status status = hl_trainer_new(&probe.mem, &w.setup, &t, &diag);
        hl_trainer_free(t);
        assert_int_equal(probe.n_live, 0);
        if (status == HL_OK) break;
        assert_int_equal(status, HL_E_MEMORY);
    }
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank_is_single),
        cmocka_unit_test(test_memory_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
