/* The loop keeps the strategy's contract: slots in the order of the schedule, "not yet" means poll
 * and ask again, micro_end decides how long a step is, outer rounds after the steps that are due,
 * drain before evaluation and checkpoints, a clock. */
#include "support/trainer_fixture.h"

/* Spells what it is told, and does the work of `single`. */
struct spy {
    const struct hl_strategy *single;
    void *inner;
    char told[4096];
    size_t n;
    int pending, left, polls; /* how often each slot says "not yet", how often this one will; how
                                 often poll was asked */
    int micro_of_step;        /* answer STEP after so many micro-batches; 0: as planned */
    int n_planned;
    enum hl_status poll_fails; /* HL_OK: it does not */
};
static struct spy spy;

static void note(const char *format, ...) HL_PRINTF(1, 2);
static void note(const char *format, ...) {
    va_list args;
    va_start(args, format);
    spy.n += (size_t)vsnprintf(spy.told + spy.n, sizeof spy.told - spy.n, format, args);
    va_end(args);
    assert_true(spy.n < sizeof spy.told);
}

/* Every slot first says "not yet" as often as wanted. */
static bool not_yet(void) {
    if (spy.left == 0) return spy.left = spy.pending, false;
    return spy.left--, true;
}

static enum hl_status step_begin(void *state, const struct hl_step *step, struct hl_diag *diag) {
    (void)state, (void)diag;
    if (not_yet()) return HL_PENDING;
    return note("S%d ", (int)step->index), HL_OK;
}
static enum hl_status block_enter(void *state, int block, bool backward, struct hl_diag *diag) {
    (void)state, (void)diag;
    if (not_yet()) return HL_PENDING;
    return note("%s%d", backward ? "b" : "f", block), HL_OK;
}
static enum hl_status block_exit(void *state, int block, bool backward, struct hl_diag *diag) {
    (void)state, (void)block, (void)backward, (void)diag;
    if (not_yet()) return HL_PENDING;
    return note(" "), HL_OK;
}
static enum hl_status grad_ready(void *state, int block, bool last_micro, struct hl_diag *diag) {
    (void)state;
    if (not_yet()) return HL_PENDING;
    note("%s", last_micro ? "G" : "g");
    return spy.single->grad_ready(spy.inner, block, true, diag);
}
static enum hl_status micro_end(void *state, int micro, int64_t n_supervised,
                                enum hl_micro_answer *answer, struct hl_diag *diag) {
    (void)state, (void)diag;
    if (not_yet()) return HL_PENDING;
    assert_true(n_supervised > 0);
    int most = spy.micro_of_step ? spy.micro_of_step : spy.n_planned;
    *answer = micro + 1 >= most ? HL_MICRO_STEP : micro % 2 ? HL_MICRO_ROUND : HL_MICRO_MORE;
    return note("m%d ", micro), HL_OK;
}
static enum hl_status step_end(void *state, const struct hl_step *step, struct hl_step_result *out,
                               struct hl_diag *diag) {
    (void)state;
    if (not_yet()) return HL_PENDING;
    note("E ");
    return spy.single->step_end(spy.inner, step, out, diag);
}
static bool sync_due(void *state, int64_t step) { return (void)state, step % 2 == 0; }
static enum hl_status sync_outer(void *state, struct hl_diag *diag) {
    (void)state, (void)diag;
    if (not_yet()) return HL_PENDING;
    return note("sync "), HL_OK;
}
static enum hl_status poll(void *state, struct hl_diag *diag) {
    (void)state;
    spy.polls++;
    if (spy.poll_fails) return hl_fail(diag, spy.poll_fails, "rank 3 is gone");
    return spy.polls % 2 ? HL_PENDING : HL_OK;
}
static enum hl_status drain(void *state, struct hl_diag *diag) {
    (void)state, (void)diag;
    if (not_yet()) return HL_PENDING;
    return note("drain "), HL_OK;
}

static const struct hl_strategy strategy = {.name = "spy",
                                            .step_begin = step_begin,
                                            .block_enter = block_enter,
                                            .block_exit = block_exit,
                                            .grad_ready = grad_ready,
                                            .micro_end = micro_end,
                                            .step_end = step_end,
                                            .sync_due = sync_due,
                                            .sync = sync_outer,
                                            .poll = poll,
                                            .drain = drain};

static struct hl_trainer *spied(struct world *w) {
    struct hl_trainer *t = new_trainer(w);
    spy = (struct spy){.single = t->strategy,
                       .inner = t->strategy_state,
                       .n_planned = (int)w->train.gradient_accumulation_steps};
    t->strategy = &strategy;
    return t;
}

static void free_spied(struct hl_trainer *t) {
    t->strategy = spy.single;
    hl_trainer_free(t);
}

static struct hl_step_report step(struct hl_trainer *t) {
    struct hl_step_report r;
    struct hl_diag diag = {0};
    spy.n = 0;
    if (hl_trainer_step(t, &r, &diag) != HL_OK) fail_msg("%s", diag.text);
    return r;
}

static void test_order(void **state) {
    (void)state;
    struct world w;
    struct hl_diag diag = {0};
    open_world(&w, "adamw");
    w.train.gradient_accumulation_steps = 2;
    set_word(&w, "gradient_checkpointing_layers", "1");
    struct hl_trainer *t = spied(&w);
    step(t);
    assert_string_equal(
        spy.told, "S0 f0 f1 f2 f3 b3g b2 b2g b1g b0g m0 f0 f1 f2 f3 b3G b2 b2G b1G b0G m1 E ");
    step(t);
    assert_string_equal(
        spy.told, "S1 f0 f1 f2 f3 b3g b2 b2g b1g b0g m0 f0 f1 f2 f3 b3G b2 b2G b1G b0G m1 E sync ");
    double loss;
    int64_t n;
    spy.n = 0;
    assert_int_equal(hl_trainer_evaluate(t, &loss, &n, &diag), HL_OK);
    assert_string_equal(spy.told, "drain f0 f1 f2 f3 f0 f1 f2 f3 f0 f1 f2 f3 ");
    spy.n = 0;
    if (hl_trainer_save(t, w.folder, NULL, NULL, &diag) != HL_OK) fail_msg("%s", diag.text);
    assert_string_equal(spy.told, "drain ");
    assert_int_equal(spy.polls, 0);
    free_spied(t);
    close_world(&w);
}

/* Slots that are not ready change nothing but time. */
static void test_not_yet(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "adamw");
    struct hl_trainer *plain = spied(&w);
    struct hl_step_report a[3], b;
    char told[3][4096];
    for (int i = 0; i < 3; i++) {
        a[i] = step(plain);
        memcpy(told[i], spy.told, sizeof spy.told);
    }
    free_spied(plain);
    struct hl_trainer *slow = spied(&w);
    spy.pending = spy.left = 2;
    for (int i = 0; i < 3; i++) {
        b = step(slow);
        assert_string_equal(spy.told, told[i]);
        assert_true(b.loss == a[i].loss && b.grad_norm == a[i].grad_norm);
    }
    assert_true(spy.polls > 100);
    free_spied(slow);
    close_world(&w);
}

static void test_a_failing_poll_ends_the_step(void **state) {
    (void)state;
    struct world w;
    struct hl_diag diag = {0};
    struct hl_step_report r;
    open_world(&w, "adamw");
    struct hl_trainer *t = spied(&w);
    spy.pending = spy.left = 1;
    spy.poll_fails = HL_E_PEER;
    assert_int_equal(hl_trainer_step(t, &r, &diag), HL_E_PEER);
    assert_string_equal(diag.text, "rank 3 is gone");
    assert_int_equal(hl_trainer_step_index(t), 0);
    free_spied(t);
    close_world(&w);
}

/* The strategy takes 1 or 5 micro-batches where 2 were planned; rows are counted as taken. At the
 * end of the data there is no more to ask for. */
static void test_micro_end_decides(void **state) {
    (void)state;
    for (int most = 1; most <= 5; most += 4) {
        struct world w;
        struct hl_diag diag = {0};
        struct hl_step_report r;
        open_world(&w, "adamw");
        w.train.gradient_accumulation_steps = 2;
        w.train.max_steps = -1;
        w.train.num_train_epochs = 1;
        int64_t rows = hl_dataset_n_rows(w.dataset, HL_SPLIT_TRAIN);
        struct hl_trainer *t = spied(&w);
        spy.micro_of_step = most;
        step(t);
        assert_int_equal(t->rows_taken, 3 * most);
        enum hl_status status;
        while ((status = hl_trainer_step(t, &r, &diag)) == HL_OK)
            assert_true(r.n_tokens > 0 && t->rows_taken <= rows);
        assert_int_equal(status, HL_END);
        assert_int_equal(t->rows_taken, rows);
        free_spied(t);
        close_world(&w);
    }
}

/* Two trainers with teams of their own take turns: each has its memory and its bits. */
static void test_two_trainers(void **state) {
    (void)state;
    struct world w[2];
    struct hl_trainer *t[2];
    struct hl_diag diag = {0};
    struct hl_step_report a, b;
    double la, lb;
    int64_t n;
    for (int i = 0; i < 2; i++) {
        open_world(&w[i], "adamw");
        w[i].train.threads = i ? 4 : 1;
        t[i] = new_trainer(&w[i]);
    }
    for (int k = 0; k < 3; k++) {
        assert_int_equal(hl_trainer_step(t[0], &a, &diag), HL_OK);
        assert_int_equal(hl_trainer_step(t[1], &b, &diag), HL_OK);
        assert_int_equal(hl_trainer_evaluate(t[0], &la, &n, &diag), HL_OK);
        assert_int_equal(hl_trainer_evaluate(t[1], &lb, &n, &diag), HL_OK);
        assert_true(a.loss == b.loss && a.grad_norm == b.grad_norm && la == lb);
    }
    for (int i = 0; i < 2; i++) {
        hl_trainer_free(t[i]);
        close_world(&w[i]);
    }
}

static void test_clock(void **state) {
    (void)state;
    struct world w;
    open_world(&w, "adamw");
    struct hl_trainer *t = new_trainer(&w);
    const struct hl_strategy_env *env = t->strategy_state; /* `single` keeps its own first */
    double before = env->now(env->clock);
    assert_true(before > 0 && env->now(env->clock) >= before);
    hl_trainer_free(t);
    close_world(&w);
}

/* ---- length ---- */

/* By epochs, resumed with another batch: every row is taken once, whatever the batch was before. */
static void test_resumed_with_another_batch(void **state) {
    (void)state;
    static const int64_t batches[] = {1, 2, 3, 7, 100};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        struct world w;
        struct hl_diag diag = {0};
        open_world(&w, "adamw");
        w.train.max_steps = -1;
        w.train.num_train_epochs = 1.5;
        w.train.gradient_accumulation_steps = 1;
        struct hl_trainer *t = new_trainer(&w);
        struct hl_step_report r;
        for (int k = 0; k < 2; k++) assert_int_equal(hl_trainer_step(t, &r, &diag), HL_OK);
        if (hl_trainer_save(t, w.folder, NULL, NULL, &diag) != HL_OK) fail_msg("%s", diag.text);
        int64_t total = t->total_rows;
        hl_trainer_free(t);
        w.train.per_device_train_batch_size = batches[i];
        t = new_trainer(&w);
        char path[128];
        (void)snprintf(path, sizeof path, "%s/checkpoint-2", w.folder);
        if (hl_trainer_resume(t, path, &diag) != HL_OK) fail_msg("%s", diag.text);
        assert_int_equal(hl_trainer_n_steps(t), 2 + (total - 6 + batches[i] - 1) / batches[i]);
        enum hl_status status;
        while ((status = hl_trainer_step(t, &r, &diag)) == HL_OK) assert_true(r.n_tokens > 0);
        if (status != HL_END) fail_msg("%s", diag.text);
        assert_int_equal(t->rows_taken, total);
        assert_int_equal(hl_trainer_step_index(t), hl_trainer_n_steps(t));
        hl_trainer_free(t);
        close_world(&w);
    }
}

/* The last step takes the rows that are left: 7 rows as 3 + 3 + 1, as one batch of 7, and as a
 * larger batch cut short. */
static void test_short_last_step(void **state) {
    (void)state;
    static const int64_t shapes[4][2] = {{3, 4}, {7, 1}, {12, 1}, {1, 100}};
    struct hl_step_report first = {0}, r;
    for (int i = 0; i < 4; i++) {
        struct world w;
        struct hl_diag diag = {0};
        open_world(&w, "sgd");
        w.train.max_steps = -1;
        w.train.num_train_epochs = 6.5 / (double)hl_dataset_n_rows(w.dataset, HL_SPLIT_TRAIN);
        w.train.per_device_train_batch_size = shapes[i][0];
        w.train.gradient_accumulation_steps = shapes[i][1];
        struct hl_trainer *t = new_trainer(&w);
        assert_int_equal(hl_trainer_n_steps(t), 1);
        if (hl_trainer_step(t, &r, &diag) != HL_OK) fail_msg("%s", diag.text);
        assert_int_equal(t->rows_taken, 7);
        if (i == 0) first = r;
        assert_int_equal(r.n_tokens, first.n_tokens);
        assert_int_equal(r.n_supervised, first.n_supervised);
        assert_true(fabs(r.loss - first.loss) < 1e-6 * first.loss &&
                    fabs(r.grad_norm - first.grad_norm) < 1e-5 * first.grad_norm);
        assert_int_equal(hl_trainer_step(t, &r, &diag), HL_END);
        hl_trainer_free(t);
        close_world(&w);
    }
}

/* More steps, or another curve, on resume: the rate is that of a run that was so from the start;
 * what was trained stays. */
static void test_resumed_with_another_curve(void **state) {
    (void)state;
    struct world w;
    struct hl_diag diag = {0};
    struct hl_step_report r, straight;
    open_world(&w, "adamw");
    struct hl_trainer *t = new_trainer(&w);
    for (int i = 0; i < 2; i++) assert_int_equal(hl_trainer_step(t, &r, &diag), HL_OK);
    if (hl_trainer_save(t, w.folder, NULL, NULL, &diag) != HL_OK) fail_msg("%s", diag.text);
    hl_trainer_free(t);
    w.train.max_steps = 20;
    w.train.lr_scheduler_type = HL_CURVE_WSD;
    w.train.warmup_steps = 15;
    w.train.lr_decay_steps = 100;
    struct hl_trainer *whole = new_trainer(&w);
    for (int i = 0; i < 3; i++) assert_int_equal(hl_trainer_step(whole, &straight, &diag), HL_OK);
    char path[128];
    (void)snprintf(path, sizeof path, "%s/checkpoint-2", w.folder);
    t = new_trainer(&w);
    if (hl_trainer_resume(t, path, &diag) != HL_OK) fail_msg("%s", diag.text);
    assert_int_equal(hl_trainer_step(t, &r, &diag), HL_OK);
    assert_int_equal(r.step, 3);
    assert_true(r.learning_rate == straight.learning_rate &&
                r.n_supervised == straight.n_supervised);
    hl_trainer_free(t);
    w.train.max_steps = 1; /* fewer than are done */
    t = new_trainer(&w);
    if (hl_trainer_resume(t, path, &diag) != HL_OK) fail_msg("%s", diag.text);
    assert_int_equal(hl_trainer_step(t, &r, &diag), HL_END);
    assert_int_equal(hl_trainer_step_index(t), 2);
    hl_trainer_free(t);
    hl_trainer_free(whole);
    close_world(&w);
}

static void test_lengths(void **state) {
    (void)state;
    struct world w;
    struct hl_diag diag = {0};
    struct hl_step_report r;
    struct hl_trainer *t;
    open_world(&w, "adamw");
    w.train.max_steps = 0;
    t = new_trainer(&w);
    assert_int_equal(hl_trainer_step(t, &r, &diag), HL_END);
    hl_trainer_free(t);
    w.train.max_steps = 3; /* all of it warm-up */
    w.train.warmup_steps = 10;
    t = new_trainer(&w);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hl_trainer_step(t, &r, &diag), HL_OK);
        assert_true(fabs(r.learning_rate - 0.001 * (i + 1)) < 1e-12);
    }
    hl_trainer_free(t);
    w.train.max_steps = -1;
    w.train.num_train_epochs = 0;
    t = new_trainer(&w);
    assert_int_equal(hl_trainer_n_steps(t), 0);
    assert_int_equal(hl_trainer_step(t, &r, &diag), HL_END);
    hl_trainer_free(t);
    w.train.num_train_epochs = 1e18;
    assert_int_equal(hl_trainer_new(hl_mem_default(), &w.setup, &t, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "max_steps"));
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_not_yet),
        cmocka_unit_test(test_a_failing_poll_ends_the_step),
        cmocka_unit_test(test_micro_end_decides),
        cmocka_unit_test(test_two_trainers),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_resumed_with_another_batch),
        cmocka_unit_test(test_short_last_step),
        cmocka_unit_test(test_resumed_with_another_curve),
        cmocka_unit_test(test_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
