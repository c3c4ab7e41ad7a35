/* Live recovery without processes: ranks are threads; a generation of them stops in the middle of
 * things, and another one, of as many ranks or fewer, goes on from what the first left in memory.
 * Its bits are those of a resume from a checkpoint of that step. */
#include "support/trainer_fixture.h"
#include "support/train_ranks.h"
#include "train/elastic.h"

enum { LOST_AT = 3, STEPS = 5 };

struct generation {
    struct ranks_job job; /* first: what comes out */
    const char *path;
    uint64_t number;
    int64_t begins_at; /* what it must find; -1: nothing */
    int lost;          /* this rank makes step LOST_AT and does not commit it; -1: all steps */
};

static enum hl_status take_part(struct rank_context *r, struct generation *g, struct hl_elastic *e,
                                struct hl_trainer *t, struct hl_diag *diag) {
    double together[HL_MAX_RANKS];
    enum hl_status status = hl_elastic_look(e, g->path, g->number, diag);
    ranks_check(r, status != HL_OK || e->found == (g->begins_at >= 0));
    if (status == HL_OK && e->found) status = hl_elastic_restore(e, t, diag);
    if (status == HL_OK) status = hl_group_share(t->setup.group, together, 1, diag);
    if (status == HL_OK && r->rank == 0) status = hl_elastic_make(e, t, diag);
    if (status == HL_OK) status = hl_elastic_begin(e, t, diag);
    ranks_check(r, status != HL_OK || !e->found || t->step == g->begins_at);
    int64_t end = g->lost >= 0 ? LOST_AT : STEPS;
    while (status == HL_OK && t->step < end) {
        struct hl_step_report report;
        status = hl_trainer_step(t, &report, diag);
        bool dies = g->lost == r->rank && t->step == LOST_AT;
        if (status == HL_OK && !dies) status = hl_elastic_commit(e, t, diag);
    }
    return status;
}

static void body(struct rank_context *r) {
    struct generation *g = r->shared;
    struct hl_trainer_setup setup = g->job.world->setup;
    struct hl_trainer *t = NULL;
    struct hl_group *group = NULL;
    struct hl_elastic e = {.path = NULL};
    struct hl_diag diag = {0};
    const struct hl_kernels *kernels = NULL;
    ranks_check(r, hl_kernels_get(HL_F32, &kernels, &diag) == HL_OK);
    ranks_check(r, hl_group_new(hl_mem_default(), r->wire, kernels, 20000000000, &group, &diag) ==
                       HL_OK);
    setup.group = group;
    setup.empty = g->begins_at >= 0;
    enum hl_status status = hl_trainer_new(hl_mem_default(), &setup, &t, &diag);
    if (status == HL_OK) status = take_part(r, g, &e, t, &diag);
    if (status == HL_OK && g->lost < 0) ranks_collect(r, &g->job, t);
    if (status != HL_OK) {
        ranks_fail(r, "%s", diag.text);
        hl_group_give_up(group, diag.text);
    }
    hl_elastic_close(&e);
    hl_trainer_free(t);
    hl_group_free(group);
}

static void run(struct generation *g, int n_ranks) {
    ranks_run(n_ranks, RANKS_LANES, RANKS_PART, body, g);
}

static void compare(const struct ranks_job *a, const struct ranks_job *b, const char *what) {
    assert_int_equal(a->n_state, b->n_state);
    if (memcmp(a->state, b->state, (size_t)a->n_state * sizeof *a->state) != 0)
        fail_msg("%s: other bits", what);
}

/* `before` ranks lose one, `after` go on. */
static void lose_one(const char *strategy, bool bf16, int before, int lost, int after) {
    struct world w;
    char path[128], folder[128], checkpoint[160], what[80];
    open_world(&w, "adamw");
    set_word(&w, "strategy", strategy);
    set_word(&w, "bf16", bf16 ? "true" : "false");
    (void)snprintf(path, sizeof path, "%s/snapshot", w.folder);
    (void)snprintf(folder, sizeof folder, "%s/run", w.folder);
    (void)snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-%d", folder, LOST_AT - 1);
    (void)snprintf(what, sizeof what, "%s, %s, rank %d of %d, then %d", strategy,
                   bf16 ? "bf16" : "f32", lost, before, after);
    struct generation first = {.job = {.world = &w},
                               .path = path,
                               .number = 1,
                               .begins_at = -1,
                               .lost = lost},
                      second = {.job = {.world = &w},
                                .path = path,
                                .number = 2,
                                .begins_at = LOST_AT - 1,
                                .lost = -1},
                      third = second;
    run(&first, before);
    run(&second, after);
    third.number = 3; /* once more, when all is done */
    third.begins_at = STEPS;
    run(&third, before);
    struct ranks_job saves = {.world = &w, .n_steps = LOST_AT - 1, .save_to = folder},
                     resumes = {
                         .world = &w, .n_steps = STEPS - (LOST_AT - 1), .resume_from = checkpoint};
    ranks_job_run(&saves, before);
    ranks_job_run(&resumes, after);
    compare(&second.job, &resumes, what);
    compare(&third.job, &resumes, what);
    free(second.job.state);
    free(third.job.state);
    free(saves.state);
    free(resumes.state);
    close_world(&w);
}

static void test_lose_one(void **state) {
    (void)state;
    lose_one("ddp", false, 2, 1, 2);
    lose_one("zero1", false, 3, 0, 3);
    lose_one("zero1", true, 3, 2, 2);
    lose_one("zero2", false, 2, 0, 1);
    lose_one("zero3", false, 3, 1, 3);
    lose_one("zero3", true, 3, 0, 2);
    lose_one("ddp", true, 1, 0, 1);
}

/* ---- one rank alone, whose memory ends ---- */

static enum hl_status all_calls(struct hl_mem *mem, const struct world *w, const char *path) {
    struct hl_trainer *t = NULL;
    struct hl_elastic e;
    struct hl_diag diag = {0};
    struct hl_step_report report;
    enum hl_status status = hl_trainer_new(mem, &w->setup, &t, &diag);
    if (status != HL_OK) return status;
    for (uint64_t g = 1; g <= 2 && status == HL_OK; g++) {
        status = hl_elastic_look(&e, path, g, &diag);
        if (status == HL_OK && e.found) status = hl_elastic_restore(&e, t, &diag);
        if (status == HL_OK) status = hl_elastic_make(&e, t, &diag);
        if (status == HL_OK) status = hl_elastic_begin(&e, t, &diag);
        if (status == HL_OK) status = hl_trainer_step(t, &report, &diag);
        if (status == HL_OK) status = hl_elastic_commit(&e, t, &diag);
        hl_elastic_close(&e);
    }
    hl_trainer_free(t);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    struct world w;
    char path[128];
    open_world(&w, "adamw");
    (void)snprintf(path, sizeof path, "%s/snapshot", w.folder);
    for (long k = 1;; k++) {
        struct hl_mem_probe probe;
        hl_mem_probe_init(&probe, k);
        (void)unlink(path);
        enum hl_status status = all_calls(&probe.mem, &w, path);
        assert_int_equal(probe.n_live, 0);
        if (status == HL_OK) {
            assert_true(k > 10);
            break;
        }
        assert_int_equal(status, HL_E_MEMORY);
    }
    close_world(&w);
}

/* What was left is another model's; nothing was asked for; a strategy that would lose something. */
static void test_refused(void **state) {
    (void)state;
    struct world w;
    char path[128];
    struct hl_elastic e;
    struct hl_diag diag = {0};
    uint64_t held = 0, written = 0;
    open_world(&w, "adamw");
    (void)snprintf(path, sizeof path, "%s/snapshot", w.folder);
    struct hl_trainer *t = new_trainer(&w);
    hl_elastic_cost(t, &held, &written);
    assert_int_equal(written, 12 * t->model->layout.n_parameters);
    assert_true(held >= 2 * written && held < 2 * written + 8 * 4096);
    assert_int_equal(hl_elastic_look(&e, NULL, 1, &diag), HL_OK);
    assert_int_equal(hl_elastic_make(&e, t, &diag), HL_OK);
    assert_int_equal(hl_elastic_begin(&e, t, &diag), HL_OK);
    assert_int_equal(hl_elastic_commit(&e, t, &diag), HL_OK);
    assert_int_equal(access(path, F_OK), -1);
    hl_elastic_close(&e);

    const struct hl_strategy *plain = t->strategy;
    struct hl_strategy own = *plain;
    own.caps = HL_CAP_DIVERGENT;
    t->strategy = &own;
    assert_int_equal(hl_elastic_look(&e, path, 1, &diag), HL_OK);
    assert_int_equal(hl_elastic_make(&e, t, &diag), HL_E_USER);
    t->strategy = plain;
    assert_int_equal(hl_elastic_make(&e, t, &diag), HL_OK);
    assert_int_equal(hl_elastic_begin(&e, t, &diag), HL_OK);
    hl_elastic_close(&e);
    hl_trainer_free(t);

    w.model.hidden_size = 32;
    t = new_trainer(&w);
    assert_int_equal(hl_elastic_look(&e, path, 2, &diag), HL_OK);
    assert_true(e.found);
    assert_int_equal(hl_elastic_restore(&e, t, &diag), HL_E_FORMAT);
    assert_non_null(strstr(diag.text, "holds the state of another run, or none"));
    hl_elastic_close(&e);
    hl_trainer_free(t);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lose_one),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
