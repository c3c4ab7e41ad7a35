/* One step: interpret the schedule's operations, tell the strategy what happens, and count.
 * The loop names no strategy, no model and no tier; what a step is comes from the list. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "kernels/threads.h"
#include "os/clock.h"
#include "train/trainer_internal.h"

/* What one step gathers while its operations run. */
struct step {
    struct hl_trainer *t;
    struct hl_schedule_shape shape; /* n_micro as planned, until micro_end answers otherwise */
    int64_t first_row, n_rows;
    struct hl_batch batch;
    bool head_adds;                   /* the head's forward found a gradient to add to */
    struct hl_books books, committed; /* committed: of all ranks, with this step's update */
    int64_t n_run;                    /* micro-batches of this rank, since the books were closed */
    bool closed; /* the books of this step's update are on their way to the other ranks */
    int64_t data_wait_ns;
    struct hl_step_result result;
    double learning_rate;
};

static int last_block(const struct hl_trainer *t) { return t->model->layout.n_blocks - 1; }

/* ---- waiting for the strategy ---- */

/* Ten minutes without an end: somebody is gone. A group of ranks has its own, shorter patience. */
static const int64_t WAIT_NS = 600000000000, SLEEP_NS = 100000000;

/* A slot said "not yet": poll. True when it is time to call the slot again. */
static bool again(struct hl_trainer *t, enum hl_status *status, struct hl_diag *diag) {
    if (*status != HL_PENDING) return false;
    assert(t->strategy->poll);
    int64_t deadline = hl_clock_ns() + WAIT_NS;
    while ((*status = t->strategy->poll(t->strategy_state, diag)) == HL_PENDING) {
        hl_group_sleep(t->setup.group, SLEEP_NS);
        if (hl_clock_ns() > deadline)
            *status = hl_fail(diag, HL_E_TIMEOUT,
                              "strategy '%s' waited ten minutes in step %lld: is a peer gone?",
                              t->strategy->name, (long long)t->step + 1);
    }
    return *status == HL_OK;
}

enum hl_status hl_trainer_drain(struct hl_trainer *t, struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    if (!t->strategy->drain) return HL_OK;
    do status = t->strategy->drain(t->strategy_state, diag);
    while (again(t, &status, diag));
    return status;
}

/* An outer round after a committed step. */
static enum hl_status outer_round(struct hl_trainer *t, struct hl_diag *diag) {
    const struct hl_strategy *strategy = t->strategy;
    enum hl_status status = HL_OK;
    if (!strategy->sync_due || !strategy->sync_due(t->strategy_state, t->step)) return HL_OK;
    do status = strategy->sync(t->strategy_state, diag);
    while (again(t, &status, diag));
    return status;
}

/* ---- micro-batches ---- */

/* This rank's rows of a micro-batch. Those of rank 0 come first, then rank 1's, ... A last one that
 * is not full is shared out evenly. */
static struct hl_range planned_rows(const struct step *s, int micro) {
    const struct hl_trainer *t = s->t;
    int64_t skip = micro * t->rank_rows, all = s->n_rows - skip;
    if (all > t->rank_rows) all = t->rank_rows;
    struct hl_range own =
        hl_slice(all, 1, hl_group_rank(t->setup.group), hl_group_n_ranks(t->setup.group));
    return (struct hl_range){s->first_row + skip + own.offset, own.n};
}

/* The same where each rank takes its share of the next rows whenever it gets there. */
static struct hl_range next_rows(struct hl_trainer *t) {
    int64_t first = t->next_row + hl_group_rank(t->setup.group) * t->micro_rows;
    int64_t left = t->total_rows - first;
    t->next_row += t->rank_rows;
    return (struct hl_range){first, left < t->micro_rows ? left : t->micro_rows};
}

/* A rank without a row takes one without targets, to stay in step. */
static enum hl_status micro_begin(struct step *s, int micro, struct hl_diag *diag) {
    struct hl_trainer *t = s->t;
    struct hl_range rows = hl_trainer_has_pace(t) ? next_rows(t) : planned_rows(s, micro);
    bool none = rows.n <= 0;
    if (none) rows = (struct hl_range){s->first_row, 1};
    hl_group_tell(t->setup.group, HL_PHASE_DATA, t->step + 1);
    int64_t before = hl_clock_ns();
    enum hl_status status = hl_loader_rows(t->train_rows, rows.offset, rows.n, &s->batch, diag);
    s->data_wait_ns += hl_clock_ns() - before;
    if (status != HL_OK) return status;
    if (none) {
        s->batch.target_N = t->no_target;
        s->batch.n_supervised = 0;
    } else {
        s->books.n_rows += rows.n;
        s->books.n_tokens += s->batch.n_tokens;
    }
    s->books.n_supervised += s->batch.n_supervised;
    s->n_run++;
    hl_group_tell(t->setup.group, HL_PHASE_FORWARD, t->step + 1);
    return hl_model_begin(t->run, &s->batch, diag);
}

/* A loss that is no number: the first block whose output holds one. The outputs are still there,
 * for the backward pass. */
static enum hl_status explain_loss(const struct step *s, struct hl_diag *diag) {
    const struct hl_trainer *t = s->t;
    int bad = 0;
    while (bad < last_block(t) && hl_model_is_finite(t->run, bad)) bad++;
    char name[32];
    hl_trainer_block_name(t, bad, name, sizeof name);
    return hl_fail(diag, HL_E_NUMERIC,
                   "step %lld: the loss is not a finite number; it began in %s, in the forward "
                   "pass; the step was not applied. "
                   "Try a lower learning_rate or a longer warm-up, from the last checkpoint",
                   (long long)t->step + 1, name);
}

/* The head makes its gradient, and its part of a tied embedding's, in the forward pass. */
static enum hl_status forward(struct step *s, int block, struct hl_diag *diag) {
    struct hl_trainer *t = s->t;
    bool head = block == last_block(t);
    struct hl_block_data own = hl_trainer_block(t, block, head), embedding = own;
    if (head) embedding = hl_trainer_block(t, 0, t->model->config.tie_word_embeddings);
    if (head) own.add = s->head_adds = hl_engine_grad_adds(t->engine, block);
    enum hl_status status = hl_model_forward(t->run, block, &own, &embedding, NULL, diag);
    if (status != HL_OK || !head) return status;
    double sum = hl_model_loss_sum(t->run);
    if (!isfinite(sum)) return explain_loss(s, diag);
    s->books.loss_sum += sum;
    return HL_OK;
}

static enum hl_status backward(struct step *s, const struct hl_op *op, bool last_micro,
                               struct hl_diag *diag) {
    struct hl_trainer *t = s->t;
    struct hl_block_data own = hl_trainer_block(t, op->block, true);
    hl_group_tell(t->setup.group, HL_PHASE_BACKWARD, t->step + 1);
    own.add = op->block == last_block(t) ? s->head_adds : hl_engine_grad_adds(t->engine, op->block);
    enum hl_status status = hl_model_backward(t->run, op->block, &own, diag);
    if (status != HL_OK || !op->grad_final || !t->strategy->grad_ready) return status;
    do status = t->strategy->grad_ready(t->strategy_state, op->block, last_micro, diag);
    while (again(t, &status, diag));
    return status;
}

/* What a rank tells with each step. */
enum shared { LOSS, ROWS, TOKENS, SUPERVISED, STOP, AFTER_ROUND, UNTIL_ROUND };
_Static_assert(UNTIL_ROUND + 1 == HL_SHARED_NUMBERS, "room for all");

/* What this rank's micro-batches gave, and its wish to stop, to all; begun here. */
static void close_books(struct step *s) {
    struct hl_trainer *t = s->t;
    struct hl_group *group = t->setup.group;
    double *own = t->shared + hl_group_rank(group) * HL_SHARED_NUMBERS;
    own[LOSS] = s->books.loss_sum;
    own[ROWS] = (double)s->books.n_rows;
    own[TOKENS] = (double)s->books.n_tokens;
    own[SUPERVISED] = (double)s->books.n_supervised;
    own[STOP] = t->stop_wish;
    own[AFTER_ROUND] = (double)t->after_round;
    own[UNTIL_ROUND] = (double)s->n_run;
    s->n_run = 0;
    const struct hl_collective_args args = {.kind = HL_ALL_GATHER,
                                            .data = t->shared,
                                            .n = HL_SHARED_NUMBERS * hl_group_n_ranks(group),
                                            .element_bytes = sizeof *own,
                                            .unit = HL_SHARED_NUMBERS};
    hl_collective_start(group, &args, &t->share);
    s->closed = true;
    s->committed = s->books; /* this rank's, until all are known */
    s->books = (struct hl_books){0};
}

/* The books of all ranks, added in rank order; the gravest wish to stop. */
static enum hl_status read_books(struct step *s, int *stop_out, struct hl_diag *diag) {
    struct hl_trainer *t = s->t;
    enum hl_status status = hl_collective_wait(t->setup.group, &t->share, diag);
    if (status != HL_OK) return status;
    s->committed = (struct hl_books){0};
    for (int r = 0; r < hl_group_n_ranks(t->setup.group); r++) {
        const double *part = t->shared + r * HL_SHARED_NUMBERS;
        s->committed.loss_sum += part[LOSS];
        s->committed.n_rows += (int64_t)part[ROWS];
        s->committed.n_tokens += (int64_t)part[TOKENS];
        s->committed.n_supervised += (int64_t)part[SUPERVISED];
        if ((int)part[STOP] > *stop_out) *stop_out = (int)part[STOP];
    }
    return HL_OK;
}

/* What the update of this step is made of, as far as it is known. */
static const struct hl_books *books_of_update(const struct step *s) {
    return s->closed ? &s->committed : &s->books;
}

static struct hl_step step_of(const struct step *s) {
    const struct hl_trainer *t = s->t;
    struct hl_step step = {.index = t->step,
                           .n_supervised = books_of_update(s)->n_supervised,
                           .learning_rate = s->learning_rate,
                           .max_grad_norm = t->setup.options->max_grad_norm};
    if (t->replay)
        hl_rounds_of(t->replay, t->step + 1, hl_group_rank(t->setup.group), &step.until_round,
                     &step.after_round);
    return step;
}

void hl_trainer_rounds(const struct hl_trainer *t, int64_t *counts) {
    for (int r = 0; r < hl_group_n_ranks(t->setup.group); r++) {
        const double *part = t->shared + r * HL_SHARED_NUMBERS;
        counts[2 * r] = (int64_t)part[AFTER_ROUND];
        counts[2 * r + 1] = (int64_t)part[UNTIL_ROUND];
    }
}

static enum hl_status step_end(struct step *s, struct hl_diag *diag) {
    struct hl_trainer *t = s->t;
    struct hl_step step = step_of(s);
    hl_group_tell(t->setup.group, HL_PHASE_UPDATE, t->step + 1);
    if (step.n_supervised == 0 && hl_group_n_ranks(t->setup.group) == 1)
        return hl_fail(diag, HL_E_USER,
                       "step %lld: none of its %lld tokens is supervised, so there is no gradient; "
                       "check the data and block_size",
                       (long long)t->step + 1, (long long)books_of_update(s)->n_tokens);
    enum hl_status status;
    do status = t->strategy->step_end(t->strategy_state, &step, &s->result, diag);
    while (again(t, &status, diag));
    if (status != HL_OK || s->result.applied) return status;
    char name[32], whose[80] = "";
    hl_trainer_block_name(t, s->result.bad_block, name, sizeof name);
    if (t->strategy->caps & HL_CAP_DIVERGENT)
        (void)snprintf(whose, sizeof whose, " of rank %d", hl_group_rank(t->setup.group));
    else if (hl_group_n_ranks(t->setup.group) > 1)
        (void)snprintf(whose, sizeof whose,
                       " of some rank (which one cannot be told from the ranks' sum)");
    return hl_fail(diag, HL_E_NUMERIC,
                   "step %lld: the gradient is not finite; it began in %s, in the backward pass%s; "
                   "the step was not applied. "
                   "Try a lower learning_rate or a longer warm-up, from the last checkpoint",
                   (long long)t->step + 1, name, whose);
}

/* The books of a round are closed: is the update that it goes into the run's last? Only when that
 * may be so the others are waited for. */
static enum hl_status round_ends(struct step *s, bool *last_out, struct hl_diag *diag) {
    const struct hl_trainer *t = s->t;
    int stop = 0;
    close_books(s);
    int64_t left = hl_trainer_row_budget(t) - t->rows_taken;
    int64_t likely = s->committed.n_rows * hl_group_n_ranks(t->setup.group);
    *last_out = false;
    if (likely < left / 2 && likely + t->step_rows < left) return HL_OK;
    enum hl_status status = read_books(s, &stop, diag);
    *last_out = s->committed.n_rows >= left;
    return status;
}

/* A strategy that counts micro-batches by itself ends the step here, or asks for one more while
 * there are rows. */
static enum hl_status micro_end(struct step *s, int micro, struct hl_diag *diag) {
    struct hl_trainer *t = s->t;
    if (!t->strategy->micro_end) return HL_OK;
    enum hl_micro_answer answer = HL_MICRO_STEP;
    enum hl_status status;
    do
        status =
            t->strategy->micro_end(t->strategy_state, micro, s->batch.n_supervised, &answer, diag);
    while (again(t, &status, diag));
    bool last = micro == s->shape.n_micro - 1, ends = answer == HL_MICRO_STEP;
    if (status == HL_OK && hl_trainer_has_pace(t)) {
        if (answer == HL_MICRO_ROUND) status = round_ends(s, &ends, diag);
        s->shape.n_micro = micro + (ends ? 1 : 2);
        return status;
    }
    if (status != HL_OK || last == ends) return status;
    int64_t left = t->total_rows - s->first_row, rows = (micro + (ends ? 1 : 2)) * t->rank_rows;
    if (rows > left) rows = left;
    if (!ends && rows == s->n_rows) return HL_OK; /* the data is at its end, and the step with it */
    s->n_rows = rows;
    s->shape.n_micro = micro + (ends ? 1 : 2);
    return HL_OK;
}

static enum hl_status step_begin(struct step *s, struct hl_diag *diag) {
    struct hl_trainer *t = s->t;
    enum hl_status status = HL_OK;
    struct hl_step step = step_of(s);
    if (!t->strategy->step_begin) return HL_OK;
    do status = t->strategy->step_begin(t->strategy_state, &step, diag);
    while (again(t, &status, diag));
    return status;
}

static enum hl_status run_mark(struct step *s, const struct hl_op *op, struct hl_diag *diag) {
    switch (op->mark) {
    case HL_MARK_STEP_BEGIN: {
        enum hl_status status = step_begin(s, diag);
        bool asks = status == HL_OK && hl_trainer_has_pace(s->t);
        return asks ? micro_end(s, -1, diag) : status;
    }
    case HL_MARK_MICRO_BEGIN: return micro_begin(s, op->micro, diag);
    case HL_MARK_MICRO_END: return micro_end(s, op->micro, diag);
    case HL_MARK_STEP_END: return step_end(s, diag);
    }
    return HL_OK;
}

typedef enum hl_status (*block_slot)(void *state, int block, bool backward, struct hl_diag *diag);

static enum hl_status tell(struct hl_trainer *t, block_slot slot, int block, bool back,
                           struct hl_diag *diag) {
    enum hl_status status = HL_OK;
    if (!slot) return HL_OK;
    do status = slot(t->strategy_state, block, back, diag);
    while (again(t, &status, diag));
    return status;
}

static enum hl_status run_op(struct step *s, const struct hl_op *op, bool last_micro,
                             struct hl_diag *diag) {
    struct hl_trainer *t = s->t;
    if (op->kind == HL_OP_MARK) return run_mark(s, op, diag);
    if (op->kind != HL_OP_FWD && op->kind != HL_OP_BWD && op->kind != HL_OP_RECOMPUTE)
        return hl_fail(diag, HL_E_UNSUPPORTED,
                       "schedule '%s' asks for operation %d, which this loop cannot run",
                       t->schedule->name, op->kind);
    if (t->setup.lost && t->setup.lost(t->setup.lost_context))
        return hl_fail(diag, HL_E_PEER, "a rank is lost; noticed in step %lld",
                       (long long)t->step + 1);
    bool back = op->kind != HL_OP_FWD;
    enum hl_status status = tell(t, t->strategy->block_enter, op->block, back, diag);
    if (status != HL_OK) return status;
    if (op->kind == HL_OP_FWD) status = forward(s, op->block, diag);
    else if (op->kind == HL_OP_BWD) status = backward(s, op, last_micro, diag);
    else {
        struct hl_block_data own = hl_trainer_block(t, op->block, false);
        status = hl_model_recompute(t->run, op->block, &own, diag);
    }
    return status == HL_OK ? tell(t, t->strategy->block_exit, op->block, back, diag) : status;
}

enum hl_status hl_trainer_step(struct hl_trainer *t, struct hl_step_report *out,
                               struct hl_diag *diag) {
    if (t->step >= t->n_steps) return HL_END;
    hl_threads_set(t->threads); /* another trainer of this process may have set its own */
    int64_t started = hl_clock_ns();
    bool pace = hl_trainer_has_pace(t);
    struct step s = {
        .t = t, .first_row = t->rows_taken, .n_rows = t->step_rows, .books = t->uncommitted};
    if (s.n_rows > t->total_rows - s.first_row) s.n_rows = t->total_rows - s.first_row;
    double progress = pace ? (double)t->rows_taken / (double)t->step_rows : (double)t->step;
    s.learning_rate = hl_learning_rate(&t->rate, progress, 1);
    s.shape = (struct hl_schedule_shape){
        .n_blocks = t->model->layout.n_blocks,
        .n_micro = (int)((s.n_rows + t->rank_rows - 1) / t->rank_rows),
        .tied_head = t->model->config.tie_word_embeddings,
        .recompute = t->recompute,
    };
    enum hl_status status = hl_trainer_view(t, false, diag);
    struct hl_op op;
    for (int64_t i = 0; status == HL_OK && t->schedule->op(&s.shape, i, &op) == HL_OK; i++)
        status = run_op(&s, &op, op.micro == s.shape.n_micro - 1, diag);
    if (status != HL_OK) {
        hl_engine_grad_clear(t->engine); /* half a gradient must not leak into a later step */
        return status;
    }
    int stop = 0;
    if (!s.closed) close_books(&s);
    status = read_books(&s, &stop, diag);
    if (status != HL_OK) return status;
    if (s.committed.n_supervised == 0)
        return hl_fail(diag, HL_E_USER,
                       "step %lld: no token of any rank is supervised, so there is no gradient; "
                       "check the data and block_size",
                       (long long)t->step + 1);
    t->step++;
    t->rows_taken += pace ? s.committed.n_rows : s.n_rows;
    t->uncommitted = s.books;
    t->after_round = s.n_run;
    t->tokens_seen += s.committed.n_supervised;
    if (t->strategy->micro_end) hl_trainer_progress_changed(t);
    status = outer_round(t, diag);
    if (status != HL_OK) return status;
    *out = (struct hl_step_report){
        .step = t->step,
        .loss = s.committed.loss_sum / (double)s.committed.n_supervised,
        .grad_norm = s.result.grad_norm,
        .learning_rate = s.learning_rate,
        .n_tokens = s.committed.n_tokens,
        .n_supervised = s.committed.n_supervised,
        .stop = stop,
        .seconds = (double)(hl_clock_ns() - started) * 1e-9,
        .data_wait_seconds = (double)s.data_wait_ns * 1e-9,
        .epoch =
            (double)t->rows_taken / (double)hl_dataset_n_rows(t->setup.dataset, HL_SPLIT_TRAIN),
    };
    return HL_OK;
}

void hl_trainer_ask_stop(struct hl_trainer *t, int wish) {
    if (wish > t->stop_wish) t->stop_wish = wish;
}

/* ---- forward only ---- */

enum hl_status hl_trainer_forward_loss(struct hl_trainer *t, const struct hl_batch *batch,
                                       double *sum_out, struct hl_diag *diag) {
    enum hl_status status = hl_model_begin(t->run, batch, diag);
    for (int b = 0; b <= last_block(t) && status == HL_OK; b++) {
        status = tell(t, t->strategy->block_enter, b, false, diag);
        if (status != HL_OK) break;
        struct hl_block_data own = hl_trainer_block(t, b, false), embedding = own;
        if (b == last_block(t)) embedding = hl_trainer_block(t, 0, false);
        status = hl_model_forward(t->run, b, &own, &embedding, NULL, diag);
        if (status == HL_OK) status = tell(t, t->strategy->block_exit, b, false, diag);
    }
    if (status == HL_OK) *sum_out = hl_model_loss_sum(t->run);
    return status;
}

/* Sums of the losses of validation batches and their tokens: batch i is made by rank i % n_ranks,
 * and all get to know all, so that they are added in the same order by any number of ranks. */
static enum hl_status score_batches(struct hl_trainer *t, int64_t rows, int64_t n_each,
                                    int64_t n_batches, double *all, struct hl_diag *diag) {
    int rank = hl_group_rank(t->setup.group), n_ranks = hl_group_n_ranks(t->setup.group);
    double *own = all + 2 * n_each * rank;
    for (int64_t k = 0; k < n_each; k++) {
        struct hl_batch batch;
        int64_t i = rank + k * n_ranks;
        bool counts = i < n_batches; /* else once more the first, to stay in step with the others */
        double sum;
        enum hl_status status =
            hl_loader_rows(t->validation_rows, counts ? i * rows : 0, rows, &batch, diag);
        if (status == HL_OK) status = hl_trainer_forward_loss(t, &batch, &sum, diag);
        if (status != HL_OK) return status;
        if (!counts) break;
        own[2 * k] = sum;
        own[2 * k + 1] = (double)batch.n_supervised;
    }
    return hl_group_share(t->setup.group, all, 2 * n_each, diag);
}

enum hl_status hl_trainer_evaluate(struct hl_trainer *t, double *loss_out, int64_t *n_tokens_out,
                                   struct hl_diag *diag) {
    if (!t->validation_rows) return HL_END;
    hl_threads_set(t->threads);
    hl_group_tell(t->setup.group, HL_PHASE_EVALUATION, t->step);
    enum hl_status status = hl_trainer_drain(t, diag);
    if (status == HL_OK) status = hl_trainer_view(t, true, diag);
    if (status != HL_OK) return status;
    const struct hl_train_options *o = t->setup.options;
    int64_t rows = o->per_device_eval_batch_size ? o->per_device_eval_batch_size : t->micro_rows;
    int64_t n_batches =
        (hl_dataset_n_rows(t->setup.dataset, HL_SPLIT_VALIDATION) + rows - 1) / rows;
    if (o->max_eval_batches && n_batches > o->max_eval_batches) n_batches = o->max_eval_batches;
    int n_ranks = hl_group_n_ranks(t->setup.group);
    int64_t n_each = (n_batches + n_ranks - 1) / n_ranks;
    size_t n = (size_t)(2 * n_each * n_ranks);
    double *all = hl_alloc(t->mem, n, sizeof *all);
    if (!all) return hl_fail_memory(diag, n * sizeof *all, "the evaluation");
    status = score_batches(t, rows, n_each, n_batches, all, diag);
    double sum = 0, tokens = 0;
    for (int64_t i = 0; i < n_batches && status == HL_OK; i++) {
        const double *part = all + 2 * (i % n_ranks * n_each + i / n_ranks);
        sum += part[0];
        tokens += part[1];
    }
    hl_free(t->mem, all);
    if (status != HL_OK || tokens == 0) return status != HL_OK ? status : HL_END;
    *loss_out = sum / tokens;
    *n_tokens_out = (int64_t)tokens;
    return HL_OK;
}
