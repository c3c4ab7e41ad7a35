/* Running a model: forward and backward, one block at a time.
 *
 * The run owns activations and scratch for batches of up to max_tokens rows; weights and gradients
 * are passed in per block, because whoever owns them (one machine's memory, a gathered shard, a
 * tier) is not the model's business. Between blocks travels the residual stream, f32 [N, C], and
 * backward its gradient; inside a block values are of the compute type T.
 *
 * Not here: what a step is, optimizers, data. Source of the equations: see halley/model.h.
 * Legend: N rows of the ragged batch, C hidden, H heads, K key/value heads, D head size,
 * E = (H + 2K) D, F feed-forward, V padded vocabulary. */
#ifndef HALLEY_MODEL_RUN_H
#define HALLEY_MODEL_RUN_H

#include "halley/data.h"
#include "halley/kernels.h"
#include "halley/mem.h"
#include "halley/model.h"

struct hl_model_run_shape {
    int64_t max_tokens;
    int64_t max_positions; /* longest sequence, cached tokens included */
    bool train;            /* false: forward only, activations of one layer */
    const bool *recompute; /* [n_blocks], NULL = none: such a block keeps only its input */
};

/* Bytes by class, for `plan --memory`: exactly what hl_model_run_new allocates. */
struct hl_model_run_bytes {
    size_t activations, buffers;
};

/* Keys and values of the past tokens of one sequence, for generation. */
struct hl_kv_cache {
    struct hl_mem *mem;
    char *data; /* [L, capacity, 2 K D] of T: keys, then values */
    int64_t capacity, n;
};

struct hl_model_run;

enum hl_status hl_model_run_new(struct hl_mem *mem, const struct hl_model *model,
                                const struct hl_kernels *kernels, struct hl_products *products,
                                const struct hl_model_run_shape *shape, struct hl_model_run **out,
                                struct hl_diag *diag) HL_MUST_CHECK;
void hl_model_run_free(struct hl_model_run *run);
enum hl_status hl_model_run_measure(const struct hl_model *model, const struct hl_kernels *kernels,
                                    const struct hl_model_run_shape *shape,
                                    struct hl_model_run_bytes *out) HL_MUST_CHECK;

/* Weights of T and gradients f32 of one block; both start at the block's first element. */
struct hl_block_data {
    const void *params;
    float *grads; /* NULL: no gradient is wanted */
    bool add;     /* false: the first contribution since the gradient was cleared; it overwrites */
};

/* Begin a micro-batch; the batch must stay valid until its last backward.
 * errors HL_E_USER: a token or target outside the vocabulary, a position outside the model, or more
 * compute threads than when the run was made. */
enum hl_status hl_model_begin(struct hl_model_run *run, const struct hl_batch *batch,
                              struct hl_diag *diag) HL_MUST_CHECK;

/* Forward of a block. embedding: block 0's data, for a tied head. With gradients the head computes
 * the loss and the backward of its product at once, over chunks of rows, so that no more than a
 * chunk of logits ever exists.
 * cache: NULL, or it takes the new keys and values. An empty cache takes the whole batch (one
 * sequence); a filled one takes exactly one new row. The caller advances cache->n. */
enum hl_status hl_model_forward(struct hl_model_run *run, int block,
                                const struct hl_block_data *own,
                                const struct hl_block_data *embedding, struct hl_kv_cache *cache,
                                struct hl_diag *diag) HL_MUST_CHECK;
/* Compute again what a recomputed block did not keep; just before its backward. */
enum hl_status hl_model_recompute(struct hl_model_run *run, int block,
                                  const struct hl_block_data *own,
                                  struct hl_diag *diag) HL_MUST_CHECK;
enum hl_status hl_model_backward(struct hl_model_run *run, int block,
                                 const struct hl_block_data *own,
                                 struct hl_diag *diag) HL_MUST_CHECK;

/* Sum over supervised tokens of -log p, of the last head forward. */
double hl_model_loss_sum(const struct hl_model_run *run);
/* Logits [vocab_size] of one row after the last layer: norm and head of that row alone.
 * Valid until the next call. */
enum hl_status hl_model_logits(struct hl_model_run *run, int64_t row,
                               const struct hl_block_data *head,
                               const struct hl_block_data *embedding, const float **out,
                               struct hl_diag *diag) HL_MUST_CHECK;
/* False when the residual stream that left `block` (embedding or a layer) holds NaN or infinity. */
bool hl_model_is_finite(const struct hl_model_run *run, int block);

enum hl_status hl_kv_cache_init(struct hl_mem *mem, const struct hl_model *model,
                                enum hl_dtype dtype, int64_t capacity, struct hl_kv_cache *out,
                                struct hl_diag *diag) HL_MUST_CHECK;
void hl_kv_cache_free(struct hl_kv_cache *cache);

#endif
