/* One of three ranks meets a number that is none: all end, and say at which step and in which
 * block; for a loss also whose it was. A gradient is looked at after the ranks' parts were added.
 */
#include "support/trainer_fixture.h"

#include "kernels/threads.h"
#include "support/ranks.h"

enum { N_RANKS = 3, BAD_RANK = 1, LANES = 3, PART = 4096 };
enum where { IN_LOSS, IN_GRADIENT };

struct job {
    const struct world *world;
    enum where where;
    enum hl_status status[N_RANKS];
    int64_t step[N_RANKS];
    struct hl_diag diag[N_RANKS];
};

/* The strategy of the bad rank, with a hand in what it passes. */
static struct {
    const struct hl_strategy *real;
    struct hl_trainer *trainer;
} bad;

static enum hl_status spoil_weights(void *state, int block, bool backward, struct hl_diag *diag) {
    struct hl_trainer *t = bad.trainer;
    enum hl_status status =
        bad.real->block_enter ? bad.real->block_enter(state, block, backward, diag) : HL_OK;
    if (status == HL_OK && block == 1 && !backward && t->step == 1) {
        float *at = (float *)(uintptr_t)hl_engine_acquire(t->engine, t->model->layout.blocks[1]);
        for (int i = 0; i < 16; i++) at[i] = NAN;
    }
    return status;
}

static enum hl_status spoil_gradient(void *state, int block, bool last_micro,
                                     struct hl_diag *diag) {
    struct hl_trainer *t = bad.trainer;
    if (block == 2 && t->step == 1 && last_micro)
        hl_engine_data(t->engine, HL_BUFFER_GRAD, t->model->layout.blocks[2])[0] = NAN;
    return bad.real->grad_ready(state, block, last_micro, diag);
}

static void train(struct rank_context *r) {
    struct job *job = r->shared;
    struct hl_trainer_setup setup = job->world->setup;
    struct hl_trainer *t = NULL;
    struct hl_diag *diag = &job->diag[r->rank];
    const struct hl_kernels *kernels = NULL;
    struct hl_strategy spoilt;
    ranks_check(r, hl_kernels_get(HL_F32, &kernels, diag) == HL_OK);
    ranks_check(r, hl_group_new(hl_mem_default(), r->wire, kernels, 20000000000, &setup.group,
                                diag) == HL_OK);
    enum hl_status status = hl_trainer_new(hl_mem_default(), &setup, &t, diag);
    if (status == HL_OK && r->rank == BAD_RANK) {
        spoilt = *t->strategy;
        bad.real = t->strategy;
        bad.trainer = t;
        if (job->where == IN_LOSS) spoilt.block_enter = spoil_weights;
        else spoilt.grad_ready = spoil_gradient;
        t->strategy = &spoilt;
    }
    for (int i = 0; i < 4 && status == HL_OK; i++) {
        struct hl_step_report report;
        status = hl_trainer_step(t, &report, diag);
    }
    job->status[r->rank] = status;
    job->step[r->rank] = t ? hl_trainer_step_index(t) : -1;
    if (status != HL_OK) hl_group_give_up(setup.group, diag->text);
    if (t && r->rank == BAD_RANK) t->strategy = bad.real;
    hl_trainer_free(t);
    hl_group_free(setup.group);
}

static void expect(const struct job *job, const char *strategy, int rank, enum hl_status status,
                   const char *text) {
    if (job->status[rank] != status || !strstr(job->diag[rank].text, text))
        fail_msg("%s, %s: rank %d: status %d, '%s': no '%s'", strategy,
                 job->where == IN_LOSS ? "loss" : "gradient", rank, job->status[rank],
                 job->diag[rank].text, text);
}

static void check_loss(const struct job *job, const char *strategy) {
    expect(job, strategy, BAD_RANK, HL_E_NUMERIC,
           "step 2: the loss is not a finite number; it began in layer 0, in the forward pass");
    for (int r = 0; r < N_RANKS; r++) {
        if (r == BAD_RANK) continue;
        expect(job, strategy, r, HL_E_PEER, "rank 1 (host ");
        expect(job, strategy, r, HL_E_PEER,
               "gave up: step 2: the loss is not a finite number; it began in layer 0");
    }
}

static void check_gradient(const struct job *job, const char *strategy) {
    for (int r = 0; r < N_RANKS; r++) {
        expect(job, strategy, r, HL_E_NUMERIC,
               "step 2: the gradient is not finite; it began in layer 1, in the backward pass of "
               "some rank (which one cannot be told");
        assert_string_equal(job->diag[r].text, job->diag[0].text);
        assert_int_equal(job->step[r], 1); /* not applied, on any */
    }
}

static void run(const char *strategy, const char *accumulation, enum where where) {
    struct world w;
    struct job job = {.world = &w, .where = where};
    open_world(&w, "adamw");
    set_word(&w, "strategy", strategy);
    set_word(&w, "gradient_accumulation_steps", accumulation);
    ranks_run(N_RANKS, LANES, PART, train, &job);
    if (where == IN_LOSS) check_loss(&job, strategy);
    else check_gradient(&job, strategy);
    close_world(&w);
}

static void test_one_rank(void **state) {
    static const char *const strategies[] = {"ddp", "zero1", "zero2", "zero3"};
    (void)state;
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++)
        for (int where = IN_LOSS; where <= IN_GRADIENT; where++) {
            run(strategies[s], "1", (enum where)where);
            run(strategies[s], "2", (enum where)where);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
