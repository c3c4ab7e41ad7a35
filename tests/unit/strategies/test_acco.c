/* acco: equal halves are the synchronous optimizer to the bit, the modes of a quadratic are those
 * that the rule says, and what the released code gets wrong is right here. The rule itself is
 * compared with PyTorch's curve in tests/suites. */
#include "support/quadratic.h"

#include "support/trainer_fixture.h"
/* the fixture first */
#include "support/train_ranks.h"

/* ---- a quadratic ---- */

/* Weights, and the estimate at which the pending gradient was made. */
struct modes {
    double weights, estimate;
};
static struct modes modes_of(struct drive *d) {
    const float *pending = drive_saved(d, "pending_gradient").data;
    const int64_t *tokens = drive_saved(d, "pending_tokens").data;
    return (struct modes){quadratic_master(d), (double)*pending / (double)*tokens};
}

/* One step from the natural state, and from one whose estimate is another: two columns of the map.
 */
static void measure(double a, struct quadratic q, struct modes from[2], struct modes to[2]) {
    for (int i = 0; i < 2; i++) {
        struct drive d;
        quadratic_open(&d, "acco", "acco.micro_batches_per_round=1", &q, a);
        drive_step(&d);
        if (i) *(float *)drive_saved(&d, "pending_gradient").data += 0.75f * (float)q.after;
        from[i] = modes_of(&d);
        drive_step(&d);
        to[i] = modes_of(&d);
        drive_close(&d);
    }
}

/* Trace and determinant are those of the eigenvalues 1 - a and -a (1 - w). */
static void test_eigenvalues(void **state) {
    static const struct quadratic shares[] = {{1, 1}, {3, 1}, {1, 3}};
    (void)state;
    for (int k = 0; k < 3; k++)
        for (double a = 0.15; a < 2; a += 0.3) {
            struct modes f[2], t[2];
            double w = (double)shares[k].after / (double)(shares[k].before + shares[k].after);
            measure(a, shares[k], f, t);
            double det = f[0].weights * f[1].estimate - f[1].weights * f[0].estimate;
            double m11 = (t[0].weights * f[1].estimate - t[1].weights * f[0].estimate) / det,
                   m12 = (f[0].weights * t[1].weights - f[1].weights * t[0].weights) / det,
                   m21 = (t[0].estimate * f[1].estimate - t[1].estimate * f[0].estimate) / det,
                   m22 = (f[0].weights * t[1].estimate - f[1].weights * t[0].estimate) / det;
            assert_true(fabs(m11 + m22 - (1 - a - a * (1 - w))) < 1e-4);
            assert_true(fabs(m11 * m22 - m12 * m21 - (1 - a) * -a * (1 - w)) < 1e-4);
        }
}

static void test_stability(void **state) {
    const char *one = "acco.micro_batches_per_round=1";
    const struct quadratic equal = {1, 1}, small = {3, 1};
    (void)state;
    assert_true(quadratic_is_stable("acco", one, 0.1, equal));
    assert_true(quadratic_is_stable("acco", one, 1.95, equal));
    assert_false(quadratic_is_stable("acco", one, 2.05, equal));
    assert_true(quadratic_is_stable("acco", one, 1.3, small));
    assert_false(quadratic_is_stable("acco", one, 1.36, small));
}

/* ---- against the synchronous optimizer ---- */

enum { N = 300, STEPS = 12 };

/* The same data always; ranks have different ones, and different numbers of tokens. */
static int64_t bowl(struct drive *d, const float *weights, float *grad) {
    int r = d->env.rank;
    for (int i = 0; i < d->n; i++)
        grad[i] = (weights[i] - (float)((i * 37 + r * 11) % 23) / 16) * (float)(3 + r);
    return 3 + r;
}

static void open_bowl(struct drive *d, const char *strategy, int rounds, struct hl_group *group) {
    float weights[N];
    char option[64];
    const char *const options[] = {option, NULL};
    (void)snprintf(option, sizeof option, "acco.micro_batches_per_round=%d", rounds);
    *d = (struct drive){.n_blocks = 3,
                        .n = N,
                        .optimizer = "adamw",
                        .weight_decay = 0.1,
                        .learning_rate = 0.03,
                        .max_grad_norm = 0.5,
                        .accumulation = 2 * rounds,
                        .gradient = bowl};
    for (int i = 0; i < N; i++) weights[i] = (float)(i % 29) / 29 - 0.3f;
    drive_open(d, strategy, options, HL_F32, group);
    drive_set(d, weights);
}

/* Equal halves: the bits of zero1 with twice the micro-batches, clipping included. */
static void equal_halves(struct rank_context *r) {
    struct hl_group *group = NULL;
    const struct hl_kernels *k = NULL;
    struct hl_diag diag = {0};
    struct drive exact, acco;
    float a[N], b[N];
    drive_ok(hl_kernels_get(HL_F32, &k, &diag), &diag);
    drive_ok(hl_group_new(hl_mem_default(), r->wire, k, 20000000000, &group, &diag), &diag);
    open_bowl(&exact, "zero1", 1, group);
    open_bowl(&acco, "acco", 1, group);
    for (int t = 0; t < STEPS; t++) {
        drive_step(&exact);
        drive_step(&acco);
        drive_weights(&exact, a);
        drive_weights(&acco, b);
        ranks_check(r, exact.result.grad_norm > 0.5);
        ranks_check(r, exact.result.grad_norm == acco.result.grad_norm);
        ranks_check(r, !memcmp(a, b, sizeof a));
    }
    drive_close(&exact);
    drive_close(&acco);
    hl_group_free(group);
}

static void test_equal_halves(void **state) {
    (void)state;
    ranks_run(2, RANKS_LANES, RANKS_PART, equal_halves, NULL);
    ranks_run(3, RANKS_LANES, RANKS_PART, equal_halves, NULL);
}

/* ---- one rank, step by step ---- */

struct seen {
    float at[64][N];
    int n;
};
static int64_t remember(struct drive *d, const float *weights, float *grad) {
    struct seen *seen = d->context;
    memcpy(seen->at[seen->n++ % 64], weights, sizeof seen->at[0]);
    for (int i = 0; i < d->n; i++)
        grad[i] = weights[i] + (float)((i * 31 + seen->n * 7) % 17) / 8 - 1;
    return 2 + seen->n % 3;
}

/* The first round of a step is at the weights, the second at an estimate; the bootstrap's tokens
 * count once; the last step computes nothing that is thrown away. */
static void test_rounds(void **state) {
    static struct seen seen;
    struct drive d;
    float master[N];
    int64_t tokens = 0, run = 0;
    (void)state;
    seen.n = 0;
    open_bowl(&d, "acco", 2, NULL);
    d.gradient = remember;
    d.context = &seen;
    struct hl_range all = hl_layout_all(&d.layout);
    for (int t = 0; t < 5; t++) {
        memcpy(master, hl_engine_data(d.engine, HL_BUFFER_MASTER, all), sizeof master);
        int first = seen.n + (t == 0 ? 2 : 0);
        d.last = t == 4;
        drive_step(&d);
        tokens += d.result.n_supervised;
        assert_int_equal(seen.n, first + (d.last ? 2 : 4));
        assert_memory_equal(seen.at[first], master, sizeof master);
        assert_memory_equal(seen.at[first + 1], master, sizeof master);
        if (!d.last) assert_true(memcmp(seen.at[first + 2], master, sizeof master) != 0);
    }
    for (int i = 1; i <= seen.n; i++) run += 2 + i % 3;
    assert_int_equal(tokens, run);
    drive_close(&d);
}

/* Half of the gradients are a step old: the second round is at the weights of the first. */
static void test_no_trial(void **state) {
    static struct seen seen;
    const char *const options[] = {"acco.micro_batches_per_round=1", "acco.trial_lr_scale=0", NULL};
    struct drive d = {.n_blocks = 2,
                      .n = N,
                      .optimizer = "adamw",
                      .weight_decay = 0.1,
                      .learning_rate = 0.05,
                      .gradient = remember,
                      .context = &seen};
    (void)state;
    seen.n = 0;
    drive_open(&d, "acco", options, HL_F32, NULL);
    for (int t = 0; t < 6; t++) {
        drive_step(&d);
        int at = 1 + 2 * t;
        assert_memory_equal(seen.at[at], seen.at[at + 1], sizeof seen.at[0]);
        if (t) assert_true(memcmp(seen.at[at], seen.at[at - 1], sizeof seen.at[0]) != 0);
    }
    drive_close(&d);
}

/* Many small gradients are added up in f32, whatever compute is. */
static int64_t small(struct drive *d, const float *weights, float *grad) {
    (void)weights;
    for (int i = 0; i < d->n; i++) grad[i] = d->n_run == 0 ? 1 : 0x1p-12f;
    return 1;
}
static void test_sums_are_f32(void **state) {
    const char *const options[] = {"acco.micro_batches_per_round=64", NULL};
    struct drive d = {
        .n_blocks = 1, .n = 16, .optimizer = "sgd", .learning_rate = 1, .gradient = small};
    (void)state;
    drive_open(&d, "acco", options, HL_BF16, NULL);
    d.last = true;
    drive_step(&d);
    float want = -(1 + 127 * 0x1p-12f) / 128;
    assert_int_equal(d.result.n_supervised, 128);
    assert_true(fabs(quadratic_master(&d) - (double)want) < 1e-9);
    drive_close(&d);
}

/* A round without a supervised token, of data with long prompts: nothing to try, but the update has
 * the other round's. */
static int64_t every_other(struct drive *d, const float *weights, float *grad) {
    for (int i = 0; i < d->n; i++) grad[i] = d->n_run % 2 ? weights[i] - 1 : 0;
    return d->n_run % 2;
}
static void test_round_without_tokens(void **state) {
    struct drive d;
    (void)state;
    open_bowl(&d, "acco", 1, NULL);
    d.gradient = every_other;
    for (int t = 0; t < 3; t++) {
        drive_step(&d);
        assert_true(d.result.applied);
        assert_int_equal(d.result.n_supervised, 1);
    }
    drive_close(&d);
}

/* ---- in the trainer ---- */

/* Updates are made of whole micro-batches. */
static void test_odd_batch(void **state) {
    struct world w;
    struct hl_trainer *t;
    struct hl_diag diag = {0};
    (void)state;
    open_world(&w, "adamw");
    set_word(&w, "strategy", "acco");
    set_word(&w, "global_batch_size", "5");
    assert_int_equal(hl_trainer_new(hl_mem_default(), &w.setup, &t, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "global_batch_size"));
    set_word(&w, "global_batch_size", "6");
    hl_trainer_free(new_trainer(&w));
    close_world(&w);
}

/* The run ends when the rows of max_steps planned steps are committed, after a last step without a
 * second round; going on from there fills a first gradient again. */
static void test_length(void **state) {
    struct world w;
    struct hl_step_report r;
    struct hl_diag diag = {0};
    (void)state;
    open_world(&w, "adamw");
    set_word(&w, "strategy", "acco");
    set_word(&w, "acco.micro_batches_per_round", "2");
    set_word(&w, "gradient_accumulation_steps", "4");
    set_word(&w, "max_steps", "3");
    struct hl_trainer *t = new_trainer(&w);
    assert_int_equal(hl_trainer_n_steps(t), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hl_trainer_step(t, &r, &diag), HL_OK);
        assert_int_equal(t->rows_taken, (i + 1) * 4 * 3);
        assert_true(r.n_tokens > 0 && r.n_supervised > 0);
    }
    assert_int_equal(t->next_row, 3 * (2 + 3 * 4 - 2)); /* the first fill, 3 steps, no last half */
    assert_int_equal(t->uncommitted.n_rows, 0);
    assert_int_equal(hl_trainer_step(t, &r, &diag), HL_END);
    hl_trainer_free(t);
    close_world(&w);
}

/* A gradient that is no number is found in the trial's step, and nothing is applied. */
static void test_not_a_number(void **state) {
    struct world w;
    struct hl_step_report r;
    struct hl_diag diag = {0};
    (void)state;
    open_world(&w, "adamw");
    set_word(&w, "strategy", "acco");
    set_word(&w, "acco.micro_batches_per_round", "1");
    struct hl_trainer *t = new_trainer(&w);
    assert_int_equal(hl_trainer_step(t, &r, &diag), HL_OK);
    struct hl_saved_state saved[16];
    int n = t->strategy->saved(t->strategy_state, saved, 16);
    for (int i = 0; i < n; i++)
        if (!strcmp(saved[i].name, "pending_gradient")) ((float *)saved[i].data)[5] = NAN;
    size_t bytes = (size_t)t->model->layout.n_parameters * sizeof(float);
    float *before = malloc(bytes);
    assert_non_null(before);
    memcpy(before, hl_trainer_params(t), bytes);
    assert_int_equal(hl_trainer_step(t, &r, &diag), HL_E_NUMERIC);
    assert_non_null(strstr(diag.text, "step 2"));
    assert_memory_equal(before, hl_trainer_params(t), bytes);
    free(before);
    hl_trainer_free(t);
    close_world(&w);
}

/* ---- at their own pace ---- */

enum { FREE_RANKS = 3, FREE_STEPS = 6 };
struct free_run {
    struct world *w;
    int64_t counts[FREE_STEPS][2 * FREE_RANKS];
    uint64_t hash[FREE_RANKS];
    double loss[FREE_STEPS];
    int n_steps;
};

/* Asked between blocks: the last rank is slow. */
static bool dawdle(void *context) {
    struct rank_context *r = context;
    if (r->rank == r->n_ranks - 1) (void)usleep(1000);
    return false;
}

static void run_free(struct rank_context *r) {
    struct free_run *f = r->shared;
    struct hl_trainer_setup setup = f->w->setup;
    struct hl_group *group = NULL;
    struct hl_trainer *t = NULL;
    struct hl_diag diag = {0};
    struct hl_step_report report;
    const struct hl_kernels *k = NULL;
    drive_ok(hl_kernels_get(HL_F32, &k, &diag), &diag);
    drive_ok(hl_group_new(hl_mem_default(), r->wire, k, 20000000000, &group, &diag), &diag);
    setup.group = group;
    setup.lost = dawdle;
    setup.lost_context = r;
    drive_ok(hl_trainer_new(hl_mem_default(), &setup, &t, &diag), &diag);
    enum hl_status status = HL_OK;
    for (int i = 0; i < FREE_STEPS && status == HL_OK; i++) {
        status = hl_trainer_step(t, &report, &diag);
        if (status < 0) ranks_fail(r, "%s", diag.text);
        if (status != HL_OK || r->rank) continue;
        f->loss[i] = report.loss;
        f->n_steps = i + 1;
        hl_trainer_rounds(t, f->counts[i]);
    }
    const void *weights = hl_engine_acquire(t->engine, hl_layout_all(&t->model->layout));
    f->hash[r->rank] = ranks_hash(weights, (size_t)t->model->layout.n_parameters * sizeof(float));
    hl_trainer_free(t);
    hl_group_free(group);
}

/* One rank never comes to the exchange: the other makes a bounded number of micro-batches, then
 * waits, as whoever has a deadline does. */
static void wait_in_vain(struct rank_context *r) {
    int *ended = r->shared;
    struct hl_group *group = NULL;
    struct hl_diag diag = {0};
    struct hl_step step = {.learning_rate = 0.1};
    enum hl_micro_answer answer;
    enum hl_status status = HL_OK;
    struct drive d;
    int n = 0;
    while (r->rank == 1 && !__atomic_load_n(ended, __ATOMIC_ACQUIRE)) (void)usleep(1000);
    if (r->rank == 1) return;
    drive_ok(hl_group_new(hl_mem_default(), r->wire, NULL, 20000000000, &group, &diag), &diag);
    open_bowl(&d, "acco", 0, group);
    d.env.accumulation = 2;
    drive_view(&d, false);
    drive_ok(d.strategy->step_begin(d.state, &step, &diag), &diag);
    for (; n < 1000 && status == HL_OK; n++) {
        (void)drive_micro(&d, &diag);
        status = d.strategy->micro_end(d.state, n, 1, &answer, &diag);
    }
    ranks_check(r, status == HL_PENDING && n > 32 && n < 200);
    hl_group_give_up(group, "enough");
    drive_close(&d);
    hl_group_free(group);
    __atomic_store_n(ended, 1, __ATOMIC_RELEASE);
}

static void test_rounds_are_bounded(void **state) {
    int ended = 0;
    (void)state;
    ranks_run(2, RANKS_LANES, RANKS_PART, wait_in_vain, &ended);
}

static void write_record(const struct free_run *f, const char *folder) {
    struct hl_metrics *metrics;
    struct hl_diag diag = {0};
    drive_ok(hl_metrics_open(hl_mem_default(), folder, -1, false, &metrics, &diag), &diag);
    drive_ok(hl_metrics_open_rounds(metrics, folder, -1, &diag), &diag);
    for (int i = 0; i < f->n_steps; i++)
        drive_ok(hl_metrics_rounds(metrics, i + 1, f->counts[i], FREE_RANKS, &diag), &diag);
    hl_metrics_close(metrics);
}

/* Ranks of unequal speed make unequal numbers of micro-batches; told to make the same again, they
 * have the same bits. */
static void test_replay(void **state) {
    struct world w;
    char path[128];
    (void)state;
    open_world(&w, "adamw");
    set_word(&w, "strategy", "acco");
    set_word(&w, "max_steps", "40");
    struct free_run first = {.w = &w}, again = {.w = &w};
    ranks_run(FREE_RANKS, RANKS_LANES, RANKS_PART, run_free, &first);
    assert_true(first.n_steps > 0);
    write_record(&first, w.folder);
    (void)snprintf(path, sizeof path, "%s/rounds.jsonl", w.folder);
    set_word(&w, "replay_rounds", path);
    ranks_run(FREE_RANKS, RANKS_LANES, RANKS_PART, run_free, &again);
    assert_int_equal(first.n_steps, again.n_steps);
    for (int i = 0; i < first.n_steps; i++) {
        assert_true(first.loss[i] == again.loss[i]);
        assert_memory_equal(first.counts[i], again.counts[i], sizeof first.counts[i]);
    }
    for (int r = 0; r < FREE_RANKS; r++) assert_true(first.hash[r] == again.hash[0]);
    close_world(&w);
}

/* Records that are none, or of other runs, are refused by name and line. */
static void test_bad_records(void **state) {
    static const char *const records[][2] = {
        {"{\"step\": 1, \"micro_batches\": [[0, 2]]}\n{}\n", ":2: is no record of step 2"},
        {"{\"step\": 2, \"micro_batches\": [[0, 2]]}\n", ":1: is no record of step 1"},
        {"{\"step\": 1, \"micro_batches\": [[0, 2], [0, 1]]}\n", ":1: is of 2 ranks"},
        {"{\"step\": 1, \"micro_batches\": [[0, -2]]}\n", ":1: rank 0 has no two counts"},
        {"{\"step\": 1, \"micro_batches\": [7]}\n", ":1: rank 0 has no two counts"},
        {"text\n", ":1:"}};
    struct hl_rounds *rounds;
    char path[64] = "/tmp/halley-test-XXXXXX";
    int file = mkstemp(path);
    (void)state;
    assert_true(file >= 0);
    for (size_t i = 0; i < sizeof records / sizeof *records; i++) {
        struct hl_diag diag = {0};
        assert_int_equal(ftruncate(file, 0), 0);
        assert_true(pwrite(file, records[i][0], strlen(records[i][0]), 0) > 0);
        assert_true(hl_rounds_read(hl_mem_default(), path, 1, &rounds, &diag) < 0);
        if (!strstr(diag.text, records[i][1])) fail_msg("%s: %s", records[i][1], diag.text);
    }
    (void)close(file);
    (void)unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eigenvalues),
        cmocka_unit_test(test_stability),
        cmocka_unit_test(test_equal_halves),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_no_trial),
        cmocka_unit_test(test_sums_are_f32),
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_not_a_number),
        cmocka_unit_test(test_rounds_are_bounded),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_bad_records),
        cmocka_unit_test(test_odd_batch),
        cmocka_unit_test(test_round_without_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
