/* A model read from a folder, ready to run forward: for generation, evaluation and serving. */
#ifndef HALLEY_SERVE_LOADED_H
#define HALLEY_SERVE_LOADED_H

#include "halley/checkpoint.h"
#include "serve/generate.h"

struct hl_loaded {
    struct hl_mem *mem;
    char folder[4096]; /* the checkpoint that was opened */
    struct hl_model *model;
    const struct hl_kernels *kernels;
    struct hl_products *products;
    struct hl_engine *engine;
    struct hl_model_run *run;
    struct hl_tokenizer *tokenizer;
    int64_t window; /* longest sequence it can run */
};

struct hl_loaded_shape {
    enum hl_dtype dtype;
    int64_t max_tokens; /* of a batch; 0: one sequence of max_positions */
    int64_t
        max_positions; /* longest sequence, if the model is made for it; 0: the model's longest */
    const char *tokenizer; /* NULL or "": the folder's, or bytes */
};

/* folder: a checkpoint, a run's output_dir (then its newest checkpoint), or a Hugging Face folder.
 */
enum hl_status hl_loaded_open(struct hl_mem *mem, const char *folder,
                              const struct hl_loaded_shape *shape, struct hl_log *log,
                              struct hl_loaded *out, struct hl_diag *diag) HL_MUST_CHECK;
void hl_loaded_close(struct hl_loaded *loaded);

/* The folder that holds the weights: `folder` itself, or its newest checkpoint. errors HL_E_USER:
 * neither. */
enum hl_status hl_loaded_find(struct hl_mem *mem, const char *folder, char *out, size_t capacity,
                              struct hl_log *log, struct hl_diag *diag) HL_MUST_CHECK;

/* Sum over supervised tokens of -log p of one batch. */
enum hl_status hl_loaded_loss(struct hl_loaded *loaded, const struct hl_batch *batch,
                              double *sum_out, struct hl_diag *diag) HL_MUST_CHECK;
struct hl_generator hl_loaded_generator(struct hl_loaded *loaded);

#endif
