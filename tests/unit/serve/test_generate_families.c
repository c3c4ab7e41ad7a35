/* Generation by every family: the cached path against recomputing everything, over windows that
 * slide; opening and generating with each allocation failing in turn. With HALLEY_SHARED_DATA: the
 * greedy text of a really trained model, as transformers wrote it. The rules of drawing are in
 * test_generate.c. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/loaded.h"

enum { WINDOW = 12, PROMPT = 5, MADE = 40, MOST = 256 };

struct taken {
    int32_t token[MOST];
    int64_t n, stop_at;
};

static bool take(void *context, int32_t token) {
    struct taken *t = context;
    assert_true(t->n < MOST);
    t->token[t->n++] = token;
    return t->n != t->stop_at;
}

static void golden_folder(char out[4096], const char *name) {
    const char *root = getenv("HALLEY_TEST_DATA");
    assert_non_null(root);
    (void)snprintf(out, 4096, "%s/../golden/models/%s", root, name);
}

static void open_model(struct hl_loaded *m, const char *folder) {
    struct hl_diag diag = {0};
    struct hl_loaded_shape shape = {.dtype = HL_F32};
    if (hl_loaded_open(hl_mem_default(), folder, &shape, NULL, m, &diag) != HL_OK)
        fail_msg("%s", diag.text);
}

static const char *const families[] = {"gpt2", "llama", "qwen2", "qwen3"};
enum { N_FAMILIES = 4 };

static void prompt_of(const struct hl_loaded *m, int32_t prompt[PROMPT]) {
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = (int32_t)((7 + 13 * i) % m->model->config.vocab_size);
}

/* Logits after `n` tokens, without a cache. */
static const float *recompute(struct hl_loaded *m, const int32_t *tokens, int64_t n) {
    int32_t target[MOST], position[MOST];
    int64_t offsets[2] = {0, n};
    for (int32_t i = 0; i < n; i++) target[i] = -1, position[i] = i;
    struct hl_batch batch = {.n_tokens = n,
                             .token_N = tokens,
                             .target_N = target,
                             .position_N = position,
                             .n_sequences = 1,
                             .offsets = offsets};
    struct hl_diag diag;
    int last = m->model->layout.n_blocks - 1;
    struct hl_block_data embedding = {.params =
                                          hl_engine_acquire(m->engine, m->model->layout.blocks[0])},
                         head = {.params =
                                     hl_engine_acquire(m->engine, m->model->layout.blocks[last])};
    const float *logits;
    assert_int_equal(hl_model_begin(m->run, &batch, &diag), HL_OK);
    for (int b = 0; b < last; b++) {
        struct hl_block_data own = {.params =
                                        hl_engine_acquire(m->engine, m->model->layout.blocks[b])};
        assert_int_equal(hl_model_forward(m->run, b, &own, &embedding, NULL, &diag), HL_OK);
    }
    assert_int_equal(hl_model_logits(m->run, n - 1, &head, &embedding, &logits, &diag), HL_OK);
    return logits;
}

/* The token is the most likely one, within the rounding between two orders of summation. */
static void assert_best(const float *logits, int64_t n, int32_t token) {
    float best = logits[0], scale = 0;
    for (int64_t i = 0; i < n; i++)
        best = fmaxf(best, logits[i]), scale = fmaxf(scale, fabsf(logits[i]));
    assert_true(token >= 0 && token < n);
    assert_true(logits[token] >= best - 1e-5f * scale);
}

static void check_greedy(struct hl_loaded *m, int64_t window) {
    struct taken got = {.n = 0};
    int32_t prompt[PROMPT], at[MOST];
    struct hl_diag diag = {0};
    struct hl_generator g = hl_loaded_generator(m);
    g.window = window;
    struct hl_generate_options o = {.max_new_tokens = MADE, .top_p = 1, .ignore_eos = true};
    prompt_of(m, prompt);
    if (hl_generate(&g, prompt, PROMPT, &o, -1, take, &got, &diag) != HL_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(got.n, MADE);
    int64_t n =
        PROMPT < window ? PROMPT : window; /* what the window holds, by the rule of generate.h */
    memcpy(at, prompt + PROMPT - n, (size_t)n * sizeof *at);
    for (int64_t i = 0; i < MADE; i++) {
        assert_best(recompute(m, at, n), m->model->config.vocab_size, got.token[i]);
        if (n == window) {
            memmove(at, at + (n - n / 2), (size_t)(n / 2) * sizeof *at);
            n /= 2;
        }
        at[n++] = got.token[i];
    }
}

static void test_cache_equals_recomputing(void **state) {
    (void)state;
    for (int f = 0; f < N_FAMILIES; f++) {
        char folder[4096];
        struct hl_loaded m;
        golden_folder(folder, families[f]);
        open_model(&m, folder);
        assert_true(m.model->config.max_position_embeddings >= WINDOW);
        check_greedy(&m, WINDOW);     /* slides, even */
        check_greedy(&m, WINDOW - 1); /* odd */
        check_greedy(&m, PROMPT);     /* full from the start */
        check_greedy(&m, 3);          /* shorter than the prompt */
        check_greedy(&m, 2);
        check_greedy(&m, 1);
        hl_loaded_close(&m);
    }
}

static void test_seed_and_ends(void **state) {
    (void)state;
    char folder[4096];
    struct hl_loaded m;
    struct hl_diag diag = {0};
    struct taken a = {.n = 0}, b = {.n = 0}, c = {.n = 0}, stopped = {.stop_at = 3},
                 ended = {.n = 0}, few = {.n = 0};
    int32_t prompt[PROMPT];
    golden_folder(folder, "llama");
    open_model(&m, folder);
    prompt_of(&m, prompt);
    struct hl_generator g = hl_loaded_generator(&m);
    g.window = WINDOW;
    struct hl_generate_options o = {
        .max_new_tokens = MADE, .temperature = 3, .top_p = 1, .seed = 1};
    assert_int_equal(hl_generate(&g, prompt, PROMPT, &o, -1, take, &a, &diag), HL_OK);
    assert_int_equal(hl_generate(&g, prompt, PROMPT, &o, -1, take, &b, &diag), HL_OK);
    assert_int_equal(a.n, MADE);
    assert_memory_equal(a.token, b.token, sizeof a.token);
    o.seed = 2;
    assert_int_equal(hl_generate(&g, prompt, PROMPT, &o, -1, take, &c, &diag), HL_OK);
    assert_memory_not_equal(a.token, c.token, sizeof a.token);
    o.seed = 1;
    assert_int_equal(hl_generate(&g, prompt, PROMPT, &o, -1, take, &stopped, &diag), HL_OK);
    assert_int_equal(stopped.n, 3); /* the caller had enough */
    int64_t before = 0;             /* the end-of-text token is not handed out */
    while (a.token[before] != a.token[4]) before++;
    assert_int_equal(hl_generate(&g, prompt, PROMPT, &o, a.token[4], take, &ended, &diag), HL_OK);
    assert_int_equal(ended.n, before);
    o.n_tokens = 5; /* a tokenizer smaller than the model's vocabulary */
    assert_int_equal(hl_generate(&g, prompt, PROMPT, &o, -1, take, &few, &diag), HL_OK);
    assert_int_equal(few.n, MADE);
    for (int i = 0; i < MADE; i++) assert_in_range(few.token[i], 0, 4);
    hl_loaded_close(&m);
}

/* ---- memory ---- */

static void test_allocations(void **state) {
    (void)state;
    char folder[4096];
    int32_t prompt[PROMPT] = {1, 2, 3, 4, 5};
    golden_folder(folder, "qwen3");
    for (long k = 1;; k++) {
        struct hl_mem_probe probe;
        struct hl_loaded m;
        struct hl_diag diag = {0};
        struct hl_loaded_shape shape = {.dtype = HL_F32};
        struct taken got = {.n = 0};
        hl_mem_probe_init(&probe, k);
        enum hl_status status = hl_loaded_open(&probe.mem, folder, &shape, NULL, &m, &diag);
        if (status == HL_OK) {
            struct hl_generator g = hl_loaded_generator(&m);
            g.window = WINDOW;
            struct hl_generate_options o = {.max_new_tokens = 3, .top_p = 1};
            status = hl_generate(&g, prompt, PROMPT, &o, -1, take, &got, &diag);
            hl_loaded_close(&m);
        }
        assert_int_equal(probe.n_live, 0);
        if (status == HL_OK) {
            assert_true(k > 10 && probe.n_taken < k);
            return;
        }
        if (status != HL_E_MEMORY)
            fail_msg("allocation %ld: status %d: %s", k, (int)status, diag.text);
        assert_true(*diag.text != 0);
    }
}

/* ---- a trained model ---- */

static int64_t ids_of(const json_t *golden, const char *key, int32_t *out) {
    const json_t *ids = json_object_get(golden, key);
    int64_t n = (int64_t)json_array_size(ids);
    assert_true(n > 0 && n <= MOST);
    for (int64_t i = 0; i < n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
    return n;
}

static void test_trained(void **state) {
    (void)state;
    const char *root = getenv("HALLEY_SHARED_DATA");
    char folder[4000], path[4096];
    (void)snprintf(folder, sizeof folder, "%s/stories260k-hf", root ? root : "");
    (void)snprintf(path, sizeof path, "%s/golden.json", folder);
    json_t *golden = root && *root ? json_load_file(path, 0, NULL) : NULL;
    if (!golden) {
        print_message("SKIP: HALLEY_SHARED_DATA names no folder with stories260k-hf\n");
        skip();
    }
    struct hl_loaded m;
    struct hl_diag diag = {0};
    struct hl_loaded_shape shape = {.dtype = HL_F32, .tokenizer = "byte"}; /* tokens are given */
    struct taken got = {.n = 0};
    int32_t prompt[MOST], want[MOST];
    int64_t n = ids_of(golden, "prompt_ids", prompt), n_want = ids_of(golden, "greedy_ids", want);
    if (hl_loaded_open(hl_mem_default(), folder, &shape, NULL, &m, &diag) != HL_OK)
        fail_msg("%s", diag.text);
    struct hl_generator g = hl_loaded_generator(&m);
    g.window = m.model->config.max_position_embeddings;
    struct hl_generate_options o = {.max_new_tokens = n_want, .top_p = 1, .ignore_eos = true};
    if (hl_generate(&g, prompt, n, &o, -1, take, &got, &diag) != HL_OK) fail_msg("%s", diag.text);
    assert_int_equal(got.n, n_want);
    for (int64_t i = 0; i < n_want; i++)
        if (got.token[i] != want[i])
            fail_msg("token %lld is %d, not %d", (long long)i, got.token[i], want[i]);
    hl_loaded_close(&m);
    json_decref(golden);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_equals_recomputing), cmocka_unit_test(test_seed_and_ends),
        cmocka_unit_test(test_allocations), cmocka_unit_test(test_trained)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
