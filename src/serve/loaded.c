/* See loaded.h. */
#include "serve/loaded.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "os/fs.h"

static bool has(const char *folder, const char *name) {
    char path[HL_PATH_CAPACITY];
    return hl_path_join(path, folder, name) && hl_fs_os()->size(hl_fs_os(), path) >= 0;
}

enum hl_status hl_loaded_find(struct hl_mem *mem, const char *folder, char *out, size_t capacity,
                              struct hl_log *log, struct hl_diag *diag) {
    if (has(folder, "config.json")) {
        if ((size_t)snprintf(out, capacity, "%s", folder) < capacity) return HL_OK;
        return hl_fail(diag, HL_E_USER, "%s: the path is too long", folder);
    }
    if (hl_fs_os()->size(hl_fs_os(), folder) < 0 && errno == ENOENT)
        return hl_fail(diag, HL_E_USER,
                       "%s: there is no such folder; name a run's output_dir, a checkpoint or a "
                       "Hugging Face folder",
                       folder);
    enum hl_status status = hl_checkpoint_latest(mem, hl_fs_os(), folder, out, capacity, log, diag);
    if (status != HL_END) return status;
    return hl_fail(diag, HL_E_USER,
                   "%s: holds neither a model (config.json) nor a complete checkpoint; name a "
                   "run's output_dir, a "
                   "checkpoint or a Hugging Face folder",
                   folder);
}

static enum hl_status open_tokenizer(struct hl_loaded *m, const char *name, struct hl_diag *diag) {
    char beside[HL_PATH_CAPACITY];
    if (name && *name) return hl_tokenizer_open(m->mem, name, &m->tokenizer, diag);
    if (has(m->folder, "tokenizer.json") && hl_path_join(beside, m->folder, "tokenizer.json"))
        return hl_tokenizer_open(m->mem, beside, &m->tokenizer, diag);
    return hl_tokenizer_open(m->mem, "byte", &m->tokenizer, diag);
}

static enum hl_status read_weights(struct hl_loaded *m, struct hl_checkpoint_reader *reader,
                                   const struct hl_loaded_shape *shape, struct hl_diag *diag) {
    enum hl_status status = hl_model_new(m->mem, hl_checkpoint_config(reader), &m->model, diag);
    if (status == HL_OK) status = hl_kernels_get(shape->dtype, &m->kernels, diag);
    if (status == HL_OK) status = hl_products_new(m->mem, &m->products, diag);
    if (status != HL_OK) return status;
    struct hl_engine_shape engine = {.bf16_copy = shape->dtype == HL_BF16};
    status = hl_engine_new(m->mem, &m->model->layout, &engine, &m->engine, diag);
    if (status != HL_OK) return status;
    struct hl_range all = hl_layout_all(&m->model->layout);
    status = hl_checkpoint_read_params(reader, m->model,
                                       hl_engine_data(m->engine, HL_BUFFER_MASTER, all), diag);
    if (status == HL_OK) hl_engine_publish(m->engine, m->kernels, all);
    return status;
}

static enum hl_status fill(struct hl_loaded *m, const char *folder,
                           const struct hl_loaded_shape *shape, struct hl_log *log,
                           struct hl_diag *diag) {
    enum hl_status status = hl_loaded_find(m->mem, folder, m->folder, sizeof m->folder, log, diag);
    struct hl_checkpoint_reader *reader;
    if (status == HL_OK)
        status = hl_checkpoint_open(m->mem, hl_fs_os(), m->folder, &reader, log, diag);
    if (status != HL_OK) return status;
    status = read_weights(m, reader, shape, diag);
    hl_checkpoint_close(reader);
    if (status == HL_OK) status = open_tokenizer(m, shape->tokenizer, diag);
    if (status != HL_OK) return status;
    int64_t longest = m->model->config.max_position_embeddings;
    if (shape->max_positions && shape->max_positions < longest) longest = shape->max_positions;
    struct hl_model_run_shape run = {.max_tokens = shape->max_tokens ? shape->max_tokens : longest,
                                     .max_positions = longest};
    m->window = run.max_tokens < longest ? run.max_tokens : longest;
    return hl_model_run_new(m->mem, m->model, m->kernels, m->products, &run, &m->run, diag);
}

enum hl_status hl_loaded_open(struct hl_mem *mem, const char *folder,
                              const struct hl_loaded_shape *shape, struct hl_log *log,
                              struct hl_loaded *out, struct hl_diag *diag) {
    *out = (struct hl_loaded){.mem = mem};
    hl_denormals_off();
    enum hl_status status = fill(out, folder, shape, log, diag);
    if (status != HL_OK) hl_loaded_close(out);
    return status;
}

void hl_loaded_close(struct hl_loaded *m) {
    hl_model_run_free(m->run);
    hl_engine_free(m->engine);
    hl_products_free(m->products);
    hl_model_free(m->model);
    hl_tokenizer_free(m->tokenizer);
    *m = (struct hl_loaded){.mem = m->mem};
}

enum hl_status hl_loaded_loss(struct hl_loaded *m, const struct hl_batch *batch, double *sum_out,
                              struct hl_diag *diag) {
    const struct hl_layout *layout = &m->model->layout;
    struct hl_block_data embedding = {.params = hl_engine_acquire(m->engine, layout->blocks[0])};
    enum hl_status status = hl_model_begin(m->run, batch, diag);
    for (int b = 0; b < layout->n_blocks && status == HL_OK; b++) {
        struct hl_block_data own = {.params = hl_engine_acquire(m->engine, layout->blocks[b])};
        status = hl_model_forward(m->run, b, &own, &embedding, NULL, diag);
    }
    if (status == HL_OK) *sum_out = hl_model_loss_sum(m->run);
    return status;
}

struct hl_generator hl_loaded_generator(struct hl_loaded *m) {
    return (struct hl_generator){m->mem, m->model, m->engine, m->run, m->kernels->dtype, m->window};
}
