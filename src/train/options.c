/* Options of models and training: the rows behind flags, YAML keys, help and docs. First spellings
 * are Hugging Face Trainer's; aliases are other tools' words. */
#include "halley/train.h"

#define M(field) .offset = offsetof(struct hl_model_options, field), .section = "model"
#define T(field, where) .offset = offsetof(struct hl_train_options, field), .section = where
#define SIZE(field, extra, words)                                                                  \
    {                                                                                              \
        .name = #field, .kind = HL_OPT_I64, M(field), .initial = "0", .least = 0, .most = 1e9,     \
        .aliases = extra, .help = words                                                            \
    }
#define TRI(field, extra, words)                                                                   \
    {                                                                                              \
        .name = #field, .kind = HL_OPT_CHOICE, M(field), .initial = "auto",                        \
        .choices = "auto true false", .aliases = extra, .help = words                              \
    }

const struct hl_option hl_model_rows[] = {
    {.name = "model",
     .kind = HL_OPT_STRING,
     M(model),
     .initial = "llama-tiny",
     .aliases = "model_name_or_path",
     .help =
         "gpt2, llama, a preset ('halley help models'), or a folder with weights to start from"},
    SIZE(num_hidden_layers, "n_layer num_layers n_layers", "layers; 0 = the preset's"),
    SIZE(hidden_size, "n_embd d_model dim", "width of the residual stream; 0 = the preset's"),
    SIZE(num_attention_heads, "n_head n_heads", "attention heads; 0 = the preset's"),
    SIZE(num_key_value_heads, "n_kv_heads num_query_groups",
         "key/value heads (grouped-query attention); 0 = the preset's, or as many as heads"),
    SIZE(head_dim, "kv_channels",
         "size of a head; 0 = the preset's, or hidden_size / num_attention_heads when one of them "
         "is given"),
    SIZE(intermediate_size, "n_inner ffn_hidden_size",
         "width of the feed-forward part; 0 = the preset's, or 4 (llama: 8/3) times hidden_size "
         "when that is given"),
    SIZE(max_position_embeddings, "n_positions n_ctx",
         "longest sequence the model is made for; 0 = block_size or the preset's"),
    SIZE(vocab_size, NULL, "tokens the model knows; 0 = the tokenizer's, or the folder's"),
    {.name = "rope_theta",
     .kind = HL_OPT_F64,
     M(rope_theta),
     .initial = "0",
     .least = 0,
     .most = 1e12,
     .aliases = "rotary_base",
     .help = "base of rotary positions; 0 = the preset's"},
    {.name = "norm_epsilon",
     .kind = HL_OPT_F64,
     M(norm_epsilon),
     .initial = "0",
     .least = 0,
     .most = 1,
     .aliases = "rms_norm_eps layer_norm_epsilon",
     .help = "0 = the preset's"},
    {.name = "initializer_range",
     .kind = HL_OPT_F64,
     M(initializer_range),
     .initial = "0",
     .least = 0,
     .most = 10,
     .aliases = "init_std init_method_std",
     .help = "deviation of initial weights; 0 = the preset's (0.02)"},
    TRI(tie_word_embeddings, NULL, "one matrix for embedding and head"),
    TRI(qkv_bias, "attention_bias", "biases on q, k, v (Qwen2)"),
    TRI(qk_norm, NULL, "RMSNorm of q and k per head (Qwen3)"),
    {.name = "dropout",
     .kind = HL_OPT_F64,
     M(dropout),
     .initial = "0",
     .least = 0,
     .most = 1,
     .aliases = "attention_dropout resid_pdrop attn_pdrop embd_pdrop hidden_dropout",
     .help = "only 0: Halley has no dropout"},
};
const size_t hl_model_n_rows = sizeof hl_model_rows / sizeof *hl_model_rows;

#define I64(field, where, text, low, high, measure, extra, words)                                  \
    {                                                                                              \
        .name = #field, .kind = HL_OPT_I64, T(field, where), .initial = text, .least = low,        \
        .most = high, .unit = measure, .aliases = extra, .help = words                             \
    }
#define F64(field, where, text, low, high, measure, extra, words)                                  \
    {                                                                                              \
        .name = #field, .kind = HL_OPT_F64, T(field, where), .initial = text, .least = low,        \
        .most = high, .unit = measure, .aliases = extra, .help = words                             \
    }
#define TEXT(field, where, text, extra, words)                                                     \
    {                                                                                              \
        .name = #field, .kind = HL_OPT_STRING, T(field, where), .initial = text, .aliases = extra, \
        .help = words                                                                              \
    }
#define BOOL(field, where, text, extra, words)                                                     \
    {                                                                                              \
        .name = #field, .kind = HL_OPT_BOOL, T(field, where), .initial = text, .aliases = extra,   \
        .help = words                                                                              \
    }

const struct hl_option hl_train_rows[] = {
    I64(max_steps, "training", "-1", -1, 1e15, "steps", "train_iters train_steps steps iters",
        "optimizer steps; -1 = by num_train_epochs"),
    F64(num_train_epochs, "training", "1", 0, 1e9, "epochs", "num_epochs epochs",
        "passes over the data when max_steps is -1; the last step takes the rows that are left"),
    I64(per_device_train_batch_size, "training", "8", 1, 1e7, "rows",
        "micro_batch_size batch_size micro_batch_size_per_gpu train_micro_batch_size_per_gpu",
        "rows of block_size tokens in a micro-batch"),
    I64(per_device_eval_batch_size, "training", "0", 0, 1e7, "rows", "eval_batch_size",
        "rows of an evaluation batch; 0 = as in training"),
    I64(gradient_accumulation_steps, "training", "1", 1, 1e7, "micro-batches",
        "batch_accumulation_per_replica grad_accumulation_steps accumulation",
        "micro-batches per step; their gradient is that of the one big batch, by tokens"),
    F64(max_minutes, "training", "0", 0, 1e9, "minutes", "exit_duration_in_mins",
        "save and stop after this time; 0 = no limit"),
    TEXT(optim, "optimizer", "adamw", "optimizer",
         "adamw, sgd, lion, muon ('halley help optimizers')"),
    I64(global_batch_size, "training", "0", 0, 1e12, "rows", "train_batch_size",
        "rows of a step over all ranks, whatever their number; 0 = per_device_train_batch_size x "
        "gradient_accumulation_steps x ranks"),
    TEXT(strategy, "training", "auto", "distributed_strategy",
         "how ranks work together ('halley help strategies'); auto = single, or ddp with several "
         "ranks"),
    {.name = "reduce",
     .kind = HL_OPT_CHOICE,
     T(reduce, "training"),
     .initial = "step",
     .choices = "step every_micro_batch",
     .help = "gradients between ranks: once per step, or after every micro-batch, which sends more "
             "but lets "
             "zero2 and zero3 keep slices of the gradient; another order of sums"},
    {.name = "reduce_dtype",
     .kind = HL_OPT_CHOICE,
     T(reduce_dtype, "numbers"),
     .initial = "f32",
     .choices = "f32 bf16",
     .aliases = "communication_data_type",
     .help = "gradients between ranks: bf16 halves the bytes and rounds each rank's part; sums are "
             "f32 either way"},
    I64(sync_every, "training", "100", 1, 1e9, "steps", "inner_steps outer_every",
        "diloco, streaming_diloco, local_sgd: steps that ranks make on their own between "
        "exchanges"),
    TEXT(outer_state, "training", "", NULL,
         "diloco, streaming_diloco, local_sgd: a folder whose files are memory (a memory pool's "
         "file "
         "system, hugetlbfs, /dev/shm), for what is touched once in sync_every steps; empty = this "
         "process's memory"),
    TEXT(replay_rounds, "training", "", NULL,
         "rounds.jsonl of an earlier run (acco): every rank makes as many micro-batches in each "
         "round as there, and the bits are the same"),
    TEXT(schedule, "training", "micro_major", NULL, "order of operations inside a step"),
    F64(learning_rate, "optimizer", "1e-3", 0, 1e6, NULL, "lr", "the maximum of the curve"),
    F64(min_lr_ratio, "optimizer", "0.1", 0, 1, NULL, "min_lr_rate",
        "floor of the curve as a share of learning_rate"),
    {.name = "lr_scheduler_type",
     .kind = HL_OPT_CHOICE,
     T(lr_scheduler_type, "optimizer"),
     .initial = "cosine",
     .choices = "constant linear cosine wsd",
     .aliases = "lr_scheduler lr_decay_style",
     .help = "shape of the curve after warm-up"},
    I64(warmup_steps, "optimizer", "0", 0, 1e15, "steps", "lr_warmup_steps lr_warmup_iters",
        "linear rise at the start"),
    F64(warmup_ratio, "optimizer", "0", 0, 1, NULL, "lr_warmup_fraction",
        "the same as a share of all steps; used when warmup_steps is 0"),
    I64(lr_decay_steps, "optimizer", "0", 0, 1e15, "steps", "decay_steps lr_wsd_decay_iters",
        "wsd: length of the final decay; 0 = a fifth of all steps"),
    F64(max_grad_norm, "optimizer", "1", 0, 1e9, NULL, "clip_grad gradient_clipping max_norm",
        "clip the gradient's global norm; 0 = never"),
    BOOL(bf16, "numbers", "false", NULL, "compute in bf16; weights, gradients and sums stay f32"),
    BOOL(gradient_checkpointing, "numbers", "false",
         "recompute activation_checkpointing recompute_activations",
         "keep only each layer's input and compute the rest again in backward"),
    TEXT(gradient_checkpointing_layers, "numbers", "", "recompute_layers",
         "recompute these layers, such as 0-5,7; empty = all or none, as gradient_checkpointing "
         "says"),
    I64(threads, "numbers", "0", 0, 4096, "threads", "num_threads",
        "compute threads; 0 = physical cores this process may use"),
    I64(eval_steps, "evaluation", "0", 0, 1e15, "steps",
        "eval_interval val_check_interval eval_every",
        "evaluate every so often; 0 = after the last step only"),
    I64(max_eval_batches, "evaluation", "0", 0, 1e15, "batches", "eval_iters val_batches",
        "0 = the whole held-out split"),
    I64(logging_steps, "output", "10", 1, 1e15, "steps", "log_interval log_every",
        "write metrics every so often"),
    I64(sample_steps, "evaluation", "0", 0, 1e15, "steps", "sample_every",
        "write a sample of text every so often; 0 = never"),
    I64(sample_tokens, "evaluation", "100", 1, 1e6, "tokens", NULL, "length of a sample"),
    TEXT(sample_prompt, "evaluation", "", NULL,
         "text that samples continue; empty = the end-of-text token"),
    BOOL(tensorboard, "output", "true", NULL, "write TensorBoard event files to output_dir/runs"),
    TEXT(output_dir, "output", "halley-run", "out_dir save checkpoints_path dump_folder",
         "metrics, configuration and checkpoints go here"),
    TEXT(resume_from_checkpoint, "output", "", "load resume_checkpoint_path",
         "go on from this checkpoint folder"),
    BOOL(resume, "output", "false", NULL,
         "go on from the newest complete checkpoint in output_dir"),
    BOOL(overwrite_output_dir, "output", "false", "overwrite",
         "remove the run that is in output_dir"),
    I64(save_steps, "output", "0", 0, 1e15, "steps", "save_interval checkpoint_interval save_every",
        "checkpoint every so often; 0 = after the last step only"),
    I64(save_total_limit, "output", "0", 0, 1e9, "checkpoints", "keep_latest_k",
        "keep the newest few; 0 = all"),
};
const size_t hl_train_n_rows = sizeof hl_train_rows / sizeof *hl_train_rows;
