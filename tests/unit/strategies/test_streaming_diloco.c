/* streaming_diloco: one fragment without delay is diloco and alpha 1 is ranks that never meet, both
 * to the bit; fragments, delay and mixing follow the rule as written down apart; codes are added in
 * rank order and cost what they should; sums that came before a checkpoint are used at their step
 * after it; a failed exchange is followed by no outer step. That wires of any speed give the same
 * bits is in tests/suites. */
#include "support/local_case.h"

#include "halley/codec.h"

#define ONE "fragments", "1", "delay", "0", "alpha", "0"
#define LIKE_DILOCO "outer_lr", "0.7"

static void test_one_fragment_is_diloco(void **state) {
    static struct local_case a, b;
    (void)state;
    for (int n = 1; n <= 3; n++) {
        a = (struct local_case){.strategy = "diloco", .n_ranks = n, .n_steps = 11, .sync_every = 3};
        b = a;
        b.strategy = "streaming_diloco";
        memcpy(b.options, (const char *[]){ONE, LIKE_DILOCO, "codec", "f32"}, 10 * sizeof(char *));
        local_run(&a);
        local_run(&b);
        local_good(&a);
        local_good(&b);
        for (int r = 0; r < n; r++) {
            assert_memory_equal(a.outer[r], b.outer[r], sizeof a.outer[0]);
            assert_memory_equal(a.inner[r], b.inner[r], sizeof a.inner[0]);
        }
    }
}

static void test_alpha_one_is_apart(void **state) {
    static struct local_case c, alone;
    (void)state;
    c = (struct local_case){.strategy = "streaming_diloco",
                            .options = {"alpha", "1", "fragments", "3"},
                            .n_ranks = 3,
                            .n_steps = 11,
                            .sync_every = 4};
    local_run(&c);
    local_good(&c);
    for (int r = 0; r < 3; r++) {
        alone =
            (struct local_case){.strategy = "single", .n_ranks = 1, .n_steps = 11, .first_rank = r};
        local_run(&alone);
        assert_memory_equal(c.inner[r], alone.outer[0], sizeof alone.outer[0]);
    }
    assert_true(memcmp(c.inner[0], c.outer[0], sizeof c.outer[0]) != 0);
}

/* ---- the rule, apart ---- */

enum { H = 4, F = 3, STEPS = 15 };
struct reference {
    int n_ranks, delay;
    double alpha;
    bool carry;
    const struct hl_codec *codec;
    float outer[LOCAL_PARAMETERS], inner[LOCAL_RANKS][LOCAL_PARAMETERS], m[LOCAL_PARAMETERS],
        mean[LOCAL_PARAMETERS], sent[LOCAL_RANKS][LOCAL_PARAMETERS];
};

/* Fragment p is due when (t - p H / F) mod H = 0. */
static bool due(int block, int t) { return t > 0 && (t - block % F * H / F) % H == 0; }

static void begin(struct reference *x, int64_t first, int64_t n) {
    static float delta[LOCAL_PARAMETERS];
    static char code[8 * LOCAL_PARAMETERS];
    for (int r = 0; r < x->n_ranks; r++) {
        for (int64_t i = 0; i < n; i++) delta[i] = x->outer[first + i] - x->inner[r][first + i];
        memcpy(&x->sent[r][first], &x->inner[r][first], (size_t)n * sizeof(float));
        if (x->codec) {
            assert_int_equal(x->codec->encode(n, delta, code), HL_OK);
            x->codec->decode(n, code, delta);
        }
        for (int64_t i = 0; i < n; i++)
            x->mean[first + i] = r ? x->mean[first + i] + delta[i] : delta[i];
    }
}

static void use(struct reference *x, int64_t i) {
    const float part = 1 / (float)x->n_ranks, g = x->mean[i] * part;
    x->m[i] = 0.9f * x->m[i] + g;
    x->outer[i] -= 0.4f * (g + 0.9f * x->m[i]);
    for (int r = 0; r < x->n_ranks; r++)
        x->inner[r][i] = x->carry        ? x->outer[i] + (x->inner[r][i] - x->sent[r][i])
                         : x->alpha == 0 ? x->outer[i]
                                         : (float)x->alpha * x->inner[r][i] +
                                               (float)(1 - x->alpha) * x->outer[i];
}

static void run_reference(struct reference *x) {
    for (int64_t i = 0; i < LOCAL_PARAMETERS; i++) {
        x->outer[i] = local_weight(i);
        for (int r = 0; r < x->n_ranks; r++) x->inner[r][i] = x->outer[i];
    }
    for (int t = 1; t <= STEPS; t++) {
        for (int r = 0; r < x->n_ranks; r++)
            for (int64_t i = 0; i < LOCAL_PARAMETERS; i++)
                x->inner[r][i] -= 0.0625f * local_gradient(r, t - 1, i);
        int64_t first = 0;
        for (int b = 0; b < LOCAL_BLOCKS; first += local_sizes[b++]) {
            if (due(b, t)) begin(x, first, local_sizes[b]);
            for (int64_t i = first; i < first + local_sizes[b] && due(b, t - x->delay); i++)
                use(x, i);
        }
    }
}

static void test_rule(void **state) {
    static const char *const cases[][4] = {{"0", "0", "f32", "no"},    {"1", "0.5", "f32", "no"},
                                           {"3", "0.25", "f32", "no"}, {"2", "0.5", "int4", "no"},
                                           {"3", "0.5", "e3m0", "no"}, {"0", "0", "int8", "no"},
                                           {"1", "0.5", "f32", "yes"}, {"3", "0", "int4", "yes"}};
    static struct local_case c;
    static struct reference x;
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct hl_diag diag;
        c = (struct local_case){.strategy = "streaming_diloco",
                                .options = {"fragments", "3", "delay", cases[k][0], "alpha",
                                            cases[k][1], "codec", cases[k][2], "carry",
                                            cases[k][3]},
                                .n_ranks = 3,
                                .n_steps = STEPS,
                                .sync_every = H};
        x = (struct reference){.n_ranks = 3,
                               .delay = atoi(cases[k][0]),
                               .alpha = strtod(cases[k][1], NULL),
                               .carry = cases[k][3][0] == 'y'};
        if (strcmp(cases[k][2], "f32") != 0)
            assert_int_equal(hl_codec_find(cases[k][2], &x.codec, &diag), HL_OK);
        local_run(&c);
        local_good(&c);
        run_reference(&x);
        assert_memory_equal(c.outer[0], x.outer, sizeof x.outer);
        for (int r = 0; r < 3; r++) assert_memory_equal(c.inner[r], x.inner[r], sizeof x.inner[r]);
    }
}

/* All exchanges of these steps are used within them. */
static void test_costs(void **state) {
    static const char *const codecs[] = {"f32", "bf16", "int8", "int4", "e3m0"};
    static struct local_case c;
    (void)state;
    for (int k = 0; k < 5; k++) {
        c = (struct local_case){.strategy = "streaming_diloco",
                                .options = {"fragments", "5", "delay", "0", "codec", codecs[k]},
                                .n_ranks = 3,
                                .n_steps = 12,
                                .sync_every = 6};
        local_run(&c);
        local_good(&c);
        for (int r = 0; r < 3; r++) assert_true(c.said[r] == c.sent[r]);
    }
}

static void test_a_failed_exchange(void **state) {
    static struct local_case whole, broken;
    (void)state;
    for (int rank = 0; rank < 3; rank++) { /* begun after step 4, to be used after 6 */
        whole = (struct local_case){.strategy = "streaming_diloco",
                                    .options = {"fragments", "1", "delay", "2"},
                                    .n_ranks = 3,
                                    .n_steps = 5,
                                    .sync_every = 4};
        broken = whole;
        broken.n_steps = 6;
        broken.failing_rank = rank;
        broken.fails_at = 6;
        local_run(&whole);
        local_run(&broken);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(broken.status[r], r == rank ? HL_E_STOPPED : HL_E_PEER);
            assert_memory_equal(broken.outer[r], whole.outer[0], sizeof whole.outer[0]);
            assert_true(broken.outer[r][5] == local_weight(5));
        }
    }
}

static void test_delay_below_interval(void **state) {
    struct world w;
    struct hl_trainer *t;
    struct hl_diag diag = {0};
    (void)state;
    open_world(&w, "adamw");
    set_word(&w, "strategy", "streaming_diloco");
    set_word(&w, "sync_every", "3");
    set_word(&w, "streaming_diloco.delay", "3");
    assert_int_equal(hl_trainer_new(hl_mem_default(), &w.setup, &t, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "streaming_diloco.delay: 3 steps"));
    close_world(&w);
}

/* ---- checkpoints while something is under way ---- */

static void set_delayed(struct world *w, const char *fragments, bool carry) {
    open_world(w, "adamw");
    set_word(w, "max_steps", "20");
    set_word(w, "strategy", "streaming_diloco");
    set_word(w, "sync_every", "5");
    set_word(w, "streaming_diloco.fragments", fragments);
    set_word(w, "streaming_diloco.delay", "4");
    set_word(w, "streaming_diloco.carry", carry ? "true" : "false");
}

/* Saved after step `at`; what begins there or shortly before comes to its end after it. */
static void test_resumed_in_flight(void **state) {
    (void)state;
    for (int at = 1; at <= 9; at++) {
        struct world w;
        char checkpoint[160];
        set_delayed(&w, "4", at % 2);
        struct ranks_job whole = {.world = &w, .n_steps = 12},
                         half = {.world = &w, .n_steps = at, .save_to = w.folder},
                         rest = {.world = &w, .n_steps = 12 - at, .resume_from = checkpoint};
        (void)snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-%d", w.folder, at);
        ranks_job_run(&whole, 3);
        ranks_job_run(&half, 3);
        ranks_job_run(&rest, 3);
        assert_int_equal(whole.n_state, rest.n_state);
        assert_memory_equal(whole.state, rest.state, (size_t)whole.n_state * sizeof(float));
        for (int i = at; i < 12; i++) assert_true(whole.loss[i] == rest.loss[i - at]);
        free(whole.state);
        free(half.state);
        free(rest.state);
        close_world(&w);
    }
}

/* With other fragments from there on, what is under way is used all the same, and training goes on.
 */
static void test_resumed_with_other_fragments(void **state) {
    static const char *const fragments[] = {"1", "2", "4"};
    (void)state;
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            struct world w;
            char checkpoint[160];
            set_delayed(&w, fragments[i], i == k);
            struct ranks_job half = {.world = &w, .n_steps = 6, .save_to = w.folder},
                             rest = {.world = &w, .n_steps = 12, .resume_from = checkpoint};
            (void)snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-6", w.folder);
            ranks_job_run(&half, 2);
            set_word(&w, "streaming_diloco.fragments", fragments[k]);
            set_word(&w, "sync_every", "6");
            ranks_job_run(&rest, 2);
            assert_true(rest.loss[11] < half.loss[0]);
            free(half.state);
            free(rest.state);
            close_world(&w);
        }
}

/* With no delay there is nothing to carry over. */
static void test_carry_without_delay(void **state) {
    static struct local_case a, b;
    (void)state;
    a = (struct local_case){.strategy = "streaming_diloco",
                            .options = {"delay", "0", "alpha", "0"},
                            .n_ranks = 3,
                            .n_steps = 11,
                            .sync_every = 3};
    b = a;
    b.options[2] = "carry";
    b.options[3] = "true";
    local_run(&a);
    local_run(&b);
    local_good(&b);
    for (int r = 0; r < 3; r++) assert_memory_equal(a.inner[r], b.inner[r], sizeof a.inner[0]);
}

/* A sum that is under way is the mean of those who made it, whoever is there when it is used. */
static void test_under_way_with_other_ranks(void **state) {
    struct world w;
    char checkpoint[160];
    (void)state;
    set_delayed(&w, "1", false);
    struct ranks_job half = {.world = &w, .n_steps = 6, .save_to = w.folder},
                     same = {.world = &w, .n_steps = 3, .resume_from = checkpoint}, fewer = same,
                     more = same;
    (void)snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-6", w.folder);
    ranks_job_run(&half, 3);
    ranks_job_run(&same, 3);
    ranks_job_run(&fewer, 2);
    ranks_job_run(&more, 4);
    size_t n = (size_t)same.n_state * sizeof(float);
    assert_memory_not_equal(half.state, same.state, n);
    assert_memory_equal(fewer.state, same.state, n);
    assert_memory_equal(more.state, same.state, n);
    free(half.state);
    free(same.state);
    free(fewer.state);
    free(more.state);
    close_world(&w);
}

static void test_ranks_join_and_leave(void **state) {
    (void)state;
    local_other_ranks("streaming_diloco", 2, 3);
    local_other_ranks("streaming_diloco", 3, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_fragment_is_diloco),
        cmocka_unit_test(test_alpha_one_is_apart),
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_a_failed_exchange),
        cmocka_unit_test(test_delay_below_interval),
        cmocka_unit_test(test_resumed_in_flight),
        cmocka_unit_test(test_resumed_with_other_fragments),
        cmocka_unit_test(test_carry_without_delay),
        cmocka_unit_test(test_under_way_with_other_ranks),
        cmocka_unit_test(test_ranks_join_and_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
