/* diloco: exchanging at every step with a plain outer step it is ddp, to the bit where arithmetic
 * is exact, and within rounding on a model; the rule is the paper's; a failed exchange is followed
 * by no outer step; replicas that differ are noticed; ranks join and leave between checkpoints.
 * What every strategy keeps - resuming in mid-interval, costs, wires - is in tests/suites. */
#include "support/local_case.h"

#define PLAIN "outer_lr", "1", "outer_momentum", "0"

static void test_every_step_is_ddp(void **state) {
    static struct local_case a, b;
    (void)state;
    for (int n = 1; n <= 4; n *= 2) {
        a = (struct local_case){.strategy = "ddp", .n_ranks = n, .n_steps = 6};
        b = (struct local_case){
            .strategy = "diloco", .options = {PLAIN}, .n_ranks = n, .n_steps = 6, .sync_every = 1};
        local_run(&a);
        local_run(&b);
        local_good(&a);
        local_good(&b);
        assert_memory_equal(a.outer[0], b.outer[0], sizeof a.outer[0]);
        for (int r = 0; r < n; r++) {
            assert_memory_equal(b.inner[r], b.outer[r], sizeof b.outer[0]);
            assert_true(b.said[r] == b.sent[r]);
        }
    }
}

/* Plain training, when nobody else is there. */
static void test_one_rank(void **state) {
    static struct local_case a, b;
    (void)state;
    a = (struct local_case){.strategy = "single", .n_ranks = 1, .n_steps = 6};
    b = (struct local_case){
        .strategy = "diloco", .options = {PLAIN}, .n_ranks = 1, .n_steps = 6, .sync_every = 3};
    local_run(&a);
    local_run(&b);
    local_good(&b);
    assert_memory_equal(a.outer[0], b.outer[0], sizeof a.outer[0]);
}

static void test_a_model_follows_ddp(void **state) {
    struct world w;
    double ddp[RANKS_STEPS], diloco[RANKS_STEPS];
    (void)state;
    local_even_world(&w, "sgd");
    set_word(&w, "sync_every", "1");
    set_word(&w, "diloco.outer_lr", "1");
    set_word(&w, "diloco.outer_momentum", "0");
    local_losses(&w, "ddp", 2, ddp);
    local_losses(&w, "diloco", 2, diloco);
    local_near(diloco, ddp, "diloco and ddp");
    assert_true(ddp[0] > 1.02 * ddp[RANKS_STEPS - 1]);
    close_world(&w);
}

/* Nesterov in f64: m = beta m + Delta; theta -= gamma (Delta + beta m). */
static void test_rule(void **state) {
    enum { H = 3, ROUNDS = 4 };
    static struct local_case c;
    (void)state;
    c = (struct local_case){
        .strategy = "diloco", .n_ranks = 3, .n_steps = H * ROUNDS, .sync_every = H};
    local_run(&c);
    local_good(&c);
    for (int64_t i = 0; i < LOCAL_PARAMETERS; i++) {
        double theta = (double)local_weight(i), m = 0;
        for (int k = 0; k < ROUNDS; k++) {
            double delta = 0;
            for (int r = 0; r < 3; r++)
                for (int h = 0; h < H; h++)
                    delta += 0.0625 * (double)local_gradient(r, k * H + h, i) / 3;
            m = 0.9 * m + delta;
            theta -= 0.7 * (delta + 0.9 * m);
        }
        assert_true(fabs(theta - (double)c.outer[0][i]) < 2e-6);
    }
}

/* Between exchanges ranks are apart, and evaluation sees the last outer weights. */
static void test_between(void **state) {
    static struct local_case c, alone;
    (void)state;
    c = (struct local_case){.strategy = "diloco", .n_ranks = 2, .n_steps = 3, .sync_every = 4};
    local_run(&c);
    local_good(&c);
    for (int64_t i = 0; i < LOCAL_PARAMETERS; i++) assert_true(c.outer[0][i] == local_weight(i));
    for (int r = 0; r < 2; r++) {
        alone =
            (struct local_case){.strategy = "single", .n_ranks = 1, .n_steps = 3, .first_rank = r};
        local_run(&alone);
        assert_memory_equal(c.inner[r], alone.outer[0], sizeof alone.outer[0]);
    }
}

static void test_a_failed_exchange(void **state) {
    static struct local_case whole, broken;
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        whole =
            (struct local_case){.strategy = "diloco", .n_ranks = 3, .n_steps = 3, .sync_every = 2};
        broken = whole;
        broken.n_steps = 4;
        broken.failing_rank = rank;
        broken.fails_at = 4;
        local_run(&whole);
        local_run(&broken);
        local_good(&whole);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(broken.status[r], r == rank ? HL_E_STOPPED : HL_E_PEER);
            assert_memory_equal(broken.outer[r], whole.outer[0], sizeof whole.outer[0]);
        }
    }
}

static void test_replicas_are_compared(void **state) {
    static struct local_case c;
    (void)state;
    c = (struct local_case){.strategy = "diloco",
                            .n_ranks = 3,
                            .n_steps = 4,
                            .sync_every = 2,
                            .faulty_rank = 2,
                            .faulty_at = 3};
    local_run(&c);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(c.status[r], HL_E_FORMAT);
        assert_non_null(strstr(c.diag[r].text, "step 4: after the outer step the outer weights of "
                                               "rank 2 differ from those of rank 0"));
    }
}

static void test_other_optimizers(void **state) {
    static const char *const names[] = {"adamw", "lion", "muon"};
    static struct local_case c;
    (void)state;
    for (int i = 0; i < 3; i++) {
        c = (struct local_case){.strategy = "diloco",
                                .options = {"outer_optimizer", names[i], "outer_lr", "0.01"},
                                .n_ranks = 2,
                                .n_steps = 4,
                                .sync_every = 2};
        local_run(&c);
        local_good(&c);
        assert_true(memcmp(c.outer[0], c.inner[1], sizeof c.outer[0]) == 0);
    }
}

/* The outer state lies in a folder's files: the same bits. */
static void test_outer_state_elsewhere(void **state) {
    struct world w;
    double here[RANKS_STEPS], there[RANKS_STEPS];
    (void)state;
    local_even_world(&w, "adamw");
    set_word(&w, "sync_every", "3");
    local_losses(&w, "diloco", 2, here);
    set_word(&w, "outer_state", "/dev/shm");
    local_losses(&w, "diloco", 2, there);
    assert_memory_equal(here, there, sizeof here);
    close_world(&w);
}

static void test_unknown_optimizer(void **state) {
    struct world w;
    struct hl_trainer *t;
    struct hl_diag diag = {0};
    (void)state;
    open_world(&w, "adamw");
    set_word(&w, "strategy", "diloco");
    set_word(&w, "diloco.outer_optimizer", "adamv");
    assert_int_equal(hl_trainer_new(hl_mem_default(), &w.setup, &t, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "diloco.outer_optimizer: 'adamv'"));
    assert_non_null(strstr(diag.text, "did you mean adamw"));
    close_world(&w);
}

/* An embedding that says nothing of options gets the defaults, and may ask before it has data. */
static void test_defaults(void **state) {
    struct world w;
    struct hl_diag diag = {0};
    (void)state;
    open_world(&w, "adamw");
    set_word(&w, "strategy", "diloco");
    w.setup.strategy_options = NULL;
    w.setup.dataset = NULL;
    if (hl_trainer_check(hl_mem_default(), &w.setup, &diag) != HL_OK) fail_msg("%s", diag.text);
    close_world(&w);
}

static void test_ranks_join_and_leave(void **state) {
    (void)state;
    local_other_ranks("diloco", 2, 3);
    local_other_ranks("diloco", 3, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_step_is_ddp),
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_a_model_follows_ddp),
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_between),
        cmocka_unit_test(test_a_failed_exchange),
        cmocka_unit_test(test_replicas_are_compared),
        cmocka_unit_test(test_other_optimizers),
        cmocka_unit_test(test_outer_state_elsewhere),
        cmocka_unit_test(test_unknown_optimizer),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_ranks_join_and_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
