/* Train a small Llama on a text, from C: options from the same table as the program's, a tokenizer,
 * a dataset, a trainer.
 *
 *     cc train_tiny.c $(pkg-config --cflags --libs halley) && ./a.out [FILE]
 *
 * Without a file it learns a text of its own. The same seed prints the same losses, run after run.
 */
#include <halley/halley.h>

#include <stdio.h>
#include <stdlib.h>

/* Everything one run owns. */
struct run {
    struct hl_mem *mem;
    struct hl_data_options data;
    struct hl_model_options model_options;
    struct hl_train_options train;
    struct hl_optimizer_options optimizer;
    struct hl_config *config;
    struct hl_tokenizer *tokenizer;
    struct hl_dataset *dataset;
    struct hl_model_config model;
    struct hl_trainer *trainer;
};

static enum hl_status set(struct run *run, const char *key, const char *value,
                          struct hl_diag *diag) {
    return hl_config_set(run->config, key, &value, 1, "train_tiny", 0, diag);
}

/* Defaults for everything, then what this run wants. */
static enum hl_status choose(struct run *run, const char *path, struct hl_diag *diag) {
    const struct hl_option_set sets[] = {
        {NULL, hl_data_rows, hl_data_n_rows, &run->data},
        {NULL, hl_model_rows, hl_model_n_rows, &run->model_options},
        {NULL, hl_train_rows, hl_train_n_rows, &run->train},
        {NULL, hl_optimizer_rows, hl_optimizer_n_rows, &run->optimizer},
    };
    static const char *const wanted[][2] = {
        {"model", "llama"},        {"num_hidden_layers", "2"},
        {"hidden_size", "32"},     {"num_attention_heads", "2"},
        {"block_size", "32"},      {"max_steps", "30"},
        {"learning_rate", "1e-2"}, {"per_device_train_batch_size", "8"},
    };
    enum hl_status status =
        hl_config_new(run->mem, sets, sizeof sets / sizeof *sets, &run->config, diag);
    if (!status) status = set(run, "data", path, diag);
    for (size_t i = 0; !status && i < sizeof wanted / sizeof *wanted; i++)
        status = set(run, wanted[i][0], wanted[i][1], diag);
    return status;
}

static enum hl_status prepare(struct run *run, const char *path, struct hl_diag *diag) {
    enum hl_status status = choose(run, path, diag);
    if (!status) status = hl_tokenizer_byte(run->mem, &run->tokenizer, diag);
    if (!status)
        status =
            hl_dataset_open(run->mem, &run->data, run->tokenizer, 1, NULL, &run->dataset, diag);
    if (status) return status;
    int64_t T = run->data.block_size, V = hl_tokenizer_vocab_size(run->tokenizer);
    status = hl_model_resolve(run->mem, &run->model_options, V, T, &run->model, diag);
    if (status) return status;
    const struct hl_trainer_setup setup = {.options = &run->train,
                                           .optimizer_options = &run->optimizer,
                                           .model = &run->model,
                                           .dataset = run->dataset,
                                           .block_size = T,
                                           .seed = run->data.seed};
    return hl_trainer_new(run->mem, &setup, &run->trainer, diag);
}

static enum hl_status train(struct run *run, struct hl_diag *diag) {
    struct hl_step_report report;
    enum hl_status status;
    while (!(status = hl_trainer_step(run->trainer, &report, diag)))
        if (report.step == 1 || report.step % 10 == 0)
            printf("step %2d  loss %.4f\n", (int)report.step, report.loss);
    if (status != HL_END) return status;
    double loss;
    int64_t n_tokens;
    status = hl_trainer_evaluate(run->trainer, &loss, &n_tokens, diag);
    if (!status) printf("held out: loss %.4f over %d tokens\n", loss, (int)n_tokens);
    return status;
}

static void finish(struct run *run) {
    hl_trainer_free(run->trainer);
    hl_dataset_free(run->dataset);
    hl_tokenizer_free(run->tokenizer);
    hl_config_free(run->config);
}

/* A text that is easy to learn. */
static const char *write_text(void) {
    static const char path[] = "train_tiny.txt";
    FILE *file = fopen(path, "w");
    if (!file) return NULL;
    for (int i = 0; i < 400; i++) fprintf(file, "%d and %d make %d. ", i % 7, i % 5, i % 7 + i % 5);
    return fclose(file) ? NULL : path;
}

int main(int argc, char **argv) {
    struct run run = {.mem = hl_mem_default()};
    struct hl_diag diag = {0};
    const char *path = argc > 1 ? argv[1] : write_text();
    if (!path) return perror("train_tiny.txt"), 1;
    enum hl_status status = prepare(&run, path, &diag);
    if (!status) status = train(&run, &diag);
    if (status) fprintf(stderr, "train_tiny: %s\n", diag.text);
    finish(&run);
    return status ? 1 : 0;
}
