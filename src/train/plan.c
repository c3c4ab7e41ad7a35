/* Sizes of a trainer before it exists. See plan.h. */
#include "train/plan.h"

struct hl_engine_shape hl_plan_engine_shape(const struct hl_train_options *options, const struct hl_optimizer *optimizer) {
    return (struct hl_engine_shape){.train = true, .bf16_copy = options->bf16, .n_slots = optimizer->n_slots};
}

struct hl_model_run_shape hl_plan_run_shape(const struct hl_trainer_setup *setup, const bool *recompute) {
    const struct hl_train_options *o = setup->options;
    int64_t rows = o->per_device_train_batch_size;
    if (o->per_device_eval_batch_size > rows) rows = o->per_device_eval_batch_size;
    return (struct hl_model_run_shape){.max_tokens = rows * setup->block_size, .max_positions = setup->block_size,
                                       .train = true, .recompute = recompute};
}
