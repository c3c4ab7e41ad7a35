/* Where each weight lies in the flat parameter vector: blocks in the order of the forward pass,
 * tensors in the order of their use inside a block. Pure description: no weights are allocated
 * here.
 *
 * Every tensor starts at a multiple of 16 elements (one cache line of f32); the elements that fill
 * the gap belong to the tensor before it, are zero and stay zero. The members of a glued group (q,
 * k, v; gate, up) leave no gap, so that one product computes the whole group; where a member's size
 * is odd, alignment yields. Names are those of Hugging Face checkpoints. Source of the shapes: see
 * halley/model.h.
 *
 * Legend: C hidden size, L layers, H heads, K key/value heads, D head size, F feed-forward width, V
 * vocabulary, P positions. */
#include "halley/model.h"

#include <stdio.h>
#include <string.h>

enum { ALIGN = 16, VOCAB_MULTIPLE = 64, MAX_TENSORS_PER_LAYER = 14, MAX_TENSORS_OUTSIDE = 5 };

/* Sizes beyond these are mistakes; the bounds keep every product below 2^63. */
static const int64_t MAX_SIZE = (int64_t)1 << 28, MAX_ELEMENTS = (int64_t)1 << 44;

/* ---- the configuration is completed and checked ---- */

static enum hl_status want(const char *name, int64_t value, struct hl_diag *diag) {
    if (value == 0)
        return hl_fail(diag, HL_E_USER, "model: %s is missing; give a number above 0", name);
    if (value < 0 || value > MAX_SIZE)
        return hl_fail(diag, HL_E_USER, "model: %s is %lld; it must lie between 1 and %lld", name,
                       (long long)value, (long long)MAX_SIZE);
    return HL_OK;
}

static void complete(struct hl_model_config *c) {
    if (!c->num_key_value_heads) c->num_key_value_heads = c->num_attention_heads;
    if (!c->head_dim && c->num_attention_heads > 0 && c->hidden_size % c->num_attention_heads == 0)
        c->head_dim = c->hidden_size / c->num_attention_heads;
    if (!c->intermediate_size && c->family == HL_FAMILY_GPT2)
        c->intermediate_size = 4 * c->hidden_size;
    if (c->norm_epsilon == 0) c->norm_epsilon = 1e-5;
    if (c->rope_theta == 0) c->rope_theta = 10000;
    if (c->initializer_range == 0) c->initializer_range = 0.02;
    if (c->family == HL_FAMILY_GPT2) c->qkv_bias = true;
}

static enum hl_status check_heads(const struct hl_model_config *c, struct hl_diag *diag) {
    long long C = c->hidden_size, H = c->num_attention_heads, K = c->num_key_value_heads,
              D = c->head_dim;
    if (H % K)
        return hl_fail(
            diag, HL_E_USER,
            "model: num_attention_heads %lld is not a multiple of num_key_value_heads %lld; "
            "give a divisor of %lld",
            H, K, H);
    if (c->family == HL_FAMILY_GPT2) {
        if (K != H)
            return hl_fail(diag, HL_E_USER,
                           "model: gpt2 has as many key/value heads as heads, but "
                           "num_key_value_heads is %lld and "
                           "num_attention_heads %lld; use a llama model for grouped queries",
                           K, H);
        if (H * D != C)
            return hl_fail(diag, HL_E_USER,
                           "model: gpt2 needs num_attention_heads x head_dim = hidden_size, but "
                           "%lld x %lld is not %lld; "
                           "leave head_dim out",
                           H, D, C);
        if (c->qk_norm)
            return hl_fail(diag, HL_E_USER, "model: gpt2 has no qk_norm; use a llama model for it");
    } else if (c->qkv_bias && c->qk_norm) {
        return hl_fail(
            diag, HL_E_USER,
            "model: qkv_bias (Qwen2) and qk_norm (Qwen3) together are no known architecture; "
            "leave one out");
    } else if (D % 2) {
        return hl_fail(
            diag, HL_E_USER,
            "model: rotary positions turn pairs, but head_dim %lld is odd; give an even one", D);
    }
    return HL_OK;
}

static enum hl_status check(const struct hl_model_config *c, struct hl_diag *diag) {
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {
        {"vocab_size", c->vocab_size},
        {"hidden_size", c->hidden_size},
        {"num_hidden_layers", c->num_hidden_layers},
        {"num_attention_heads", c->num_attention_heads},
        {"num_key_value_heads", c->num_key_value_heads},
        {"intermediate_size", c->intermediate_size},
        {"max_position_embeddings", c->max_position_embeddings},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        enum hl_status status = want(sizes[i].name, sizes[i].value, diag);
        if (status) return status;
    }
    if (!c->head_dim)
        return hl_fail(diag, HL_E_USER,
                       "model: hidden_size %lld is not a multiple of num_attention_heads %lld; "
                       "change one of them or give "
                       "head_dim",
                       (long long)c->hidden_size, (long long)c->num_attention_heads);
    enum hl_status status = want("head_dim", c->head_dim, diag);
    if (status) return status;
    if (c->num_hidden_layers > 100000)
        return hl_fail(diag, HL_E_USER, "model: num_hidden_layers is %lld; at most 100000",
                       (long long)c->num_hidden_layers);
    if (!(c->norm_epsilon > 0) || !(c->norm_epsilon < 1))
        return hl_fail(diag, HL_E_USER,
                       "model: the norm's epsilon must lie between 0 and 1, such as 1e-5");
    if (!(c->rope_theta > 0))
        return hl_fail(diag, HL_E_USER, "model: rope_theta must be above 0, such as 10000");
    if (!(c->initializer_range > 0))
        return hl_fail(diag, HL_E_USER, "model: initializer_range must be above 0, such as 0.02");
    return check_heads(c, diag);
}

/* ---- tensors are laid one after another ---- */

struct layer_out {
    struct hl_layout *layout;
    int block;
    int64_t at;     /* next free element */
    bool too_large; /* stays set; checked once at the end */
};

enum kind { MATRIX, CONV1D, VECTOR }; /* CONV1D: the file holds the transpose */

static int64_t round_up(int64_t n, int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

/* glued: the next tensor follows without a gap. */
static struct hl_tensor *lay(struct layer_out *out, enum kind kind, int64_t rows, int64_t cols,
                             enum hl_init init, bool glued, const char *prefix, const char *name) {
    struct hl_layout *layout = out->layout;
    struct hl_tensor *tensor = &layout->tensors[layout->n_tensors++];
    *tensor = (struct hl_tensor){
        .block = out->block, .offset = out->at, .rows = rows, .cols = cols, .padded_rows = rows};
    tensor->n_dims = kind == VECTOR ? 1 : 2;
    tensor->file_transposed = kind == CONV1D;
    tensor->decay = kind != VECTOR;
    tensor->hidden_matrix = kind != VECTOR && out->block > 0 && out->block < layout->n_blocks - 1;
    tensor->init = init;
    (void)snprintf(tensor->name, sizeof tensor->name, "%s%s", prefix, name);
    int64_t n;
    if (__builtin_mul_overflow(rows, cols, &n) || n > MAX_ELEMENTS) n = 0, out->too_large = true;
    tensor->n = glued ? n : round_up(out->at + n, ALIGN) - out->at;
    out->at += tensor->n;
    if (out->at > MAX_ELEMENTS) out->at = 0, out->too_large = true;
    layout->n_weights += n;
    return tensor;
}

static void lay_vocabulary(struct layer_out *out, const struct hl_model *model, const char *name,
                           bool used_twice) {
    int64_t V = model->config.vocab_size, C = model->config.hidden_size;
    struct hl_tensor *tensor =
        lay(out, MATRIX, model->padded_vocab, C, HL_INIT_NORMAL, false, name, "");
    tensor->rows = V;
    tensor->used_twice = used_twice;
    out->layout->n_weights -= (model->padded_vocab - V) * C;
}

static void begin_block(struct layer_out *out, int block) {
    out->block = block;
    out->layout->blocks[block].offset = out->at;
}

static void end_block(struct layer_out *out) {
    struct hl_range *range = &out->layout->blocks[out->block];
    range->n = out->at - range->offset;
}

static void lay_gpt2_layer(struct layer_out *out, const struct hl_model_config *c, const char *p) {
    int64_t C = c->hidden_size, F = c->intermediate_size;
    lay(out, VECTOR, 1, C, HL_INIT_ONE, false, p, "ln_1.weight");
    lay(out, VECTOR, 1, C, HL_INIT_ZERO, false, p, "ln_1.bias");
    lay(out, CONV1D, 3 * C, C, HL_INIT_NORMAL, false, p, "attn.c_attn.weight");
    lay(out, VECTOR, 1, 3 * C, HL_INIT_ZERO, false, p, "attn.c_attn.bias");
    lay(out, CONV1D, C, C, HL_INIT_NORMAL_RESIDUAL, false, p, "attn.c_proj.weight");
    lay(out, VECTOR, 1, C, HL_INIT_ZERO, false, p, "attn.c_proj.bias");
    lay(out, VECTOR, 1, C, HL_INIT_ONE, false, p, "ln_2.weight");
    lay(out, VECTOR, 1, C, HL_INIT_ZERO, false, p, "ln_2.bias");
    lay(out, CONV1D, F, C, HL_INIT_NORMAL, false, p, "mlp.c_fc.weight");
    lay(out, VECTOR, 1, F, HL_INIT_ZERO, false, p, "mlp.c_fc.bias");
    lay(out, CONV1D, C, F, HL_INIT_NORMAL_RESIDUAL, false, p, "mlp.c_proj.weight");
    lay(out, VECTOR, 1, C, HL_INIT_ZERO, false, p, "mlp.c_proj.bias");
}

static void lay_llama_layer(struct layer_out *out, const struct hl_model_config *c, const char *p) {
    int64_t C = c->hidden_size, F = c->intermediate_size, D = c->head_dim;
    int64_t HD = c->num_attention_heads * D, KD = c->num_key_value_heads * D;
    lay(out, VECTOR, 1, C, HL_INIT_ONE, false, p, "input_layernorm.weight");
    lay(out, MATRIX, HD, C, HL_INIT_NORMAL, true, p, "self_attn.q_proj.weight");
    lay(out, MATRIX, KD, C, HL_INIT_NORMAL, true, p, "self_attn.k_proj.weight");
    lay(out, MATRIX, KD, C, HL_INIT_NORMAL, false, p, "self_attn.v_proj.weight");
    if (c->qkv_bias) {
        lay(out, VECTOR, 1, HD, HL_INIT_ZERO, true, p, "self_attn.q_proj.bias");
        lay(out, VECTOR, 1, KD, HL_INIT_ZERO, true, p, "self_attn.k_proj.bias");
        lay(out, VECTOR, 1, KD, HL_INIT_ZERO, false, p, "self_attn.v_proj.bias");
    }
    if (c->qk_norm) {
        lay(out, VECTOR, 1, D, HL_INIT_ONE, false, p, "self_attn.q_norm.weight");
        lay(out, VECTOR, 1, D, HL_INIT_ONE, false, p, "self_attn.k_norm.weight");
    }
    lay(out, MATRIX, C, HD, HL_INIT_NORMAL, false, p, "self_attn.o_proj.weight");
    lay(out, VECTOR, 1, C, HL_INIT_ONE, false, p, "post_attention_layernorm.weight");
    lay(out, MATRIX, F, C, HL_INIT_NORMAL, true, p, "mlp.gate_proj.weight");
    lay(out, MATRIX, F, C, HL_INIT_NORMAL, false, p, "mlp.up_proj.weight");
    lay(out, MATRIX, C, F, HL_INIT_NORMAL, false, p, "mlp.down_proj.weight");
}

static void lay_model(struct layer_out *out, const struct hl_model *model) {
    const struct hl_model_config *c = &model->config;
    bool gpt2 = c->family == HL_FAMILY_GPT2;
    int64_t C = c->hidden_size;
    begin_block(out, 0);
    lay_vocabulary(out, model, gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight",
                   c->tie_word_embeddings);
    if (gpt2)
        lay(out, MATRIX, c->max_position_embeddings, C, HL_INIT_NORMAL, false,
            "transformer.wpe.weight", "");
    end_block(out);
    for (int layer = 0; layer < c->num_hidden_layers; layer++) {
        char prefix[48];
        (void)snprintf(prefix, sizeof prefix, gpt2 ? "transformer.h.%d." : "model.layers.%d.",
                       layer);
        begin_block(out, layer + 1);
        (gpt2 ? lay_gpt2_layer : lay_llama_layer)(out, c, prefix);
        end_block(out);
    }
    begin_block(out, (int)c->num_hidden_layers + 1);
    lay(out, VECTOR, 1, C, HL_INIT_ONE, false,
        gpt2 ? "transformer.ln_f.weight" : "model.norm.weight", "");
    if (gpt2) lay(out, VECTOR, 1, C, HL_INIT_ZERO, false, "transformer.ln_f.bias", "");
    if (!c->tie_word_embeddings) lay_vocabulary(out, model, "lm_head.weight", false);
    end_block(out);
}

enum hl_status hl_model_new(struct hl_mem *mem, const struct hl_model_config *config,
                            struct hl_model **out, struct hl_diag *diag) {
    struct hl_model_config completed = *config;
    complete(&completed);
    enum hl_status status = check(&completed, diag);
    if (status) return status;
    struct hl_model *model = hl_alloc(mem, 1, sizeof *model);
    if (!model) return hl_fail_memory(diag, sizeof *model, "the model's description");
    model->mem = mem;
    model->config = completed;
    model->padded_vocab = round_up(completed.vocab_size, VOCAB_MULTIPLE);
    struct hl_layout *layout = &model->layout;
    layout->n_blocks = (int)completed.num_hidden_layers + 2;
    size_t capacity =
        (size_t)completed.num_hidden_layers * MAX_TENSORS_PER_LAYER + MAX_TENSORS_OUTSIDE;
    layout->blocks = hl_alloc(mem, (size_t)layout->n_blocks, sizeof *layout->blocks);
    layout->tensors = hl_alloc(mem, capacity, sizeof *layout->tensors);
    if (!layout->blocks || !layout->tensors) {
        hl_model_free(model);
        return hl_fail_memory(diag, capacity * sizeof *layout->tensors, "the tensor table");
    }
    struct layer_out pen = {.layout = layout};
    lay_model(&pen, model);
    layout->n_parameters = pen.at;
    if (pen.too_large) {
        hl_model_free(model);
        return hl_fail(diag, HL_E_USER, "model: more than 2^44 parameters; give smaller sizes");
    }
    *out = model;
    return HL_OK;
}

void hl_model_free(struct hl_model *model) {
    if (!model) return;
    hl_free(model->mem, model->layout.tensors);
    hl_free(model->mem, model->layout.blocks);
    hl_free(model->mem, model);
}

const struct hl_tensor *hl_model_tensor(const struct hl_model *model, const char *name) {
    for (int i = 0; i < model->layout.n_tensors; i++)
        if (!strcmp(model->layout.tensors[i].name, name)) return &model->layout.tensors[i];
    return NULL;
}

/* Each weight of a matrix costs one multiply-add forward and two backward (with respect to input
 * and weight): 6 operations. Looking up an embedding costs none; a tied head is a product of its
 * own. Attention: scores and their product with the values, each D multiply-adds per head and
 * visible position, (T + 1) / 2 positions visible on average, again three times. */
double hl_model_flops_per_token(const struct hl_model *model, int64_t tokens_per_sequence) {
    const struct hl_model_config *c = &model->config;
    double weights = (double)c->vocab_size * (double)c->hidden_size; /* the head */
    for (int i = 0; i < model->layout.n_tensors; i++) {
        const struct hl_tensor *t = &model->layout.tensors[i];
        bool in_layer = t->block > 0 && t->block < model->layout.n_blocks - 1;
        if (in_layer && t->n_dims == 2) weights += (double)t->rows * (double)t->cols;
    }
    double attention = 2.0 * (double)c->num_hidden_layers * (double)c->num_attention_heads *
                       (double)c->head_dim * ((double)tokens_per_sequence + 1) / 2;
    return 6 * (weights + attention);
}
