/* hl_memory_plan against what a trainer takes, counted: the sum for several configurations, each
 * class by what changes when one option does; sizes that overflow; the check against a machine's
 * memory. */
#include "support/trainer_fixture.h"

#include "os/memory.h"
#include "train/plan.h"

struct counter {
    struct hl_mem mem;
    size_t now, most;
    long n;
};

static void *take(struct hl_mem *mem, size_t bytes) {
    struct counter *c = mem->context;
    void *data = hl_mem_default()->take(hl_mem_default(), bytes);
    if (!data) return NULL;
    c->now += bytes;
    c->n++;
    if (c->now > c->most) c->most = c->now;
    return data;
}

static void give(struct hl_mem *mem, void *data, size_t bytes) {
    struct counter *c = mem->context;
    c->now -= bytes;
    hl_mem_default()->give(hl_mem_default(), data, bytes);
}

/* Bytes of a trainer, loaders' batches left out (the plan calls those data); steps and evaluations
 * hardly take more. */
static size_t taken(struct world *w, const struct hl_memory_plan *plan) {
    struct counter c = {0};
    c.mem = (struct hl_mem){.take = take, .give = give, .context = &c};
    struct hl_trainer *t;
    struct hl_step_report report;
    struct hl_diag diag = {0};
    double loss;
    int64_t n;
    if (hl_trainer_new(&c.mem, &w->setup, &t, &diag) != HL_OK) fail_msg("%s", diag.text);
    size_t made = c.now;
    for (int i = 0; i < 2; i++) assert_int_equal(hl_trainer_step(t, &report, &diag), HL_OK);
    assert_int_equal(hl_trainer_evaluate(t, &loss, &n, &diag), HL_OK);
    assert_true(c.most - made < 2 << 20); /* what the products pack into */
    int64_t rows = w->train.per_device_train_batch_size;
    int64_t eval_rows =
        w->train.per_device_eval_batch_size ? w->train.per_device_eval_batch_size : rows;
    size_t tables = (size_t)t->model->layout.n_tensors * sizeof(struct hl_tensor) + sizeof *t;
    made -= (size_t)(rows + eval_rows) * (size_t)w->setup.block_size * 20;
    uint64_t told = plan->total - plan->base;
    /* descriptions and headers of blocks */
    if (made < told || made > told + tables + 16384)
        fail_msg("%s bf16 %d: planned %llu, taken %zu", w->train.optim, w->train.bf16,
                 (unsigned long long)told, made);
    hl_trainer_free(t);
    assert_int_equal(c.now, 0);
    return made;
}

static struct hl_memory_plan planned(struct world *w) {
    struct hl_memory_plan plan;
    struct hl_diag diag = {0};
    if (hl_memory_plan(hl_mem_default(), &w->setup, &plan, &diag) != HL_OK)
        fail_msg("%s", diag.text);
    assert_true(plan.total == plan.parameters + plan.gradients + plan.optimizer + plan.activations +
                                  plan.buffers + plan.base);
    return plan;
}

static void larger_model(struct world *w) {
    w->model.hidden_size = 64;
    w->model.intermediate_size = 160;
    w->model.num_hidden_layers = 4;
}

static void test_sum(void **state) {
    (void)state;
    for (int i = 0; i < 9; i++) {
        struct world w;
        static const char *const optimizers[] = {"adamw", "sgd", "lion", "muon"};
        open_world(&w, optimizers[i % 4]);
        larger_model(&w);
        if (i & 1) w.train.bf16 = true;
        if (i & 2) w.train.gradient_checkpointing = true;
        if (i == 4) w.train.per_device_eval_batch_size = 8;
        if (i == 5) w.train.per_device_eval_batch_size = 1;
        if (i == 6) w.model.family = HL_FAMILY_GPT2;
        if (i == 7)
            w.model.qk_norm = true, w.model.num_key_value_heads = 1,
            w.model.tie_word_embeddings = false;
        if (i == 8) set_word(&w, "gradient_checkpointing_layers", "1,3");
        struct hl_memory_plan plan = planned(&w);
        (void)taken(&w, &plan);
        close_world(&w);
    }
}

/* But for the header of a block. */
static void assert_near(uint64_t a, uint64_t b) { assert_true(a + 256 > b && b + 256 > a); }

/* One option at a time: the class it belongs to changes, the others do not, and the bytes taken
 * change by as much. */
static void test_classes(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "adamw");
    larger_model(&w);
    struct hl_memory_plan whole = planned(&w);
    size_t whole_taken = taken(&w, &whole);
    uint64_t floats = 4 * (whole.parameters / 4);
    assert_true(whole.gradients == floats && whole.optimizer == 2 * floats);

    set_word(&w, "optim", "sgd");
    struct hl_memory_plan one = planned(&w);
    assert_true(one.optimizer == floats && one.parameters == floats && one.gradients == floats);
    assert_true(one.activations == whole.activations && one.buffers == whole.buffers);
    assert_near(whole_taken - taken(&w, &one), floats);

    set_word(&w, "optim", "adamw");
    w.train.gradient_checkpointing = true;
    one = planned(&w);
    /* the one layer slot that is left is a buffer */
    assert_true(one.activations < whole.activations && one.buffers >= whole.buffers &&
                one.optimizer == whole.optimizer);
    assert_near(whole_taken - taken(&w, &one),
                whole.activations + whole.buffers - one.activations - one.buffers);

    w.train.gradient_checkpointing = false;
    w.train.bf16 = true;
    one = planned(&w);
    assert_true(one.parameters == floats / 4 * 6 && one.gradients == floats &&
                one.activations < whole.activations);
    close_world(&w);
}

/* The batch of an evaluation is larger than one of training: the run must have room for it. */
static void test_larger_evaluation_batch(void **state) {
    (void)state;
    double losses[4];
    static const int64_t rows[4] = {0, 1, 7, 50};
    for (int i = 0; i < 4; i++) {
        struct world w;
        open_world(&w, "adamw");
        w.train.per_device_eval_batch_size = rows[i];
        struct hl_trainer *t = new_trainer(&w);
        struct hl_diag diag = {0};
        int64_t n;
        assert_int_equal(hl_trainer_evaluate(t, &losses[i], &n, &diag), HL_OK);
        assert_true(fabs(losses[i] - losses[0]) < 1e-6);
        hl_trainer_free(t);
        close_world(&w);
    }
}

static void test_too_large(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "adamw");
    struct hl_memory_plan plan;
    struct hl_diag diag = {0};
    w.train.per_device_train_batch_size = 10000000;
    w.setup.block_size = 16777216;
    w.model.max_position_embeddings = 16777216;
    w.model.intermediate_size = 1 << 28;
    assert_int_equal(hl_memory_plan(hl_mem_default(), &w.setup, &plan, &diag), HL_E_MEMORY);
    assert_non_null(strstr(diag.text, "address space"));
    close_world(&w);
}

static int n_warnings;
static void note(struct hl_log *log, enum hl_log_level level, const char *text) {
    (void)log;
    n_warnings += level == HL_LOG_WARN && strstr(text, "plan --memory") != NULL;
}

static void test_check(void **state) {
    (void)state;
    struct world w;
    struct hl_log log = {.line = note, .least = HL_LOG_INFO};
    struct hl_diag diag = {0};
    open_world(&w, "adamw");
    w.setup.log = &log;
    struct hl_memory machine = {.total_bytes = 1ull << 40, .available_bytes = 1ull << 40};
    assert_int_equal(hl_memory_check(hl_mem_default(), &w.setup, &machine, &diag), HL_OK);
    assert_int_equal(n_warnings, 0);
    machine.available_bytes = 1;
    assert_int_equal(hl_memory_check(hl_mem_default(), &w.setup, &machine, &diag), HL_OK);
    assert_int_equal(n_warnings, 1);
    machine.limit_bytes = 1000; /* of a control group */
    assert_int_equal(hl_memory_check(hl_mem_default(), &w.setup, &machine, &diag), HL_E_MEMORY);
    assert_non_null(strstr(diag.text, "gradient_checkpointing"));
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_larger_evaluation_batch),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
