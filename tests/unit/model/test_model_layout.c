/* The tensor table, the presets and the initial weights. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "halley/model.h"
#include "halley/rng.h"

static struct hl_model *make(const struct hl_model_config *config) {
    struct hl_model *model = NULL;
    struct hl_diag diag = {0};
    if (hl_model_new(hl_mem_default(), config, &model, &diag)) fail_msg("%s", diag.text);
    return model;
}

static struct hl_model_config preset(const char *name) {
    struct hl_model_config config;
    struct hl_diag diag = {0};
    if (hl_model_preset(name, &config, &diag)) fail_msg("%s", diag.text);
    return config;
}

static void check_layout(const struct hl_model *model) {
    const struct hl_layout *layout = &model->layout;
    int64_t at = 0, weights = 0;
    int t = 0;
    for (int b = 0; b < layout->n_blocks; b++) {
        assert_int_equal(layout->blocks[b].offset, at);
        for (; t < layout->n_tensors && layout->tensors[t].block == b; t++) {
            const struct hl_tensor *tensor = &layout->tensors[t];
            assert_int_equal(tensor->offset, at);
            assert_true(tensor->n >= tensor->padded_rows * tensor->cols);
            assert_true(tensor->n < tensor->padded_rows * tensor->cols + 16);
            assert_true(tensor->padded_rows >= tensor->rows);
            assert_ptr_equal(hl_model_tensor(model, tensor->name), tensor);
            at += tensor->n;
            weights += tensor->rows * tensor->cols;
        }
        assert_int_equal(layout->blocks[b].offset + layout->blocks[b].n, at);
        assert_int_equal(at % 16, 0);
    }
    assert_int_equal(t, layout->n_tensors);
    assert_int_equal(layout->n_parameters, at);
    assert_int_equal(layout->n_weights, weights);
    assert_null(hl_model_tensor(model, "no.such.weight"));
}

/* Counts as their publishers and transformers' num_parameters() give them. */
static void test_presets(void **state) {
    (void)state;
    const struct {
        const char *name;
        int64_t n_weights;
    } known[] = {
        {"gpt2-124m", 124439808},    {"gpt2-355m", 354823168},       {"gpt2-774m", 774030080},
        {"gpt2-1.5b", 1557611200},   {"stories260k", 260032},        {"smollm2-135m", 134515008},
        {"smollm2-360m", 361821120}, {"tinyllama-1.1b", 1100048384}, {"llama3.2-1b", 1235814400},
        {"qwen2-0.5b", 494032768},   {"qwen2-1.5b", 1543714304},     {"qwen3-0.6b", 596049920},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct hl_model_config config = preset(known[i].name);
        struct hl_model *model = make(&config);
        if (model->layout.n_weights != known[i].n_weights)
            fail_msg("%s: %lld weights", known[i].name, (long long)model->layout.n_weights);
        hl_model_free(model);
    }
    int n = 0;
    for (const struct hl_model_preset_row *row = hl_model_presets(); row->name; row++, n++) {
        struct hl_model_config config = preset(row->name);
        struct hl_model *model = make(&config);
        check_layout(model);
        for (int t = 0; t < model->layout.n_tensors; t++)
            assert_int_equal(model->layout.tensors[t].offset % 16, 0);
        hl_model_free(model);
    }
    assert_true(n > 10);
    struct hl_model_config config;
    struct hl_diag diag = {0};
    assert_int_equal(hl_model_preset("gpt2-125m", &config, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "gpt2-124m"));
    assert_int_equal(hl_model_preset("", &config, &diag), HL_E_USER);
    char longer[500];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(hl_model_preset(longer, &config, &diag), HL_E_USER);
}

/* One matrix product must be able to cover q, k and v, and one gate and up, even for sizes that no
 * alignment divides. */
static void test_glued(void **state) {
    (void)state;
    struct hl_model_config config = {.family = HL_FAMILY_LLAMA,
                                     .vocab_size = 65,
                                     .hidden_size = 15,
                                     .num_hidden_layers = 2,
                                     .num_attention_heads = 3,
                                     .num_key_value_heads = 1,
                                     .head_dim = 6,
                                     .intermediate_size = 7,
                                     .max_position_embeddings = 9,
                                     .qkv_bias = true};
    struct hl_model *model = make(&config);
    check_layout(model);
    assert_int_equal(model->padded_vocab, 128);
    const char *const glued[][2] = {{"self_attn.q_proj.weight", "self_attn.k_proj.weight"},
                                    {"self_attn.k_proj.weight", "self_attn.v_proj.weight"},
                                    {"self_attn.q_proj.bias", "self_attn.k_proj.bias"},
                                    {"self_attn.k_proj.bias", "self_attn.v_proj.bias"},
                                    {"mlp.gate_proj.weight", "mlp.up_proj.weight"}};
    for (size_t i = 0; i < sizeof glued / sizeof glued[0]; i++) {
        char first[96] = "model.layers.1.", second[96] = "model.layers.1.";
        strcat(first, glued[i][0]);
        strcat(second, glued[i][1]);
        const struct hl_tensor *a = hl_model_tensor(model, first),
                               *b = hl_model_tensor(model, second);
        assert_non_null(a);
        assert_non_null(b);
        assert_int_equal(a->offset + a->rows * a->cols, b->offset);
        assert_int_equal(a->cols, b->cols == a->cols ? b->cols : a->cols);
    }
    const struct hl_tensor *head = hl_model_tensor(model, "lm_head.weight");
    assert_non_null(head);
    assert_int_equal(head->rows, 65);
    assert_int_equal(head->padded_rows, 128);
    assert_false(hl_model_tensor(model, "model.embed_tokens.weight")->used_twice);
    hl_model_free(model);
}

static void test_gpt2_table(void **state) {
    (void)state;
    struct hl_model_config config = preset("gpt2-124m");
    struct hl_model *model = make(&config);
    assert_int_equal(model->padded_vocab, 50304);
    assert_int_equal(model->layout.n_blocks, 14);
    assert_int_equal(model->layout.n_tensors, 148);
    const struct hl_tensor *qkv = hl_model_tensor(model, "transformer.h.11.attn.c_attn.weight");
    assert_int_equal(qkv->rows, 2304);
    assert_int_equal(qkv->cols, 768);
    assert_true(qkv->file_transposed && qkv->decay && qkv->n_dims == 2);
    assert_int_equal(hl_model_tensor(model, "transformer.h.0.mlp.c_proj.weight")->init,
                     HL_INIT_NORMAL_RESIDUAL);
    const struct hl_tensor *bias = hl_model_tensor(model, "transformer.ln_f.bias");
    assert_true(!bias->decay && bias->n_dims == 1 && bias->block == 13);
    assert_true(hl_model_tensor(model, "transformer.wte.weight")->used_twice);
    assert_null(hl_model_tensor(model, "lm_head.weight"));
    /* 6 (12 layers x 12 C^2 + V C) + 6 L C (T + 1) */
    double want = 6.0 * (12 * 12 * 768.0 * 768 + 50257.0 * 768) + 6.0 * 12 * 768 * 257;
    assert_true(fabs(hl_model_flops_per_token(model, 256) - want) < 1);
    hl_model_free(model);
}

static void refused(struct hl_model_config config, const char *part) {
    struct hl_model *model = NULL;
    struct hl_diag diag = {0};
    assert_int_equal(hl_model_new(hl_mem_default(), &config, &model, &diag), HL_E_USER);
    assert_null(model);
    if (!strstr(diag.text, part)) fail_msg("'%s' lacks '%s'", diag.text, part);
}

static void test_refusals(void **state) {
    (void)state;
    struct hl_model_config good = preset("llama-tiny"), c = good;
#define REFUSED(field, value, part) (c = good, c.field = value, refused(c, part))
    REFUSED(vocab_size, 0, "vocab_size is missing");
    REFUSED(vocab_size, -5, "vocab_size is -5");
    REFUSED(hidden_size, INT64_MAX, "hidden_size is");
    REFUSED(num_hidden_layers, 0, "num_hidden_layers is missing");
    REFUSED(num_hidden_layers, 1 << 20, "num_hidden_layers");
    REFUSED(num_attention_heads, -1, "num_attention_heads");
    REFUSED(num_key_value_heads, 3, "not a multiple of num_key_value_heads 3");
    REFUSED(intermediate_size, 0, "intermediate_size is missing");
    REFUSED(max_position_embeddings, 0, "max_position_embeddings");
    REFUSED(head_dim, 33, "head_dim 33 is odd");
    REFUSED(head_dim, -2, "head_dim");
    REFUSED(norm_epsilon, -1.0, "epsilon");
    REFUSED(norm_epsilon, (double)NAN, "epsilon");
    REFUSED(rope_theta, -1.0, "rope_theta");
    REFUSED(initializer_range, (double)NAN, "initializer_range");
    c = good, c.qkv_bias = c.qk_norm = true;
    refused(c, "qkv_bias (Qwen2) and qk_norm");
    c = good, c.head_dim = 0, c.num_attention_heads = 3, c.num_key_value_heads = 1;
    refused(c, "hidden_size 128 is not a multiple of num_attention_heads 3");
    c = good, c.hidden_size = c.intermediate_size = c.vocab_size = 1 << 28;
    refused(c, "2^44");
    good = preset("gpt2-tiny");
    REFUSED(num_key_value_heads, 2, "llama");
    REFUSED(head_dim, 16, "hidden_size");
    REFUSED(qk_norm, true, "qk_norm");
    c = good, c.hidden_size = 130;
    refused(c, "hidden_size");
}

static void test_completed(void **state) {
    (void)state;
    struct hl_model_config config = {.family = HL_FAMILY_GPT2,
                                     .vocab_size = 10,
                                     .hidden_size = 12,
                                     .num_hidden_layers = 1,
                                     .num_attention_heads = 3,
                                     .max_position_embeddings = 8};
    struct hl_model *model = make(&config);
    check_layout(model);
    assert_int_equal(model->config.head_dim, 4);
    assert_int_equal(model->config.num_key_value_heads, 3);
    assert_int_equal(model->config.intermediate_size, 48);
    assert_true(model->config.qkv_bias && model->config.initializer_range == 0.02);
    hl_model_free(model);
}

static void test_no_memory(void **state) {
    (void)state;
    struct hl_model_config config = preset("llama-tiny");
    for (long k = 1;; k++) {
        struct hl_mem_probe probe;
        hl_mem_probe_init(&probe, k);
        struct hl_model *model = NULL;
        struct hl_diag diag = {0};
        enum hl_status status = hl_model_new(&probe.mem, &config, &model, &diag);
        if (!status) {
            hl_model_free(model);
            assert_int_equal(probe.n_live, 0);
            assert_int_equal(k, 4);
            break;
        }
        assert_int_equal(status, HL_E_MEMORY);
        assert_int_equal(probe.n_live, 0);
    }
    hl_model_free(NULL);
}

static float *weights_of(const struct hl_model *model, uint64_t seed) {
    float *params = hl_alloc(hl_mem_default(), (size_t)model->layout.n_parameters, sizeof *params);
    assert_non_null(params);
    for (int64_t i = 0; i < model->layout.n_parameters; i++) params[i] = 77;
    hl_model_init(model, seed, params);
    return params;
}

static void check_moments(const float *x, int64_t n, double std) {
    double sum = 0, squares = 0, fourth = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        double z = (double)x[i] / std;
        sum += z;
        squares += z * z;
        fourth += z * z * z * z;
        if (fabs(z) > most) most = fabs(z);
    }
    double N = (double)n;
    assert_true(fabs(sum / N) < 5 / sqrt(N));
    assert_true(fabs(squares / N - 1) < 5 * sqrt(2 / N));
    assert_true(fabs(fourth / N - 3) < 5 * sqrt(96 / N));
    assert_true(most < 6.8);
}

static void test_init(void **state) {
    (void)state;
    struct hl_model_config config = preset("gpt2-tiny");
    config.vocab_size = 301;
    config.hidden_size = 132;
    config.intermediate_size = 0;
    config.head_dim = 0;
    struct hl_model *model = make(&config);
    float *params = weights_of(model, 5), *again = weights_of(model, 5),
          *other = weights_of(model, 6);
    assert_memory_equal(params, again, (size_t)model->layout.n_parameters * sizeof *params);
    for (int t = 0; t < model->layout.n_tensors; t++) {
        const struct hl_tensor *tensor = &model->layout.tensors[t];
        const float *x = params + tensor->offset;
        int64_t n = tensor->rows * tensor->cols;
        for (int64_t i = n; i < tensor->n; i++) assert_true(x[i] == 0);
        if (tensor->n_dims == 1) {
            for (int64_t i = 0; i < n; i++)
                assert_true(x[i] == (tensor->init == HL_INIT_ONE ? 1.0f : 0.0f));
            continue;
        }
        check_moments(x, n, tensor->init == HL_INIT_NORMAL ? 0.02 : 0.02 / sqrt(8));
        assert_memory_not_equal(x, other + tensor->offset, (size_t)n * sizeof *x);
    }
    hl_free(hl_mem_default(), params);
    hl_free(hl_mem_default(), again);
    hl_free(hl_mem_default(), other);
    hl_model_free(model);
}

/* The same draw in double precision with the C library's functions. */
static double exact_normal(uint64_t seed, uint32_t tensor, uint64_t element) {
    uint64_t call = element / 4;
    uint32_t counter[4] = {(uint32_t)call, (uint32_t)(call >> 32), HL_RNG_INIT, tensor + 1}, r[4];
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    hl_philox4x32(counter, key, r);
    uint32_t w = r[element % 4 / 2 * 2], angle = r[element % 4 / 2 * 2 + 1];
    double radius = sqrt(-2 * log((double)((float)(w >> 1) + 0.5f) * 0x1p-31));
    double turn = (double)angle * 0x1p-32 * 6.283185307179586476925;
    return radius * (element % 2 ? sin(turn) : cos(turn));
}

static void test_init_known(void **state) {
    (void)state;
    const uint64_t seed = 1234567890123;
    struct hl_model_config config = preset("llama-tiny");
    config.vocab_size = 70;
    struct hl_model *model = make(&config);
    float *params = weights_of(model, seed);
    const float bits[] = {0x1.253e58p-5f, -0x1.3c2bp-7f, -0x1.a23278p-6f,
                          0x1.699716p-11f}; /* kept: any machine draws these */
    assert_memory_equal(params, bits, sizeof bits);
    for (int t = 0; t < model->layout.n_tensors; t++) {
        const struct hl_tensor *tensor = &model->layout.tensors[t];
        if (tensor->n_dims == 1) continue;
        for (int64_t i = 0; i < tensor->rows * tensor->cols; i += 1 + i % 7) {
            double want = exact_normal(seed, (uint32_t)t, (uint64_t)i) * 0.02;
            assert_true(fabs((double)params[tensor->offset + i] - want) < 4e-8);
        }
    }
    hl_free(hl_mem_default(), params);
    hl_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets),    cmocka_unit_test(test_glued),
        cmocka_unit_test(test_gpt2_table), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_completed),  cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_init),       cmocka_unit_test(test_init_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
