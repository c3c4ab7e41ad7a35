/* What a trainer will allocate: the one place where options become sizes, used by the trainer
 * itself and by `plan --memory`, so that the plan cannot drift from the truth. */
#ifndef HALLEY_TRAIN_PLAN_H
#define HALLEY_TRAIN_PLAN_H

#include "halley/train.h"
#include "memory/engine.h"
#include "model/run.h"
#include "os/memory.h"

/* --strategy, and what "auto" stands for. errors HL_E_USER */
enum hl_status hl_plan_strategy(const struct hl_trainer_setup *setup,
                                const struct hl_strategy **out, struct hl_diag *diag) HL_MUST_CHECK;
/* Values of a strategy's own options: the setup's, or their defaults, which live as long as
 * `defaults` (zeroed before; free with hl_plan_defaults_free). *out NULL: it has none. */
struct hl_plan_defaults {
    struct hl_strategy_options values;
    struct hl_config *config;
};
enum hl_status hl_plan_strategy_options(struct hl_mem *mem, const struct hl_trainer_setup *setup,
                                        const struct hl_strategy *strategy,
                                        struct hl_plan_defaults *defaults, const void **out,
                                        struct hl_diag *diag) HL_MUST_CHECK;
void hl_plan_defaults_free(struct hl_plan_defaults *defaults);
/* Micro-batches of a full step. */
int64_t hl_plan_accumulation(const struct hl_trainer_setup *setup);
/* What a setup says to a strategy; plug-ins, layout and everything that lives are still NULL. */
struct hl_strategy_env hl_plan_env(const struct hl_trainer_setup *setup);
/* need: what the strategy's cost says of env */
struct hl_engine_shape hl_plan_engine_shape(const struct hl_train_options *options,
                                            const struct hl_strategy_need *need,
                                            const struct hl_strategy_env *env);
struct hl_model_run_shape hl_plan_run_shape(const struct hl_trainer_setup *setup,
                                            const bool *recompute);
/* Which blocks keep only their input; recompute [n_blocks]. errors HL_E_USER */
enum hl_status hl_recompute_blocks(const struct hl_train_options *options,
                                   const struct hl_model *model, bool *recompute,
                                   struct hl_diag *diag) HL_MUST_CHECK;
/* Refuse a run that this machine's memory cannot hold, before anything large is touched: the kernel
 * would kill it later, without a word. One that does not fit what is available now gets a warning.
 * errors HL_E_MEMORY */
enum hl_status hl_memory_check(struct hl_mem *mem, const struct hl_trainer_setup *setup,
                               const struct hl_memory *machine, struct hl_diag *diag) HL_MUST_CHECK;

#endif
