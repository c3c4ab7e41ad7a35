/* Models by name: the published numbers of their configuration files, as one table. */
#include "halley/model.h"

#include <string.h>

#include "halley/option.h"

struct preset {
    struct hl_model_preset_row row; /* first: the public list is built from it */
    struct hl_model_config config;
};

/* GPT-2 as released: L layers, width C, H heads. Source: Radford et al. 2019, table 2. */
#define GPT2(L, C, H)                                                                              \
    {                                                                                              \
        .family = HL_FAMILY_GPT2, .vocab_size = 50257, .hidden_size = C, .num_hidden_layers = L,   \
        .num_attention_heads = H, .num_key_value_heads = H, .head_dim = C / H,                     \
        .intermediate_size = 4 * C, .max_position_embeddings = 1024, .norm_epsilon = 1e-5,         \
        .rope_theta = 10000, .tie_word_embeddings = true, .qkv_bias = true,                        \
        .initializer_range = 0.02, .bos_token_id = 50256, .eos_token_id = 50256                    \
    }
#define LLAMA(V, C, L, H, K, D, F, P, THETA, EPSILON, TIED, BOS, EOS, ...)                         \
    {                                                                                              \
        .family = HL_FAMILY_LLAMA, .vocab_size = V, .hidden_size = C, .num_hidden_layers = L,      \
        .num_attention_heads = H, .num_key_value_heads = K, .head_dim = D, .intermediate_size = F, \
        .max_position_embeddings = P, .norm_epsilon = EPSILON, .rope_theta = THETA,                \
        .tie_word_embeddings = TIED, .bos_token_id = BOS, .eos_token_id = EOS, __VA_ARGS__         \
    }
#define STD .initializer_range

#define LIST(PRESET)                                                                               \
    PRESET("gpt2-124m", "GPT-2 small: 12 layers, 768 wide", GPT2(12, 768, 12))                     \
    PRESET("gpt2-355m", "GPT-2 medium: 24 layers, 1024 wide", GPT2(24, 1024, 16))                  \
    PRESET("gpt2-774m", "GPT-2 large: 36 layers, 1280 wide", GPT2(36, 1280, 20))                   \
    PRESET("gpt2-1.5b", "GPT-2 XL: 48 layers, 1600 wide", GPT2(48, 1600, 25))                      \
    PRESET("gpt2-tiny", "GPT-2 family for trials: 4 layers, 128 wide", GPT2(4, 128, 4))            \
    PRESET("llama-tiny", "Llama family for trials: 4 layers, 128 wide",                            \
           LLAMA(4096, 128, 4, 4, 4, 32, 352, 1024, 10000, 1e-5, true, -1, -1, STD = 0.02))        \
    PRESET("llama-small", "Llama family: 12 layers, 768 wide, 3:1 grouped queries",                \
           LLAMA(32000, 768, 12, 12, 4, 64, 2048, 2048, 10000, 1e-5, true, 1, 2, STD = 0.02))      \
    PRESET("stories260k", "Llama family, 260 thousand weights, vocabulary 512",                    \
           LLAMA(512, 64, 5, 8, 4, 8, 172, 512, 10000, 1e-5, true, 1, 2, STD = 0.02))              \
    PRESET("smollm2-135m", "SmolLM2 135M",                                                         \
           LLAMA(49152, 576, 30, 9, 3, 64, 1536, 8192, 100000, 1e-5, true, 0, 0,                   \
                 STD = 0.041666666666666664))                                                      \
    PRESET("smollm2-360m", "SmolLM2 360M",                                                         \
           LLAMA(49152, 960, 32, 15, 5, 64, 2560, 8192, 100000, 1e-5, true, 0, 0, STD = 0.02))     \
    PRESET("tinyllama-1.1b", "TinyLlama 1.1B",                                                     \
           LLAMA(32000, 2048, 22, 32, 4, 64, 5632, 2048, 10000, 1e-5, false, 1, 2, STD = 0.02))    \
    PRESET("llama3.2-1b", "Llama 3.2 1B",                                                          \
           LLAMA(128256, 2048, 16, 32, 8, 64, 8192, 131072, 500000, 1e-5, true, 128000, 128001,    \
                 STD = 0.02, .rope_scaling = {HL_ROPE_LLAMA3, 32, 1, 4, 8192}))                    \
    PRESET("qwen2-0.5b", "Qwen2 0.5B (biases on q, k, v)",                                         \
           LLAMA(151936, 896, 24, 14, 2, 64, 4864, 131072, 1000000, 1e-6, true, 151643, 151643,    \
                 STD = 0.02, .qkv_bias = true))                                                    \
    PRESET("qwen2-1.5b", "Qwen2 1.5B (biases on q, k, v)",                                         \
           LLAMA(151936, 1536, 28, 12, 2, 128, 8960, 131072, 1000000, 1e-6, true, 151643, 151643,  \
                 STD = 0.02, .qkv_bias = true))                                                    \
    PRESET("qwen3-0.6b", "Qwen3 0.6B (norms on q and k)",                                          \
           LLAMA(151936, 1024, 28, 16, 8, 128, 3072, 40960, 1000000, 1e-6, true, 151643, 151645,   \
                 STD = 0.02, .qk_norm = true))

#define WHOLE(NAME, SUMMARY, ...) {{NAME, SUMMARY}, __VA_ARGS__},
#define ROW(NAME, SUMMARY, ...) {NAME, SUMMARY},
static const struct preset presets[] = {LIST(WHOLE)};
static const struct hl_model_preset_row rows[] = {LIST(ROW){NULL, NULL}};

enum { N_PRESETS = sizeof presets / sizeof presets[0] };

const struct hl_model_preset_row *hl_model_presets(void) { return rows; }

enum hl_status hl_model_preset(const char *name, struct hl_model_config *out,
                               struct hl_diag *diag) {
    const char *names[N_PRESETS];
    for (int i = 0; i < N_PRESETS; i++) {
        names[i] = presets[i].row.name;
        if (!strcmp(names[i], name)) return *out = presets[i].config, HL_OK;
    }
    const char *near = hl_nearest_word(name, names, N_PRESETS);
    return hl_fail(diag, HL_E_USER, "model: no preset or folder is called '%.64s'; %s%s%s", name,
                   near ? "did you mean '" : "'halley help models' lists the presets",
                   near ? near : "", near ? "'?" : "");
}
