/* A tiny model trained by several ranks, for tests of strategies: the same world, one trainer for
 * each rank on a threads wire. Include after trainer_fixture.h. */
#ifndef HALLEY_TESTS_TRAIN_RANKS_H
#define HALLEY_TESTS_TRAIN_RANKS_H

#include "kernels/threads.h"
#include "support/ranks.h"
#include "support/whole_state.h"

enum { RANKS_LANES = 3, RANKS_PART = 4096, RANKS_STEPS = 20 };

/* What to run and what came of it. */
struct ranks_job {
    const struct world *world;
    int n_steps;
    const char *resume_from; /* a checkpoint; NULL: start anew */
    const char *save_to;     /* output_dir of a checkpoint at the end; NULL: none */
    float *state;            /* [(1 + n_slots) n_parameters] of rank 0: weights, then slots */
    int64_t n_state;
    double loss[RANKS_STEPS], norm[RANKS_STEPS], eval_loss;
    uint64_t compute_hash[HL_MAX_RANKS]; /* of what compute reads on each rank */
};

static inline uint64_t ranks_hash(const void *data, size_t n) {
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return h;
}

static inline void ranks_collect(struct rank_context *r, struct ranks_job *job,
                                 struct hl_trainer *t) {
    struct hl_diag diag = {0};
    if (r->rank == 0) {
        job->n_state = whole_state_size(t);
        job->state = realloc(job->state, (size_t)job->n_state * sizeof *job->state);
    }
    if (whole_state(t, r->rank == 0 ? job->state : NULL, &diag) != HL_OK)
        ranks_fail(r, "%s", diag.text);
}

static inline void ranks_train(struct rank_context *r) {
    struct ranks_job *job = r->shared;
    struct hl_trainer_setup setup = job->world->setup;
    struct hl_trainer *t = NULL;
    struct hl_group *group = NULL;
    struct hl_diag diag = {0};
    const struct hl_kernels *kernels = NULL;
    ranks_check(r, hl_kernels_get(HL_F32, &kernels, &diag) == HL_OK);
    ranks_check(r, hl_group_new(hl_mem_default(), r->wire, kernels, 20000000000, &group, &diag) ==
                       HL_OK);
    setup.group = group;
    if (hl_trainer_new(hl_mem_default(), &setup, &t, &diag) != HL_OK) {
        ranks_fail(r, "%s", diag.text);
        hl_group_give_up(group, diag.text);
        hl_group_free(group);
        return;
    }
    enum hl_status status = HL_OK;
    if (job->resume_from) status = hl_trainer_resume(t, job->resume_from, &diag);
    for (int i = 0; i < job->n_steps && status == HL_OK; i++) {
        struct hl_step_report report;
        status = hl_trainer_step(t, &report, &diag);
        if (r->rank == 0 && status == HL_OK)
            job->loss[i] = report.loss, job->norm[i] = report.grad_norm;
    }
    int64_t n;
    double loss = NAN;
    if (status == HL_OK && job->save_to)
        status = hl_trainer_save(t, job->save_to, NULL, NULL, &diag);
    if (status == HL_OK) status = hl_trainer_evaluate(t, &loss, &n, &diag);
    if (status == HL_OK && r->rank == 0) job->eval_loss = loss;
    if (status == HL_OK) {
        ranks_collect(r, job, t);
        size_t width = t->kernels->dtype == HL_BF16 ? 2 : 4;
        if (hl_engine_has_all_weights(t->engine))
            job->compute_hash[r->rank] =
                ranks_hash(hl_engine_acquire(t->engine, hl_layout_all(&t->model->layout)),
                           (size_t)t->model->layout.n_parameters * width);
    } else {
        ranks_fail(r, "%s", diag.text);
        hl_group_give_up(group, diag.text);
    }
    hl_trainer_free(t);
    hl_group_free(group);
}

static inline void ranks_job_run(struct ranks_job *job, int n_ranks) {
    ranks_run(n_ranks, RANKS_LANES, RANKS_PART, ranks_train, job);
    for (int r = 1; r < n_ranks; r++)
        if (job->compute_hash[r] != job->compute_hash[0])
            fail_msg("rank %d computes with other weights than rank 0", r);
}

#endif
