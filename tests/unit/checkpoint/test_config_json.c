/* config.json both ways: the five model types' spellings, refusals by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/config_json.h"
#include "support/checkpoint_fixture.h"

static void test_both_ways(void **state) {
    (void)state;
    static const char *const kinds[] = {"gpt2",         "llama", "llama-tied",
                                        "llama-scaled", "qwen2", "qwen3-tied"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] + 1; i++) {
        struct hl_model_config config = fixture_config(kinds[i % 6]), back;
        if (i == 6)
            config.rope_scaling = (struct hl_rope_scaling){.kind = HL_ROPE_LINEAR, .factor = 2.5};
        if (i == 6)
            config.family = HL_FAMILY_LLAMA, config.qkv_bias = false, config.bos_token_id = -1;
        struct hl_model *model;
        struct hl_diag diag = {0};
        if (hl_model_new(hl_mem_default(), &config, &model, &diag)) fail_msg("%s", diag.text);
        struct hl_buf text = {.mem = hl_mem_default()};
        hl_model_config_to_json(&model->config, &text);
        if (hl_model_config_from_json(hl_mem_default(), text.data, "config.json", &back, &diag))
            fail_msg("%s", diag.text);
        assert_memory_equal(&back, &model->config, sizeof back);
        hl_buf_free(&text);
        hl_model_free(model);
    }
}

static enum hl_status read(const char *text, struct hl_model_config *out, struct hl_diag *diag) {
    *diag = (struct hl_diag){0};
    return hl_model_config_from_json(hl_mem_default(), text, "x/config.json", out, diag);
}

#define SIZES                                                                                      \
    "\"vocab_size\": 8, \"hidden_size\": 8, \"num_hidden_layers\": 1,\n \"num_attention_heads\": " \
    "2, \"intermediate_size\": 8"
#define LLAMA "{\"model_type\": \"llama\",\n" SIZES
#define QWEN "{\"model_type\": \"qwen2\",\n" SIZES
#define GPT2                                                                                       \
    "{\"model_type\": \"gpt2\",\n \"vocab_size\": 8, \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2"

static void test_refused(void **state) {
    (void)state;
    static const struct {
        enum hl_status status;
        const char *text, *part;
    } cases[] = {
        {HL_E_FORMAT, "", "x/config.json:1"},
        {HL_E_FORMAT, "[]", "object"},
        {HL_E_FORMAT, "{\"a\": 1, \"a\": 2}", "duplicate"},
        {HL_E_FORMAT, "{}", "model_type"},
        {HL_E_UNSUPPORTED, "{\n\"model_type\": \"mamba\"}", "x/config.json:2: model_type 'mamba'"},
        {HL_E_FORMAT, "{\"model_type\": \"gpt2\"}", "vocab_size: missing"},
        {HL_E_FORMAT, LLAMA ", \"head_dim\": \"four\"}", "head_dim"},
        {HL_E_FORMAT, LLAMA ", \"head_dim\": 4.5}", "head_dim: a whole number"},
        {HL_E_FORMAT, LLAMA ", \"rms_norm_eps\": \"1\"}", "rms_norm_eps: a number"},
        {HL_E_FORMAT, LLAMA ", \"tie_word_embeddings\": 1}", "tie_word_embeddings: true or false"},
        {HL_E_UNSUPPORTED, LLAMA ",\n\"hidden_act\": \"gelu\"}",
         "x/config.json:4: hidden_act 'gelu'"},
        {HL_E_UNSUPPORTED, LLAMA ", \"mlp_bias\": true}", "mlp_bias"},
        {HL_E_UNSUPPORTED, LLAMA ", \"attention_bias\": true}", "attention_bias"},
        {HL_E_UNSUPPORTED, LLAMA ", \"sliding_window\": 64}", "sliding_window"},
        {HL_E_UNSUPPORTED, LLAMA ", \"attn_logit_softcapping\": 50.0}", "attn_logit_softcapping"},
        {HL_E_UNSUPPORTED, LLAMA ", \"num_local_experts\": 8}", "num_local_experts"},
        {HL_E_UNSUPPORTED, LLAMA ", \"quantization_config\": {\"bits\": 4}}",
         "quantization_config"},
        {HL_E_UNSUPPORTED, LLAMA ", \"partial_rotary_factor\": 0.5}", "partial_rotary_factor"},
        {HL_E_UNSUPPORTED, LLAMA ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}}",
         "rope_scaling: type 'yarn'"},
        {HL_E_UNSUPPORTED,
         LLAMA ", \"rope_parameters\": {\"rope_type\": \"dynamic\", \"factor\": 4}}",
         "type 'dynamic'"},
        {HL_E_FORMAT, LLAMA ", \"rope_scaling\": {\"type\": \"linear\"}}", "factor"},
        {HL_E_FORMAT, LLAMA ", \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8}}",
         "low_freq_factor"},
        {HL_E_FORMAT, LLAMA ", \"rope_scaling\": 3}", "rope_scaling"},
        {HL_E_FORMAT,
         LLAMA ", \"rope_theta\": 5, \"rope_parameters\": {\"rope_theta\": 6, \"rope_type\": "
               "\"default\"}}",
         "rope_theta: differs"},
        {HL_E_FORMAT,
         LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"rope_parameters\": "
               "{\"rope_theta\": 6}}",
         "rope_scaling: differs"},
        {HL_E_UNSUPPORTED, QWEN ", \"use_sliding_window\": true, \"sliding_window\": 64}",
         "sliding_window"},
        {HL_E_UNSUPPORTED, QWEN ", \"layer_types\": [\"sliding_attention\"]}", "layer_types"},
        {HL_E_UNSUPPORTED, GPT2 ", \"activation_function\": \"relu\"}",
         "activation_function 'relu'"},
        {HL_E_UNSUPPORTED, GPT2 ", \"scale_attn_by_inverse_layer_idx\": true}",
         "scale_attn_by_inverse_layer_idx"},
        {HL_E_UNSUPPORTED, GPT2 ", \"scale_attn_weights\": false}", "scale_attn_weights"},
        {HL_E_UNSUPPORTED, GPT2 ", \"add_cross_attention\": true}", "add_cross_attention"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hl_model_config config;
        struct hl_diag diag;
        enum hl_status status = read(cases[i].text, &config, &diag);
        if (status != cases[i].status || !strstr(diag.text, cases[i].part))
            fail_msg("%s: %s: '%s' lacks '%s'", cases[i].text, hl_status_name(status), diag.text,
                     cases[i].part);
    }
}

static void test_accepted(void **state) {
    (void)state;
    struct hl_model_config a, b;
    struct hl_diag diag;
    if (read(LLAMA ", \"rope_theta\": 500000, \"rope_scaling\": {\"rope_type\": \"llama3\", "
                   "\"factor\": 8.0, \"low_freq_factor\": 1, "
                   "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 64}, "
                   "\"eos_token_id\": [5, 6], \"bos_token_id\": null}",
             &a, &diag))
        fail_msg("%s", diag.text);
    if (read(LLAMA ", \"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": \"llama3\", "
                   "\"factor\": 8, \"low_freq_factor\": 1.0, "
                   "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64}, "
                   "\"eos_token_id\": 5}",
             &b, &diag))
        fail_msg("%s", diag.text);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(a.eos_token_id, 5);
    assert_int_equal(a.bos_token_id, -1);
    assert_int_equal(a.rope_scaling.kind, HL_ROPE_LLAMA3);
    if (read(QWEN ", \"use_sliding_window\": false, \"sliding_window\": 131072, "
                  "\"max_window_layers\": 21, \"attention_bias\": true, \"dtype\": \"bfloat16\"}",
             &a, &diag))
        fail_msg("%s", diag.text);
    assert_true(a.qkv_bias && !a.tie_word_embeddings && a.norm_epsilon == 1e-6 &&
                a.rope_theta == 10000);
    if (read(GPT2 ", \"attn_pdrop\": 0.1, \"activation_function\": \"gelu_pytorch_tanh\", "
                  "\"n_inner\": null, \"new_key\": 1}",
             &a, &diag))
        fail_msg("%s", diag.text);
    assert_true(a.tie_word_embeddings && a.max_position_embeddings == 1024 &&
                a.norm_epsilon == 1e-5);
}

struct lines {
    struct hl_log log;
    char text[1000];
};

static void keep(struct hl_log *log, enum hl_log_level level, const char *text) {
    (void)level;
    strcat(((struct lines *)log->context)->text, text);
}

static void test_log(void **state) {
    (void)state;
    struct lines lines = {.log = {.line = keep}};
    lines.log.context = &lines;
    struct hl_model_config config;
    assert_int_equal(
        hl_config_json_read(GPT2 ", \"attn_pdrop\": 0.1, \"resid_pdrop\": 0.0, \"new_key\": 1}",
                            "config.json", &config, &lines.log, NULL),
        HL_OK);
    assert_non_null(strstr(lines.text, "attn_pdrop is left out"));
    assert_non_null(strstr(lines.text, "'new_key'"));
    assert_null(strstr(lines.text, "resid_pdrop"));
    assert_null(strstr(lines.text, "n_embd"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
