/* Sizes of a trainer before it exists. See plan.h. */
#include "train/plan.h"

#include <string.h>

#include "halley/text_number.h"
#include "kernels/threads.h"
#include "optimizers/optimizers.h"
#include "os/cpu.h"

static int n_ranks(const struct hl_trainer_setup *setup) {
    return setup->n_ranks ? setup->n_ranks : hl_group_n_ranks(setup->group);
}

enum hl_status hl_plan_strategy(const struct hl_trainer_setup *setup,
                                const struct hl_strategy **out, struct hl_diag *diag) {
    const char *name = setup->options->strategy;
    if (!strcmp(name, "auto")) name = n_ranks(setup) > 1 ? "ddp" : "single";
    return hl_strategy_find(name, out, diag);
}

enum hl_status hl_plan_strategy_options(struct hl_mem *mem, const struct hl_trainer_setup *setup,
                                        const struct hl_strategy *strategy,
                                        struct hl_plan_defaults *defaults, const void **out,
                                        struct hl_diag *diag) {
    struct hl_option_set sets[HL_MAX_STRATEGIES];
    const struct hl_strategy_options *values = setup->strategy_options;
    if (!values) {
        values = &defaults->values;
        int n = hl_strategy_option_sets(&defaults->values, sets);
        enum hl_status status = hl_config_new(mem, sets, (size_t)n, &defaults->config, diag);
        if (status != HL_OK) return status;
    }
    *out = hl_strategy_options_of(values, strategy);
    return HL_OK;
}

void hl_plan_defaults_free(struct hl_plan_defaults *defaults) {
    hl_config_free(defaults->config);
    defaults->config = NULL;
}

int64_t hl_plan_accumulation(const struct hl_trainer_setup *setup) {
    const struct hl_train_options *o = setup->options;
    int64_t rows = o->per_device_train_batch_size * n_ranks(setup);
    if (o->global_batch_size == 0) return o->gradient_accumulation_steps;
    return (o->global_batch_size - 1) / rows + 1;
}

struct hl_strategy_env hl_plan_env(const struct hl_trainer_setup *setup) {
    const struct hl_train_options *o = setup->options;
    return (struct hl_strategy_env){.log = setup->log,
                                    .optimizer_options = setup->optimizer_options,
                                    .group = setup->group,
                                    .rank = hl_group_rank(setup->group),
                                    .n_ranks = n_ranks(setup),
                                    .accumulation = hl_plan_accumulation(setup),
                                    .reduce_dtype = (enum hl_dtype)o->reduce_dtype,
                                    .reduce_each_micro = o->reduce == HL_REDUCE_EACH_MICRO,
                                    .sync_every = o->sync_every,
                                    .seed = setup->seed};
}

struct hl_engine_shape hl_plan_engine_shape(const struct hl_train_options *options,
                                            const struct hl_strategy_need *need,
                                            const struct hl_strategy_env *env) {
    return (struct hl_engine_shape){.train = true,
                                    .bf16_copy = options->bf16,
                                    .n_slots = env->optimizer->n_slots,
                                    .sliced = need->sliced,
                                    .whole_gradient = need->whole_gradient,
                                    .grad_windows = need->grad_windows,
                                    .apart = need->weights_apart,
                                    .rank = env->rank,
                                    .n_ranks = env->n_ranks};
}

struct hl_model_run_shape hl_plan_run_shape(const struct hl_trainer_setup *setup,
                                            const bool *recompute) {
    const struct hl_train_options *o = setup->options;
    int64_t rows = o->per_device_train_batch_size;
    if (o->per_device_eval_batch_size > rows) rows = o->per_device_eval_batch_size;
    return (struct hl_model_run_shape){.max_tokens = rows * setup->block_size,
                                       .max_positions = setup->block_size,
                                       .train = true,
                                       .recompute = recompute};
}

/* What the product library takes for itself, beside what is resident already, while it works on
 * products like this model's. Its code and the team's stacks are touched on the way. */
static enum hl_status library_bytes(struct hl_mem *mem, const struct hl_trainer_setup *setup,
                                    uint64_t *out, struct hl_diag *diag) {
    enum { MOST_ROWS = 1024, MOST_WIDTH = 4096 };
    enum hl_dtype dtype = setup->options->bf16 ? HL_BF16 : HL_F32;
    int64_t N = setup->options->per_device_train_batch_size * setup->block_size,
            C = setup->model->hidden_size;
    int64_t O = setup->model->vocab_size < MOST_WIDTH ? setup->model->vocab_size : MOST_WIDTH;
    if (N > MOST_ROWS) N = MOST_ROWS;
    size_t t = hl_dtype_bytes(dtype), x = (size_t)(N * C) * t, W = (size_t)(O * C) * t,
           y = (size_t)(N * O) * sizeof(float);
    size_t bytes = x + W + y + (size_t)(O * C) * sizeof(float);
    struct hl_products *products;
    enum hl_status status = hl_products_new(mem, &products, diag);
    if (status != HL_OK) return status;
    char *data = hl_alloc(mem, bytes, 1);
    if (!data) status = hl_fail_memory(diag, bytes, "trying a product");
    else {
        memset(data, 0, bytes); /* resident before the measurement begins */
        uint64_t before = hl_memory_resident_bytes(), peak = hl_memory_peak_resident_bytes();
        struct hl_product forward = {.M = N,
                                     .N = O,
                                     .K = C,
                                     .tb = true,
                                     .in = dtype,
                                     .out = HL_F32,
                                     .A = data,
                                     .B = data + x,
                                     .C = data + x + W,
                                     .lda = C,
                                     .ldb = C,
                                     .ldc = O};
        struct hl_product gradient = {.M = O,
                                      .N = C,
                                      .K = N,
                                      .ta = true,
                                      .in = dtype,
                                      .out = HL_F32,
                                      .A = data + x + W,
                                      .B = data,
                                      .C = data + x + W + y,
                                      .lda = O,
                                      .ldb = C,
                                      .ldc = C};
        status = hl_product_run(products, &forward, diag);
        if (status == HL_OK) status = hl_product_run(products, &gradient, diag);
        if (before < peak) before = peak;
        *out = hl_memory_peak_resident_bytes() - before;
    }
    hl_free(mem, data);
    hl_products_free(products);
    return status;
}

static enum hl_status measure(struct hl_mem *mem, const struct hl_trainer_setup *setup,
                              const struct hl_model *model, const bool *recompute,
                              struct hl_plan_defaults *defaults, struct hl_memory_plan *out,
                              struct hl_diag *diag) {
    const struct hl_optimizer *optimizer;
    const struct hl_kernels *kernels;
    const struct hl_strategy *strategy;
    enum hl_status status = hl_optimizer_find(setup->options->optim, &optimizer, diag);
    if (status == HL_OK) status = hl_plan_strategy(setup, &strategy, diag);
    if (status == HL_OK)
        status = hl_kernels_get(setup->options->bf16 ? HL_BF16 : HL_F32, &kernels, diag);
    struct hl_strategy_env env = hl_plan_env(setup);
    if (status == HL_OK)
        status = hl_plan_strategy_options(mem, setup, strategy, defaults, &env.options, diag);
    if (status != HL_OK) return status;
    env.layout = &model->layout;
    env.kernels = kernels;
    env.optimizer = optimizer;
    if (strategy->check) {
        status = strategy->check(&env, diag);
        if (status != HL_OK) return status;
    }
    struct hl_strategy_need need = strategy->cost(&env);
    struct hl_engine_shape engine_shape = hl_plan_engine_shape(setup->options, &need, &env);
    struct hl_engine_bytes engine = hl_engine_measure(&model->layout, &engine_shape);
    struct hl_model_run_shape run_shape = hl_plan_run_shape(setup, recompute);
    struct hl_model_run_bytes run;
    if (hl_model_run_measure(model, kernels, &run_shape, &run) != HL_OK)
        return hl_fail(diag, HL_E_MEMORY,
                       "activations of this model and batch exceed the address space");
    uint64_t scratch = (uint64_t)hl_optimizer_scratch(optimizer, &model->layout) * sizeof(float);
    *out =
        (struct hl_memory_plan){.parameters = engine.parameters,
                                .gradients = engine.gradients,
                                .optimizer = engine.optimizer + scratch + (uint64_t)need.own_bytes,
                                .activations = run.activations,
                                .buffers = run.buffers,
                                .base = hl_memory_resident_bytes()};
    out->total = out->parameters + out->gradients + out->optimizer + out->activations +
                 out->buffers + out->base;
    return HL_OK;
}

static enum hl_status plan(struct hl_mem *mem, const struct hl_trainer_setup *setup,
                           struct hl_memory_plan *out, struct hl_diag *diag) {
    struct hl_model *model;
    struct hl_plan_defaults defaults = {0};
    enum hl_status status = hl_model_new(mem, setup->model, &model, diag);
    if (status != HL_OK) return status;
    bool *recompute = hl_alloc(mem, (size_t)model->layout.n_blocks, sizeof *recompute);
    status = recompute ? hl_recompute_blocks(setup->options, model, recompute, diag)
                       : hl_fail_memory(diag, (unsigned)model->layout.n_blocks, "block records");
    if (status == HL_OK) status = measure(mem, setup, model, recompute, &defaults, out, diag);
    hl_plan_defaults_free(&defaults);
    hl_free(mem, recompute);
    hl_model_free(model);
    return status;
}

enum hl_status hl_memory_plan(struct hl_mem *mem, const struct hl_trainer_setup *setup,
                              struct hl_memory_plan *out, struct hl_diag *diag) {
    struct hl_cpu cpu;
    char why[160];
    hl_cpu_read(&cpu);
    hl_cpu_share(&cpu, setup->n_local_ranks);
    hl_threads_set(hl_cpu_threads(&cpu, setup->options->threads, why, sizeof why));
    uint64_t library = 0;
    enum hl_status status = plan(mem, setup, out, diag);
    if (status == HL_OK) status = library_bytes(mem, setup, &library, diag);
    out->base += library;
    out->total += library;
    return status;
}

enum hl_status hl_memory_check(struct hl_mem *mem, const struct hl_trainer_setup *setup,
                               const struct hl_memory *machine, struct hl_diag *diag) {
    struct hl_memory_plan p = {0};
    enum hl_status status = plan(mem, setup, &p, diag);
    if (status != HL_OK) return status;
    uint64_t most = machine->limit_bytes ? machine->limit_bytes : machine->total_bytes,
             now = machine->available_bytes;
    uint64_t n = setup->n_local_ranks > 1 ? (uint64_t)setup->n_local_ranks : 1; /* alike */
    p.total *= n;
    p.base *= n;
    uint64_t more = p.total - p.base;
    char need[32], there[32];
    hl_print_bytes(need, sizeof need, p.total);
    if (most && p.total > most) {
        hl_print_bytes(there, sizeof there, most);
        return hl_fail(diag, HL_E_MEMORY,
                       "this run needs %s of memory and the machine has %s; use a smaller model, "
                       "--gradient_checkpointing true, or a "
                       "smaller per_device_train_batch_size with more gradient_accumulation_steps "
                       "('halley plan --memory' shows what "
                       "takes how much)",
                       need, there);
    }
    if (now && more > now) {
        hl_print_bytes(need, sizeof need, more);
        hl_print_bytes(there, sizeof there, now);
        hl_log(setup->log, HL_LOG_WARN,
               "this run needs %s more memory and %s are available now: the system may kill it; "
               "close other programs, or see "
               "'halley plan --memory'",
               need, there);
    }
    return HL_OK;
}
