/* A small Llama on names, one per line: rows with many documents and unequal numbers of targets.
 * For tests of the trainer. */
#ifndef HALLEY_TESTS_TRAINER_FIXTURE_H
#define HALLEY_TESTS_TRAINER_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <unistd.h>

#include "halley/strategy.h"
#include "halley/train.h"
#include "train/trainer_internal.h"

struct world {
    char folder[64];
    struct hl_tokenizer *tokenizer;
    struct hl_dataset *dataset;
    struct hl_train_options train;
    struct hl_optimizer_options optimizer;
    struct hl_strategy_options strategies;
    struct hl_data_options data;
    struct hl_model_config model;
    struct hl_trainer_setup setup;
    struct hl_config *config;
};

/* Names of 2 to 9 letters. */
static inline void write_names(const char *path) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (unsigned i = 0; i < 300; i++) {
        unsigned n = 2 + i * 7919 % 8;
        for (unsigned k = 0; k < n; k++) fputc('a' + (int)((i * 31 + k * k * 17) % 26), f);
        fputc('\n', f);
    }
    assert_int_equal(fclose(f), 0);
}

static inline void open_world(struct world *w, const char *optim) {
    struct hl_mem *mem = hl_mem_default();
    struct hl_diag diag = {0};
    memset(w, 0, sizeof *w);
    (void)snprintf(w->folder, sizeof w->folder, "/tmp/halley-test-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    char path[128];
    (void)snprintf(path, sizeof path, "%s/names.txt", w->folder);
    write_names(path);
    struct hl_option_set sets[3 + HL_MAX_STRATEGIES] = {
        {NULL, hl_train_rows, hl_train_n_rows, &w->train},
        {NULL, hl_optimizer_rows, hl_optimizer_n_rows, &w->optimizer},
        {NULL, hl_data_rows, hl_data_n_rows, &w->data}};
    size_t n_sets = 3 + (size_t)hl_strategy_option_sets(&w->strategies, sets + 3);
    assert_int_equal(hl_config_new(mem, sets, n_sets, &w->config, &diag), HL_OK);
    const char *const words[] = {"--data",
                                 path,
                                 "--text_format",
                                 "lines",
                                 "--block_size",
                                 "24",
                                 "--max_steps",
                                 "6",
                                 "--threads",
                                 "1",
                                 "--per_device_train_batch_size",
                                 "3",
                                 "--gradient_accumulation_steps",
                                 "2",
                                 "--learning_rate",
                                 "0.01",
                                 "--warmup_steps",
                                 "2",
                                 "--optim",
                                 optim};
    size_t n;
    const char *rest[32];
    if (hl_config_read_flags(w->config, sizeof words / sizeof *words, (char *const *)words, rest,
                             &n, &diag) != HL_OK)
        fail_msg("%s", diag.text);
    w->data.seed = 5;
    assert_int_equal(hl_tokenizer_byte(mem, &w->tokenizer, &diag), HL_OK);
    if (hl_dataset_open(mem, &w->data, w->tokenizer, 1, NULL, &w->dataset, &diag) != HL_OK)
        fail_msg("%s", diag.text);
    w->model = (struct hl_model_config){.family = HL_FAMILY_LLAMA,
                                        .vocab_size = hl_tokenizer_vocab_size(w->tokenizer),
                                        .hidden_size = 16,
                                        .num_hidden_layers = 2,
                                        .num_attention_heads = 2,
                                        .intermediate_size = 32,
                                        .max_position_embeddings = 24,
                                        .tie_word_embeddings = true};
    w->setup = (struct hl_trainer_setup){.options = &w->train,
                                         .optimizer_options = &w->optimizer,
                                         .strategy_options = &w->strategies,
                                         .model = &w->model,
                                         .dataset = w->dataset,
                                         .block_size = 24,
                                         .seed = 5};
}

static inline void set_word(struct world *w, const char *key, const char *value) {
    struct hl_diag diag = {0};
    if (hl_config_set(w->config, key, &value, 1, "test", 0, &diag) != HL_OK)
        fail_msg("%s", diag.text);
}

static inline void close_world(struct world *w) {
    hl_dataset_free(w->dataset);
    hl_tokenizer_free(w->tokenizer);
    hl_config_free(w->config);
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", w->folder);
    assert_int_equal(system(command), 0);
}

static inline struct hl_trainer *new_trainer(const struct world *w) {
    struct hl_trainer *t;
    struct hl_diag diag = {0};
    if (hl_trainer_new(hl_mem_default(), &w->setup, &t, &diag) != HL_OK) fail_msg("%s", diag.text);
    return t;
}

#endif
