/* Sizes of a trainer before it exists. See plan.h. */
#include "train/plan.h"

#include "halley/text_number.h"
#include "kernels/threads.h"
#include "optimizers/optimizers.h"
#include "os/cpu.h"
#include "train/peak.h"

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

/* A product of each kind touches what the library keeps for itself: code, packing buffers, the team's stacks. */
static enum hl_status warm_up(struct hl_mem *mem, enum hl_dtype dtype, struct hl_diag *diag) {
    struct hl_products *products;
    enum hl_status status = hl_products_new(mem, &products, diag);
    if (status != HL_OK) return status;
    (void)hl_peak_flops(mem, products, dtype);
    hl_products_free(products);
    return HL_OK;
}

static enum hl_status measure(const struct hl_trainer_setup *setup, const struct hl_model *model,
                              const bool *recompute, struct hl_memory_plan *out, struct hl_diag *diag) {
    const struct hl_optimizer *optimizer;
    const struct hl_kernels *kernels;
    enum hl_status status = hl_optimizer_find(setup->options->optim, &optimizer, diag);
    if (status == HL_OK) status = hl_kernels_get(setup->options->bf16 ? HL_BF16 : HL_F32, &kernels, diag);
    if (status != HL_OK) return status;
    struct hl_engine_shape engine_shape = hl_plan_engine_shape(setup->options, optimizer);
    struct hl_engine_bytes engine = hl_engine_measure(&model->layout, &engine_shape);
    struct hl_model_run_shape run_shape = hl_plan_run_shape(setup, recompute);
    struct hl_model_run_bytes run;
    if (hl_model_run_measure(model, kernels, &run_shape, &run) != HL_OK)
        return hl_fail(diag, HL_E_MEMORY, "activations of this model and batch exceed the address space");
    uint64_t scratch = (uint64_t)hl_optimizer_scratch(optimizer, &model->layout) * sizeof(float);
    *out = (struct hl_memory_plan){.parameters = engine.parameters, .gradients = engine.gradients, .optimizer = engine.optimizer + scratch,
                                   .activations = run.activations, .buffers = run.buffers, .base = hl_memory_resident_bytes()};
    out->total = out->parameters + out->gradients + out->optimizer + out->activations + out->buffers + out->base;
    return HL_OK;
}

static enum hl_status plan(struct hl_mem *mem, const struct hl_trainer_setup *setup, struct hl_memory_plan *out,
                           struct hl_diag *diag) {
    struct hl_model *model;
    enum hl_status status = hl_model_new(mem, setup->model, &model, diag);
    if (status != HL_OK) return status;
    bool *recompute = hl_alloc(mem, (size_t)model->layout.n_blocks, sizeof *recompute);
    status = recompute ? hl_recompute_blocks(setup->options, model, recompute, diag)
                       : hl_fail_memory(diag, (unsigned)model->layout.n_blocks, "block records");
    if (status == HL_OK) status = measure(setup, model, recompute, out, diag);
    hl_free(mem, recompute);
    hl_model_free(model);
    return status;
}

enum hl_status hl_memory_plan(struct hl_mem *mem, const struct hl_trainer_setup *setup, struct hl_memory_plan *out,
                              struct hl_diag *diag) {
    struct hl_cpu cpu;
    char why[160];
    hl_cpu_read(&cpu);
    hl_threads_set(hl_cpu_threads(&cpu, setup->options->threads, why, sizeof why));
    enum hl_status status = warm_up(mem, setup->options->bf16 ? HL_BF16 : HL_F32, diag);
    return status == HL_OK ? plan(mem, setup, out, diag) : status;
}

enum hl_status hl_memory_check(struct hl_mem *mem, const struct hl_trainer_setup *setup, const struct hl_memory *machine,
                               struct hl_diag *diag) {
    struct hl_memory_plan p = {0};
    enum hl_status status = plan(mem, setup, &p, diag);
    if (status != HL_OK) return status;
    uint64_t most = machine->limit_bytes ? machine->limit_bytes : machine->total_bytes, now = machine->available_bytes;
    uint64_t more = p.total - p.base;
    char need[32], there[32];
    hl_print_bytes(need, sizeof need, p.total);
    if (most && p.total > most) {
        hl_print_bytes(there, sizeof there, most);
        return hl_fail(diag, HL_E_MEMORY,
                       "this run needs %s of memory and the machine has %s; use a smaller model, --gradient_checkpointing true, or a "
                       "smaller per_device_train_batch_size with more gradient_accumulation_steps ('halley plan --memory' shows what "
                       "takes how much)",
                       need, there);
    }
    if (now && more > now) {
        hl_print_bytes(need, sizeof need, more);
        hl_print_bytes(there, sizeof there, now);
        hl_log(setup->log, HL_LOG_WARN,
               "this run needs %s more memory and %s are available now: the system may kill it; close other programs, or see "
               "'halley plan --memory'",
               need, there);
    }
    return HL_OK;
}
