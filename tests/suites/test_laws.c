/* The laws that every registered strategy keeps, over every wire that one machine can have. A new
 * strategy or wire is tried here without a line of its own. HALLEY_SOAK=1 runs more cells.
 *
 * A law says who broke it: strategy, wire, number of ranks, rank, and what differs. Each law is
 * also shown a strategy that breaks it. */
#include "support/law_runs.h"

#include <jansson.h>

#include "halley/text_number.h"
#include "os/parallel.h"
#include "strategies/data_parallel.h"

static bool soak(void) { return getenv("HALLEY_SOAK") != NULL; }

/* True when the plan's strategy keeps it; else false with who and what in why. */
typedef bool law(const struct law_plan *plan, char why[LAW_WHY]);

/* ---- what is compared ---- */

static bool same_steps(const struct law_rank *a, const struct law_rank *b, int rank,
                       char why[LAW_WHY]) {
    int skip = a->n_done - b->n_done; /* b went on from a checkpoint */
    for (int i = 0; i < b->n_done; i++)
        if (a->loss[skip + i] != b->loss[i] || a->norm[skip + i] != b->norm[i])
            return (void)snprintf(why, LAW_WHY, "rank %d, step %d: loss %a and %a, norm %a and %a",
                                  rank, skip + i + 1, a->loss[skip + i], b->loss[i],
                                  a->norm[skip + i], b->norm[i]),
                   false;
    if (a->own != b->own)
        return (void)snprintf(why, LAW_WHY, "rank %d keeps other state of its own", rank), false;
    for (int k = 0; k < b->n_blocks; k++)
        if (a->weights[k] != b->weights[k])
            return (void)snprintf(why, LAW_WHY, "rank %d computes with other weights in block %d",
                                  rank, k),
                   false;
    return true;
}

static bool same_bits(const struct law_run *a, const struct law_run *b, char why[LAW_WHY]) {
    if (!law_run_is_good(a, why) || !law_run_is_good(b, why)) return false;
    for (int r = 0; r < a->plan.n_ranks; r++)
        if (!same_steps(&a->ranks[r], &b->ranks[r], r, why)) return false;
    int64_t P = a->ranks[0].n_parameters;
    for (int64_t i = 0; i < a->n_state; i++)
        if (memcmp(&a->state[i], &b->state[i], sizeof a->state[i]) != 0)
            return (void)snprintf(why, LAW_WHY, "%s %d, element %lld: %a and %a",
                                  i < P ? "weights" : "slot", i < P ? 0 : (int)(i / P - 1),
                                  (long long)(i % P), (double)a->state[i], (double)b->state[i]),
                   false;
    return true;
}

static unsigned caps_of(const struct law_plan *plan) {
    const struct hl_strategy *s = plan->instead;
    if (!s && hl_strategy_find(plan->world->train.strategy, &s, NULL) != HL_OK) return 0;
    return s->caps;
}

/* Runs both plans. What is applied on arrival need not repeat. */
static bool runs_alike(const struct law_plan *a, const struct law_plan *b, char why[LAW_WHY]) {
    struct law_run *first = law_run(a), *second = law_run(b);
    bool same = law_run_is_good(first, why) && law_run_is_good(second, why) &&
                (caps_of(a) & HL_CAP_ASYNC || same_bits(first, second, why));
    law_run_free(first);
    law_run_free(second);
    return same;
}

/* ---- cells ---- */

/* The strategy with options that make it repeat, and without a warm-up: laws run few steps. */
static void set_strategy(struct world *w, const char *name) {
    const struct hl_strategy *s = NULL;
    char key[128], value[64];
    set_word(w, "strategy", name);
    if (hl_strategy_find(name, &s, NULL) != HL_OK) return;
    for (size_t i = 0; i < s->n_rows; i++) {
        if (strcmp(s->rows[i].name, "warmup_steps") != 0) continue;
        (void)snprintf(key, sizeof key, "%s.warmup_steps", name);
        set_word(w, key, "0");
    }
    if (!s->reproducible) return;
    const char *equals = strchr(s->reproducible, '=');
    (void)snprintf(key, sizeof key, "%s.%.*s", name, (int)(equals - s->reproducible),
                   s->reproducible);
    (void)snprintf(value, sizeof value, "%s", equals + 1);
    set_word(w, key, value);
}

static void set_cell(struct world *w, const char *strategy, int accumulation, bool bf16) {
    char number[16];
    (void)snprintf(number, sizeof number, "%d", accumulation);
    set_strategy(w, strategy);
    set_word(w, "sync_every", "2");
    set_word(w, "max_steps", "20"); /* of the planned size: more than any law runs */
    set_word(w, "gradient_accumulation_steps", number);
    set_word(w, "bf16", bf16 ? "true" : "false");
    set_word(w, "reduce_dtype", bf16 && accumulation == 2 ? "bf16" : "f32");
    set_word(w, "reduce", bf16 && accumulation == 2 ? "every_micro_batch" : "step");
}

/* What a strategy is asked before anything exists. */
struct question {
    struct hl_model *model;
    struct hl_strategy_env env;
};
static void open_question(struct question *q, const struct world *w, int n_ranks) {
    struct hl_diag diag = {0};
    q->env = (struct hl_strategy_env){.mem = hl_mem_default(),
                                      .optimizer_options = &w->optimizer,
                                      .n_ranks = n_ranks,
                                      .accumulation = w->train.gradient_accumulation_steps,
                                      .sync_every = w->train.sync_every,
                                      .seed = w->setup.seed};
    assert_int_equal(hl_model_new(q->env.mem, &w->model, &q->model, &diag), HL_OK);
    q->env.layout = &q->model->layout;
    assert_int_equal(hl_kernels_get(w->train.bf16 ? HL_BF16 : HL_F32, &q->env.kernels, &diag),
                     HL_OK);
    assert_int_equal(hl_optimizer_find(w->train.optim, &q->env.optimizer, &diag), HL_OK);
}
static void close_question(struct question *q) { hl_model_free(q->model); }

/* Options of a strategy at their defaults, or one of them at another value. errors: as check says,
 * or HL_E_FORMAT when the table itself refuses the value. */
static enum hl_status ask(const struct hl_strategy *s, struct question *q, const char *key,
                          const char *value, struct hl_diag *diag) {
    void *options = hl_alloc(hl_mem_default(), s->options_bytes + 1, 1);
    struct hl_option_set set = {s->name, s->rows, s->n_rows, options};
    struct hl_config *config = NULL;
    assert_non_null(options);
    assert_int_equal(hl_config_new(hl_mem_default(), &set, 1, &config, diag), HL_OK);
    q->env.options = options;
    enum hl_status status = HL_OK;
    if (key && hl_config_set(config, key, &value, 1, "law", 0, diag) != HL_OK) status = HL_E_FORMAT;
    if (status == HL_OK) status = s->check(&q->env, diag);
    if (status == HL_OK) (void)s->cost(&q->env);
    hl_config_free(config);
    hl_free(hl_mem_default(), options);
    return status;
}

/* Slow wires are tried with the last strategy only, unless soaking. */
static bool is_tried(const char *wire, int s) {
    return soak() || !meeting_is_slow(wire) || !hl_strategies()[s + 1];
}

/* As many ranks as wanted, or one when the strategy is not for many. */
static int ranks_for(const struct hl_strategy *s, const struct world *w, int wanted) {
    struct question q;
    struct hl_diag diag = {0};
    open_question(&q, w, wanted);
    enum hl_status status = ask(s, &q, NULL, NULL, &diag);
    close_question(&q);
    if (status == HL_OK) return wanted;
    assert_int_equal(status, HL_E_USER);
    return 1;
}

static void keep(law *l, const char *what, const struct law_plan *plan) {
    char why[LAW_WHY] = "", name[200];
    if (l(plan, why)) return;
    law_run_name(plan, name, sizeof name);
    fail_msg("a law is broken: %s: %s: %s", what, name, why);
}

/* All strategies, a few cells each (all of them when soaking). */
static void for_each(law *l, const char *what, const struct law_plan *base) {
    static const int ranks[] = {2, 3, 4, 7}, accumulations[] = {1, 2, 4};
    struct world w;
    open_world(&w, "adamw");
    int cell = 0;
    for (int s = 0; hl_strategies()[s]; s++)
        for (int n = 0; n < 4; n++)
            for (int a = 0; a < 3; a++)
                for (int bf16 = 0; bf16 < 2; bf16++, cell++) {
                    bool chosen = n < 2 && a == n && bf16 == (n + s) % 2;
                    if (!soak() && !chosen) continue;
                    struct law_plan plan = *base;
                    set_cell(&w, hl_strategies()[s]->name, accumulations[a], bf16);
                    plan.world = &w;
                    plan.n_ranks = ranks_for(hl_strategies()[s], &w, ranks[n]);
                    keep(l, what, &plan);
                }
    close_world(&w);
}

/* ---- 1: a strategy takes its own defaults, and all that its table allows ---- */

/* Accepted, or refused by the option's name. */
static bool try_value(const struct hl_strategy *s, struct question *q, const char *option,
                      const char *value, char why[LAW_WHY]) {
    struct hl_diag diag = {0};
    char key[128];
    (void)snprintf(key, sizeof key, "%s.%s", s->name, option);
    enum hl_status status = ask(s, q, key, value, &diag);
    if (status == HL_OK || (status == HL_E_USER && strstr(diag.text, option))) return true;
    (void)snprintf(why, LAW_WHY, "%s = %s: status %d: %.500s", key, value, status, diag.text);
    return false;
}

static bool try_option(const struct hl_strategy *s, struct question *q, const struct hl_option *o,
                       char why[LAW_WHY]) {
    char least[40], most[40], word[64];
    if (o->kind == HL_OPT_BOOL)
        return try_value(s, q, o->name, "true", why) && try_value(s, q, o->name, "false", why);
    for (const char *at = o->choices; at && *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        (void)snprintf(word, sizeof word, "%.*s", (int)n, at);
        if (!try_value(s, q, o->name, word, why)) return false;
        at += n;
    }
    if (o->least == 0 && o->most == 0) return true;
    hl_print_f64(least, sizeof least, o->least);
    hl_print_f64(most, sizeof most, o->most);
    if (o->kind == HL_OPT_I64) {
        (void)snprintf(least, sizeof least, "%.0f", o->least);
        (void)snprintf(most, sizeof most, "%.0f", o->most);
    }
    return try_value(s, q, o->name, least, why) && try_value(s, q, o->name, most, why);
}

static bool takes_its_options(const struct hl_strategy *s, struct question *q, char why[LAW_WHY]) {
    struct hl_diag diag = {0};
    if (ask(s, q, NULL, NULL, &diag) != HL_OK)
        return (void)snprintf(why, LAW_WHY, "its defaults are refused: %.500s", diag.text), false;
    for (size_t i = 0; i < s->n_rows; i++)
        if (!try_option(s, q, &s->rows[i], why)) return false;
    return true;
}

static void test_options(void **state) {
    static const int ranks[] = {1, 2, 3, 8, 64};
    struct world w;
    (void)state;
    open_world(&w, "adamw");
    for (int i = 0; hl_strategies()[i]; i++)
        for (size_t n = 0; n < sizeof ranks / sizeof *ranks; n++) {
            const struct hl_strategy *s = hl_strategies()[i];
            struct question q;
            char why[LAW_WHY];
            open_question(&q, &w, ranks_for(s, &w, ranks[n]));
            if (!takes_its_options(s, &q, why))
                fail_msg("a law is broken: options: %s, %d ranks: %s", s->name, ranks[n], why);
            close_question(&q);
        }
    close_world(&w);
}

struct picky_options {
    double share;
    int64_t count;
    int kind;
};
static const struct hl_option picky_rows[] = {{.name = "share",
                                               .kind = HL_OPT_F64,
                                               .offset = offsetof(struct picky_options, share),
                                               .initial = "0.5",
                                               .least = 0.25,
                                               .most = 1},
                                              {.name = "count",
                                               .kind = HL_OPT_I64,
                                               .offset = offsetof(struct picky_options, count),
                                               .initial = "2",
                                               .least = 1,
                                               .most = 9},
                                              {.name = "kind",
                                               .kind = HL_OPT_CHOICE,
                                               .offset = offsetof(struct picky_options, kind),
                                               .initial = "one",
                                               .choices = "one other"}};
static enum hl_status picky_check(const struct hl_strategy_env *env, struct hl_diag *diag) {
    const struct picky_options *o = env->options;
    if (o->count == 9) return hl_fail(diag, HL_E_USER, "too many");
    if (o->kind == 1 && o->share == 0.25) return hl_fail(diag, HL_E_USER, "picky.share is low");
    return HL_OK;
}
static struct hl_strategy_need picky_cost(const struct hl_strategy_env *env) {
    (void)env;
    return (struct hl_strategy_need){.period_steps = 1};
}

static void test_options_that_are_refused_without_a_name(void **state) {
    const struct hl_strategy picky = {.name = "picky",
                                      .rows = picky_rows,
                                      .n_rows = 3,
                                      .options_bytes = sizeof(struct picky_options),
                                      .check = picky_check,
                                      .cost = picky_cost};
    struct world w;
    struct question q;
    char why[LAW_WHY] = "";
    (void)state;
    open_world(&w, "adamw");
    open_question(&q, &w, 2);
    assert_false(takes_its_options(&picky, &q, why));
    assert_non_null(strstr(why, "picky.count = 9: status -1: too many"));
    close_question(&q);
    close_world(&w);
}

/* ---- 2: after drain, ranks hold equal parameters, as evaluation sees them ---- */

static bool equal_parameters(const struct law_plan *plan, char why[LAW_WHY]) {
    struct law_run *run = law_run(plan);
    bool good = law_run_is_good(run, why);
    assert_true(!good || run->n_state > 0);
    for (int r = 0; r < plan->n_ranks && good; r++)
        for (int b = 0; b < run->ranks[r].n_blocks && good; b++)
            if (run->ranks[r].weights[b] != run->saved_weights[b]) {
                (void)snprintf(why, LAW_WHY,
                               "rank %d computes with other weights in block %d than rank 0 would "
                               "save",
                               r, b);
                good = false;
            }
    law_run_free(run);
    return good;
}

static void test_equal_parameters(void **state) {
    const struct law_plan plan = {.n_steps = 3};
    (void)state;
    for_each(equal_parameters, "ranks hold equal parameters", &plan);
}

/* A new folder for checkpoints, in memory where that can be had: hundreds are saved. Free with
 * drop_folder. */
static void make_folder(char folder[64]) {
    (void)snprintf(folder, 64, "/dev/shm/halley-test-XXXXXX");
    if (mkdtemp(folder)) return;
    (void)snprintf(folder, 64, "/tmp/halley-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
}
static bool drop_folder(const char *folder) {
    char command[100];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0;
}

/* ---- 3 and 11: saving, evaluating, going on ---- */

static bool saving_changes_nothing(const struct law_plan *plan, char why[LAW_WHY]) {
    struct law_plan busy = *plan;
    busy.save = busy.evaluate = true;
    return runs_alike(plan, &busy, why);
}

/* Saved after each step of two periods, and before the first. */
static bool resuming_changes_nothing(const struct law_plan *plan, char why[LAW_WHY]) {
    struct law_plan saving = *plan;
    char checkpoint[200];
    saving.save = true;
    struct law_run *whole = law_run(&saving);
    bool good = law_run_is_good(whole, why);
    int64_t period = whole->ranks[0].need.period_steps;
    for (int at = 0; at <= 2 * period && at < plan->n_steps && good; at++) {
        struct law_plan rest = *plan;
        (void)snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-%d", plan->folder, at);
        rest.resume_from = checkpoint;
        rest.n_steps = plan->n_steps - at;
        struct law_run *resumed = law_run(&rest);
        good = law_run_is_good(resumed, why) &&
               (caps_of(plan) & HL_CAP_ASYNC || same_bits(whole, resumed, why));
        law_run_free(resumed);
        size_t n = strlen(why);
        if (!good) (void)snprintf(why + n, LAW_WHY - n, "; resumed at step %d", at);
    }
    law_run_free(whole);
    return good;
}

static bool goes_on(const struct law_plan *plan, char why[LAW_WHY]) {
    char folder[64];
    struct law_plan with = *plan;
    make_folder(folder);
    with.folder = folder;
    bool good = saving_changes_nothing(&with, why) && resuming_changes_nothing(&with, why);
    return drop_folder(folder) && good;
}

static void test_saving_and_going_on(void **state) {
    const struct law_plan plan = {.n_steps = 4};
    (void)state;
    for_each(goes_on, "saving, evaluating and resuming change no bit", &plan);
}

/* ---- 4: what is sent is what cost says ---- */

static bool sends_what_it_says(const struct law_plan *plan, char why[LAW_WHY]) {
    struct law_plan counted = *plan;
    counted.wrappers = "count";
    struct law_run *run = law_run(&counted);
    bool good = law_run_is_good(run, why);
    for (int r = 0; r < plan->n_ranks && good; r++) {
        const struct law_rank *k = &run->ranks[r];
        double said = k->need.sent_bytes_per_parameter * (double)k->n_parameters * plan->n_steps /
                      (double)k->need.period_steps;
        double sent =
            (double)(k->counts[LAW_AT_SAVED].sent_bytes - k->counts[LAW_AT_START].sent_bytes);
        good = fabs(sent - said) <= 0.01 * said;
        if (!good)
            (void)snprintf(why, LAW_WHY,
                           "rank %d sent %.0f bytes in %d steps, and cost says %.0f (%.4g and %.4g "
                           "per parameter)",
                           r, sent, plan->n_steps, said, sent / (double)k->n_parameters,
                           said / (double)k->n_parameters);
    }
    law_run_free(run);
    return good;
}

/* Of half a million parameters, so that the loop's own exchanges weigh nothing. */
static void larger(struct world *w, int layers) {
    w->model.hidden_size = 64;
    w->model.num_hidden_layers = layers;
    w->model.intermediate_size = 192;
}

static void test_costs(void **state) {
    struct world w;
    (void)state;
    open_world(&w, "adamw");
    for (int s = 0; hl_strategies()[s]; s++)
        for (int n = 2; n <= (soak() ? 7 : 3); n++)
            for (int accumulation = 1; accumulation <= (soak() ? 3 : 2); accumulation++)
                for (int bf16 = 0; bf16 < 2; bf16++) {
                    larger(&w, soak() || n == 3 ? 6 : 2 + accumulation);
                    set_cell(&w, hl_strategies()[s]->name, accumulation, bf16);
                    const struct law_plan plan = {
                        .world = &w, .n_steps = 2, .n_ranks = ranks_for(hl_strategies()[s], &w, n)};
                    keep(sends_what_it_says, "bytes sent are those of cost", &plan);
                }
    close_world(&w);
}

/* ---- 5: steady steps allocate nothing ---- */

static bool allocates_nothing(const struct law_plan *plan, char why[LAW_WHY]) {
    struct law_run *run = law_run(plan);
    bool good = law_run_is_good(run, why);
    for (int r = 0; r < plan->n_ranks && good; r++) {
        const struct law_count *counts = run->ranks[r].counts;
        long n = counts[plan->n_steps].taken - counts[3].taken;
        good = n == 0 && run->ranks[r].n_live == 0;
        if (!good)
            (void)snprintf(why, LAW_WHY,
                           "rank %d: %ld allocations in the steps 4 to %d, %ld not given back at "
                           "the end",
                           r, n, plan->n_steps, run->ranks[r].n_live);
    }
    law_run_free(run);
    return good;
}

static void test_steady_steps_allocate_nothing(void **state) {
    const struct law_plan plan = {.n_steps = 6, .wrappers = "count"};
    (void)state;
    for_each(allocates_nothing, "no allocation after the third step", &plan);
}

/* ---- 9: the same again ---- */

static bool repeats(const struct law_plan *plan, char why[LAW_WHY]) {
    return runs_alike(plan, plan, why);
}

static void test_same_seed_same_bits(void **state) {
    const struct law_plan plan = {.n_steps = 4, .evaluate = true};
    (void)state;
    for_each(repeats, "the same seed gives the same bits", &plan);
}

/* ---- 6: each allocation of a start fails in turn ---- */

/* The rank without memory says so, the others go on or blame it, and nobody keeps anything. */
static bool is_clean(const struct law_run *run, bool failed, bool tolerated, char why[LAW_WHY]) {
    const struct law_plan *p = &run->plan;
    if (!run->ran) return (void)snprintf(why, LAW_WHY, "%s", run->why), false;
    for (int r = 0; r < p->n_ranks; r++) {
        const struct law_rank *seen = &run->ranks[r];
        bool own = failed && r == p->failing_rank;
        bool fits = own ? seen->status == HL_E_MEMORY || (tolerated && seen->status == HL_OK)
                        : seen->status == HL_OK || seen->status == HL_E_PEER;
        if (fits && seen->n_live == 0 && (seen->status == HL_OK || *seen->diag.text)) continue;
        (void)snprintf(why, LAW_WHY,
                       "allocation %ld of rank %d fails: rank %d has status %d, %ld allocations "
                       "are not given back: %.400s",
                       p->fail_at, p->failing_rank, r, seen->status, seen->n_live, seen->diag.text);
        return false;
    }
    return true;
}

/* The k-th allocation of a rank fails, from k = first on, until there are no more. */
static bool fails_cleanly(const struct law_plan *plan, long first, long stride, char why[LAW_WHY]) {
    bool failed = true, good = true;
    for (long k = first; failed && good; k += stride) {
        struct law_plan failing = *plan;
        failing.fail_at = k;
        failing.failing_rank = (int)(k % plan->n_ranks);
        struct law_run *run = law_run(&failing);
        const struct hl_mem_probe *probe = &run->probes[failing.failing_rank];
        failed = probe->fail_at && probe->n_taken >= probe->fail_at;
        good = is_clean(run, failed, !plan->only_make, why);
        law_run_free(run);
        if (!good || k != first || failed) continue;
        (void)snprintf(why, LAW_WHY, "there is no allocation %ld", first);
        good = false;
    }
    return good;
}

static bool starts_or_says_why(const struct law_plan *plan, char why[LAW_WHY]) {
    struct law_plan start = *plan;
    start.only_make = true;
    return fails_cleanly(&start, 1, 1, why);
}

/* Later allocations: evaluating, saving. */
static bool runs_or_says_why(const struct law_plan *plan, char why[LAW_WHY]) {
    char folder[64];
    struct law_plan busy = *plan;
    make_folder(folder);
    busy.folder = folder;
    busy.save = busy.evaluate = true;
    bool good = fails_cleanly(&busy, 40, soak() ? 1 : 11, why);
    return drop_folder(folder) && good;
}

static void test_allocations_fail_cleanly(void **state) {
    const struct law_plan plan = {.n_steps = 1};
    (void)state;
    for_each(starts_or_says_why, "a start without memory ends cleanly", &plan);
    for_each(runs_or_says_why, "a run without memory ends cleanly", &plan);
}

/* ---- 7: who is lost is named ---- */

static bool names_the_lost(const struct law_run *run, char why[LAW_WHY]) {
    const int lost = run->plan.lost;
    char name[16];
    (void)snprintf(name, sizeof name, "rank %d", lost);
    if (!run->ran) return (void)snprintf(why, LAW_WHY, "%s", run->why), false;
    if (run->killed & ~(1u << lost))
        return (void)snprintf(why, LAW_WHY, "signals ended the ranks 0x%x", run->killed), false;
    for (int r = 0; r < run->plan.n_ranks; r++) {
        const struct law_rank *k = &run->ranks[r];
        bool good = k->status == HL_E_PEER || k->status == HL_E_TIMEOUT;
        if (r == lost || (good && strstr(k->diag.text, name))) continue;
        (void)snprintf(why, LAW_WHY, "rank %d, after %d steps, has status %d and says: %.500s", r,
                       k->n_done, k->status, k->diag.text);
        return false;
    }
    return true;
}

/* Operations of the rank that will be lost, at each moment of a run that nobody breaks. */
static bool count_operations(const struct law_plan *plan, struct law_count counts[LAW_MOMENTS],
                             char why[LAW_WHY]) {
    struct law_plan counted = *plan;
    counted.wrappers = "count";
    struct law_run *run = law_run(&counted);
    bool good = law_run_is_good(run, why);
    memcpy(counts, run->ranks[plan->lost].counts, sizeof run->ranks[plan->lost].counts);
    law_run_free(run);
    return good;
}

static bool survives(const struct law_plan *plan, const char *fault, int64_t operation,
                     char why[LAW_WHY]) {
    struct law_plan broken = *plan;
    char wrappers[64];
    (void)snprintf(wrappers, sizeof wrappers, "fault=%s:%d:%lld", fault, plan->lost,
                   (long long)operation);
    broken.wrappers = wrappers;
    struct law_run *run = law_run(&broken);
    bool good = names_the_lost(run, why);
    law_run_free(run);
    size_t n = strlen(why);
    if (!good) (void)snprintf(why + n, LAW_WHY - n, "; %s", wrappers);
    return good;
}

static bool kills_are_named(const struct law_plan *plan, char why[LAW_WHY]) {
    struct law_count counts[LAW_MOMENTS] = {0};
    const int n = soak() ? 40 : meeting_is_slow(plan->wire) ? 2 : 5;
    if (plan->n_ranks == 1) return true;
    if (!count_operations(plan, counts, why)) return false;
    /* up to the middle of the last step: later ones may find that nobody needs the rank any more */
    int64_t all = (counts[plan->n_steps - 1].operations + counts[plan->n_steps].operations) / 2;
    int64_t first = counts[LAW_AT_START].operations + 1;
    for (int i = 0; i <= n; i++)
        if (!survives(plan, "kill", first + (all - first) * i / n, why)) return false;
    return true;
}

static void test_a_killed_rank_is_named(void **state) {
    struct world w;
    char folder[64];
    (void)state;
    open_world(&w, "adamw");
    make_folder(folder);
    for (int i = 0; meeting_wires()[i]; i++)
        for (int s = 0; hl_strategies()[s]; s++) {
            if (!is_tried(meeting_wires()[i], s)) continue;
            set_cell(&w, hl_strategies()[s]->name, 1 + s % 2, s % 3 == 0);
            const struct law_plan plan = {.world = &w,
                                          .wire = meeting_wires()[i],
                                          .n_ranks = ranks_for(hl_strategies()[s], &w, 3),
                                          .lost = 1,
                                          .n_steps = 2,
                                          .evaluate = true,
                                          .save = true,
                                          .folder = folder};
            keep(kills_are_named, "a killed rank is named by all others", &plan);
        }
    assert_true(drop_folder(folder));
    close_world(&w);
}

/* Ranks that stop answering: all at once, since they sleep most of the time. */
struct silence {
    struct world w;
    struct law_plan plan;
    const char *fault;
    int64_t operation;
    bool good;
    char why[LAW_WHY];
};
static void be_silent(void *context, int i) {
    struct silence *s = (struct silence *)context + i;
    s->good = survives(&s->plan, s->fault, s->operation, s->why);
}

static int add_silence(struct silence *all, int n, const struct hl_strategy *strategy,
                       const char *fault, int round) {
    struct law_count counts[LAW_MOMENTS] = {0};
    struct silence *s = &all[n];
    open_world(&s->w, "adamw");
    set_cell(&s->w, strategy->name, 1 + n % 2, n % 3 == 0);
    s->plan = (struct law_plan){.world = &s->w,
                                .n_ranks = ranks_for(strategy, &s->w, 3),
                                .lost = n % 3,
                                .n_steps = 2,
                                .evaluate = true,
                                .part_bytes = n / 2 % 2 ? 256 : 0,
                                .timeout_ns = 1000000000};
    bool counted = s->plan.n_ranks > 1 && count_operations(&s->plan, counts, s->why);
    if (!counted) return close_world(&s->w), n;
    s->fault = fault;
    int64_t first = counts[LAW_AT_START].operations + 1;
    s->operation = first + (counts[s->plan.n_steps].operations - first) * (n % 7 * 8 + round) / 64;
    return n + 1;
}

static void silent_ranks_are_named(int round) {
    static const char *const faults[] = {"drop", "cut", "freeze", "half-open"};
    enum { MOST = 64 };
    struct silence *all = calloc(MOST, sizeof *all);
    int n = 0;
    assert_non_null(all);
    for (int s = 0; hl_strategies()[s]; s++)
        for (int f = 0; f < 4 && n < MOST; f++)
            n = add_silence(all, n, hl_strategies()[s], faults[f], round);
    hl_parallel(n, be_silent, all);
    for (int i = 0; i < n; i++) {
        char name[200];
        law_run_name(&all[i].plan, name, sizeof name);
        if (!all[i].good)
            fail_msg("a law is broken: a silent rank is named by all others: %s: %s", name,
                     all[i].why);
        close_world(&all[i].w);
    }
    free(all);
}

static void test_a_silent_rank_is_named(void **state) {
    (void)state;
    for (int round = 0; round < (soak() ? 8 : 1); round++) silent_ranks_are_named(round);
}

/* ---- 7: ... and what was saved before stays whole ---- */

/* Killed in the middle of saving step 2: checkpoint 1 is whole, and step 2 can be saved again. */
static bool leaves_checkpoints_whole(const struct law_plan *plan, int64_t operation,
                                     const struct law_run *whole, char why[LAW_WHY]) {
    char first[200], second[200];
    (void)snprintf(first, sizeof first, "%s/checkpoint-1", plan->folder);
    (void)snprintf(second, sizeof second, "%s/checkpoint-2", plan->folder);
    if (!survives(plan, "kill", operation, why)) return false;
    if (access(second, F_OK) == 0)
        return (void)snprintf(why, LAW_WHY, "there is a checkpoint-2, killed at operation %lld",
                              (long long)operation),
               false;
    struct law_plan again = *plan, rest = *plan;
    again.resume_from = first;
    again.n_steps = 1;
    struct law_run *resumed = law_run(&again);
    bool good = same_bits(whole, resumed, why);
    law_run_free(resumed);
    rest.resume_from = second;
    rest.n_steps = 0;
    rest.save = false;
    resumed = law_run(&rest);
    good = good && same_bits(whole, resumed, why);
    law_run_free(resumed);
    return good;
}

static bool saves_all_or_nothing(const struct law_plan *plan, char why[LAW_WHY]) {
    struct law_count counts[LAW_MOMENTS] = {0};
    if (plan->n_ranks == 1) return true;
    struct law_run *whole = law_run(plan);
    bool good = law_run_is_good(whole, why) && count_operations(plan, counts, why);
    int64_t before = counts[plan->n_steps].operations, n = counts[LAW_AT_SAVED].operations - before;
    int64_t stride = soak() || n < 4 ? 1 : n / (meeting_is_slow(plan->wire) ? 2 : 3);
    for (int64_t k = 1; k <= n && good; k += stride) {
        good = drop_folder(plan->folder) && leaves_checkpoints_whole(plan, before + k, whole, why);
    }
    law_run_free(whole);
    return drop_folder(plan->folder) && good;
}

static void test_a_rank_killed_while_saving(void **state) {
    struct world w;
    char folder[64];
    (void)state;
    open_world(&w, "adamw");
    make_folder(folder);
    for (int i = 0; meeting_wires()[i]; i++)
        for (int s = 0; hl_strategies()[s]; s++) {
            if (!is_tried(meeting_wires()[i], s)) continue;
            set_cell(&w, hl_strategies()[s]->name, 1, s % 2);
            struct law_plan plan = {.world = &w,
                                    .wire = meeting_wires()[i],
                                    .n_ranks = ranks_for(hl_strategies()[s], &w, 2),
                                    .n_steps = 2,
                                    .save = true,
                                    .folder = folder};
            for (plan.lost = 0; plan.lost < 2; plan.lost++)
                keep(saves_all_or_nothing, "a rank killed while saving leaves checkpoints whole",
                     &plan);
        }
    assert_true(drop_folder(folder));
    close_world(&w);
}

/* ---- 8: every wire gives the same bits ---- */

static bool is_met(const char *wire) {
    for (int i = 0; meeting_wires()[i]; i++)
        if (!strcmp(wire, meeting_wires()[i])) return true;
    return false;
}

static void test_every_wire_is_met(void **state) {
    (void)state;
    for (int i = 0; hl_wires()[i]; i++) {
        const char *name = hl_wires()[i]->name;
        struct hl_diag why = {0};
        if (meeting_is_elsewhere(name) || is_met(name)) continue;
        if (hl_wires()[i]->available(&why) == HL_OK)
            fail_msg("wire %s: tests/support/meeting.c does not say how its ranks meet", name);
        print_message("wire %s is not here: %s\n", name, why.text);
    }
}

static void test_wires_agree(void **state) {
    static const char *const wrappers[] = {"count", "delay=100us/100us", "throttle=200mbit",
                                           "count,throttle=500mbit,delay=20us"};
    enum { N_WRAPPERS = sizeof wrappers / sizeof *wrappers };
    struct world w;
    (void)state;
    open_world(&w, "adamw");
    for (int s = 0; hl_strategies()[s]; s++) {
        const struct hl_strategy *strategy = hl_strategies()[s];
        set_cell(&w, strategy->name, 1 + s % 2, s / 2 % 2);
        const struct law_plan threads = {
            .world = &w, .n_ranks = ranks_for(strategy, &w, 3), .n_steps = 3, .evaluate = true};
        struct law_run *want = law_run(&threads);
        for (int i = 0; meeting_wires()[i]; i++)
            for (int k = -1; k < N_WRAPPERS; k++) {
                struct law_plan plan = threads;
                char why[LAW_WHY], name[200];
                plan.wire = meeting_wires()[i];
                plan.wrappers = k < 0 ? NULL : wrappers[k];
                if (!is_tried(plan.wire, s)) continue;
                if (!soak() && k >= 0 && (k + s + i) % N_WRAPPERS > 1) continue;
                struct law_run *got = law_run(&plan);
                law_run_name(&plan, name, sizeof name);
                if (!law_run_is_good(got, why) ||
                    !(strategy->caps & HL_CAP_ASYNC || same_bits(want, got, why)))
                    fail_msg("a law is broken: wires agree: %s: against threads: %s", name, why);
                law_run_free(got);
            }
        law_run_free(want);
    }
    close_world(&w);
}

/* ---- 10: the curve that PyTorch computes ---- */

enum { CURVE_RANKS = 2, CURVE_STEPS = 20 };

static void open_curve_world(struct world *w) {
    char steps[16];
    (void)snprintf(steps, sizeof steps, "%d", CURVE_STEPS);
    open_world(w, "adamw");
    set_word(w, "max_steps", steps);
    set_word(w, "learning_rate", "0.003");
    set_word(w, "gradient_accumulation_steps", "2");
}

/* Strategies without caps have the bits of ddp, and one curve; another one needs its own, from a
 * program apart. */
static json_t *open_curve(const struct hl_strategy *s, char *path, size_t capacity) {
    const char *root = getenv("HALLEY_TEST_DATA");
    assert_non_null(root);
    (void)snprintf(path, capacity, "%s/../golden/curves/%s.json", root,
                   s->caps ? s->name : "exact");
    return json_load_file(path, 0, NULL);
}

/* Options that the curve is made with. */
static void set_curve_options(struct world *w, const json_t *curve) {
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(curve, "options"), key, value)
        set_word(w, key, json_string_value(value));
}

static bool follows(const struct law_run *run, const json_t *curve, const char *key,
                    const double *values, char why[LAW_WHY]) {
    const json_t *want = json_object_get(curve, key);
    if (!law_run_is_good(run, why)) return false;
    for (int i = 0; i < run->plan.n_steps; i++) {
        double w = json_real_value(json_array_get(want, (size_t)i));
        if (fabs(values[i] - w) <= 1e-5 * fabs(w)) continue;
        return (void)snprintf(why, LAW_WHY, "step %d: %s is %.9g, and the curve says %.9g", i + 1,
                              key, values[i], w),
               false;
    }
    return true;
}

static void test_golden_curves(void **state) {
    struct world w;
    (void)state;
    open_curve_world(&w);
    for (int s = 0; hl_strategies()[s]; s++) {
        char path[4096], name[200], why[LAW_WHY];
        set_strategy(&w, hl_strategies()[s]->name);
        const struct law_plan plan = {.world = &w,
                                      .n_ranks = ranks_for(hl_strategies()[s], &w, CURVE_RANKS),
                                      .n_steps = CURVE_STEPS};
        if (plan.n_ranks != CURVE_RANKS) continue; /* rows of a step are another number */
        json_t *curve = open_curve(hl_strategies()[s], path, sizeof path);
        if (!curve) fail_msg("%s has no curve: %s", hl_strategies()[s]->name, path);
        set_curve_options(&w, curve);
        struct law_run *run = law_run(&plan);
        law_run_name(&plan, name, sizeof name);
        const struct law_rank *k = &run->ranks[0];
        if (!follows(run, curve, "loss", k->loss, why) ||
            !follows(run, curve, "grad_norm", k->norm, why))
            fail_msg("a law is broken: the golden curve: %s: %s", name, why);
        law_run_free(run);
        json_decref(curve);
    }
    close_world(&w);
}

static json_t *listed(const int32_t *values, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) (void)json_array_append_new(list, json_integer(values[i]));
    return list;
}
/* Sequences of the i-th n_rows rows. */
static json_t *curve_rows(struct hl_loader *loader, int64_t n_rows, int i) {
    struct hl_batch batch;
    struct hl_diag diag;
    json_t *sequences = json_array();
    assert_int_equal(hl_loader_rows(loader, i * n_rows, n_rows, &batch, &diag), HL_OK);
    for (int64_t s = 0; s < batch.n_sequences; s++) {
        int64_t first = batch.offsets[s], n = batch.offsets[s + 1] - first;
        json_t *one = json_pack("{s:o, s:o}", "tokens", listed(batch.token_N + first, n), "targets",
                                listed(batch.target_N + first, n));
        (void)json_array_append_new(sequences, one);
    }
    return sequences;
}

/* What make_curves.py reads. */
static void test_write_curve_inputs(void **state) {
    const char *folder = getenv("HALLEY_CURVE_INPUTS");
    struct hl_diag diag = {0};
    struct world w;
    char path[4096];
    (void)state;
    if (!folder) return;
    open_curve_world(&w);
    struct hl_trainer *t = new_trainer(&w);
    struct hl_loader *loader;
    int64_t rows = t->micro_rows;
    if (hl_trainer_save(t, folder, NULL, NULL, &diag) != HL_OK) fail_msg("%s", diag.text);
    assert_int_equal(
        hl_loader_new(hl_mem_default(), w.dataset, HL_SPLIT_TRAIN, rows, &loader, &diag), HL_OK);
    json_t *rates = json_array(), *micros = json_array();
    for (int i = 0; i < CURVE_STEPS; i++)
        (void)json_array_append_new(rates, json_real(hl_learning_rate(&t->rate, i, 1)));
    for (int i = 0; i < CURVE_RANKS * 2 * (CURVE_STEPS + 1); i++)
        (void)json_array_append_new(micros, curve_rows(loader, rows, i));
    json_t *all =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "weight_decay", w.optimizer.weight_decay,
                  "adam_beta1", w.optimizer.adam_beta1, "adam_beta2", w.optimizer.adam_beta2,
                  "adam_epsilon", w.optimizer.adam_epsilon, "max_grad_norm", w.train.max_grad_norm,
                  "learning_rates", rates, "micro_batches", micros);
    (void)snprintf(path, sizeof path, "%s/batches.json", folder);
    assert_int_equal(json_dump_file(all, path, 0), 0);
    json_decref(all);
    hl_loader_free(loader);
    hl_trainer_free(t);
    close_world(&w);
}

/* ---- another number of ranks is another rounding, and no more ---- */

static void test_numbers_of_ranks_differ_by_rounding(void **state) {
    static const int ranks[] = {1, 2, 3, 4, 6};
    struct world w;
    struct law_run *runs[5];
    double early = 0, late = 0;
    (void)state;
    open_world(&w, "adamw");
    set_word(&w, "learning_rate", "0.001");
    set_word(&w, "max_steps", "100");
    set_word(&w, "gradient_accumulation_steps", "1");
    for (int n = 0; n < 5; n++) {
        static const char *const strategies[] = {"single", "ddp", "zero1", "zero2", "zero3"};
        char rows[16], why[LAW_WHY];
        (void)snprintf(rows, sizeof rows, "%d", 12 / ranks[n]);
        set_word(&w, "strategy", strategies[n]);
        set_word(&w, "per_device_train_batch_size", rows);
        const struct law_plan plan = {.world = &w, .n_ranks = ranks[n], .n_steps = 100};
        runs[n] = law_run(&plan);
        if (!law_run_is_good(runs[n], why)) fail_msg("%s", why);
        for (int i = 0; i < plan.n_steps; i++) {
            double by = fabs(runs[n]->ranks[0].loss[i] / runs[0]->ranks[0].loss[i] - 1);
            if (by > 1e-5 || (i < 10 && by > 1e-6))
                fail_msg("%d ranks (%s), step %d: the loss differs from one rank's by %.2g",
                         ranks[n], strategies[n], i + 1, by);
            if (i < 10 && by > early) early = by;
            if (by > late) late = by;
        }
    }
    print_message("losses of 2 to 6 ranks against one: %.1e in 10 steps, %.1e in 100\n", early,
                  late);
    for (int n = 0; n < 5; n++) law_run_free(runs[n]);
    close_world(&w);
}

/* ---- the laws notice ---- */

/* ddp, with something added at the end of each step. */
static enum hl_status good_step_end(void *state, const struct hl_step *step,
                                    struct hl_step_result *out, struct hl_diag *diag) {
    const struct hl_strategy *ddp = NULL;
    enum hl_status status = hl_strategy_find("ddp", &ddp, diag);
    return status == HL_OK ? ddp->step_end(state, step, out, diag) : status;
}
static void nudge(struct hl_dp *s) {
    *hl_engine_data(s->env.engine, HL_BUFFER_MASTER, (struct hl_range){0, 1}) += 0.25f;
}

static enum hl_status diverge(void *state, const struct hl_step *step, struct hl_step_result *out,
                              struct hl_diag *diag) {
    enum hl_status status = good_step_end(state, step, out, diag);
    struct hl_dp *s = state;
    if (status == HL_OK && s->env.rank == 1) nudge(s);
    return status;
}
static enum hl_status allocate(void *state, const struct hl_step *step, struct hl_step_result *out,
                               struct hl_diag *diag) {
    enum hl_status status = good_step_end(state, step, out, diag);
    struct hl_dp *s = state;
    if (status == HL_OK) hl_free(s->env.mem, hl_alloc(s->env.mem, 1, 1));
    return status;
}
static enum hl_status chat(void *state, const struct hl_step *step, struct hl_step_result *out,
                           struct hl_diag *diag) {
    enum hl_status status = good_step_end(state, step, out, diag);
    struct hl_dp *s = state;
    double words[3 * 4000];
    if (status == HL_OK) status = hl_group_share(s->env.group, words, 4000, diag);
    return status;
}
/* Of the process, not of the run. */
static enum hl_status remember(void *state, const struct hl_step *step, struct hl_step_result *out,
                               struct hl_diag *diag) {
    static int n_steps;
    enum hl_status status = good_step_end(state, step, out, diag);
    if (status == HL_OK && __atomic_add_fetch(&n_steps, 1, __ATOMIC_RELAXED) % 7 == 0) nudge(state);
    return status;
}
/* What it knows beyond weights and slots is not saved. */
static enum hl_status forget(void *state, const struct hl_step *step, struct hl_step_result *out,
                             struct hl_diag *diag) {
    struct hl_dp *s = state;
    bool first = s->result.n_supervised == 0; /* of this object */
    enum hl_status status = good_step_end(state, step, out, diag);
    if (status == HL_OK && first) nudge(s);
    return status;
}
static enum hl_status drain_into_weights(void *state, struct hl_diag *diag) {
    (void)diag;
    return nudge(state), HL_OK;
}

static bool notices(law *l, const char *slot, const struct hl_strategy *bad,
                    const struct law_plan *base, const char *words) {
    struct world w;
    char why[LAW_WHY] = "";
    struct law_plan plan = *base;
    open_world(&w, "adamw");
    set_cell(&w, "ddp", 1, false);
    plan.world = &w;
    plan.instead = bad;
    plan.n_ranks = 3;
    bool kept = l(&plan, why);
    close_world(&w);
    if (kept || !strstr(why, words)) fail_msg("%s: noticed: %d: %s", slot, !kept, why);
    return true;
}

static void test_laws_notice(void **state) {
    const struct hl_strategy *ddp = NULL;
    struct hl_diag diag;
    (void)state;
    assert_int_equal(hl_strategy_find("ddp", &ddp, &diag), HL_OK);
    struct hl_strategy bad = *ddp;
    const struct law_plan plan = {.n_steps = 5};
    bad.step_end = diverge;
    notices(equal_parameters, "diverge", &bad, &plan, "rank 1 computes with other weights");
    bad.step_end = allocate;
    notices(allocates_nothing, "allocate", &bad, &plan,
            "rank 0: 2 allocations in the steps 4 to 5");
    bad.step_end = chat;
    notices(sends_what_it_says, "chat", &bad, &plan, "rank 0 sent ");
    bad.step_end = remember;
    notices(repeats, "remember", &bad, &plan, "step ");
    bad.step_end = forget;
    notices(goes_on, "forget", &bad, &plan, "resumed at step 1");
    bad.step_end = ddp->step_end;
    bad.drain = drain_into_weights;
    notices(goes_on, "drain", &bad, &plan, "step 1: loss");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_options_that_are_refused_without_a_name),
        cmocka_unit_test(test_equal_parameters),
        cmocka_unit_test(test_saving_and_going_on),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_steady_steps_allocate_nothing),
        cmocka_unit_test(test_same_seed_same_bits),
        cmocka_unit_test(test_allocations_fail_cleanly),
        cmocka_unit_test(test_a_killed_rank_is_named),
        cmocka_unit_test(test_a_silent_rank_is_named),
        cmocka_unit_test(test_a_rank_killed_while_saving),
        cmocka_unit_test(test_every_wire_is_met),
        cmocka_unit_test(test_wires_agree),
        cmocka_unit_test(test_golden_curves),
        cmocka_unit_test(test_write_curve_inputs),
        cmocka_unit_test(test_numbers_of_ranks_differ_by_rounding),
        cmocka_unit_test(test_laws_notice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
