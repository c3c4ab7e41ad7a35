/* A model is an ordered list of blocks: embedding, layer 0 .. L-1, head. Each block owns one
 * contiguous range of one flat parameter vector; everything else in the system moves block ranges.
 * The tensor table serves the few that need shapes.
 *
 * Families: GPT-2 (learned positions, LayerNorm, GELU tanh, biases, tied head) and Llama (RMSNorm,
 * RoPE, SwiGLU, grouped-query attention; with qkv_bias it is Qwen2, with qk_norm Qwen3). Source:
 * GPT-2 report (Radford et al. 2019), arXiv:2302.13971 (Llama), arXiv:2412.15115 (Qwen2.5),
 * arXiv:2505.09388 (Qwen3). */
#ifndef HALLEY_MODEL_H
#define HALLEY_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halley/layout.h"
#include "halley/mem.h"
#include "halley/status.h"

enum hl_family { HL_FAMILY_GPT2, HL_FAMILY_LLAMA };

struct hl_rope_scaling { /* "llama3" frequency scaling (Llama 3.1); factor 0 = none; "linear": only
                            factor is used */
    enum { HL_ROPE_DEFAULT, HL_ROPE_LINEAR, HL_ROPE_LLAMA3 } kind;
    double factor, low_freq_factor, high_freq_factor;
    int64_t original_max_position_embeddings;
};

struct hl_model_config {
    enum hl_family family;
    int64_t vocab_size;
    int64_t hidden_size;             /* C */
    int64_t num_hidden_layers;       /* L */
    int64_t num_attention_heads;     /* H */
    int64_t num_key_value_heads;     /* K, divides H */
    int64_t head_dim;                /* D */
    int64_t intermediate_size;       /* F */
    int64_t max_position_embeddings; /* P */
    double norm_epsilon;
    double rope_theta;
    struct hl_rope_scaling rope_scaling;
    bool tie_word_embeddings;
    bool qkv_bias; /* Llama family: q, k, v biases (Qwen2). GPT-2 always has all biases. */
    bool qk_norm;  /* per-head RMSNorm of q and k (Qwen3) */
    double initializer_range;           /* std of the normal initialisation */
    int64_t bos_token_id, eos_token_id; /* -1: none */
};

/* The static description: pure data, no weights. */
struct hl_model {
    struct hl_model_config config;
    int64_t padded_vocab;    /* multiple of 64 */
    struct hl_layout layout; /* L + 2 blocks: embedding, layers, head */
    struct hl_mem *mem;
};

/* The model's config is completed: 0 in num_key_value_heads, head_dim, GPT-2's intermediate_size,
 * norm_epsilon, rope_theta and initializer_range means the family's usual value. errors HL_E_USER:
 * a size is missing, negative, or does not divide (the sentence names both numbers and a hint). */
enum hl_status hl_model_new(struct hl_mem *mem, const struct hl_model_config *config,
                            struct hl_model **out, struct hl_diag *diag) HL_MUST_CHECK;
void hl_model_free(struct hl_model *model);

/* Preset by name ("gpt2-124m", "llama-tiny", ...). errors HL_E_USER with the nearest name. */
enum hl_status hl_model_preset(const char *name, struct hl_model_config *out,
                               struct hl_diag *diag) HL_MUST_CHECK;
/* Names and one-line summaries, NULL-terminated. */
struct hl_model_preset_row {
    const char *name, *summary;
};
const struct hl_model_preset_row *hl_model_presets(void);

/* Draw initial weights: params f32 [n_parameters]. Pure function of (seed, tensor, element), the
 * same bits on every machine and for every number of threads. Padding becomes zero. */
void hl_model_init(const struct hl_model *model, uint64_t seed, float *params);
/* Those of one block: params [n of the block]. */
void hl_model_init_block(const struct hl_model *model, uint64_t seed, int block, float *params);
const struct hl_tensor *hl_model_tensor(const struct hl_model *model,
                                        const char *name); /* NULL: none */

/* Floating-point operations of the products of one forward and backward pass over one token,
 * averaged over a sequence of T tokens: 6 (weights of all layer matrices + V C for the head) + 6 L
 * H D (T + 1) for causal attention. Recomputation and everything that is no product are not
 * counted. */
double hl_model_flops_per_token(const struct hl_model *model, int64_t tokens_per_sequence);

#endif
