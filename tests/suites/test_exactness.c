/* The promise of docs/numerics.md: equal bits across strategies at equal ranks, accumulation,
 * micro-batches and threads; resuming changes nothing, also under another strategy; another number
 * of ranks changes rounding only. Cells are chosen pairwise; HALLEY_SOAK=1 runs all. */
#include "support/trainer_fixture.h"

#include "support/train_ranks.h"

static const char *const strategies[] = {"ddp", "zero1", "zero2", "zero3"};
enum { N_STRATEGIES = sizeof strategies / sizeof *strategies };

static void set_cell(struct world *w, const char *strategy, int accumulation, bool bf16) {
    char number[16];
    (void)snprintf(number, sizeof number, "%d", accumulation);
    set_word(w, "strategy", strategy);
    set_word(w, "gradient_accumulation_steps", number);
    set_word(w, "bf16", bf16 ? "true" : "false");
}

static void same_results(const struct ranks_job *a, const struct ranks_job *b, const char *what) {
    for (int i = 0; i < a->n_steps; i++)
        if (a->loss[i] != b->loss[i] || a->norm[i] != b->norm[i])
            fail_msg("%s: step %d: loss %a and %a, norm %a and %a", what, i + 1, a->loss[i],
                     b->loss[i], a->norm[i], b->norm[i]);
    assert_int_equal(a->n_state, b->n_state);
    for (int64_t i = 0; i < a->n_state; i++)
        if (memcmp(&a->state[i], &b->state[i], sizeof(float)) != 0)
            fail_msg("%s: element %lld is %a and %a", what, (long long)i, (double)a->state[i],
                     (double)b->state[i]);
    assert_true(a->eval_loss == b->eval_loss);
}

static bool soak(void) { return getenv("HALLEY_SOAK") != NULL; }

static void test_strategies_agree(void **state) {
    static const int ranks[] = {1, 2, 3, 4, 7}, accumulations[] = {1, 2, 4};
    struct world w;
    int cell = 0;
    (void)state;
    open_world(&w, "adamw");
    for (size_t n = 0; n < sizeof ranks / sizeof *ranks; n++)
        for (int a = 0; a < 3; a++)
            for (int bf16 = 0; bf16 < 2; bf16++, cell++) {
                if (!soak() && cell % 3 != (int)n % 3) continue;
                struct ranks_job first = {.world = &w, .n_steps = 3};
                set_cell(&w, ranks[n] == 1 ? "single" : "ddp", accumulations[a], bf16);
                ranks_job_run(&first, ranks[n]);
                for (int s = ranks[n] > 1; s < N_STRATEGIES; s++) {
                    struct ranks_job job = {.world = &w, .n_steps = 3};
                    char what[80];
                    (void)snprintf(what, sizeof what, "%s, %d ranks, accumulation %d, %s",
                                   strategies[s], ranks[n], accumulations[a],
                                   bf16 ? "bf16" : "f32");
                    set_cell(&w, strategies[s], accumulations[a], bf16);
                    ranks_job_run(&job, ranks[n]);
                    same_results(&first, &job, what);
                    free(job.state);
                }
                free(first.state);
            }
    close_world(&w);
}

/* The union of what ranks see is what one rank sees: losses differ by rounding alone. The last step
 * has rows for some ranks only. */
static void test_ranks_share_the_rows(void **state) {
    static const int ranks[] = {1, 2, 3, 4, 6};
    struct ranks_job jobs[5];
    struct world w;
    (void)state;
    open_world(&w, "adamw");
    set_word(&w, "learning_rate", "0.001");
    for (int n = 0; n < 5; n++) {
        char rows[16];
        (void)snprintf(rows, sizeof rows, "%d", 12 / ranks[n]);
        jobs[n] = (struct ranks_job){.world = &w, .n_steps = 10};
        set_cell(&w, ranks[n] == 1 ? "single" : "zero1", 1, false);
        set_word(&w, "per_device_train_batch_size", rows);
        set_word(&w, "per_device_eval_batch_size", "3");
        set_word(&w, "max_steps", "10");
        ranks_job_run(&jobs[n], ranks[n]);
        for (int i = 0; i < 10 && n > 0; i++)
            if (fabs(jobs[n].loss[i] / jobs[0].loss[i] - 1) > 1e-6)
                fail_msg("%d ranks, step %d: loss %.9g, one rank's is %.9g", ranks[n], i + 1,
                         jobs[n].loss[i], jobs[0].loss[i]);
    }
    for (int n = 0; n < 5; n++) free(jobs[n].state);
    close_world(&w);
}

/* Parts rounded to bf16 on the way: other bits than f32's, the same ones in all strategies. */
static void test_bf16_on_the_wire(void **state) {
    struct world w;
    (void)state;
    open_world(&w, "adamw");
    struct ranks_job plain = {.world = &w, .n_steps = 3};
    set_cell(&w, "ddp", 1, false);
    ranks_job_run(&plain, 3);
    set_word(&w, "reduce_dtype", "bf16");
    struct ranks_job first = {.world = &w, .n_steps = 3};
    ranks_job_run(&first, 3);
    assert_true(first.norm[0] != plain.norm[0] && fabs(first.norm[0] / plain.norm[0] - 1) < 0.01);
    for (int s = 1; s < N_STRATEGIES; s++) {
        struct ranks_job job = {.world = &w, .n_steps = 3};
        set_cell(&w, strategies[s], 1, false);
        ranks_job_run(&job, 3);
        same_results(&first, &job, strategies[s]);
        free(job.state);
    }
    free(plain.state);
    free(first.state);
    close_world(&w);
}

/* A reduction after every micro-batch: other bits than with one per step unless there is one
 * micro-batch, the same ones in all strategies. */
static void test_reduced_every_micro_batch(void **state) {
    struct world w;
    (void)state;
    for (int cell = 0; cell < 8; cell++) {
        const int n_ranks = cell % 4 + 2, accumulation = cell % 3 + 1;
        const bool bf16 = cell >= 4;
        struct ranks_job once = {.world = &w, .n_steps = 3}, first = once;
        open_world(&w, "adamw");
        set_cell(&w, "ddp", accumulation, bf16);
        ranks_job_run(&once, n_ranks);
        set_word(&w, "reduce", "every_micro_batch");
        ranks_job_run(&first, n_ranks);
        if (accumulation == 1) same_results(&once, &first, "one micro-batch");
        else if (once.norm[0] == first.norm[0] || fabs(once.norm[0] / first.norm[0] - 1) > 1e-5)
            fail_msg("%d ranks, %d micro-batches: norm %.9g, %.9g with one reduction", n_ranks,
                     accumulation, first.norm[0], once.norm[0]);
        for (int s = 1; s < N_STRATEGIES; s++) {
            struct ranks_job job = {.world = &w, .n_steps = 3};
            set_cell(&w, strategies[s], accumulation, bf16);
            ranks_job_run(&job, n_ranks);
            same_results(&first, &job, strategies[s]);
            free(job.state);
        }
        free(once.state);
        free(first.state);
        close_world(&w);
    }
}

/* The rows of a step do not depend on the number of ranks; some get fewer, or none. */
static void test_global_batch(void **state) {
    static const int ranks[] = {1, 2, 3, 4};
    double loss[4][3];
    struct world w;
    (void)state;
    open_world(&w, "sgd");
    set_word(&w, "global_batch_size", "13");
    set_word(&w, "per_device_train_batch_size", "4");
    for (int n = 0; n < 4; n++) {
        struct ranks_job job = {.world = &w, .n_steps = 3};
        set_word(&w, "strategy", n % 2 ? "zero3" : "auto");
        ranks_job_run(&job, ranks[n]);
        memcpy(loss[n], job.loss, sizeof loss[n]);
        for (int i = 0; i < 3; i++)
            if (fabs(loss[n][i] / loss[0][i] - 1) > 1e-6)
                fail_msg("%d ranks, step %d: %.9g, not %.9g", ranks[n], i + 1, loss[n][i],
                         loss[0][i]);
        free(job.state);
    }
    close_world(&w);
}

/* One epoch: the last step has fewer rows than ranks times the micro-batch. */
static void test_uneven_end(void **state) {
    struct world w;
    (void)state;
    open_world(&w, "sgd");
    set_cell(&w, "ddp", 1, false);
    set_word(&w, "max_steps", "-1");
    set_word(&w, "num_train_epochs", "1");
    set_word(&w, "per_device_train_batch_size", "9");
    int64_t rows = hl_dataset_n_rows(w.dataset, HL_SPLIT_TRAIN);
    int ranks = 4, steps = (int)((rows + 35) / 36);
    assert_true(rows % 36 > 0);
    struct ranks_job job = {.world = &w, .n_steps = steps}, zero = job;
    ranks_job_run(&job, ranks);
    set_word(&w, "strategy", "zero1");
    ranks_job_run(&zero, ranks);
    same_results(&job, &zero, "one epoch");
    assert_true(isfinite(job.loss[steps - 1]));
    free(job.state);
    free(zero.state);
    close_world(&w);
}

static void resumed(struct world *w, const char *first, int n_first, const char *second,
                    int n_second, int at, const struct ranks_job *want) {
    char folder[100], checkpoint[160], what[120];
    (void)snprintf(folder, sizeof folder, "%s/out", w->folder);
    (void)snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-%d", folder, at);
    (void)snprintf(what, sizeof what, "%s on %d, resumed at %d as %s on %d", first, n_first, at,
                   second, n_second);
    struct ranks_job one = {.world = w, .n_steps = at, .save_to = folder};
    set_word(w, "strategy", first);
    ranks_job_run(&one, n_first);
    struct ranks_job two = {.world = w, .n_steps = want->n_steps - at, .resume_from = checkpoint};
    set_word(w, "strategy", second);
    ranks_job_run(&two, n_second);
    if (n_first == n_second) {
        struct ranks_job rest = *want;
        rest.n_steps = two.n_steps;
        memmove(rest.loss, rest.loss + at, sizeof rest.loss - (size_t)at * sizeof *rest.loss);
        memmove(rest.norm, rest.norm + at, sizeof rest.norm - (size_t)at * sizeof *rest.norm);
        same_results(&rest, &two, what);
    } else
        for (int i = 0; i < two.n_steps; i++)
            if (!(fabs(two.loss[i] / want->loss[at + i] - 1) < 0.05))
                fail_msg("%s: loss %g", what, two.loss[i]);
    free(one.state);
    free(two.state);
    char command[160];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

static void test_resume(void **state) {
    static const int ranks[] = {1, 2, 3, 4, 8};
    struct world w;
    (void)state;
    open_world(&w, "adamw");
    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct ranks_job whole = {.world = &w, .n_steps = 5};
        set_cell(&w, "ddp", 1, bf16);
        ranks_job_run(&whole, 3);
        for (int at = 1; at < 5; at++)
            for (int s = 0; s < N_STRATEGIES; s++)
                resumed(&w, strategies[(s + at) % N_STRATEGIES], 3, strategies[s], 3, at, &whole);
        for (int n = 0; n < 5; n++)
            resumed(&w, strategies[n % N_STRATEGIES], 3,
                    ranks[n] == 1 ? "single" : strategies[(n + 1) % N_STRATEGIES], ranks[n], 2,
                    &whole);
        free(whole.state);
    }
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strategies_agree),
        cmocka_unit_test(test_ranks_share_the_rows),
        cmocka_unit_test(test_bf16_on_the_wire),
        cmocka_unit_test(test_global_batch),
        cmocka_unit_test(test_reduced_every_micro_batch),
        cmocka_unit_test(test_uneven_end),
        cmocka_unit_test(test_resume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
