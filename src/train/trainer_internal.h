/* The trainer's parts, shared by its files. See halley/train.h. */
#ifndef HALLEY_TRAIN_TRAINER_INTERNAL_H
#define HALLEY_TRAIN_TRAINER_INTERNAL_H

#include "halley/schedule.h"
#include "halley/strategy.h"
#include "halley/train.h"
#include "memory/engine.h"
#include "memory/placed.h"
#include "model/run.h"
#include "train/plan.h"
#include "train/rounds.h"

/* What micro-batches of this rank gave. */
struct hl_books {
    double loss_sum;
    int64_t n_rows, n_tokens, n_supervised;
};
enum { HL_SHARED_NUMBERS = 7 }; /* of a rank, with each step: step.c says which */

struct hl_trainer {
    struct hl_mem *mem;
    struct hl_trainer_setup setup;
    int threads;
    char threads_why[160], processor[96];
    struct hl_model *model;
    const struct hl_kernels *kernels;
    struct hl_products *products;
    struct hl_engine *engine;
    struct hl_model_run *run;
    bool *recompute;                                /* [n_blocks] */
    struct hl_loader *train_rows, *validation_rows; /* the latter NULL: no held-out split */
    const struct hl_schedule *schedule;
    const struct hl_strategy *strategy;
    const struct hl_optimizer *optimizer;
    const void *strategy_options;
    struct hl_plan_defaults defaults;
    struct hl_placed *far; /* NULL: mem */
    void *strategy_state;
    double sent_bytes_per_step; /* by this rank, as the strategy's cost says */
    bool started;               /* the strategy: what it keeps on this rank is there */
    bool in_view;               /* the engine holds what evaluation and checkpoints see */
    struct hl_schedule_rate rate;

    int64_t micro_rows, rank_rows; /* of a micro-batch: on this rank, on all */
    /* Of a step, on all ranks. HL_CAP_ROUNDS: as planned when the run began: its length and the
     * rate's curve are told in these, and stay when the number of ranks changes */
    int64_t step_rows;
    int32_t *no_target; /* [block_size] of -1 */
    int64_t n_steps;    /* in all */
    int64_t total_rows; /* the run ends there; INT64_MAX when max_steps decides */

    /* progress, committed: what a checkpoint holds */
    int64_t step;
    int64_t rows_taken;
    int64_t tokens_seen;

    /* Ranks at their own pace (HL_CAP_ROUNDS): where this rank's next micro-batch counts its rows
     * from, and what it gave that no step has committed yet. Both are this rank's own. */
    int64_t next_row;
    struct hl_books uncommitted;
    int64_t after_round;      /* micro-batches that gave it */
    struct hl_rounds *replay; /* NULL: ranks decide themselves */

    int stop_wish;              /* of this rank */
    struct hl_collective share; /* of the step's books between ranks */
    double shared[HL_MAX_RANKS * HL_SHARED_NUMBERS];
    uint64_t loaded_hash; /* of the weights that were read last: as f32, whatever the file's type */
};

static inline bool hl_trainer_has_pace(const struct hl_trainer *t) {
    return t->strategy->caps & HL_CAP_ROUNDS;
}
/* Rows after which the run is over. */
int64_t hl_trainer_row_budget(const struct hl_trainer *trainer);
/* What the engine holds from here on: the weights that evaluation and checkpoints see, or those in
 * work. A trainer begins in view; the strategy starts when work begins. */
enum hl_status hl_trainer_view(struct hl_trainer *trainer, bool on,
                               struct hl_diag *diag) HL_MUST_CHECK;
/* Nothing of the strategy's is in flight afterwards: before evaluation and checkpoints. */
enum hl_status hl_trainer_drain(struct hl_trainer *trainer, struct hl_diag *diag) HL_MUST_CHECK;
/* step and rows_taken were set from outside: how many steps that leaves, and the rate's curve over
 * them. */
void hl_trainer_progress_changed(struct hl_trainer *trainer);

/* Of the last step: [n_ranks][2], as in rounds.jsonl. */
void hl_trainer_rounds(const struct hl_trainer *trainer, int64_t *counts);

/* Weights and gradient of a block, as the model takes them. */
struct hl_block_data hl_trainer_block(struct hl_trainer *trainer, int block, bool with_gradient);
/* The validation split's or another batch's loss: forward only. */
enum hl_status hl_trainer_forward_loss(struct hl_trainer *trainer, const struct hl_batch *batch,
                                       double *sum_out, struct hl_diag *diag) HL_MUST_CHECK;
/* Name of a block for people: "embedding", "layer 3", "head". */
void hl_trainer_block_name(const struct hl_trainer *trainer, int block, char *out, size_t capacity);

#endif
