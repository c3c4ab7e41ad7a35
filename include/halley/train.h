/* Training, as the program and an embedding see it.
 *
 * A trainer owns weights, gradients, optimizer state and activations, and makes one step at a time;
 * the same seed gives the same bits. hl_train_run is the whole of `halley train`: cadence of logs,
 * evaluations, samples and checkpoints, signals and limits. */
#ifndef HALLEY_TRAIN_H
#define HALLEY_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "halley/checkpoint.h"
#include "halley/collective.h"
#include "halley/data.h"
#include "halley/log.h"
#include "halley/mem.h"
#include "halley/model.h"
#include "halley/optimizer.h"
#include "halley/option.h"
#include "halley/report.h"
#include "halley/status.h"

/* What --model and its companions say; 0 and "" mean "not given". */
struct hl_model_options {
    char *model; /* gpt2, llama, a preset's name, or a folder with config.json */
    int64_t num_hidden_layers, hidden_size, num_attention_heads, num_key_value_heads, head_dim;
    int64_t intermediate_size, max_position_embeddings, vocab_size;
    double rope_theta, norm_epsilon, initializer_range;
    int tie_word_embeddings, qkv_bias, qk_norm; /* enum hl_tristate */
    double dropout;                             /* only 0 is accepted */
};
enum hl_tristate { HL_AUTO, HL_TRUE, HL_FALSE };
enum hl_reduce_when { HL_REDUCE_EACH_STEP, HL_REDUCE_EACH_MICRO };
extern const struct hl_option hl_model_rows[];
extern const size_t hl_model_n_rows;

struct hl_train_options {
    /* steps and batches */
    int64_t max_steps; /* -1: by num_train_epochs */
    double num_train_epochs;
    int64_t per_device_train_batch_size,
        per_device_eval_batch_size;                         /* rows; the latter 0: as the former */
    int64_t gradient_accumulation_steps, global_batch_size; /* the latter 0: as the others say */
    double max_minutes;                                     /* 0: no limit */
    /* optimizer */
    char *optim, *strategy, *schedule, *replay_rounds;
    double learning_rate, min_lr_ratio, warmup_ratio, max_grad_norm;
    int64_t warmup_steps, lr_decay_steps;
    int lr_scheduler_type; /* enum hl_curve */
    /* numbers and memory */
    int reduce;         /* enum hl_reduce_when */
    int reduce_dtype;   /* enum hl_dtype */
    char *outer_state;  /* a folder whose files are memory; "": this process's */
    int64_t sync_every; /* steps */
    bool bf16, gradient_checkpointing;
    char *gradient_checkpointing_layers; /* "", "0-5,7" */
    int64_t threads;                     /* 0: physical cores this process may use */
    /* evaluation, samples, logs */
    int64_t eval_steps, max_eval_batches, logging_steps, sample_steps, sample_tokens;
    char *sample_prompt;
    bool tensorboard;
    /* output */
    char *output_dir, *resume_from_checkpoint;
    bool resume, overwrite_output_dir;
    int64_t save_steps, save_total_limit;
};
extern const struct hl_option hl_train_rows[];
extern const size_t hl_train_n_rows;

/* The model the options describe, for a tokenizer's vocabulary and sequences of block_size.
 * errors HL_E_USER: unknown model with the nearest name, dropout, sizes that do not divide. */
enum hl_status hl_model_resolve(struct hl_mem *mem, const struct hl_model_options *options,
                                int64_t vocab_size, int64_t block_size, struct hl_model_config *out,
                                struct hl_diag *diag) HL_MUST_CHECK;

/* The folder that --model names, whose weights a run starts from: itself, or the newest checkpoint
 * in a run's output_dir. HL_END: a family or a preset. A name with a '/' is always a folder;
 * otherwise families and presets come first, so that a folder called like one does not stand in its
 * way. errors HL_E_USER: there is no model in the folder. */
enum hl_status hl_model_folder(struct hl_mem *mem, const struct hl_model_options *options,
                               char *out, size_t capacity, struct hl_diag *diag) HL_MUST_CHECK;

struct hl_strategy_options;
struct hl_trainer_setup {
    const struct hl_train_options *options; /* all borrowed for the trainer's life */
    const struct hl_optimizer_options *optimizer_options;
    const struct hl_strategy_options *strategy_options; /* strategy.h; NULL: defaults */
    const struct hl_model_config *model;
    const struct hl_dataset *dataset;
    int64_t block_size;
    uint64_t seed;
    struct hl_log *log;
    struct hl_group *group; /* the ranks of this run; NULL: one */
    int n_local_ranks;      /* those that share this machine's cores; 0: one */
    int n_ranks;            /* of a plan, which has no group yet; 0: the group's */
    bool empty;             /* weights stay zero: they are read from somewhere */
    /* Asked between blocks: is a rank lost, so that the step cannot end? It ends with HL_E_PEER
     * then, sooner than by waiting for that rank. NULL: never */
    bool (*lost)(void *context);
    void *lost_context;
};

struct hl_step_report {
    int64_t step;     /* 1 after the first */
    double loss;      /* mean over the step's supervised tokens, of all ranks */
    double grad_norm; /* of the mean gradient, before clipping */
    double learning_rate;
    int64_t n_tokens, n_supervised; /* of all ranks */
    int stop; /* the largest of what ranks asked for by hl_trainer_ask_stop; 0: nobody did */
    double seconds, data_wait_seconds;
    double epoch; /* of the data, after the step */
};

/* Refuse what can be refused before data is read (setup->dataset may be NULL): names of plug-ins,
 * their options, layers. */
enum hl_status hl_trainer_check(struct hl_mem *mem, const struct hl_trainer_setup *setup,
                                struct hl_diag *diag) HL_MUST_CHECK;

struct hl_trainer;
enum hl_status hl_trainer_new(struct hl_mem *mem, const struct hl_trainer_setup *setup,
                              struct hl_trainer **out, struct hl_diag *diag) HL_MUST_CHECK;
void hl_trainer_free(struct hl_trainer *trainer);

/* One optimizer step. HL_END: all steps are done, nothing happened.
 * errors HL_E_NUMERIC: loss or gradient is not finite; the step is not applied, the weights are
 * those of the step before, and the diagnostic says at which step and in which block it began. With
 * HL_CAP_ROUNDS a loss may be found beside the commit: the state is then between two steps, and
 * must not be saved. */
enum hl_status hl_trainer_step(struct hl_trainer *trainer, struct hl_step_report *out,
                               struct hl_diag *diag) HL_MUST_CHECK;
/* A wish to end the run, told to all ranks with the next step (signals and clocks differ between
 * them): a positive number whose meaning is the caller's. */
void hl_trainer_ask_stop(struct hl_trainer *trainer, int wish);
/* Token mean of the loss over the whole validation split (or max_eval_batches of it). HL_END: there
 * is no split. Changes nothing in training. */
enum hl_status hl_trainer_evaluate(struct hl_trainer *trainer, double *loss_out,
                                   int64_t *n_tokens_out, struct hl_diag *diag) HL_MUST_CHECK;
int64_t hl_trainer_n_steps(const struct hl_trainer *trainer);    /* in all */
int64_t hl_trainer_step_index(const struct hl_trainer *trainer); /* done */
const struct hl_model *hl_trainer_model(const struct hl_trainer *trainer);
/* f32 master [n_parameters]; only where a rank holds all of it: one rank, ddp, strategies without
 * slices, or zero1 and zero2 with f32 compute */
float *hl_trainer_params(struct hl_trainer *trainer);
/* After writing into hl_trainer_params. */
void hl_trainer_params_changed(struct hl_trainer *trainer);
/* Operations of the products of one step, for shares of a machine's peak. */
double hl_trainer_flops_per_step(const struct hl_trainer *trainer);

/* Save output_dir/checkpoint-<step>, and go on from one. tokenizer_json and run_yaml may be NULL.
 */
enum hl_status hl_trainer_save(struct hl_trainer *trainer, const char *output_dir,
                               const char *tokenizer_json, const char *run_yaml,
                               struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status hl_trainer_resume(struct hl_trainer *trainer, const char *checkpoint_dir,
                                 struct hl_diag *diag) HL_MUST_CHECK;

/* ---- a whole run ---- */
enum hl_run_end { HL_RUN_DONE, HL_RUN_MINUTES, HL_RUN_SIGINT, HL_RUN_SIGTERM, HL_RUN_SIGHUP };
struct hl_train_run {
    struct hl_trainer_setup trainer;
    const struct hl_tokenizer *tokenizer;
    const char *tokenizer_json, *run_yaml;
    const char *weights_dir; /* start from these weights; NULL: initialise */
    int progress_fd;         /* -1: none */
    int (*signalled)(void);  /* 0, or the number of SIGINT, SIGTERM or SIGHUP; NULL: never */
    double started_seconds;  /* hl_clock at process start, for max_minutes */
    /* Live recovery: the file in which the state outlives ranks, and which generation of them this
     * is, from 1; seat: which of the ranks of the first one this is, or stands for; ranks are in
     * the order of their seats. All of it belongs to whoever started the ranks. NULL: none. After
     * HL_E_PEER or HL_E_TIMEOUT the next generation may call hl_train_run again, with another
     * group. */
    const char *snapshot;
    uint64_t generation;
    int seat;
};
enum hl_status hl_train_run(struct hl_mem *mem, const struct hl_train_run *run,
                            enum hl_run_end *end_out, struct hl_diag *diag) HL_MUST_CHECK;

/* ---- memory before a run ---- */
struct hl_memory_plan {
    uint64_t parameters, gradients, optimizer, activations, buffers, base, total;
};
/* Bytes by class that a trainer of this setup takes at its peak, the process's own (code,
 * libraries, thread stacks: base, measured) included. The dataset may be NULL. */
enum hl_status hl_memory_plan(struct hl_mem *mem, const struct hl_trainer_setup *setup,
                              struct hl_memory_plan *out, struct hl_diag *diag) HL_MUST_CHECK;

#endif
