/* zero2: what a rank holds is its share, gradients too; muon is refused by name. Bits are compared
 * with ddp's in tests/suites. */
#include "support/trainer_fixture.h"

#include "support/train_ranks.h"

static void measure(struct rank_context *r) {
    const struct world *w = r->shared;
    struct hl_trainer_setup setup = w->setup;
    struct hl_trainer *t = NULL;
    struct hl_group *group = NULL;
    struct hl_diag diag = {0};
    ranks_check(r,
                hl_group_new(hl_mem_default(), r->wire, NULL, 1000000000, &group, &diag) == HL_OK);
    setup.group = group;
    ranks_check(r, hl_trainer_new(hl_mem_default(), &setup, &t, &diag) == HL_OK);
    const struct hl_layout *layout = &t->model->layout;
    int64_t slots = 0, master = 0;
    for (int b = 0; b < layout->n_blocks; b++) {
        slots += hl_engine_held(t->engine, HL_BUFFER_SLOT0, b).n;
        master += hl_engine_held(t->engine, HL_BUFFER_MASTER, b).n;
    }
    int64_t share = layout->n_parameters / r->n_ranks, slack = 32 * layout->n_blocks;
    bool bf16 = w->train.bf16;
    int64_t grads = 0, weights = 0;
    for (int b = 0; b < layout->n_blocks; b++) {
        grads += hl_engine_held(t->engine, HL_BUFFER_GRAD, b).n;
        weights += hl_engine_held_weights(t->engine, b).n;
    }
    bool whole = w->train.gradient_accumulation_steps > 1;
    ranks_check(r, whole ? grads == layout->n_parameters : llabs(grads - share) < slack);
    ranks_check(r, llabs(slots - share) < slack);
    ranks_check(r, weights == layout->n_parameters);
    ranks_check(r, bf16 ? llabs(master - share) < slack : master == layout->n_parameters);
    hl_trainer_free(t);
    hl_group_free(group);
}

static void test_a_rank_holds_its_share(void **state) {
    struct world w;
    (void)state;
    open_world(&w, "adamw");
    set_word(&w, "strategy", "zero2");
    ranks_run(3, RANKS_LANES, RANKS_PART, measure, &w);
    set_word(&w, "bf16", "true");
    set_word(&w, "gradient_accumulation_steps", "1");
    ranks_run(4, RANKS_LANES, RANKS_PART, measure, &w);
    close_world(&w);
}

static void refused(struct rank_context *r) {
    const struct world *w = r->shared;
    struct hl_trainer_setup setup = w->setup;
    struct hl_trainer *t = NULL;
    struct hl_group *group = NULL;
    struct hl_diag diag = {0};
    ranks_check(r,
                hl_group_new(hl_mem_default(), r->wire, NULL, 1000000000, &group, &diag) == HL_OK);
    setup.group = group;
    ranks_check(r, hl_trainer_new(hl_mem_default(), &setup, &t, &diag) == HL_E_USER);
    ranks_check(r, strstr(diag.text, "'zero2'") && strstr(diag.text, "'muon'") &&
                       strstr(diag.text, "--strategy ddp"));
    hl_group_free(group);
}

static void test_muon_is_refused(void **state) {
    struct world w;
    (void)state;
    open_world(&w, "muon");
    set_word(&w, "strategy", "zero2");
    ranks_run(2, RANKS_LANES, RANKS_PART, refused, &w);
    hl_trainer_free(new_trainer(&w)); /* one rank cuts nothing */
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rank_holds_its_share),
        cmocka_unit_test(test_muon_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
