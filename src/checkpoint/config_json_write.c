/* Writing config.json and generation_config.json as transformers reads them, old and new versions
 * alike: rotary positions in both spellings (rope_theta + rope_scaling; rope_parameters), the type
 * as torch_dtype and dtype. */
#include <string.h>

#include "checkpoint/config_json.h"
#include "halley/text_number.h"

struct writer {
    struct hl_buf *out;
    const char *separator;
};

static void key(struct writer *w, const char *name) {
    hl_buf_printf(w->out, "%s  \"%s\": ", w->separator, name);
    w->separator = ",\n";
}

static void put_i64(struct writer *w, const char *name, int64_t value) {
    key(w, name);
    hl_buf_printf(w->out, "%lld", (long long)value);
}

/* Always recognisable as a real number: Python readers check types. */
static void real(struct hl_buf *out, double value) {
    char text[40];
    hl_print_f64(text, sizeof text, value);
    hl_buf_puts(out, text);
    if (!strpbrk(text, ".eNI")) hl_buf_puts(out, ".0");
}

static void put_f64(struct writer *w, const char *name, double value) {
    key(w, name);
    real(w->out, value);
}

static void put_word(struct writer *w, const char *name, const char *bare) {
    key(w, name);
    hl_buf_puts(w->out, bare);
}

static void put_bool(struct writer *w, const char *name, bool value) {
    put_word(w, name, value ? "true" : "false");
}

static void put_token(struct writer *w, const char *name, int64_t token) {
    if (token < 0) put_word(w, name, "null");
    else put_i64(w, name, token);
}

static void put_scaling(struct hl_buf *out, const struct hl_rope_scaling *s) {
    if (s->kind == HL_ROPE_DEFAULT) {
        hl_buf_puts(out, "\"rope_type\": \"default\"");
        return;
    }
    hl_buf_puts(out, "\"factor\": ");
    real(out, s->factor);
    if (s->kind == HL_ROPE_LLAMA3) {
        hl_buf_puts(out, ", \"high_freq_factor\": ");
        real(out, s->high_freq_factor);
        hl_buf_puts(out, ", \"low_freq_factor\": ");
        real(out, s->low_freq_factor);
        hl_buf_printf(out, ", \"original_max_position_embeddings\": %lld",
                      (long long)s->original_max_position_embeddings);
    }
    hl_buf_printf(out, ", \"rope_type\": \"%s\"", s->kind == HL_ROPE_LLAMA3 ? "llama3" : "linear");
}

static void put_rotary(struct writer *w, const struct hl_model_config *c) {
    put_f64(w, "rope_theta", c->rope_theta);
    if (c->rope_scaling.kind == HL_ROPE_DEFAULT) {
        put_word(w, "rope_scaling", "null");
    } else {
        put_word(w, "rope_scaling", "{");
        put_scaling(w->out, &c->rope_scaling);
        hl_buf_puts(w->out, "}");
    }
    put_word(w, "rope_parameters", "{\"rope_theta\": ");
    real(w->out, c->rope_theta);
    hl_buf_puts(w->out, ", ");
    put_scaling(w->out, &c->rope_scaling);
    hl_buf_puts(w->out, "}");
}

static void put_gpt2(struct writer *w, const struct hl_model_config *c) {
    put_word(w, "architectures", "[\"GPT2LMHeadModel\"]");
    put_word(w, "model_type", "\"gpt2\"");
    put_word(w, "activation_function", "\"gelu_new\"");
    put_i64(w, "n_embd", c->hidden_size);
    put_i64(w, "n_layer", c->num_hidden_layers);
    put_i64(w, "n_head", c->num_attention_heads);
    put_i64(w, "n_inner", c->intermediate_size);
    put_i64(w, "n_positions", c->max_position_embeddings);
    put_f64(w, "layer_norm_epsilon", c->norm_epsilon);
    put_f64(w, "attn_pdrop", 0);
    put_f64(w, "embd_pdrop", 0);
    put_f64(w, "resid_pdrop", 0);
    put_bool(w, "scale_attn_weights", true);
}

static void put_llama(struct writer *w, const struct hl_model_config *c) {
    bool qwen = c->qkv_bias || c->qk_norm;
    put_word(w, "architectures",
             c->qk_norm    ? "[\"Qwen3ForCausalLM\"]"
             : c->qkv_bias ? "[\"Qwen2ForCausalLM\"]"
                           : "[\"LlamaForCausalLM\"]");
    put_word(w, "model_type", c->qk_norm ? "\"qwen3\"" : c->qkv_bias ? "\"qwen2\"" : "\"llama\"");
    put_word(w, "hidden_act", "\"silu\"");
    put_i64(w, "hidden_size", c->hidden_size);
    put_i64(w, "num_hidden_layers", c->num_hidden_layers);
    put_i64(w, "num_attention_heads", c->num_attention_heads);
    put_i64(w, "num_key_value_heads", c->num_key_value_heads);
    put_i64(w, "head_dim", c->head_dim);
    put_i64(w, "intermediate_size", c->intermediate_size);
    put_i64(w, "max_position_embeddings", c->max_position_embeddings);
    put_f64(w, "rms_norm_eps", c->norm_epsilon);
    put_f64(w, "attention_dropout", 0);
    if (!c->qkv_bias) put_bool(w, "attention_bias", false);
    if (!qwen) put_bool(w, "mlp_bias", false);
    if (qwen) {
        put_bool(w, "use_sliding_window", false);
        put_word(w, "sliding_window", "null");
    }
    put_rotary(w, c);
}

void hl_model_config_to_json(const struct hl_model_config *config, struct hl_buf *out) {
    struct writer w = {out, "{\n"};
    if (config->family == HL_FAMILY_GPT2) put_gpt2(&w, config);
    else put_llama(&w, config);
    put_i64(&w, "vocab_size", config->vocab_size);
    put_bool(&w, "tie_word_embeddings", config->tie_word_embeddings);
    put_f64(&w, "initializer_range", config->initializer_range);
    put_token(&w, "bos_token_id", config->bos_token_id);
    put_token(&w, "eos_token_id", config->eos_token_id);
    put_word(&w, "torch_dtype", "\"float32\"");
    put_word(&w, "dtype", "\"float32\"");
    put_bool(&w, "use_cache", true);
    hl_buf_puts(out, "\n}\n");
}

void hl_generation_config_to_json(const struct hl_model_config *config, struct hl_buf *out) {
    struct writer w = {out, "{\n"};
    put_bool(&w, "_from_model_config", true);
    put_token(&w, "bos_token_id", config->bos_token_id);
    put_token(&w, "eos_token_id", config->eos_token_id);
    hl_buf_puts(out, "\n}\n");
}
