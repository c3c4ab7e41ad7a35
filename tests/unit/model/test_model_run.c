/* Gradients of whole models against finite differences of their loss, for every variant of a block;
 * recomputation, accumulation, ragged batches and padding. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "halley/rng.h"
#include "kernels/threads.h"
#include "memory/engine.h"
#include "model/run.h"

enum { N = 23, VOCAB = 70 };

struct fixture {
    struct hl_model *model;
    struct hl_engine *engine;
    struct hl_products *products;
    struct hl_model_run *run;
    const struct hl_kernels *kernels;
    int32_t token[N], target[N], position[N];
    int64_t offsets[4];
    struct hl_batch batch;
};

static struct hl_model_config config_of(int variant) {
    struct hl_model_config c = {.family = variant == 0 ? HL_FAMILY_GPT2 : HL_FAMILY_LLAMA,
                                .vocab_size = VOCAB,
                                .hidden_size = 24,
                                .num_hidden_layers = 2,
                                .num_attention_heads = variant == 0 ? 3 : 4,
                                .intermediate_size = 40,
                                .max_position_embeddings = 32,
                                .tie_word_embeddings = variant != 2,
                                .initializer_range = 0.3};
    c.num_key_value_heads = variant == 0 ? 3 : 2;
    c.head_dim = variant == 3 ? 10 : 0; /* heads * size != width */
    if (variant == 2) c.num_attention_heads = 2, c.qkv_bias = true;
    if (variant == 3) c.qk_norm = true;
    return c;
}
enum { N_VARIANTS = 4 };

static void setup(struct fixture *f, int variant, enum hl_dtype dtype, bool recompute) {
    struct hl_mem *mem = hl_mem_default();
    struct hl_diag diag;
    struct hl_model_config c = config_of(variant);
    bool again[4] = {false, recompute, recompute, false};
    memset(f, 0, sizeof *f);
    assert_int_equal(hl_model_new(mem, &c, &f->model, &diag), HL_OK);
    assert_int_equal(hl_kernels_get(dtype, &f->kernels, &diag), HL_OK);
    assert_int_equal(hl_products_new(mem, &f->products, &diag), HL_OK);
    struct hl_engine_shape es = {.train = true, .bf16_copy = dtype == HL_BF16};
    assert_int_equal(hl_engine_new(mem, &f->model->layout, &es, &f->engine, &diag), HL_OK);
    struct hl_model_run_shape rs = {
        .max_tokens = N, .max_positions = 32, .train = true, .recompute = again};
    assert_int_equal(hl_model_run_new(mem, f->model, f->kernels, f->products, &rs, &f->run, &diag),
                     HL_OK);
    float *p = hl_engine_data(f->engine, HL_BUFFER_MASTER, hl_layout_all(&f->model->layout));
    hl_model_init(f->model, 3, p);
    for (int i = 0; i < f->model->layout.n_tensors; i++) { /* biases and gains away from 0 and 1 */
        const struct hl_tensor *t = &f->model->layout.tensors[i];
        for (int64_t j = 0; t->n_dims == 1 && j < t->cols; j++)
            p[t->offset + j] +=
                (float)(0.3 * hl_rng_normal(5, HL_RNG_INIT, (uint64_t)(t->offset + j)));
    }
    hl_engine_publish(f->engine, f->kernels, hl_layout_all(&f->model->layout));
    f->offsets[1] = 9, f->offsets[2] = 10, f->offsets[3] = N;
    for (int i = 0; i < N; i++) {
        f->token[i] = (int32_t)(hl_rng_u64(1, HL_RNG_DATA, (uint64_t)i) % VOCAB);
        f->target[i] = i % 5 == 3 ? -1 : (int32_t)(hl_rng_u64(2, HL_RNG_DATA, (uint64_t)i) % VOCAB);
        f->position[i] = i < 9 ? i : i < 10 ? 0 : i - 10;
    }
    f->batch = (struct hl_batch){N, N, f->token, f->target, f->position, 3, f->offsets};
}

static void teardown(struct fixture *f) {
    hl_model_run_free(f->run);
    hl_engine_free(f->engine);
    hl_products_free(f->products);
    hl_model_free(f->model);
}

static struct hl_block_data block(struct fixture *f, int b, bool grads, bool add) {
    struct hl_range r = f->model->layout.blocks[b];
    return (struct hl_block_data){hl_engine_acquire(f->engine, r),
                                  grads ? hl_engine_data(f->engine, HL_BUFFER_GRAD, r) : NULL, add};
}

static double pass(struct fixture *f, bool train, bool add, bool recompute) {
    struct hl_diag diag;
    int last = f->model->layout.n_blocks - 1;
    assert_int_equal(hl_model_begin(f->run, &f->batch, &diag), HL_OK);
    struct hl_block_data embedding = block(f, 0, train, add);
    for (int b = 0; b <= last; b++) {
        struct hl_block_data own = block(f, b, train, add);
        assert_int_equal(hl_model_forward(f->run, b, &own, &embedding, NULL, &diag), HL_OK);
    }
    for (int b = last; train && b >= 0; b--) {
        struct hl_block_data own = block(f, b, true, add);
        if (recompute && b > 0 && b < last)
            assert_int_equal(hl_model_recompute(f->run, b, &own, &diag), HL_OK);
        assert_int_equal(hl_model_backward(f->run, b, &own, &diag), HL_OK);
    }
    return hl_model_loss_sum(f->run);
}

static float *all(struct fixture *f, enum hl_buffer buffer) {
    return hl_engine_data(f->engine, buffer, hl_layout_all(&f->model->layout));
}

static void test_finite_differences(void **state) {
    (void)state;
    for (int v = 0; v < N_VARIANTS; v++) {
        struct fixture f;
        setup(&f, v, HL_F32, false);
        pass(&f, true, false, false);
        float *p = all(&f, HL_BUFFER_MASTER), *g = all(&f, HL_BUFFER_GRAD);
        for (int i = 0; i < f.model->layout.n_tensors; i++) {
            const struct hl_tensor *t = &f.model->layout.tensors[i];
            double scale =
                sqrt(f.kernels->sum_squares(t->n, g + t->offset) / (double)(t->rows * t->cols));
            assert_true(scale > 0);
            for (uint64_t k = 0; k < 6; k++) {
                int64_t j =
                    t->offset + (int64_t)(hl_rng_u64(9, HL_RNG_DATA, (uint64_t)i * 100 + k) %
                                          (uint64_t)(t->rows * t->cols));
                const float h = 4e-3f, was = p[j];
                p[j] = was + h;
                double up = pass(&f, false, false, false);
                p[j] = was - h;
                double down = pass(&f, false, false, false);
                p[j] = was;
                double want = (up - down) / (2 * (double)h), got = (double)g[j];
                if (fabs(want - got) > 2e-2 * (fabs(want) + scale))
                    fail_msg("variant %d %s[%lld]: %g, by differences %g", v, t->name,
                             (long long)(j - t->offset), got, want);
            }
        }
        teardown(&f);
    }
}

static void test_recompute_gives_the_same_bits(void **state) {
    (void)state;
    for (int v = 0; v < N_VARIANTS; v++)
        for (int d = 0; d < 2; d++) {
            struct fixture kept, again;
            setup(&kept, v, (enum hl_dtype)d, false);
            setup(&again, v, (enum hl_dtype)d, true);
            assert_true(pass(&kept, true, false, false) == pass(&again, true, false, true));
            assert_memory_equal(all(&kept, HL_BUFFER_GRAD), all(&again, HL_BUFFER_GRAD),
                                (size_t)kept.model->layout.n_parameters * sizeof(float));
            teardown(&kept);
            teardown(&again);
        }
}

static void test_accumulation_adds(void **state) {
    (void)state;
    for (int v = 0; v < N_VARIANTS; v++) {
        struct fixture f;
        setup(&f, v, HL_F32, false);
        int64_t n = f.model->layout.n_parameters;
        float *once = hl_alloc(hl_mem_default(), (size_t)n, sizeof(float)),
              *g = all(&f, HL_BUFFER_GRAD);
        for (int64_t i = 0; i < f.model->layout.n_parameters; i++)
            g[i] = NAN; /* must be overwritten */
        for (int i = 0; i < f.model->layout.n_tensors;
             i++) /* gaps between tensors stay as they are: zero */
            for (int64_t j = f.model->layout.tensors[i].rows * f.model->layout.tensors[i].cols;
                 j < f.model->layout.tensors[i].n; j++)
                g[f.model->layout.tensors[i].offset + j] = 0;
        pass(&f, true, false, false);
        memcpy(once, g, (size_t)n * sizeof(float));
        pass(&f, true, true, false);
        for (int64_t i = 0; i < n; i++)
            assert_true(fabsf(g[i] - 2 * once[i]) <= 1e-4f * (fabsf(once[i]) + 1e-2f));
        hl_free(hl_mem_default(), once);
        teardown(&f);
    }
}

static void test_padding_and_masks(void **state) {
    (void)state;
    for (int v = 0; v < N_VARIANTS; v++) {
        struct fixture f;
        setup(&f, v, HL_F32, false);
        double whole = pass(&f, true, false, false);
        const struct hl_tensor *t = &f.model->layout.tensors[0];
        const float *g = all(&f, HL_BUFFER_GRAD);
        for (int64_t i = VOCAB * t->cols; i < t->padded_rows * t->cols; i++)
            assert_true(g[t->offset + i] == 0);
        /* the three sequences one at a time give the same loss: they never see each other */
        double parts = 0;
        for (int s = 0; s < 3; s++) {
            int64_t first = f.offsets[s], n = f.offsets[s + 1] - first, offsets[2] = {0, n};
            struct hl_batch saved = f.batch;
            f.batch = (struct hl_batch){
                n, n, f.token + first, f.target + first, f.position + first, 1, offsets};
            parts += pass(&f, false, false, false);
            f.batch = saved;
        }
        assert_true(fabs(whole - parts) < 1e-4 * whole);
        teardown(&f);
    }
}

static void test_bf16_is_near_f32(void **state) {
    (void)state;
    for (int v = 0; v < N_VARIANTS; v++) {
        struct fixture a, b;
        setup(&a, v, HL_F32, false);
        setup(&b, v, HL_BF16, false);
        double x = pass(&a, true, false, false), y = pass(&b, true, false, false);
        assert_true(fabs(x - y) < 0.02 * x);
        double gx =
            sqrt(a.kernels->sum_squares(a.model->layout.n_parameters, all(&a, HL_BUFFER_GRAD)));
        double gy =
            sqrt(a.kernels->sum_squares(a.model->layout.n_parameters, all(&b, HL_BUFFER_GRAD)));
        assert_true(fabs(gx - gy) < 0.03 * gx);
        teardown(&a);
        teardown(&b);
    }
}

static void test_refuses_bad_tokens(void **state) {
    (void)state;
    struct fixture f;
    struct hl_diag diag;
    setup(&f, 1, HL_F32, false);
    f.token[4] = VOCAB;
    assert_int_equal(hl_model_begin(f.run, &f.batch, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "70"));
    f.token[4] = 0;
    f.position[4] = 32;
    assert_int_equal(hl_model_begin(f.run, &f.batch, &diag), HL_E_USER);
    teardown(&f);
}

/* Scratch is for the team there was: a larger one is refused, a smaller one is fine. */
static void test_refuses_a_larger_team(void **state) {
    (void)state;
    struct fixture f;
    struct hl_diag diag = {0};
    int before = hl_threads_get();
    hl_threads_set(2);
    setup(&f, 1, HL_F32, false);
    assert_int_equal(hl_model_begin(f.run, &f.batch, &diag), HL_OK);
    hl_threads_set(1);
    assert_int_equal(hl_model_begin(f.run, &f.batch, &diag), HL_OK);
    hl_threads_set(64);
    assert_int_equal(hl_model_begin(f.run, &f.batch, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "threads grew"));
    teardown(&f);
    hl_threads_set(before);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_finite_differences),
                                       cmocka_unit_test(test_recompute_gives_the_same_bits),
                                       cmocka_unit_test(test_accumulation_adds),
                                       cmocka_unit_test(test_padding_and_masks),
                                       cmocka_unit_test(test_bf16_is_near_f32),
                                       cmocka_unit_test(test_refuses_a_larger_team),
                                       cmocka_unit_test(test_refuses_bad_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
