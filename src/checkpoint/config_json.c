/* Reading config.json: transformers' names and defaults, and a refusal by name for whatever we do
 * not compute.
 *
 * A key is either read here, or known to leave the maths alone, or refused when it is in use, or
 * unknown: unknown keys are logged. Dropout is a setting of training, not of the model: it is
 * logged and left out. Defaults of absent keys: transformers 5,
 * configuration_{gpt2,llama,qwen2,qwen3}.py. */
#include "checkpoint/config_json.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

enum variant { GPT2, LLAMA, QWEN2, QWEN3, N_VARIANTS };
static const char *const variant_names[N_VARIANTS] = {"gpt2", "llama", "qwen2", "qwen3"};

/* The first error stays in `status`; everything after it is skipped. */
struct reader {
    const json_t *root;
    const char *text, *file;
    struct hl_log *log;
    struct hl_diag *diag;
    enum hl_status status;
};

/* The parser keeps no positions: the line of the first mention of the key is what a person looks
 * for. */
static long line_of(const struct reader *r, const char *key) {
    size_t n = strlen(key);
    for (const char *at = strstr(r->text, key); at; at = strstr(at + 1, key)) {
        if (at == r->text || at[-1] != '"' || at[n] != '"') continue;
        long line = 1;
        for (const char *c = r->text; c < at; c++) line += *c == '\n';
        return line;
    }
    return 0;
}

static void refuse(struct reader *r, enum hl_status status, const char *key, const char *what) {
    if (!r->status)
        r->status = hl_fail_at(r->diag, status, r->file, line_of(r, key), 0, "%s: %s", key, what);
}

static const json_t *present(const struct reader *r, const json_t *object, const char *key) {
    (void)r;
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value) ? value : NULL;
}

static int64_t get_i64(struct reader *r, const json_t *object, const char *key, int64_t absent) {
    const json_t *value = present(r, object, key);
    if (!value) return absent;
    const int64_t bound = (int64_t)1 << 53;
    int64_t whole = json_is_integer(value) ? json_integer_value(value) : bound;
    if (whole < bound && whole > -bound) return whole;
    double real = json_is_real(value) ? json_real_value(value) : NAN;
    if (real == floor(real) && fabs(real) < 1e15) return (int64_t)real;
    refuse(r, HL_E_FORMAT, key, "a whole number is expected");
    return absent;
}

/* A size that must be there. */
static int64_t want_i64(struct reader *r, const char *key) {
    if (!present(r, r->root, key)) refuse(r, HL_E_FORMAT, key, "missing in this config.json");
    return get_i64(r, r->root, key, 0);
}

static double get_f64(struct reader *r, const json_t *object, const char *key, double absent) {
    const json_t *value = present(r, object, key);
    if (!value) return absent;
    if (json_is_number(value)) return json_number_value(value);
    refuse(r, HL_E_FORMAT, key, "a number is expected");
    return absent;
}

static bool get_bool(struct reader *r, const char *key, bool absent) {
    const json_t *value = present(r, r->root, key);
    if (!value) return absent;
    if (json_is_boolean(value)) return json_is_true(value);
    refuse(r, HL_E_FORMAT, key, "true or false is expected");
    return absent;
}

static const char *get_string(struct reader *r, const json_t *object, const char *key,
                              const char *absent) {
    const json_t *value = present(r, object, key);
    if (!value) return absent;
    if (json_is_string(value)) return json_string_value(value);
    refuse(r, HL_E_FORMAT, key, "a text is expected");
    return absent;
}

/* Llama 3 lists several end tokens; the first is the one that ends a text. */
static int64_t get_token(struct reader *r, const char *key) {
    const json_t *value = present(r, r->root, key);
    if (!value || !json_is_array(value)) return get_i64(r, r->root, key, -1);
    const json_t *first = json_array_get(value, 0);
    if (first && json_is_integer(first)) return json_integer_value(first);
    refuse(r, HL_E_FORMAT, key, "a token number or a list of them is expected");
    return -1;
}

/* ---- what changes the maths ---- */

static const struct {
    const char *key;
    double neutral;
} maths[] = {
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"query_pre_attn_scalar", 0},
    {"embedding_multiplier", 1},
    {"attention_multiplier", 0},
    {"residual_multiplier", 1},
    {"logits_scaling", 1},
    {"logit_scale", 1},
    {"partial_rotary_factor", 1},
    {"num_experts", 0},
    {"num_local_experts", 0},
    {"n_routed_experts", 0},
    {"kv_lora_rank", 0},
    {"quantization_config", 0},
    {"add_cross_attention", 0},
    {"is_encoder_decoder", 0},
    {"mlp_bias", 0},
    {"scale_attn_by_inverse_layer_idx", 0},
    {"num_nextn_predict_layers", 0},
    {"no_rope_layers", 0},
    {"alibi", 0},
    {"clip_qkv", 0},
    {"use_qk_norm", 0},
    {"parallel_attn", 0},
};

static bool in_use(const json_t *value, double neutral) {
    if (!value || json_is_null(value) || json_is_false(value)) return false;
    if (json_is_number(value))
        return json_number_value(value) != neutral && json_number_value(value) != 0;
    return true;
}

static void refuse_other_maths(struct reader *r, enum variant variant) {
    for (size_t i = 0; i < sizeof maths / sizeof maths[0]; i++)
        if (in_use(json_object_get(r->root, maths[i].key), maths[i].neutral))
            refuse(r, HL_E_UNSUPPORTED, maths[i].key, "Halley does not compute this");
    if ((variant == LLAMA || variant == QWEN3) && get_bool(r, "attention_bias", false))
        refuse(r, HL_E_UNSUPPORTED, "attention_bias",
               "biases on the output projection are not computed by Halley");
    if (!get_bool(r, "scale_attn_weights", true))
        refuse(r, HL_E_UNSUPPORTED, "scale_attn_weights",
               "attention without 1/sqrt(head size) is not computed by Halley");
}

/* A window counts only where it is switched on: Qwen's files carry a width with use_sliding_window
 * false. */
static void refuse_windows(struct reader *r, enum variant variant) {
    const json_t *types = present(r, r->root, "layer_types");
    size_t i;
    const json_t *type;
    bool listed = json_is_array(types);
    if (listed) json_array_foreach((json_t *)types, i, type) {
            const char *name = json_string_value(type);
            if (!name || strcmp(name, "full_attention") != 0) {
                refuse(r, HL_E_UNSUPPORTED, "layer_types",
                       "only full_attention layers are computed by Halley");
                return;
            }
        }
    bool switched =
        variant == QWEN2 || variant == QWEN3 ? get_bool(r, "use_sliding_window", false) : true;
    if (switched && !listed && in_use(json_object_get(r->root, "sliding_window"), 0))
        refuse(r, HL_E_UNSUPPORTED, "sliding_window",
               "attention windows are not computed by Halley");
}

static void check_activation(struct reader *r, const char *key, const char *absent,
                             const char *const *allowed) {
    const char *name = get_string(r, r->root, key, absent);
    for (; *allowed; allowed++)
        if (!strcmp(name, *allowed)) return;
    if (!r->status)
        r->status = hl_fail_at(
            r->diag, HL_E_UNSUPPORTED, r->file, line_of(r, key), 0,
            "%s '%.40s' is not computed by Halley; gpt2 has gelu_new, the llama family silu", key,
            name);
}

/* ---- rotary positions: rope_theta + rope_scaling (classic), rope_parameters (transformers 5) ----
 */

struct rope {
    double theta; /* 0: not given */
    struct hl_rope_scaling scaling;
};

static void read_rope(struct reader *r, const char *key, struct rope *out) {
    const json_t *object = present(r, r->root, key);
    if (!object) return;
    if (!json_is_object(object)) {
        refuse(r, HL_E_FORMAT, key, "an object is expected");
        return;
    }
    const char *kind = get_string(r, object, "rope_type", get_string(r, object, "type", "default"));
    out->theta = get_f64(r, object, "rope_theta", out->theta);
    if (in_use(json_object_get(object, "partial_rotary_factor"), 1))
        refuse(r, HL_E_UNSUPPORTED, "partial_rotary_factor", "Halley turns whole heads only");
    struct hl_rope_scaling *s = &out->scaling;
    if (!strcmp(kind, "default")) return;
    s->factor = get_f64(r, object, "factor", 0);
    if (!(s->factor >= 1))
        refuse(r, HL_E_FORMAT, "factor", "the rope's factor must be a number of at least 1");
    if (!strcmp(kind, "linear")) {
        s->kind = HL_ROPE_LINEAR;
    } else if (!strcmp(kind, "llama3")) {
        s->kind = HL_ROPE_LLAMA3;
        s->low_freq_factor = get_f64(r, object, "low_freq_factor", 0);
        s->high_freq_factor = get_f64(r, object, "high_freq_factor", 0);
        s->original_max_position_embeddings =
            get_i64(r, object, "original_max_position_embeddings", 0);
        if (!(s->low_freq_factor > 0) || !(s->high_freq_factor > s->low_freq_factor) ||
            s->original_max_position_embeddings < 1)
            refuse(r, HL_E_FORMAT, key,
                   "llama3 needs low_freq_factor, a larger high_freq_factor and "
                   "original_max_position_embeddings");
    } else if (!r->status) {
        r->status =
            hl_fail_at(r->diag, HL_E_UNSUPPORTED, r->file, line_of(r, key), 0,
                       "%s: type '%.40s' is not computed by Halley; default, linear and llama3 are",
                       key, kind);
    }
}

static bool same_scaling(const struct hl_rope_scaling *a, const struct hl_rope_scaling *b) {
    return a->kind == b->kind && a->factor == b->factor &&
           a->low_freq_factor == b->low_freq_factor && a->high_freq_factor == b->high_freq_factor &&
           a->original_max_position_embeddings == b->original_max_position_embeddings;
}

/* A file may carry both spellings; they must agree, otherwise nobody knows which the weights were
 * trained with. */
static void read_rotary(struct reader *r, struct hl_model_config *out) {
    struct rope classic = {.theta = get_f64(r, r->root, "rope_theta", 0)}, modern = {0};
    read_rope(r, "rope_scaling", &classic);
    read_rope(r, "rope_parameters", &modern);
    bool has_modern = present(r, r->root, "rope_parameters") != NULL;
    if (has_modern && classic.theta != 0 && modern.theta != 0 && classic.theta != modern.theta)
        refuse(r, HL_E_FORMAT, "rope_theta",
               "differs from rope_parameters.rope_theta; keep the one that is right");
    if (has_modern && present(r, r->root, "rope_scaling") &&
        !same_scaling(&classic.scaling, &modern.scaling))
        refuse(r, HL_E_FORMAT, "rope_scaling",
               "differs from rope_parameters; keep the one that is right");
    out->rope_scaling = has_modern ? modern.scaling : classic.scaling;
    out->rope_theta = modern.theta != 0 ? modern.theta : classic.theta != 0 ? classic.theta : 10000;
}

/* ---- families ---- */

static void read_gpt2(struct reader *r, struct hl_model_config *out) {
    static const char *const activations[] = {"gelu_new", "gelu_pytorch_tanh", NULL};
    out->family = HL_FAMILY_GPT2;
    out->hidden_size = want_i64(r, "n_embd");
    out->num_hidden_layers = want_i64(r, "n_layer");
    out->num_attention_heads = out->num_key_value_heads = want_i64(r, "n_head");
    out->intermediate_size = get_i64(r, r->root, "n_inner", 4 * out->hidden_size);
    out->max_position_embeddings = get_i64(r, r->root, "n_positions", 1024);
    out->norm_epsilon = get_f64(r, r->root, "layer_norm_epsilon", 1e-5);
    out->qkv_bias = true;
    out->rope_theta = 10000;
    check_activation(r, "activation_function", "gelu_new", activations);
}

static void read_llama(struct reader *r, enum variant variant, struct hl_model_config *out) {
    static const char *const activations[] = {"silu", "swish", NULL};
    out->family = HL_FAMILY_LLAMA;
    out->hidden_size = want_i64(r, "hidden_size");
    out->num_hidden_layers = want_i64(r, "num_hidden_layers");
    out->num_attention_heads = want_i64(r, "num_attention_heads");
    out->num_key_value_heads = get_i64(r, r->root, "num_key_value_heads", out->num_attention_heads);
    out->head_dim = get_i64(r, r->root, "head_dim", variant == QWEN3 ? 128 : 0);
    out->intermediate_size = want_i64(r, "intermediate_size");
    out->max_position_embeddings =
        get_i64(r, r->root, "max_position_embeddings", variant == LLAMA ? 2048 : 32768);
    out->norm_epsilon = get_f64(r, r->root, "rms_norm_eps", 1e-6);
    out->qkv_bias = variant == QWEN2;
    out->qk_norm = variant == QWEN3;
    check_activation(r, "hidden_act", "silu", activations);
    read_rotary(r, out);
}

/* ---- what is only worth a line in the log ---- */

static const char *const quiet[] = {
    "model_type",
    "architectures",
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "max_position_embeddings",
    "rms_norm_eps",
    "hidden_act",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "tie_word_embeddings",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "initializer_range",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "use_cache",
    "attention_bias",
    "pretraining_tp",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "layer_types",
    "n_embd",
    "n_layer",
    "n_head",
    "n_inner",
    "n_positions",
    "n_ctx",
    "layer_norm_epsilon",
    "activation_function",
    "scale_attn_weights",
    "reorder_and_upcast_attn",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "_name_or_path",
    "name_or_path",
    "unk_token_id",
    "sep_token_id",
    "cls_token_id",
    "decoder_start_token_id",
    "is_decoder",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "id2label",
    "label2id",
    "gradient_checkpointing",
    "auto_map",
    "_attn_implementation",
    "attn_implementation",
    "chunk_size_feed_forward",
    "is_llama_config",
    "rope_interleaved",
    "transformers.js_config",
    "model_max_length",
    "finetuning_task",
    "problem_type",
};

static bool is_quiet(const char *key) {
    for (size_t i = 0; i < sizeof quiet / sizeof quiet[0]; i++)
        if (!strcmp(quiet[i], key)) return true;
    for (size_t i = 0; i < sizeof maths / sizeof maths[0]; i++)
        if (!strcmp(maths[i].key, key)) return true;
    return false;
}

static void log_the_rest(const struct reader *r) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->root, key, value) {
        bool dropout = strstr(key, "dropout") || strstr(key, "pdrop");
        if (dropout && json_is_number(value) && json_number_value(value) > 0 &&
            strcmp(key, "summary_first_dropout") != 0)
            hl_log(r->log, HL_LOG_INFO, "%s: %s is left out: Halley trains without dropout",
                   r->file, key);
        else if (!dropout && !is_quiet(key))
            hl_log(r->log, HL_LOG_INFO, "%s: key '%.60s' is not known and left out", r->file, key);
    }
}

static enum variant read_variant(struct reader *r) {
    const char *type = get_string(r, r->root, "model_type", NULL);
    if (!type) {
        refuse(r, HL_E_FORMAT, "model_type",
               "missing; this does not look like a Hugging Face config.json");
        return GPT2;
    }
    for (int v = 0; v < N_VARIANTS; v++)
        if (!strcmp(variant_names[v], type)) return (enum variant)v;
    if (!r->status)
        r->status = hl_fail_at(
            r->diag, HL_E_UNSUPPORTED, r->file, line_of(r, "model_type"), 0,
            "model_type '%.40s' is not computed by Halley; gpt2, llama, qwen2 and qwen3 are", type);
    return GPT2;
}

static void read_root(struct reader *r, struct hl_model_config *out) {
    enum variant variant = read_variant(r);
    if (r->status) return;
    out->vocab_size = want_i64(r, "vocab_size");
    out->tie_word_embeddings = get_bool(r, "tie_word_embeddings", variant == GPT2);
    out->initializer_range = get_f64(r, r->root, "initializer_range", 0.02);
    out->bos_token_id = get_token(r, "bos_token_id");
    out->eos_token_id = get_token(r, "eos_token_id");
    if (variant == GPT2) read_gpt2(r, out);
    else read_llama(r, variant, out);
    int64_t H = out->num_attention_heads;
    if (!out->head_dim && H > 0 && out->hidden_size % H == 0) out->head_dim = out->hidden_size / H;
    refuse_other_maths(r, variant);
    refuse_windows(r, variant);
    if (!r->status && r->log) log_the_rest(r);
}

enum hl_status hl_config_json_read(const char *text, const char *file, struct hl_model_config *out,
                                   struct hl_log *log, struct hl_diag *diag) {
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return hl_fail_at(diag, HL_E_FORMAT, file, error.line, error.column, "%s", error.text);
    struct reader r = {.root = root, .text = text, .file = file, .log = log, .diag = diag};
    struct hl_model_config config = {0};
    if (!json_is_object(root))
        r.status = hl_fail_at(diag, HL_E_FORMAT, file, 1, 0, "a JSON object is expected");
    else read_root(&r, &config);
    json_decref(root);
    if (!r.status) *out = config;
    return r.status;
}

enum hl_status hl_model_config_from_json(struct hl_mem *mem, const char *text, const char *file,
                                         struct hl_model_config *out, struct hl_diag *diag) {
    (void)mem; /* the JSON library has an allocator of its own */
    return hl_config_json_read(text, file, out, NULL, diag);
}
