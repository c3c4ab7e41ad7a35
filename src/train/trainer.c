/* A trainer's life: sizes, parts, checks. Steps are made in step.c, checkpoints in resume.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/threads.h"
#include "os/clock.h"
#include "os/cpu.h"
#include "train/plan.h"
#include "train/state.h"

/* ---- which layers keep only their input ---- */

/* "0-5,7" over L layers. */
static enum hl_status parse_layers(const char *text, int64_t n_layers, bool *recompute,
                                   struct hl_diag *diag) {
    for (const char *at = text; *at;) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        bool ok = end != at;
        if (ok && *end == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
            ok = end != at;
        }
        if (!ok || (*end && *end != ',') || first < 0 || last < first || last >= n_layers)
            return hl_fail(diag, HL_E_USER,
                           "gradient_checkpointing_layers: '%s' is no list of layers 0 to %lld, "
                           "such as 0-%lld",
                           text, (long long)n_layers - 1, (long long)n_layers - 1);
        for (long l = first; l <= last; l++) recompute[l + 1] = true;
        at = *end ? end + 1 : end;
    }
    return HL_OK;
}

enum hl_status hl_recompute_blocks(const struct hl_train_options *o, const struct hl_model *model,
                                   bool *recompute, struct hl_diag *diag) {
    int64_t L = model->config.num_hidden_layers;
    memset(recompute, 0, (size_t)model->layout.n_blocks);
    if (o->gradient_checkpointing_layers && *o->gradient_checkpointing_layers)
        return parse_layers(o->gradient_checkpointing_layers, L, recompute, diag);
    for (int64_t l = 0; l < L && o->gradient_checkpointing; l++) recompute[l + 1] = true;
    return HL_OK;
}

/* ---- how long the run is, and its curve ---- */

int64_t hl_trainer_row_budget(const struct hl_trainer *t) {
    int64_t rows, steps = t->setup.options->max_steps;
    if (steps < 0) return t->total_rows;
    return __builtin_mul_overflow(steps, t->step_rows, &rows) ? INT64_MAX : rows;
}

/* Steps in all: of max_steps, or those done and those that the rows left over need. Where the batch
 * is not known ahead, max_steps stands for the rows of so many planned ones. */
static void count_steps(struct hl_trainer *t) {
    int64_t left = hl_trainer_row_budget(t) - t->rows_taken;
    if (t->setup.options->max_steps >= 0 && !hl_trainer_has_pace(t))
        t->n_steps = t->setup.options->max_steps;
    else t->n_steps = t->step + (left > 0 ? (left - 1) / t->step_rows + 1 : 0);
}

/* The length of the curve: steps, of the planned size where the batch is not known ahead. */
static double curve_length(const struct hl_trainer *t) {
    if (!hl_trainer_has_pace(t)) return (double)t->n_steps;
    return ceil((double)hl_trainer_row_budget(t) / (double)t->step_rows);
}

static enum hl_status set_length(struct hl_trainer *t, struct hl_diag *diag) {
    const struct hl_train_options *o = t->setup.options;
    int64_t rows = hl_dataset_n_rows(t->setup.dataset, HL_SPLIT_TRAIN);
    t->micro_rows = o->per_device_train_batch_size;
    t->rank_rows = t->micro_rows * hl_group_n_ranks(t->setup.group);
    if (t->micro_rows > INT64_MAX / HL_MAX_RANKS ||
        __builtin_mul_overflow(t->rank_rows, o->gradient_accumulation_steps, &t->step_rows))
        return hl_fail(diag, HL_E_USER, "gradient_accumulation_steps: too many rows in a step");
    if (o->global_batch_size > 0) t->step_rows = o->global_batch_size;
    if (hl_trainer_has_pace(t) && t->step_rows % t->rank_rows)
        return hl_fail(
            diag, HL_E_USER,
            "global_batch_size: strategy '%s' makes whole micro-batches; take a multiple "
            "of per_device_train_batch_size x ranks, which is %lld",
            t->strategy->name, (long long)t->rank_rows);
    t->total_rows = INT64_MAX;
    double total = ceil(o->num_train_epochs * (double)rows);
    if (o->max_steps < 0 && total > 4e18)
        return hl_fail(diag, HL_E_USER, "num_train_epochs: too many rows in all; use max_steps");
    if (o->max_steps < 0) t->total_rows = (int64_t)total;
    count_steps(t);
    return HL_OK;
}

static void set_rate(struct hl_trainer *t) {
    const struct hl_train_options *o = t->setup.options;
    double warmup = (double)o->warmup_steps, length = curve_length(t);
    if (o->warmup_steps == 0) warmup = ceil(o->warmup_ratio * length);
    t->rate = (struct hl_schedule_rate){
        .curve = (enum hl_curve)o->lr_scheduler_type,
        .learning_rate = o->learning_rate,
        .min_lr_ratio = o->min_lr_ratio,
        .warmup = warmup,
        .total = length,
        .decay = o->lr_decay_steps ? (double)o->lr_decay_steps : ceil(0.2 * length),
    };
}

void hl_trainer_progress_changed(struct hl_trainer *t) {
    count_steps(t);
    set_rate(t);
}

/* ---- parts ---- */

static enum hl_status find_plugins(struct hl_trainer *t, struct hl_diag *diag) {
    const struct hl_train_options *o = t->setup.options;
    enum hl_status status = hl_kernels_get(o->bf16 ? HL_BF16 : HL_F32, &t->kernels, diag);
    if (status == HL_OK) status = hl_optimizer_find(o->optim, &t->optimizer, diag);
    if (status == HL_OK && t->optimizer->check)
        status = t->optimizer->check(t->setup.optimizer_options, diag);
    if (status == HL_OK) status = hl_plan_strategy(&t->setup, &t->strategy, diag);
    if (status == HL_OK) status = hl_schedule_find(o->schedule, &t->schedule, diag);
    if (status == HL_OK)
        status = hl_plan_strategy_options(t->mem, &t->setup, t->strategy, &t->defaults,
                                          &t->strategy_options, diag);
    return status;
}

static double seconds_now(void *clock) {
    (void)clock;
    return (double)hl_clock_ns() * 1e-9;
}

static struct hl_strategy_env environment(struct hl_trainer *t) {
    struct hl_strategy_env env = hl_plan_env(&t->setup);
    env.mem = t->mem;
    env.far = t->far ? hl_placed_mem(t->far) : t->mem;
    env.layout = &t->model->layout;
    env.engine = t->engine;
    env.kernels = t->kernels;
    env.products = t->products;
    env.optimizer = t->optimizer;
    env.options = t->strategy_options;
    env.now = seconds_now;
    return env;
}

static enum hl_status make_loaders(struct hl_trainer *t, struct hl_diag *diag) {
    const struct hl_dataset *data = t->setup.dataset;
    enum hl_status status =
        hl_loader_new(t->mem, data, HL_SPLIT_TRAIN, t->micro_rows, &t->train_rows, diag);
    if (status != HL_OK || hl_dataset_n_rows(data, HL_SPLIT_VALIDATION) == 0) return status;
    int64_t rows = t->setup.options->per_device_eval_batch_size;
    return hl_loader_new(t->mem, data, HL_SPLIT_VALIDATION, rows ? rows : t->micro_rows,
                         &t->validation_rows, diag);
}

/* For a rank that has no row left in the last step while others do. */
static enum hl_status make_no_target(struct hl_trainer *t, struct hl_diag *diag) {
    size_t n = (size_t)t->setup.block_size;
    if (hl_group_n_ranks(t->setup.group) == 1 && !hl_trainer_has_pace(t)) return HL_OK;
    t->no_target = hl_alloc(t->mem, n, sizeof *t->no_target);
    if (!t->no_target) return hl_fail_memory(diag, n * sizeof *t->no_target, "an empty row");
    for (size_t i = 0; i < n; i++) t->no_target[i] = -1;
    return HL_OK;
}

static enum hl_status open_replay(struct hl_trainer *t, struct hl_diag *diag) {
    const char *path = t->setup.options->replay_rounds;
    if (!path || !*path) return HL_OK;
    if (!hl_trainer_has_pace(t))
        return hl_fail(diag, HL_E_USER,
                       "replay_rounds: strategy '%s' makes as many micro-batches as it is told; "
                       "leave the option out",
                       t->strategy->name);
    return hl_rounds_read(t->mem, path, hl_group_n_ranks(t->setup.group), &t->replay, diag);
}

static enum hl_status check_vocabulary(struct hl_trainer *t, struct hl_diag *diag) {
    int64_t most = hl_dataset_max_token(t->setup.dataset), vocab = t->setup.model->vocab_size;
    if (most < vocab) return HL_OK;
    return hl_fail(diag, HL_E_USER,
                   "the data holds token %lld, but the model's vocabulary is %lld; use the "
                   "tokenizer the data was made with, or a "
                   "larger vocab_size",
                   (long long)most, (long long)vocab);
}

static enum hl_status make_parts(struct hl_trainer *t, struct hl_diag *diag) {
    const struct hl_trainer_setup *s = &t->setup;
    enum hl_status status = hl_model_new(t->mem, s->model, &t->model, diag);
    if (status != HL_OK) return status;
    t->recompute = hl_alloc(t->mem, (size_t)t->model->layout.n_blocks, sizeof *t->recompute);
    if (!t->recompute)
        return hl_fail_memory(diag, (unsigned)t->model->layout.n_blocks, "block records");
    status = hl_recompute_blocks(s->options, t->model, t->recompute, diag);
    if (status == HL_OK) status = hl_products_new(t->mem, &t->products, diag);
    struct hl_strategy_env env = environment(t);
    if (status == HL_OK) status = t->strategy->check(&env, diag);
    if (status != HL_OK) return status;

    struct hl_strategy_need need = t->strategy->cost(&env);
    t->sent_bytes_per_step = need.sent_bytes_per_parameter * (double)t->model->layout.n_parameters /
                             (double)need.period_steps;
    struct hl_engine_shape engine = hl_plan_engine_shape(s->options, &need, &env);
    status = hl_engine_new(t->mem, &t->model->layout, &engine, &t->engine, diag);
    if (status != HL_OK) return status;
    struct hl_model_run_shape shape = hl_plan_run_shape(s, t->recompute);
    status = hl_model_run_new(t->mem, t->model, t->kernels, t->products, &shape, &t->run, diag);
    if (status != HL_OK) return status;
    const char *far = s->options->outer_state;
    if (far && *far) status = hl_placed_new(t->mem, far, s->log, &t->far, diag);
    if (status != HL_OK) return status;
    env = environment(t);
    return t->strategy->init(&env, &t->strategy_state, diag);
}

enum hl_status hl_trainer_check(struct hl_mem *mem, const struct hl_trainer_setup *setup,
                                struct hl_diag *diag) {
    struct hl_trainer t = {.mem = mem, .setup = *setup};
    bool *recompute = NULL;
    enum hl_status status = find_plugins(&t, diag);
    if (status == HL_OK) status = hl_model_new(mem, setup->model, &t.model, diag);
    if (status != HL_OK) {
        hl_plan_defaults_free(&t.defaults);
        return status;
    }
    recompute = hl_alloc(mem, (size_t)t.model->layout.n_blocks, sizeof *recompute);
    status = recompute ? hl_recompute_blocks(setup->options, t.model, recompute, diag)
                       : hl_fail_memory(diag, (unsigned)t.model->layout.n_blocks, "block records");
    struct hl_strategy_env env = environment(&t);
    if (status == HL_OK) status = t.strategy->check(&env, diag);
    hl_free(mem, recompute);
    hl_model_free(t.model);
    hl_plan_defaults_free(&t.defaults);
    return status;
}

enum hl_status hl_trainer_new(struct hl_mem *mem, const struct hl_trainer_setup *setup,
                              struct hl_trainer **out, struct hl_diag *diag) {
    struct hl_trainer *t = hl_alloc(mem, 1, sizeof *t);
    if (!t) return hl_fail_memory(diag, sizeof *t, "the trainer");
    t->mem = mem;
    t->setup = *setup;
    t->in_view = true;
    struct hl_cpu cpu;
    hl_cpu_read(&cpu);
    hl_cpu_share(&cpu, setup->n_local_ranks);
    t->threads =
        hl_cpu_threads(&cpu, setup->options->threads, t->threads_why, sizeof t->threads_why);
    memcpy(t->processor, cpu.name, sizeof t->processor);
    hl_threads_set(t->threads);
    hl_denormals_off();

    enum hl_status status = find_plugins(t, diag);
    if (status == HL_OK) status = set_length(t, diag);
    if (status == HL_OK) status = check_vocabulary(t, diag);
    if (status == HL_OK) status = make_loaders(t, diag);
    if (status == HL_OK) status = make_no_target(t, diag);
    if (status == HL_OK) status = open_replay(t, diag);
    if (status == HL_OK) status = make_parts(t, diag);
    if (status != HL_OK) {
        hl_trainer_free(t);
        return status;
    }
    set_rate(t);
    if (!setup->empty) status = hl_state_init(t, diag);
    if (status != HL_OK) {
        hl_trainer_free(t);
        return status;
    }
    *out = t;
    return HL_OK;
}

void hl_trainer_free(struct hl_trainer *t) {
    if (!t) return;
    if (t->strategy_state) t->strategy->fini(t->strategy_state);
    hl_free(t->mem, t->no_target);
    hl_rounds_free(t->replay);
    hl_loader_free(t->train_rows);
    hl_loader_free(t->validation_rows);
    hl_model_run_free(t->run);
    hl_engine_free(t->engine);
    hl_products_free(t->products);
    hl_free(t->mem, t->recompute);
    hl_model_free(t->model);
    hl_plan_defaults_free(&t->defaults);
    hl_placed_free(t->far);
    hl_free(t->mem, t);
}

/* ---- answers ---- */

int64_t hl_trainer_n_steps(const struct hl_trainer *t) { return t->n_steps; }
int64_t hl_trainer_step_index(const struct hl_trainer *t) { return t->step; }
const struct hl_model *hl_trainer_model(const struct hl_trainer *t) { return t->model; }

float *hl_trainer_params(struct hl_trainer *t) {
    struct hl_diag diag;
    if (hl_trainer_view(t, true, &diag) != HL_OK) return NULL;
    return hl_engine_data(t->engine, HL_BUFFER_MASTER, hl_layout_all(&t->model->layout));
}

void hl_trainer_params_changed(struct hl_trainer *t) {
    hl_engine_publish(t->engine, t->kernels, hl_layout_all(&t->model->layout));
    t->started = false;
}

enum hl_status hl_trainer_view(struct hl_trainer *t, bool on, struct hl_diag *diag) {
    const struct hl_strategy *s = t->strategy;
    enum hl_status status = HL_OK;
    if (!t->started && s->start) status = s->start(t->strategy_state, diag);
    if (status != HL_OK) return status;
    t->started = true;
    if (s->view && on != t->in_view) s->view(t->strategy_state, on);
    t->in_view = on;
    return HL_OK;
}

double hl_trainer_flops_per_step(const struct hl_trainer *t) {
    int64_t tokens = t->step_rows * t->setup.block_size;
    return (double)tokens * hl_model_flops_per_token(t->model, t->setup.block_size);
}

void hl_trainer_block_name(const struct hl_trainer *t, int block, char *out, size_t capacity) {
    if (block == 0) (void)snprintf(out, capacity, "the embedding");
    else if (block == t->model->layout.n_blocks - 1) (void)snprintf(out, capacity, "the head");
    else (void)snprintf(out, capacity, "layer %d", block - 1);
}

struct hl_block_data hl_trainer_block(struct hl_trainer *t, int block, bool with_gradient) {
    struct hl_range range = t->model->layout.blocks[block];
    return (struct hl_block_data){
        .params = hl_engine_acquire(t->engine, range),
        .grads = with_gradient ? hl_engine_grad_open(t->engine, block) : NULL,
    };
}
