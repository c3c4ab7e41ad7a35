/* halley plan --memory: bytes by class before a run. */
#include <stdio.h>
#include <string.h>

#include "cmd_common.h"
#include "command.h"
#include "halley/text_number.h"
#include "halley/wire.h"
#include "os/memory.h"

static const char usage[] =
    "halley plan --memory [RUN.yaml] [--key value ...]: what a run will need, by class, before it "
    "runs\n\n"
    "  halley plan --memory --model gpt2-124m --block_size 256 --per_device_train_batch_size 4\n"
    "  halley plan --memory --ranks 4 --strategy zero2 run.yaml     of each of four ranks\n\n"
    "Takes every option of 'halley train'. Without --data the vocabulary is the tokenizer's, or "
    "the preset's.\n\n";

static void print_row(const char *name, uint64_t bytes) {
    char text[32];
    hl_print_bytes(text, sizeof text, bytes);
    printf("%-14s %16llu bytes   %s\n", name, (unsigned long long)bytes, text);
}

static void print_plan(const struct hl_memory_plan *p, bool data, int64_t ranks) {
    if (ranks > 1) printf("each of %lld ranks:\n", (long long)ranks);
    print_row("parameters", p->parameters);
    print_row("gradients", p->gradients);
    print_row("optimizer", p->optimizer);
    print_row("activations", p->activations);
    print_row("buffers", p->buffers);
    print_row(data ? "process, data" : "process", p->base);
    print_row("total", p->total);
    struct hl_memory now;
    hl_memory_read(&now);
    char there[32], all[32];
    hl_print_bytes(there, sizeof there, now.available_bytes);
    hl_print_bytes(all, sizeof all, p->total * (uint64_t)ranks);
    printf("%s: ", p->total * (uint64_t)ranks <= now.available_bytes ? "fits" : "does not fit");
    if (ranks > 1) printf("together %s, ", all);
    printf("%s are available here\n", there);
}

static enum hl_status run(struct hl_mem *mem, struct run_options *o, struct hl_log *log,
                          int64_t ranks, struct hl_memory_plan *plan, bool *data_out,
                          struct hl_diag *diag) {
    struct hl_tokenizer *tokenizer = NULL;
    struct hl_dataset *dataset = NULL;
    struct hl_model_config model;
    enum hl_status status = run_tokenizer(mem, o, &tokenizer, diag);
    if (status == HL_OK && o->data.data.n)
        status = hl_dataset_open(mem, &o->data, tokenizer, 1, log, &dataset, diag);
    if (status == HL_OK) {
        bool named = *o->words.tokenizer || dataset || o->model.vocab_size;
        struct hl_model_config preset;
        int64_t vocab = hl_tokenizer_vocab_size(tokenizer);
        if (!named && hl_model_preset(o->model.model, &preset, NULL) == HL_OK)
            vocab = preset.vocab_size;
        status = hl_model_resolve(mem, &o->model, vocab, o->data.block_size, &model, diag);
    }
    struct hl_trainer_setup setup = {.options = &o->train,
                                     .optimizer_options = &o->optimizer,
                                     .strategy_options = &o->strategies,
                                     .model = &model,
                                     .block_size = o->data.block_size,
                                     .n_ranks = (int)ranks};
    if (status == HL_OK) status = hl_memory_plan(mem, &setup, plan, diag);
    *data_out = dataset != NULL;
    hl_dataset_free(dataset);
    hl_tokenizer_free(tokenizer);
    return status;
}

/* Takes --memory and --ranks N out of the words; the rest is the run's. */
static enum hl_status take_own(int *n_args, char **args, bool *memory, int64_t *ranks,
                               struct hl_diag *diag) {
    int kept = 0;
    *ranks = 1;
    for (int i = 0; i < *n_args; i++) {
        bool named = !strcmp(args[i], "--ranks");
        const char *number = named && i + 1 < *n_args           ? args[++i]
                             : !strncmp(args[i], "--ranks=", 8) ? args[i] + 8
                                                                : NULL;
        if (number || named) {
            if (!number || !hl_parse_i64(number, ranks) || *ranks < 1 || *ranks > HL_MAX_RANKS)
                return hl_fail(diag, HL_E_USER, "--ranks: how many? 1 to %d", HL_MAX_RANKS);
        } else if (!strcmp(args[i], "--memory")) *memory = true;
        else args[kept++] = args[i];
    }
    *n_args = kept;
    return *memory ? HL_OK : hl_fail(diag, HL_E_USER, "say what to plan: --memory");
}

int command_plan(int n_args, char **args) {
    struct hl_mem *mem = hl_mem_os();
    struct hl_diag diag = {0};
    struct hl_log log = command_log();
    struct run_options options;
    struct hl_config *config = NULL;
    struct hl_memory_plan plan;
    bool print_only = false, memory = false, data = false;
    if (command_wants_help(n_args, args)) return run_print_help(usage), 0;
    int64_t ranks;
    enum hl_status status = take_own(&n_args, args, &memory, &ranks, &diag);
    if (status != HL_OK) return command_fail("plan", status, &diag);
    status = run_read_options(mem, NULL, n_args, args, &options, &config, &print_only, &diag);
    if (status == HL_OK && print_only) status = run_print_config(mem, config, &diag);
    else if (status == HL_OK) status = run(mem, &options, &log, ranks, &plan, &data, &diag);
    hl_config_free(config);
    if (status != HL_OK) return command_fail("plan", status, &diag);
    if (!print_only) print_plan(&plan, data, ranks);
    return 0;
}
