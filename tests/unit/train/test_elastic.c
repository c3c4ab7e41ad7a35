/* Live recovery without processes: ranks are threads; a generation of them stops in the middle of
 * things, and another one, of as many ranks or fewer, goes on from what the first left in memory.
 * Its bits are those of a resume from a checkpoint of that step; where that cannot be said, each
 * rank has what its seat had. */
#include "support/trainer_fixture.h"
#include "support/train_ranks.h"
#include "train/elastic.h"

enum { LOST_AT = 3, STEPS = 5, SEATS = 3, ALL_SEATS = 7 };

struct generation {
    struct ranks_job job;       /* first: what comes out */
    const char *path, *save_to; /* save_to NULL: no checkpoint */
    uint64_t number;
    unsigned seats;    /* as bits */
    int64_t begins_at; /* what it must find; -1: nothing */
    int64_t ends_at;
    int lost; /* the rank of this seat makes step ends_at and does not commit it; -1: none */
    int64_t step_rows; /* of ranks at their own pace, whose run is so many rows long; else 0 */
    uint64_t began_with[SEATS], ended_with[SEATS]; /* what each seat has of its own; committed */
};

static int seat_of(const struct generation *g, int rank) {
    unsigned seats = g->seats;
    while (rank--) seats &= seats - 1;
    return __builtin_ctz(seats);
}

/* Of arrays that go with their rank. */
static uint64_t own_hash(const struct hl_elastic *e, const struct hl_trainer *t) {
    uint64_t hash = 0;
    for (int i = 0; i < e->list.n; i++) {
        const struct hl_state_array *a = &e->list.items[i];
        if (a->kind == HL_STATE_OWN && !a->sums && a->rank == hl_group_rank(t->setup.group))
            hash = 31 * hash + ranks_hash(a->data, (size_t)a->n * sizeof *a->data);
    }
    return hash;
}

/* Work goes on at the weights that all see, and with nothing of before. */
static void check_joined(struct rank_context *r, struct hl_trainer *t) {
    struct hl_diag diag;
    size_t n = (size_t)t->model->layout.n_parameters;
    struct hl_range all = hl_layout_all(&t->model->layout);
    float *seen = malloc(n * sizeof *seen);
    memcpy(seen, hl_engine_data(t->engine, HL_BUFFER_MASTER, all), n * sizeof *seen);
    ranks_check(r, hl_trainer_view(t, true, &diag) == HL_OK);
    ranks_check(r, hl_trainer_view(t, false, &diag) == HL_OK);
    ranks_check(r, !memcmp(seen, hl_engine_data(t->engine, HL_BUFFER_MASTER, all), n * 4));
    const float *moment = hl_engine_data(t->engine, HL_BUFFER_SLOT0, all);
    for (size_t i = 0; i < n; i++) ranks_check(r, moment[i] == 0);
    free(seen);
}

static enum hl_status take_part(struct rank_context *r, struct generation *g, struct hl_elastic *e,
                                struct hl_trainer *t, struct hl_diag *diag) {
    double together[HL_MAX_RANKS];
    int seat = seat_of(g, r->rank);
    enum hl_status status = hl_elastic_look(e, g->path, g->number, seat, diag);
    ranks_check(r, status != HL_OK || e->found == (g->begins_at >= 0));
    if (status == HL_OK && e->found) status = hl_elastic_restore(e, t, diag);
    if (status == HL_OK && e->found && !t->started) check_joined(r, t);
    if (status == HL_OK) status = hl_group_share(t->setup.group, together, 1, diag);
    if (status == HL_OK && r->rank == 0) status = hl_elastic_make(e, t, diag);
    if (status == HL_OK) status = hl_elastic_begin(e, t, diag);
    ranks_check(r, status != HL_OK || !e->found || t->step == g->begins_at);
    if (status == HL_OK) g->began_with[seat] = own_hash(e, t);
    if (status == HL_OK && r->rank == 0) g->step_rows = hl_trainer_has_pace(t) ? t->step_rows : 0;
    while (status == HL_OK && t->step < g->ends_at) {
        struct hl_step_report report;
        status = hl_trainer_step(t, &report, diag);
        bool dies = g->lost == seat && t->step == g->ends_at;
        if (status == HL_OK && !dies) status = hl_elastic_commit(e, t, diag);
        if (status == HL_OK && (g->lost < 0 || t->step < g->ends_at))
            g->ended_with[seat] = own_hash(e, t);
    }
    /* What the lost one had begun to send does not come: the others notice in their last commit. */
    if (status == HL_E_PEER && g->lost >= 0 && g->lost != seat && t->step == g->ends_at)
        status = HL_OK;
    if (status == HL_OK && g->save_to) status = hl_trainer_save(t, g->save_to, NULL, NULL, diag);
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

static void run(struct generation *g) {
    ranks_run(__builtin_popcount(g->seats), RANKS_LANES, RANKS_PART, body, g);
}

static void compare(const struct ranks_job *a, const struct ranks_job *b, const char *what) {
    assert_int_equal(a->n_state, b->n_state);
    if (memcmp(a->state, b->state, (size_t)a->n_state * sizeof *a->state) != 0)
        fail_msg("%s: other bits", what);
}

/* All of a checkpoint, of every rank, is the same in two folders. */
static void compare_saved(const char *a, const char *b, const char *what) {
    static const char *const files[] = {"model.safetensors", "state.safetensors", "loop.json"};
    char command[400];
    for (int i = 0; i < 3; i++) {
        (void)snprintf(command, sizeof command, "cmp %s/checkpoint-%d/%s %s/checkpoint-%d/%s", a,
                       STEPS, files[i], b, STEPS, files[i]);
        if (system(command) != 0) fail_msg("%s: another %s", what, files[i]);
    }
}

/* A world, and names in its folder. */
struct place {
    struct world w;
    char path[100], mine[100], theirs[100], checkpoint[120], what[100];
};

/* words: keys and values; the first is the strategy's. */
static void open_place(struct place *p, const char *const *words) {
    open_world(&p->w, "adamw");
    for (int i = 0; words[i]; i += 2) set_word(&p->w, words[i], words[i + 1]);
    (void)snprintf(p->path, sizeof p->path, "%s/snapshot", p->w.folder);
    (void)snprintf(p->mine, sizeof p->mine, "%s/mine", p->w.folder);
    (void)snprintf(p->theirs, sizeof p->theirs, "%s/theirs", p->w.folder);
    (void)snprintf(p->checkpoint, sizeof p->checkpoint, "%s/checkpoint-%d", p->theirs, LOST_AT - 1);
}

/* The first generation loses a rank. */
static struct generation lose(const struct place *p, unsigned seats, int lost) {
    struct generation first = {.job = {.world = &p->w},
                               .path = p->path,
                               .number = 1,
                               .seats = seats,
                               .begins_at = -1,
                               .ends_at = LOST_AT,
                               .lost = lost};
    run(&first);
    return first;
}

/* And the next one that nobody is lost of. */
static struct generation go_on(const struct place *p, uint64_t number, unsigned seats,
                               int64_t begins_at) {
    struct generation next = {.job = {.world = &p->w},
                              .path = p->path,
                              .save_to = p->mine,
                              .number = number,
                              .seats = seats,
                              .begins_at = begins_at,
                              .ends_at = STEPS,
                              .lost = -1};
    run(&next);
    return next;
}

/* `before` ranks lose one, `after` go on: the ranks of a checkpoint that is resumed by so many. */
static void lose_one(const char *const *words, int before, int lost, int after) {
    struct place p;
    open_place(&p, words);
    (void)snprintf(p.what, sizeof p.what, "%s, %s %s, rank %d of %d, then %d", words[1], words[2],
                   words[3], lost, before, after);
    struct generation first = lose(&p, (1u << before) - 1, lost),
                      second = go_on(&p, 2, (1u << after) - 1, LOST_AT - 1),
                      third = go_on(&p, 3, (1u << before) - 1, STEPS); /* when all is done */
    struct ranks_job saves = {.world = &p.w, .n_steps = LOST_AT - 1, .save_to = p.theirs},
                     resumes = {.world = &p.w,
                                .n_steps = STEPS - (LOST_AT - 1),
                                .resume_from = p.checkpoint,
                                .save_to = p.theirs};
    ranks_job_run(&saves, before);
    ranks_job_run(&resumes, after);
    assert_int_equal(second.step_rows, first.step_rows);
    compare(&second.job, &resumes, p.what);
    compare(&third.job, &resumes, p.what);
    if (before == after) compare_saved(p.mine, p.theirs, p.what);
    free(second.job.state);
    free(third.job.state);
    free(saves.state);
    free(resumes.state);
    close_world(&p.w);
}

#define F32 "bf16", "false"
#define BF16 "bf16", "true"
static const char *const ddp[] = {"strategy", "ddp", F32, NULL},
                         *const zero1[] = {"strategy", "zero1", F32, NULL},
                         *const zero1_bf16[] = {"strategy", "zero1", BF16, NULL},
                         *const zero2[] = {"strategy", "zero2", F32, NULL},
                         *const zero3[] = {"strategy", "zero3", F32, NULL},
                         *const zero3_bf16[] = {"strategy", "zero3", BF16, NULL};
/* In mid-interval; streaming_diloco with sums under way after step 2, and after step 5. */
#define DELAYED                                                                                    \
    "strategy", "streaming_diloco", F32, "sync_every", "3", "streaming_diloco.delay", "2"
static const char *const diloco[] = {"strategy", "diloco", F32, "sync_every", "3", NULL};
static const char *const diloco_bf16[] = {"strategy", "diloco", BF16, "sync_every", "3", NULL};
static const char *const local_sgd[] = {"strategy", "local_sgd", F32, "sync_every", "2", NULL};
static const char *const streaming[] = {DELAYED, "streaming_diloco.fragments", "2", NULL};
static const char *const carrying[] = {DELAYED, "streaming_diloco.carry", "true", NULL};
static const char *const acco[] = {"strategy", "acco",      F32,  "acco.micro_batches_per_round",
                                   "2",        "max_steps", "20", NULL};
static const char *const acco_bf16[] = {"strategy", "acco", BF16, "acco.micro_batches_per_round",
                                        "1",        NULL};
static const char *const dpu[] = {"strategy", "dpu", F32, "dpu.warmup_steps", "1", NULL};
static const char *const wp[] = {"strategy", "wp", F32, "wp.warmup_steps", "1", NULL};
static const char *const wp_bf16[] = {"strategy", "wp", BF16, "wp.warmup_steps", "1", NULL};

static void test_lose_one(void **state) {
    (void)state;
    lose_one(ddp, 2, 1, 2);
    lose_one(zero1, 3, 0, 3);
    lose_one(zero1_bf16, 3, 2, 2);
    lose_one(zero2, 2, 0, 1);
    lose_one(zero3, 3, 1, 3);
    lose_one(zero3_bf16, 3, 0, 2);
    lose_one((const char *const[]){"strategy", "ddp", BF16, NULL}, 1, 0, 1);
}

static void test_lose_one_with_state_of_its_own(void **state) {
    (void)state;
    lose_one(diloco, 2, 1, 2);
    lose_one(diloco_bf16, 3, 2, 2);
    lose_one(local_sgd, 3, 0, 3);
    lose_one(streaming, 3, 1, 3);
    lose_one(streaming, 3, 2, 2);
    lose_one(carrying, 2, 1, 1);
    lose_one(acco, 2, 1, 2);
    lose_one(acco_bf16, 3, 2, 2);
    lose_one(acco, 2, 1, 1);
    lose_one(dpu, 3, 0, 3);
    lose_one(wp, 3, 2, 2);
    lose_one(wp_bf16, 2, 0, 2);
}

/* The middle one of three is lost: what is a rank's own goes with its seat. The others are lost too
 * before they commit anything, and then all three are there again: as if nothing had happened. */
static void lose_the_middle_one(const char *const *words) {
    struct place p;
    open_place(&p, words);
    (void)snprintf(p.what, sizeof p.what, "%s, the middle one", words[1]);
    struct generation first = lose(&p, ALL_SEATS, 1),
                      second = {.job = {.world = &p.w},
                                .path = p.path,
                                .number = 2,
                                .seats = 5,
                                .begins_at = LOST_AT - 1,
                                .ends_at = LOST_AT,
                                .lost = 2},
                      third;
    run(&second);
    for (int seat = 0; seat < SEATS; seat += 2)
        assert_int_equal(second.began_with[seat], first.ended_with[seat]);
    third = go_on(&p, 3, ALL_SEATS, LOST_AT - 1);
    for (int seat = 0; seat < SEATS; seat++)
        assert_int_equal(third.began_with[seat], first.ended_with[seat]);
    struct ranks_job alone = {.world = &p.w, .n_steps = STEPS, .save_to = p.theirs};
    ranks_job_run(&alone, SEATS);
    compare_saved(p.mine, p.theirs, p.what);
    free(third.job.state);
    free(alone.state);
    close_world(&p.w);
}

static void test_lose_the_middle_one(void **state) {
    (void)state;
    lose_the_middle_one(zero1);
    lose_the_middle_one(diloco);
    lose_the_middle_one(streaming);
    lose_the_middle_one(carrying);
    lose_the_middle_one(acco);
    lose_the_middle_one(wp);
}

/* ---- a rank that joins ---- */

/* With the outer weights of the run (take_part looks), while the others keep what is theirs. */
static void test_join(void **state) {
    static const char *const *const all[] = {diloco, local_sgd, carrying};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct place p;
        open_place(&p, all[i]);
        struct generation first = lose(&p, ALL_SEATS, 1), second = go_on(&p, 2, 5, LOST_AT - 1),
                          third = go_on(&p, 3, ALL_SEATS, STEPS);
        for (int seat = 0; seat < SEATS; seat += 2)
            assert_int_equal(third.began_with[seat], second.ended_with[seat]);
        assert_int_not_equal(third.began_with[1], first.ended_with[1]);
        free(second.job.state);
        free(third.job.state);
        close_world(&p.w);
    }
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
        status = hl_elastic_look(&e, path, g, 0, &diag);
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

static void memory_ends(const char *const *words) {
    struct place p;
    open_place(&p, words);
    for (long k = 1;; k++) {
        struct hl_mem_probe probe;
        hl_mem_probe_init(&probe, k);
        (void)unlink(p.path);
        enum hl_status status = all_calls(&probe.mem, &p.w, p.path);
        assert_int_equal(probe.n_live, 0);
        if (status == HL_OK) {
            assert_true(k > 10);
            break;
        }
        assert_int_equal(status, HL_E_MEMORY);
    }
    close_world(&p.w);
}

static void test_memory(void **state) {
    (void)state;
    memory_ends((const char *const[]){"strategy", "single", NULL});
    memory_ends(streaming);
    memory_ends(wp);
}

/* What was left is another model's, or has no seat for this rank, or its note is damaged. */
static void refused(struct place *p, uint64_t generation, int seat) {
    struct hl_trainer *t = new_trainer(&p->w);
    struct hl_elastic e;
    struct hl_diag diag = {0};
    assert_int_equal(hl_elastic_look(&e, p->path, generation, seat, &diag), HL_OK);
    assert_true(e.found);
    assert_int_equal(hl_elastic_restore(&e, t, &diag), HL_E_FORMAT);
    assert_non_null(strstr(diag.text, "holds the state of another run, or none"));
    hl_elastic_close(&e);
    hl_trainer_free(t);
}

/* And nothing was asked for. */
static void test_refused(void **state) {
    (void)state;
    struct place p;
    struct hl_elastic e;
    struct hl_diag diag = {0};
    uint64_t held = 0, written = 0;
    open_place(&p, diloco);
    struct hl_trainer *t = new_trainer(&p.w);
    assert_int_equal(hl_elastic_look(&e, NULL, 1, 0, &diag), HL_OK);
    assert_int_equal(hl_elastic_make(&e, t, &diag), HL_OK);
    assert_int_equal(hl_elastic_begin(&e, t, &diag), HL_OK);
    assert_int_equal(hl_elastic_commit(&e, t, &diag), HL_OK);
    assert_int_equal(access(p.path, F_OK), -1);
    hl_elastic_close(&e);

    assert_int_equal(hl_elastic_look(&e, p.path, 1, 0, &diag), HL_OK);
    assert_int_equal(hl_elastic_make(&e, t, &diag), HL_OK);
    assert_int_equal(hl_elastic_begin(&e, t, &diag), HL_OK);
    hl_elastic_cost(&e, t, &held, &written);
    uint64_t floats = written / 4, P = (uint64_t)t->model->layout.n_parameters;
    assert_true(floats >= 5 * P && floats < 5 * P + 5 * 16 + 4); /* outer 2, inner 3 */
    assert_true(held >= 2 * written && held < 2 * written + 8 * 4096);
    refused(&p, 2, 1);
    e.snapshot.memory.write[12288 + 8] ^= 1;
    refused(&p, 2, 0);
    e.snapshot.memory.write[12288 + 8] ^= 1;
    hl_elastic_close(&e);
    hl_trainer_free(t);
    set_word(&p.w, "optim", "lion"); /* fewer slots of its own */
    refused(&p, 2, 0);
    p.w.model.hidden_size = 32;
    set_word(&p.w, "optim", "adamw");
    refused(&p, 2, 0);
    close_world(&p.w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lose_one),
        cmocka_unit_test(test_lose_one_with_state_of_its_own),
        cmocka_unit_test(test_lose_the_middle_one),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
