/* A test program for a strategy that keeps slices: what a rank holds is its share, and an optimizer
 * that needs whole matrices is refused by name. Bits are compared with ddp's in tests/suites. */
#ifndef HALLEY_TESTS_SLICED_STRATEGY_H
#define HALLEY_TESTS_SLICED_STRATEGY_H

#include "support/trainer_fixture.h"

#include "support/train_ranks.h"

struct sliced_case {
    struct world w;
    enum hl_sliced sliced;
};
static struct sliced_case sliced_case;

static enum hl_status sliced_trainer(struct rank_context *r, struct hl_group **group,
                                     struct hl_trainer **t, struct hl_diag *diag) {
    struct hl_trainer_setup setup = sliced_case.w.setup;
    ranks_check(r, hl_group_new(hl_mem_default(), r->wire, NULL, 1000000000, group, diag) == HL_OK);
    setup.group = *group;
    return hl_trainer_new(hl_mem_default(), &setup, t, diag);
}

/* Elements of all blocks on this rank: its share, or everything. */
static void sliced_expect(struct rank_context *r, const struct hl_layout *layout, int64_t held,
                          bool share) {
    int64_t all = layout->n_parameters, slack = 32 * layout->n_blocks;
    ranks_check(r, share ? llabs(held - all / r->n_ranks) < slack : held == all);
}

static void sliced_measure(struct rank_context *r) {
    const struct hl_train_options *o = &sliced_case.w.train;
    const enum hl_sliced sliced = sliced_case.sliced;
    bool one = o->gradient_accumulation_steps == 1, each = o->reduce == HL_REDUCE_EACH_MICRO;
    struct hl_group *group = NULL;
    struct hl_trainer *t = NULL;
    struct hl_diag diag = {0};
    ranks_check(r, sliced_trainer(r, &group, &t, &diag) == HL_OK);
    const struct hl_layout *layout = &t->model->layout;
    int64_t slots = 0, master = 0, grads = 0, weights = 0;
    for (int b = 0; b < layout->n_blocks; b++) {
        slots += hl_engine_held(t->engine, HL_BUFFER_SLOT0, b).n;
        master += hl_engine_held(t->engine, HL_BUFFER_MASTER, b).n;
        grads += hl_engine_held(t->engine, HL_BUFFER_GRAD, b).n;
        weights += hl_engine_held_weights(t->engine, b).n;
    }
    sliced_expect(r, layout, slots, true);
    sliced_expect(r, layout, master, o->bf16 || sliced == HL_SLICED_WEIGHTS);
    sliced_expect(r, layout, grads, one ? sliced >= HL_SLICED_GRADIENTS : each);
    sliced_expect(r, layout, weights, sliced == HL_SLICED_WEIGHTS);
    hl_trainer_free(t);
    hl_group_free(group);
}

static void sliced_test_share(void **state) {
    static const char *const cells[][3] = {
        {"false", "1", "step"}, {"true", "2", "step"}, {"true", "3", "every_micro_batch"}};
    struct world *w = &sliced_case.w;
    for (int i = 0; i < 3; i++) {
        open_world(w, "adamw");
        set_word(w, "strategy", *state);
        set_word(w, "bf16", cells[i][0]);
        set_word(w, "gradient_accumulation_steps", cells[i][1]);
        set_word(w, "reduce", cells[i][2]);
        ranks_run(3 + i % 2, RANKS_LANES, RANKS_PART, sliced_measure, NULL);
        close_world(w);
    }
}

static void sliced_refused(struct rank_context *r) {
    struct hl_group *group = NULL;
    struct hl_trainer *t = NULL;
    struct hl_diag diag = {0};
    ranks_check(r, sliced_trainer(r, &group, &t, &diag) == HL_E_USER);
    ranks_check(r, strstr(diag.text, sliced_case.w.train.strategy) && strstr(diag.text, "'muon'") &&
                       strstr(diag.text, "--strategy ddp"));
    hl_group_free(group);
}

static void sliced_test_muon(void **state) {
    struct world *w = &sliced_case.w;
    open_world(w, "muon");
    set_word(w, "strategy", *state);
    ranks_run(2, RANKS_LANES, RANKS_PART, sliced_refused, NULL);
    hl_trainer_free(new_trainer(w)); /* one rank cuts nothing */
    close_world(w);
}

static int sliced_strategy_main(const char *name, enum hl_sliced sliced) {
    char copy[16];
    (void)snprintf(copy, sizeof copy, "%s", name);
    sliced_case.sliced = sliced;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(sliced_test_share, copy),
        cmocka_unit_test_prestate(sliced_test_muon, copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
