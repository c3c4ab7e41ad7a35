/* local_sgd: ranks go on from the mean of their weights, to the bit where arithmetic is exact;
 * averaging after every step it is ddp; one rank trains as if there were no strategy; ranks join
 * and leave between checkpoints. */
#include "support/local_case.h"

static void test_every_step_is_ddp(void **state) {
    static struct local_case a, b;
    (void)state;
    for (int n = 1; n <= 4; n *= 2) {
        a = (struct local_case){.strategy = "ddp", .n_ranks = n, .n_steps = 6};
        b = (struct local_case){
            .strategy = "local_sgd", .n_ranks = n, .n_steps = 6, .sync_every = 1};
        local_run(&a);
        local_run(&b);
        local_good(&a);
        local_good(&b);
        assert_memory_equal(a.outer[0], b.outer[0], sizeof a.outer[0]);
        for (int r = 0; r < n; r++) assert_true(b.said[r] == b.sent[r]);
    }
}

static void test_a_model_follows_ddp(void **state) {
    struct world w;
    double ddp[RANKS_STEPS], local[RANKS_STEPS];
    (void)state;
    local_even_world(&w, "sgd");
    set_word(&w, "sync_every", "1");
    local_losses(&w, "ddp", 3, ddp);
    local_losses(&w, "local_sgd", 3, local);
    local_near(local, ddp, "local_sgd and ddp");
    close_world(&w);
}

static void test_mean(void **state) {
    static struct local_case c, alone[4];
    (void)state;
    c = (struct local_case){.strategy = "local_sgd", .n_ranks = 4, .n_steps = 5, .sync_every = 3};
    local_run(&c);
    local_good(&c);
    for (int r = 0; r < 4; r++) {
        alone[r] =
            (struct local_case){.strategy = "single", .n_ranks = 1, .n_steps = 3, .first_rank = r};
        local_run(&alone[r]);
    }
    for (int64_t i = 0; i < LOCAL_PARAMETERS; i++) {
        double sum = 0;
        for (int r = 0; r < 4; r++) sum += (double)alone[r].outer[0][i];
        assert_true((double)c.outer[0][i] == sum / 4); /* of step 3: all that evaluation sees */
    }
    assert_true(memcmp(c.inner[0], c.inner[1], sizeof c.inner[0]) != 0);
}

/* A model's weights are on no grid: with one rank there is no rounding at all. */
static void test_one_rank(void **state) {
    struct world w;
    double single[RANKS_STEPS], local[RANKS_STEPS];
    (void)state;
    open_world(&w, "adamw");
    set_word(&w, "max_steps", "20");
    set_word(&w, "sync_every", "3");
    local_losses(&w, "single", 1, single);
    local_losses(&w, "local_sgd", 1, local);
    assert_memory_equal(single, local, sizeof single);
    close_world(&w);
}

static void test_ranks_join_and_leave(void **state) {
    (void)state;
    local_other_ranks("local_sgd", 2, 3);
    local_other_ranks("local_sgd", 3, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_step_is_ddp),
                                       cmocka_unit_test(test_a_model_follows_ddp),
                                       cmocka_unit_test(test_mean), cmocka_unit_test(test_one_rank),
                                       cmocka_unit_test(test_ranks_join_and_leave)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
