/* halley eval: the loss of a model on text: token mean over everything, with perplexity and bits
 * per byte. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd_common.h"
#include "command.h"
#include "os/fs.h"
#include "os/memory.h"
#include "os/signal.h"
#include "serve/loaded.h"
#include "text/dataset.h"

static const char usage[] =
    "halley eval FOLDER [--data FILE ...] [--key value ...]: loss of a model on text\n\n"
    "  halley eval halley-run                       the held-out split of the run's own data: its "
    "eval_loss again\n"
    "  halley eval gpt2-folder --data book.txt      all of a file\n\n"
    "Prints one JSON object: loss in nats per token over all predictions, perplexity, tokens. For "
    "the run's own\n"
    "held-out split also bigram_loss: an add-one bigram model of the same tokens, the number to "
    "beat.\n\n";

struct score {
    double sum;
    int64_t n;
};

static enum hl_status score(struct hl_loaded *model, const struct hl_dataset *data,
                            enum hl_split split, int64_t rows, struct score *out,
                            struct hl_diag *diag) {
    struct hl_loader *loader;
    enum hl_status status = hl_loader_new(model->mem, data, split, rows, &loader, diag);
    if (status != HL_OK) return status;
    *out = (struct score){0};
    int64_t total = hl_dataset_n_rows(data, split);
    for (int64_t row = 0; row < total && status == HL_OK; row += rows) {
        struct hl_batch batch;
        double sum;
        status = hl_loader_plain_rows(loader, row, total - row < rows ? total - row : rows, &batch,
                                      diag);
        if (status == HL_OK) status = hl_loaded_loss(model, &batch, &sum, diag);
        if (status == HL_OK && hl_signal_pending())
            status = hl_fail(diag, HL_E_STOPPED, "stopped by a signal");
        if (status == HL_OK) out->sum += sum, out->n += batch.n_supervised;
    }
    hl_loader_free(loader);
    return status;
}

/* bigram: NaN when there is nothing to compare with */
static void print_score(const struct hl_loaded *model, const struct score *s, double bigram) {
    struct hl_buf out = {.mem = hl_mem_default()};
    double loss = s->sum / (double)s->n;
    hl_buf_puts(&out, "{\"eval_loss\": ");
    hl_buf_f64(&out, loss);
    hl_buf_puts(&out, ", \"perplexity\": ");
    hl_buf_f64(&out, exp(loss));
    if (isfinite(bigram)) {
        hl_buf_puts(&out, ", \"bigram_loss\": ");
        hl_buf_f64(&out, bigram);
    }
    hl_buf_printf(&out, ", \"tokens\": %lld, \"checkpoint\": ", (long long)s->n);
    hl_buf_json_string(&out, model->folder);
    hl_buf_puts(&out, "}");
    puts(out.failed ? "" : out.data);
    hl_buf_free(&out);
}

/* The checkpoint's own tokenizer is taken unless another is asked for: the run's file may name one
 * that has moved. */
static enum hl_status run(struct hl_mem *mem, const char *folder, struct run_options *o,
                          bool own_data, bool other_tokenizer, struct hl_log *log,
                          struct hl_diag *diag) {
    if (!o->data.data.n)
        return hl_fail(diag, HL_E_USER, "--data is missing: %s holds no run.yaml to take it from",
                       folder);
    int64_t rows = o->train.per_device_eval_batch_size ? o->train.per_device_eval_batch_size
                                                       : o->train.per_device_train_batch_size;
    struct hl_loaded model;
    struct hl_loaded_shape shape = {.dtype = o->train.bf16 ? HL_BF16 : HL_F32,
                                    .max_tokens = rows * o->data.block_size,
                                    .max_positions = o->data.block_size,
                                    .tokenizer = other_tokenizer ? o->words.tokenizer : NULL};
    enum hl_status status = hl_loaded_open(mem, folder, &shape, log, &model, diag);
    if (status != HL_OK) return status;
    if (!own_data) o->data.validation_split = 0, o->data.to_score = true;
    struct hl_dataset *data = NULL;
    struct score s = {0};
    status = hl_dataset_open(mem, &o->data, model.tokenizer, 1, log, &data, diag);
    if (status == HL_OK && own_data && hl_dataset_n_rows(data, HL_SPLIT_VALIDATION) == 0)
        status = hl_fail(diag, HL_E_USER, "the run held nothing out; name a file with --data");
    if (status == HL_OK)
        status =
            score(&model, data, own_data ? HL_SPLIT_VALIDATION : HL_SPLIT_TRAIN, rows, &s, diag);
    if (status == HL_OK && s.n == 0)
        status = hl_fail(diag, HL_E_USER, "the data holds nothing to predict");
    if (status == HL_OK && !isfinite(s.sum))
        status = hl_fail(diag, HL_E_NUMERIC,
                         "the loss is not a finite number; are the weights in %s sound?", folder);
    if (status == HL_OK) print_score(&model, &s, own_data ? hl_dataset_bigram_loss(data) : NAN);
    hl_dataset_free(data);
    hl_loaded_close(&model);
    return status;
}

/* What the words and flags say, without the run's own file. */
struct asked {
    bool data, tokenizer;
};

static enum hl_status read_asked(struct hl_mem *mem, int n_args, char **args, struct asked *out,
                                 struct hl_diag *diag) {
    struct run_options options;
    struct hl_config *config = NULL;
    bool print_only;
    enum hl_status status =
        run_read_options(mem, NULL, n_args, args, &options, &config, &print_only, diag);
    if (status == HL_OK)
        *out =
            (struct asked){hl_config_given(config, "data"), hl_config_given(config, "tokenizer")};
    hl_config_free(config);
    return status;
}

int command_eval(int n_args, char **args) {
    struct hl_mem *mem = hl_mem_os();
    struct hl_diag diag = {0};
    struct hl_log log = command_log();
    log.least = HL_LOG_WARN;
    if (command_wants_help(n_args, args)) return run_print_help(usage), 0;
    if (n_args < 1 || args[0][0] == '-') {
        (void)hl_fail(&diag, HL_E_USER,
                      "name a run's output_dir, a checkpoint or a Hugging Face folder first");
        return command_fail("eval", HL_E_USER, &diag);
    }
    struct run_options options;
    struct hl_config *config = NULL;
    char folder[HL_PATH_CAPACITY], yaml[HL_PATH_CAPACITY];
    bool print_only = false;
    struct asked asked = {0};
    enum hl_status status = read_asked(mem, n_args - 1, args + 1, &asked, &diag);
    if (status == HL_OK) status = hl_loaded_find(mem, args[0], folder, sizeof folder, &log, &diag);
    bool has_yaml = status == HL_OK && hl_path_join(yaml, folder, "run.yaml") &&
                    hl_fs_os()->size(hl_fs_os(), yaml) >= 0;
    if (status == HL_OK)
        status = run_read_options(mem, has_yaml ? yaml : NULL, n_args - 1, args + 1, &options,
                                  &config, &print_only, &diag);
    if (status == HL_OK) {
        command_set_threads(options.train.threads);
        hl_signal_watch();
        status = run(mem, folder, &options, has_yaml && !asked.data, asked.tokenizer, &log, &diag);
    }
    hl_config_free(config);
    if (status != HL_OK)
        return hl_signal_pending() ? 128 + hl_signal_pending()
                                   : command_fail("eval", status, &diag);
    return 0;
}
