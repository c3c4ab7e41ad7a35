/* The trainer's parts, shared by its files. See halley/train.h. */
#ifndef HALLEY_TRAIN_TRAINER_INTERNAL_H
#define HALLEY_TRAIN_TRAINER_INTERNAL_H

#include "halley/schedule.h"
#include "halley/strategy.h"
#include "halley/train.h"
#include "memory/engine.h"
#include "model/run.h"

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
    void *strategy_state;
    double sent_bytes_per_step; /* by this rank, as the strategy's cost says */
    struct hl_schedule_rate rate;

    int64_t micro_rows, rank_rows; /* of a micro-batch: on this rank, on all */
    int64_t step_rows;             /* of a step, on all ranks */
    int32_t *no_target;            /* [block_size] of -1 */
    int64_t n_steps;               /* in all */
    int64_t total_rows;            /* the run ends there; INT64_MAX when max_steps decides */

    /* progress, committed: what a checkpoint holds */
    int64_t step;
    int64_t rows_taken;
    int64_t tokens_seen;

    int stop_wish;        /* of this rank */
    uint64_t loaded_hash; /* of the weights that were read last: as f32, whatever the file's type */
};

/* Nothing of the strategy's is in flight afterwards: before evaluation and checkpoints. */
enum hl_status hl_trainer_drain(struct hl_trainer *trainer, struct hl_diag *diag) HL_MUST_CHECK;
/* step and rows_taken were set from outside: how many steps that leaves, and the rate's curve over
 * them. */
void hl_trainer_progress_changed(struct hl_trainer *trainer);

/* Weights and gradient of a block, as the model takes them. */
struct hl_block_data hl_trainer_block(struct hl_trainer *trainer, int block, bool with_gradient);
/* The validation split's or another batch's loss: forward only. */
enum hl_status hl_trainer_forward_loss(struct hl_trainer *trainer, const struct hl_batch *batch,
                                       double *sum_out, struct hl_diag *diag) HL_MUST_CHECK;
/* Name of a block for people: "embedding", "layer 3", "head". */
void hl_trainer_block_name(const struct hl_trainer *trainer, int block, char *out, size_t capacity);

#endif
