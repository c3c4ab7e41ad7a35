/* A training step on random tokens, measured through the trainer itself, with its loader, clipping
 * and optimizer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "halley/rng.h"
#include "text/tokenizer_internal.h"
#include "train/trainer_internal.h"

struct options {
    struct hl_model_options model;
    struct hl_data_options data;
    struct hl_train_options train;
    struct hl_optimizer_options optimizer;
};

struct bench_step {
    struct hl_mem *mem;
    struct options options;
    struct hl_config *config;
    struct hl_model_config model;
    struct hl_tokenizer *tokenizer;
    struct hl_dataset *dataset;
    struct hl_trainer *trainer;
    char path[256];
};

static enum hl_status set(struct bench_step *s, const char *key, const char *value,
                          struct hl_diag *diag) {
    return hl_config_set(s->config, key, &value, 1, "benchmark", 0, diag);
}

static enum hl_status set_number(struct bench_step *s, const char *key, int64_t value,
                                 struct hl_diag *diag) {
    char text[32];
    (void)snprintf(text, sizeof text, "%lld", (long long)value);
    return set(s, key, text, diag);
}

static enum hl_status read_options(struct bench_step *s, const struct bench_step_setup *setup,
                                   struct hl_diag *diag) {
    struct hl_option_set sets[] = {
        {NULL, hl_model_rows, hl_model_n_rows, &s->options.model},
        {NULL, hl_data_rows, hl_data_n_rows, &s->options.data},
        {NULL, hl_train_rows, hl_train_n_rows, &s->options.train},
        {NULL, hl_optimizer_rows, hl_optimizer_n_rows, &s->options.optimizer}};
    enum hl_status status = hl_config_new(s->mem, sets, 4, &s->config, diag);
    if (!status) status = set(s, "model", setup->model, diag);
    if (!status) status = set_number(s, "block_size", setup->T, diag);
    if (!status) status = set_number(s, "per_device_train_batch_size", setup->B, diag);
    if (!status) status = set_number(s, "max_steps", 1000000, diag);
    if (!status) status = set_number(s, "threads", setup->threads, diag);
    if (!status) status = set(s, "learning_rate", "1e-4", diag);
    if (!status) status = set(s, "validation_split", "0", diag);
    if (!status) status = set(s, "bf16", setup->bf16 ? "true" : "false", diag);
    if (!status)
        status = set(s, "gradient_checkpointing", setup->recompute ? "true" : "false", diag);
    if (!status) status = set(s, "data", s->path, diag);
    return status;
}

/* One that knows as many tokens as the model, since random tokens need no text: token i is the
 * bytes of the number i. */
static enum hl_status make_tokenizer(struct bench_step *s, int64_t vocab, struct hl_diag *diag) {
    uint32_t *numbers = hl_alloc(s->mem, (size_t)vocab, sizeof *numbers);
    struct hl_token_spec *tokens = hl_alloc(s->mem, (size_t)vocab, sizeof *tokens);
    enum hl_status status =
        numbers && tokens ? HL_OK
                          : hl_fail_memory(diag, 28 * (unsigned long long)vocab, "a tokenizer");
    for (int64_t i = 0; i < vocab && !status; i++) {
        numbers[i] = (uint32_t)i;
        tokens[i] = (struct hl_token_spec){
            .id = (int32_t)i, .bytes = (const char *)&numbers[i], .n = i < 256 ? 1 : 4};
    }
    struct hl_tokenizer_spec spec = {.tokens = tokens, .n_tokens = (size_t)vocab};
    if (!status) status = hl_tokenizer_build(s->mem, &spec, &s->tokenizer, diag);
    hl_free(s->mem, tokens);
    hl_free(s->mem, numbers);
    return status;
}

/* A shard in llm.c's layout: 256 words of header, then 16-bit tokens. */
static enum hl_status write_shard(struct bench_step *s, int64_t n, int64_t vocab,
                                  struct hl_diag *diag) {
    const char *folder = getenv("TMPDIR");
    (void)snprintf(s->path, sizeof s->path, "%.200s/halley-bench-XXXXXX.bin",
                   folder && *folder ? folder : "/tmp");
    int fd = mkstemps(s->path, 4);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
    if (!f) {
        if (fd >= 0) (void)close(fd);
        return hl_fail(diag, HL_E_IO, "%s cannot be written: %m; set TMPDIR to a folder with room",
                       s->path);
    }
    int32_t header[256] = {20240520, 1, (int32_t)n};
    bool ok = fwrite(header, sizeof header, 1, f) == 1;
    if (vocab > 65536) vocab = 65536;
    for (int64_t i = 0; i < n && ok; i++) {
        uint16_t token = (uint16_t)(hl_rng_u64(1, HL_RNG_INIT, (uint64_t)i) % (uint64_t)vocab);
        ok = fwrite(&token, sizeof token, 1, f) == 1;
    }
    if (fclose(f)) ok = false;
    return ok ? HL_OK : hl_fail(diag, HL_E_IO, "%s cannot be written: %m", s->path);
}

static enum hl_status make_trainer(struct bench_step *s, const struct bench_step_setup *setup,
                                   struct hl_diag *diag) {
    struct hl_model_config preset;
    enum hl_status status = hl_model_preset(setup->model, &preset, diag);
    if (!status) status = write_shard(s, 64 * setup->B * setup->T, preset.vocab_size, diag);
    if (!status) status = read_options(s, setup, diag);
    if (!status) status = make_tokenizer(s, preset.vocab_size, diag);
    if (!status)
        status =
            hl_dataset_open(s->mem, &s->options.data, s->tokenizer, 1, NULL, &s->dataset, diag);
    if (!status)
        status = hl_model_resolve(s->mem, &s->options.model, preset.vocab_size, setup->T, &s->model,
                                  diag);
    if (status) return status;
    struct hl_trainer_setup trainer = {.options = &s->options.train,
                                       .optimizer_options = &s->options.optimizer,
                                       .model = &s->model,
                                       .dataset = s->dataset,
                                       .block_size = setup->T,
                                       .seed = 1};
    return hl_trainer_new(s->mem, &trainer, &s->trainer, diag);
}

enum hl_status bench_step_new(struct hl_mem *mem, const struct bench_step_setup *setup,
                              struct bench_step **out, struct hl_diag *diag) {
    struct bench_step *s = hl_alloc(mem, 1, sizeof *s);
    if (!s) return hl_fail_memory(diag, sizeof *s, "the benchmark");
    s->mem = mem;
    enum hl_status status = make_trainer(s, setup, diag);
    if (*s->path) (void)unlink(s->path);
    if (status) bench_step_free(s);
    else *out = s;
    return status;
}

void bench_step_free(struct bench_step *s) {
    if (!s) return;
    hl_trainer_free(s->trainer);
    hl_dataset_free(s->dataset);
    hl_tokenizer_free(s->tokenizer);
    hl_config_free(s->config);
    hl_free(s->mem, s);
}

enum hl_status bench_step_run(struct bench_step *s, double *seconds_out, double *loss_out,
                              struct hl_diag *diag) {
    struct hl_step_report report;
    enum hl_status status = hl_trainer_step(s->trainer, &report, diag);
    if (status) return status;
    *seconds_out = report.seconds;
    if (loss_out) *loss_out = report.loss;
    return HL_OK;
}

struct hl_trainer *bench_step_trainer(struct bench_step *s) {
    return s->trainer;
}
