/* Generation: drawing rules (greedy, top-k, top-p of what top-k leaves, temperature), the same text
 * from a cache as from whole sequences, windows of every size that fill and slide, weights that are
 * not numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "serve/generate.h"

enum { VOCAB = 70, MOST = 40 };

/* ---- drawing ---- */

static void count(const float *logits, int64_t n, struct hl_generate_options o, int *hits) {
    struct hl_candidate scratch[8];
    memset(hits, 0, 8 * sizeof *hits);
    for (uint64_t i = 0; i < 2000; i++) {
        int32_t token = hl_sample_token(logits, n, &o, i, scratch);
        assert_true(token >= 0 && token < n);
        hits[token]++;
    }
}

static void test_draws(void **state) {
    (void)state;
    /* probabilities 0.1, 0.4, 0.3, 0.2 */
    const float logits[4] = {logf(0.1f), logf(0.4f), logf(0.3f), logf(0.2f)};
    int hits[8];
    struct hl_generate_options o = {.temperature = 1, .top_p = 1, .seed = 3};
    count(logits, 4, o, hits);
    assert_true(abs(hits[0] - 200) < 60 && abs(hits[1] - 800) < 100 && abs(hits[2] - 600) < 100 &&
                abs(hits[3] - 400) < 80);
    o.top_k = 2;
    count(logits, 4, o, hits);
    assert_true(hits[0] == 0 && hits[3] == 0 && abs(hits[1] - 2000 * 4 / 7) < 100);
    o.top_k = 4;
    o.top_p = 0.69; /* 0.4 is too little, 0.4 + 0.3 is enough */
    count(logits, 4, o, hits);
    assert_true(hits[0] == 0 && hits[3] == 0 && hits[2] > 0);
    o.top_k = 2;
    o.top_p = 0.5; /* of 0.7: the first, 0.57 of it, is enough */
    count(logits, 4, o, hits);
    assert_int_equal(hits[1], 2000);
    o = (struct hl_generate_options){.temperature = 1, .top_p = 0};
    count(logits, 4, o, hits);
    assert_int_equal(hits[1], 2000);
    o = (struct hl_generate_options){.temperature = 0, .top_p = 1};
    count(logits, 4, o, hits);
    assert_int_equal(hits[1], 2000);
    o = (struct hl_generate_options){.temperature = 1e-300, .top_p = 1};
    count(logits, 4, o, hits);
    assert_int_equal(hits[1], 2000);
    o = (struct hl_generate_options){.temperature = 1, .top_p = 1, .top_k = 1};
    count(logits, 1, o, hits); /* a vocabulary of one */
    const float impossible[3] = {-INFINITY, 0, -INFINITY};
    o.top_k = 0;
    count(impossible, 3, o, hits);
    assert_int_equal(hits[1], 2000);
}

/* ---- a model ---- */

struct world {
    struct hl_mem *mem;
    struct hl_model *model;
    struct hl_products *products;
    struct hl_engine *engine;
    struct hl_generator g;
};

static void open_world(struct world *w, struct hl_mem *mem, enum hl_family family) {
    struct hl_diag diag;
    const struct hl_kernels *kernels;
    struct hl_model_config c = {.family = family,
                                .vocab_size = VOCAB,
                                .hidden_size = 16,
                                .num_hidden_layers = 2,
                                .num_attention_heads = 2,
                                .intermediate_size = 24,
                                .max_position_embeddings = MOST,
                                .initializer_range = 0.5};
    *w = (struct world){.mem = mem};
    assert_int_equal(hl_model_new(mem, &c, &w->model, &diag), HL_OK);
    assert_int_equal(hl_kernels_get(HL_F32, &kernels, &diag), HL_OK);
    assert_int_equal(hl_products_new(mem, &w->products, &diag), HL_OK);
    struct hl_engine_shape shape = {0};
    assert_int_equal(hl_engine_new(mem, &w->model->layout, &shape, &w->engine, &diag), HL_OK);
    hl_model_init(w->model, 1,
                  hl_engine_data(w->engine, HL_BUFFER_MASTER, hl_layout_all(&w->model->layout)));
    struct hl_model_run_shape run = {.max_tokens = MOST, .max_positions = MOST};
    struct hl_model_run *r;
    assert_int_equal(hl_model_run_new(mem, w->model, kernels, w->products, &run, &r, &diag), HL_OK);
    w->g = (struct hl_generator){mem, w->model, w->engine, r, HL_F32, MOST};
}

static void close_world(struct world *w) {
    hl_model_run_free(w->g.run);
    hl_engine_free(w->engine);
    hl_products_free(w->products);
    hl_model_free(w->model);
}

struct text {
    int32_t ids[256];
    int64_t n, most;
};

static bool emit(void *context, int32_t token) {
    struct text *t = context;
    if (t->n == t->most) return false;
    t->ids[t->n++] = token;
    return true;
}

static struct text generate(const struct world *w, const int32_t *prompt, int64_t n,
                            struct hl_generate_options o, int32_t eos) {
    struct text text = {.most = 256};
    struct hl_diag diag = {0};
    if (hl_generate(&w->g, prompt, n, &o, eos, emit, &text, &diag) != HL_OK)
        fail_msg("%s", diag.text);
    return text;
}

/* What the definition says, without a cache: the whole window through the model for each token. */
static struct text by_definition(struct world *w, const int32_t *prompt, int64_t n,
                                 struct hl_generate_options o) {
    struct text text = {0};
    int32_t window[MOST + 1];
    int64_t most = w->g.window, filled = n < most ? n : most;
    memcpy(window, prompt + n - filled, (size_t)filled * sizeof *window);
    for (int64_t i = 0; i < o.max_new_tokens; i++) {
        struct hl_generate_options once = o;
        once.max_new_tokens = 1;
        once.temperature = 0;
        struct text next = generate(w, window, filled, once, -1);
        text.ids[text.n++] = next.ids[0];
        if (filled == most) {
            memmove(window, window + filled - filled / 2, (size_t)(filled / 2) * sizeof *window);
            filled /= 2;
        }
        window[filled++] = next.ids[0];
    }
    return text;
}

static void test_windows(void **state) {
    (void)state;
    static const int32_t prompt[] = {5, 9, 13, 2, 64, 33, 21, 8, 1};
    static const int64_t windows[] = {1, 2, 3, 4, 7, 8, 9, 10, MOST};
    for (int family = 0; family < 2; family++) {
        struct world w;
        open_world(&w, hl_mem_default(), family ? HL_FAMILY_LLAMA : HL_FAMILY_GPT2);
        for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
            for (int64_t n = 1; n <= 9; n += 4) {
                w.g.window = windows[i];
                struct hl_generate_options o = {
                    .max_new_tokens = 3 * windows[i] > 60 ? 60 : 3 * windows[i], .top_p = 1};
                struct text a = generate(&w, prompt, n, o, -1), b = by_definition(&w, prompt, n, o);
                assert_int_equal(a.n, o.max_new_tokens);
                assert_memory_equal(a.ids, b.ids, (size_t)a.n * sizeof *a.ids);
            }
        close_world(&w);
    }
}

static void test_ends(void **state) {
    (void)state;
    struct world w;
    open_world(&w, hl_mem_default(), HL_FAMILY_LLAMA);
    const int32_t prompt[] = {7, 7, 3};
    struct hl_generate_options o = {.max_new_tokens = 20, .temperature = 1, .top_p = 1, .seed = 11};
    struct text all = generate(&w, prompt, 3, o, -1), again = generate(&w, prompt, 3, o, -1);
    assert_int_equal(all.n, 20);
    assert_memory_equal(all.ids, again.ids, sizeof all.ids);
    int64_t first = 0;
    while (all.ids[first] != all.ids[10]) first++;
    struct text ended = generate(&w, prompt, 3, o, all.ids[10]);
    assert_int_equal(ended.n, first); /* the end itself is not emitted */
    o.ignore_eos = true;
    assert_int_equal(generate(&w, prompt, 3, o, all.ids[10]).n, 20);
    o.max_new_tokens = 0;
    assert_int_equal(generate(&w, prompt, 3, o, -1).n, 0);
    struct text few = {.most = 4};
    struct hl_diag diag;
    o.max_new_tokens = 20;
    assert_int_equal(hl_generate(&w.g, prompt, 3, &o, -1, emit, &few, &diag), HL_OK);
    assert_int_equal(few.n, 4);
    close_world(&w);
}

/* One weight of the head that is no number makes one logit NaN: said, not drawn around. */
static void test_not_finite(void **state) {
    (void)state;
    struct world w;
    open_world(&w, hl_mem_default(), HL_FAMILY_LLAMA);
    const struct hl_tensor *head = hl_model_tensor(w.model, "lm_head.weight");
    assert_non_null(head);
    float *params = hl_engine_data(w.engine, HL_BUFFER_MASTER, hl_layout_all(&w.model->layout));
    for (int64_t row = 0; row < VOCAB; row += VOCAB - 1) {
        struct text text = {.most = 256};
        struct hl_diag diag = {0};
        struct hl_generate_options o = {.max_new_tokens = 2, .temperature = 1, .top_p = 1};
        float *weight = &params[head->offset + row * head->cols], keep = *weight;
        *weight = NAN;
        assert_int_equal(hl_generate(&w.g, &(int32_t){1}, 1, &o, -1, emit, &text, &diag),
                         HL_E_NUMERIC);
        assert_non_null(strstr(diag.text, "not finite"));
        *weight = keep;
    }
    close_world(&w);
}

static void test_allocations_fail_cleanly(void **state) {
    (void)state;
    struct world w;
    open_world(&w, hl_mem_default(), HL_FAMILY_GPT2);
    for (long k = 1;; k++) {
        struct hl_mem_probe probe;
        struct text text = {.most = 256};
        struct hl_diag diag = {0};
        struct hl_generate_options o = {.max_new_tokens = 2, .top_p = 1};
        hl_mem_probe_init(&probe, k);
        w.g.mem = &probe.mem;
        enum hl_status status = hl_generate(&w.g, &(int32_t){1}, 1, &o, -1, emit, &text, &diag);
        assert_int_equal(probe.n_live, 0);
        if (status == HL_OK) break;
        assert_int_equal(status, HL_E_MEMORY);
        assert_true(*diag.text);
    }
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_allocations_fail_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
