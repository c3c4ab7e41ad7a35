/* From words to a model: families, presets, folders, and which sizes follow from which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "halley/train.h"

struct words {
    struct hl_model_options model;
    struct hl_config *config;
    struct hl_diag diag;
};

/* Space-separated flags. */
static void open_words(struct words *w, const char *text) {
    struct hl_option_set set = {NULL, hl_model_rows, hl_model_n_rows, &w->model};
    char copy[512], *args[32];
    const char *rest[32];
    int n = 0;
    size_t n_rest;
    memset(w, 0, sizeof *w);
    (void)snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) args[n++] = word;
    assert_int_equal(hl_config_new(hl_mem_default(), &set, 1, &w->config, &w->diag), HL_OK);
    if (hl_config_read_flags(w->config, n, args, rest, &n_rest, &w->diag) != HL_OK)
        fail_msg("%s", w->diag.text);
}

static enum hl_status resolve(struct words *w, const char *text, int64_t block_size,
                              struct hl_model_config *out) {
    open_words(w, text);
    enum hl_status status =
        hl_model_resolve(hl_mem_default(), &w->model, 300, block_size, out, &w->diag);
    hl_config_free(w->config);
    return status;
}

static struct hl_model_config resolved(const char *text, int64_t block_size) {
    struct words w;
    struct hl_model_config config = {0};
    if (resolve(&w, text, block_size, &config) != HL_OK) fail_msg("%s: %s", text, w.diag.text);
    struct hl_model *model; /* completes what is left to derive */
    if (hl_model_new(hl_mem_default(), &config, &model, &w.diag) != HL_OK)
        fail_msg("%s: %s", text, w.diag.text);
    config = model->config;
    hl_model_free(model);
    return config;
}

static void refused(const char *text, int64_t block_size, enum hl_status expected,
                    const char *word) {
    struct words w;
    struct hl_model_config config;
    assert_int_equal(resolve(&w, text, block_size, &config), expected);
    if (!strstr(w.diag.text, word)) fail_msg("'%s' does not hold '%s'", w.diag.text, word);
}

static void test_sizes(void **state) {
    (void)state;
    static const struct {
        const char *words;
        int64_t C, L, H, K, D, F, P;
    } cases[] = {
        {"--model gpt2", 768, 12, 12, 12, 64, 3072, 32},
        {"--model gpt2-355m", 1024, 24, 16, 16, 64, 4096, 1024},
        {"--model gpt2 --n_layer 4 --n_embd 128 --n_head 4", 128, 4, 4, 4, 32, 512, 32},
        {"--model gpt2 --n_embd 96", 96, 12, 12, 12, 8, 384, 32},
        {"--model gpt2 --n_inner 100", 768, 12, 12, 12, 64, 100, 32},
        {"--model llama", 128, 4, 4, 4, 32, 352, 32},
        {"--model llama --n_head 8", 128, 4, 8, 8, 16, 352,
         32}, /* as many key/value heads as before: all */
        {"--model llama --n_head 8 --num_key_value_heads 2", 128, 4, 8, 2, 16, 352, 32},
        {"--model llama --num_key_value_heads 1", 128, 4, 4, 1, 32, 352, 32},
        {"--model llama --hidden_size 192", 192, 4, 4, 4, 48, 512,
         32}, /* 8/3 of the width, a multiple of 64 */
        {"--model llama --hidden_size 100 --head_dim 10", 100, 4, 4, 4, 10, 320, 32},
        {"--model llama --head_dim 64", 128, 4, 4, 4, 64, 352, 32},
        {"--model llama-small --n_head 8", 768, 12, 8, 4, 96, 2048,
         2048}, /* grouped stays grouped where it divides */
        {"--model llama-small --n_head 6", 768, 12, 6, 6, 128, 2048, 2048},
        {"--model qwen3-0.6b --num_hidden_layers 2", 1024, 2, 16, 8, 128, 3072, 40960},
        {"--model qwen3-0.6b --hidden_size 512", 512, 28, 16, 8, 32, 1408, 40960},
        {"--model llama --max_position_embeddings 99", 128, 4, 4, 4, 32, 352, 99},
        {"--model gpt2-124m --max_position_embeddings 2048", 768, 12, 12, 12, 64, 3072, 2048},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hl_model_config c = resolved(cases[i].words, 32);
        const int64_t is[] = {
            c.hidden_size, c.num_hidden_layers, c.num_attention_heads,    c.num_key_value_heads,
            c.head_dim,    c.intermediate_size, c.max_position_embeddings};
        const int64_t should[] = {cases[i].C, cases[i].L, cases[i].H, cases[i].K,
                                  cases[i].D, cases[i].F, cases[i].P};
        for (int k = 0; k < 7; k++)
            if (is[k] != should[k])
                fail_msg("%s: size %d is %lld, not %lld", cases[i].words, k, (long long)is[k],
                         (long long)should[k]);
        assert_int_equal(c.vocab_size, 300); /* the tokenizer's, whatever the preset's was */
    }
}

static void test_numbers_and_flags(void **state) {
    (void)state;
    struct hl_model_config c = resolved("--model llama --rope_theta 500 --norm_epsilon 1e-3 "
                                        "--initializer_range 0.5 --vocab_size 777 "
                                        "--tie_word_embeddings false --qkv_bias true",
                                        8);
    assert_true(c.rope_theta == 500 && c.norm_epsilon == 1e-3 && c.initializer_range == 0.5);
    assert_true(!c.tie_word_embeddings && c.qkv_bias && c.vocab_size == 777);
    c = resolved("--model qwen3-0.6b", 8);
    assert_true(c.qk_norm && c.tie_word_embeddings && c.rope_theta == 1000000 &&
                c.norm_epsilon == 1e-6);
    c = resolved("--model qwen3-0.6b --qk_norm false", 8);
    assert_false(c.qk_norm);
}

static void test_refusals(void **state) {
    (void)state;
    refused("--model llama-tinny", 8, HL_E_USER, "llama-tiny");
    refused("--model gpt2 --dropout 0.1", 8, HL_E_UNSUPPORTED, "dropout");
    refused("--model gpt2-124m", 1025, HL_E_USER, "1024");
    refused("--model llama --max_position_embeddings 7", 8, HL_E_USER, "block_size 8");
    refused("--model ./nowhere", 8, HL_E_USER, "nowhere");
}

/* Rewrites a golden folder's path into the words. */
static void test_folders(void **state) {
    (void)state;
    const char *data = getenv("HALLEY_TEST_DATA");
    if (!data) {
        puts("SKIP: HALLEY_TEST_DATA is unset: no folder with a model");
        skip();
    }
    char words[400], path[300];
    struct words w;
    (void)snprintf(path, sizeof path, "%s/../golden/models/llama", data);
    (void)snprintf(words, sizeof words, "--model %s", path);
    struct hl_model_config c = resolved(words, 4);
    assert_true(c.vocab_size != 300 && c.vocab_size > 0); /* the weights', not the tokenizer's */
    char found[300];
    open_words(&w, words);
    assert_int_equal(hl_model_folder(hl_mem_default(), &w.model, found, sizeof found, &w.diag),
                     HL_OK);
    assert_string_equal(found, path);
    hl_config_free(w.config);
    (void)snprintf(words, sizeof words, "--model %s --hidden_size %lld --n_layer 99", path,
                   (long long)c.hidden_size);
    refused(words, 4, HL_E_USER, "leave num_hidden_layers out");
    (void)snprintf(words, sizeof words, "--model %s --vocab_size %lld", path,
                   (long long)c.vocab_size);
    (void)resolved(words, 4);
    (void)snprintf(words, sizeof words, "--model %s --vocab_size %lld", path,
                   (long long)c.vocab_size + 1);
    refused(words, 4, HL_E_USER, "leave vocab_size out");
}

/* A run's folder that is called like a family or a preset does not stand in its way. */
static void test_folder_with_a_models_name(void **state) {
    (void)state;
    char folder[] = "/tmp/halley-test-XXXXXX", before[1024];
    assert_non_null(mkdtemp(folder));
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(system("mkdir gpt2 llama-tiny mine"), 0);
    struct words w;
    static const char *const names[] = {"gpt2", "llama-tiny", "mine", "./gpt2", "nothing"};
    for (int i = 0; i < 5; i++) {
        char words[64];
        (void)snprintf(words, sizeof words, "--model %s", names[i]);
        open_words(&w, words);
        char found[100];
        enum hl_status status =
            hl_model_folder(hl_mem_default(), &w.model, found, sizeof found, &w.diag);
        assert_int_equal(status, i == 2 || i == 3 ? HL_E_USER : HL_END); /* the folders are empty */
        hl_config_free(w.config);
    }
    assert_int_equal(resolved("--model gpt2", 8).num_hidden_layers, 12);
    assert_int_equal(resolved("--model llama-tiny", 8).num_hidden_layers, 4);
    assert_int_equal(chdir(before), 0);
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_numbers_and_flags),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_folder_with_a_models_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
