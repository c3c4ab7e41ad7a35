/* See checkpoint_fixture.h. */
#include "support/checkpoint_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct hl_model_config fixture_config(const char *kind) {
    struct hl_model_config c = {.vocab_size = 70,
                                .hidden_size = 24,
                                .num_hidden_layers = 2,
                                .num_attention_heads = 3,
                                .intermediate_size = 40,
                                .max_position_embeddings = 16,
                                .norm_epsilon = 1e-5,
                                .rope_theta = 10000,
                                .initializer_range = 0.02,
                                .bos_token_id = 1,
                                .eos_token_id = 2};
    c.family = strcmp(kind, "gpt2") != 0 ? HL_FAMILY_LLAMA : HL_FAMILY_GPT2;
    c.tie_word_embeddings = c.family == HL_FAMILY_GPT2 || strstr(kind, "tied");
    if (strstr(kind, "qwen2")) c.qkv_bias = true;
    if (strstr(kind, "qwen3")) c.qk_norm = true, c.head_dim = 10;
    if (c.family == HL_FAMILY_LLAMA) c.num_key_value_heads = 1;
    if (strstr(kind, "scaled"))
        c.rope_scaling = (struct hl_rope_scaling){HL_ROPE_LLAMA3, 8, 1, 4, 8};
    return c;
}

void fixture_set_up(struct fixture *f, const char *kind, uint64_t seed) {
    struct hl_model_config config = fixture_config(kind);
    struct hl_diag diag = {0};
    if (hl_model_new(hl_mem_default(), &config, &f->model, &diag)) fail_msg("%s", diag.text);
    int64_t n = f->model->layout.n_parameters;
    f->params = hl_alloc(hl_mem_default(), (size_t)n, sizeof *f->params);
    f->m = hl_alloc(hl_mem_default(), (size_t)n, sizeof *f->m);
    assert_true(f->params && f->m);
    hl_model_init(f->model, seed, f->params);
    for (int t = 0; t < f->model->layout.n_tensors;
         t++) { /* biases and norms too get values of their own */
        const struct hl_tensor *tensor = &f->model->layout.tensors[t];
        for (int64_t i = 0; i < tensor->rows * tensor->cols; i++)
            f->params[tensor->offset + i] += (float)(t * 1000 + i % 997) * 1e-3f;
    }
    for (int64_t i = 0; i < n; i++) f->m[i] = (float)i * 0.5f;
    f->arrays[0] = (struct hl_saved_array){"adamw.m", f->m, n};
    f->arrays[1] = (struct hl_saved_array){"odd \"name\"", f->m, 3};
    f->checkpoint = (struct hl_checkpoint){.step = 100,
                                           .model = f->model,
                                           .params = f->params,
                                           .arrays = f->arrays,
                                           .n_arrays = 2,
                                           .loop_json = "{\"step\": 100}",
                                           .run_yaml = "max_steps: 5\n",
                                           .made_with_json = "{\"threads\": 2}"};
}

void fixture_tear_down(struct fixture *f) {
    hl_model_free(f->model);
    hl_free(hl_mem_default(), f->params);
    hl_free(hl_mem_default(), f->m);
}

void fixture_check(const struct fixture *f, struct hl_fs *fs, const char *path) {
    struct hl_checkpoint_reader *reader = NULL;
    struct hl_diag diag = {0};
    if (hl_checkpoint_open(hl_mem_default(), fs, path, &reader, NULL, &diag))
        fail_msg("%s", diag.text);
    struct hl_model *model = NULL;
    if (hl_model_new(hl_mem_default(), hl_checkpoint_config(reader), &model, &diag))
        fail_msg("%s", diag.text);
    assert_memory_equal(&model->config, &f->model->config, sizeof model->config);
    size_t n = (size_t)model->layout.n_parameters;
    assert_int_equal(n, f->model->layout.n_parameters);
    float *params = hl_alloc(hl_mem_default(), n, sizeof *params);
    memset(params, 0x55, n * sizeof *params);
    if (hl_checkpoint_read_params(reader, model, params, &diag)) fail_msg("%s", diag.text);
    assert_memory_equal(params, f->params, n * sizeof *params);
    assert_true(hl_checkpoint_has_state(reader));
    assert_string_equal(hl_checkpoint_loop_json(reader), f->checkpoint.loop_json);
    assert_string_equal(hl_checkpoint_run_yaml(reader), f->checkpoint.run_yaml);
    assert_string_equal(hl_checkpoint_made_with_json(reader), "{\"threads\": 2}");
    for (int i = 0; i < f->checkpoint.n_arrays; i++) {
        struct hl_saved_array array = {f->arrays[i].name, params, f->arrays[i].n};
        if (hl_checkpoint_read_array(reader, &array, &diag)) fail_msg("%s", diag.text);
        assert_memory_equal(params, f->arrays[i].data, (size_t)array.n * sizeof *params);
    }
    struct hl_saved_array wrong = {"adamw.m", params, 2}, none = {"adamw.x", params, 2};
    assert_int_equal(hl_checkpoint_read_array(reader, &wrong, &diag), HL_E_FORMAT);
    assert_int_equal(hl_checkpoint_read_array(reader, &none, &diag), HL_E_FORMAT);
    hl_free(hl_mem_default(), params);
    hl_model_free(model);
    hl_checkpoint_close(reader);
}
