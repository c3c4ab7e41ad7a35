/* Whole models against values that transformers computed: logits, loss, gradients.
 * Folders: tests/golden/models/ (always) and, when HALLEY_SHARED_DATA names a folder, the ones in
 * it. Golden values are f32 results of another program: the comparison allows for its rounding, not
 * for errors. */
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

#include "halley/checkpoint.h"
#include "memory/engine.h"
#include "model/run.h"
#include "os/fs.h"

enum { MOST_TOKENS = 256 };

struct golden {
    json_t *json;
    struct hl_model *model;
    const struct hl_kernels *kernels;
    struct hl_products *products;
    struct hl_engine *engine;
    struct hl_model_run *run;
    int32_t token[MOST_TOKENS], target[MOST_TOKENS], position[MOST_TOKENS];
    int64_t offsets[2];
    struct hl_batch batch;
};

static void open_golden(struct golden *g, const char *folder) {
    struct hl_mem *mem = hl_mem_default();
    struct hl_diag diag = {0};
    char path[4096];
    memset(g, 0, sizeof *g);
    (void)snprintf(path, sizeof path, "%s/golden.json", folder);
    assert_non_null(g->json = json_load_file(path, 0, NULL));
    struct hl_checkpoint_reader *reader;
    if (hl_checkpoint_open(mem, hl_fs_os(), folder, &reader, NULL, &diag) != HL_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(hl_model_new(mem, hl_checkpoint_config(reader), &g->model, &diag), HL_OK);
    assert_int_equal(hl_kernels_get(HL_F32, &g->kernels, &diag), HL_OK);
    assert_int_equal(hl_products_new(mem, &g->products, &diag), HL_OK);
    struct hl_engine_shape es = {.train = true};
    assert_int_equal(hl_engine_new(mem, &g->model->layout, &es, &g->engine, &diag), HL_OK);
    float *params = hl_engine_data(g->engine, HL_BUFFER_MASTER, hl_layout_all(&g->model->layout));
    if (hl_checkpoint_read_params(reader, g->model, params, &diag) != HL_OK)
        fail_msg("%s", diag.text);
    hl_checkpoint_close(reader);
    struct hl_model_run_shape rs = {
        .max_tokens = MOST_TOKENS, .max_positions = MOST_TOKENS, .train = true};
    if (rs.max_positions > g->model->config.max_position_embeddings)
        rs.max_positions = g->model->config.max_position_embeddings;
    assert_int_equal(hl_model_run_new(mem, g->model, g->kernels, g->products, &rs, &g->run, &diag),
                     HL_OK);
}

static void close_golden(struct golden *g) {
    hl_model_run_free(g->run);
    hl_engine_free(g->engine);
    hl_products_free(g->products);
    hl_model_free(g->model);
    json_decref(g->json);
}

static void set_ids(struct golden *g, const char *key) {
    const json_t *ids = json_object_get(g->json, key);
    int64_t n = (int64_t)json_array_size(ids);
    assert_true(n > 1 && n <= MOST_TOKENS);
    for (int64_t i = 0; i < n; i++) {
        g->token[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
        g->target[i] =
            i + 1 < n ? (int32_t)json_integer_value(json_array_get(ids, (size_t)i + 1)) : -1;
        g->position[i] = (int32_t)i;
    }
    g->offsets[1] = n;
    g->batch = (struct hl_batch){n, n - 1, g->token, g->target, g->position, 1, g->offsets};
}

static struct hl_block_data block(struct golden *g, int b, bool train) {
    struct hl_range r = g->model->layout.blocks[b];
    return (struct hl_block_data){hl_engine_acquire(g->engine, r),
                                  train ? hl_engine_data(g->engine, HL_BUFFER_GRAD, r) : NULL,
                                  false};
}

static void forward(struct golden *g, bool train) {
    struct hl_diag diag;
    struct hl_block_data embedding = block(g, 0, train);
    assert_int_equal(hl_model_begin(g->run, &g->batch, &diag), HL_OK);
    for (int b = 0; b < g->model->layout.n_blocks; b++) {
        struct hl_block_data own = block(g, b, train);
        assert_int_equal(hl_model_forward(g->run, b, &own, &embedding, NULL, &diag), HL_OK);
    }
    for (int b = g->model->layout.n_blocks - 1; train && b >= 0; b--) {
        struct hl_block_data own = block(g, b, true);
        assert_int_equal(hl_model_backward(g->run, b, &own, &diag), HL_OK);
    }
}

static void near_enough(const char *folder, const char *what, double got, double want,
                        double scale) {
    if (!(fabs(got - want) <= 2e-4 * scale))
        fail_msg("%s: %s is %.9g, expected %.9g", folder, what, got, want);
}

static void check_logits(struct golden *g, const char *folder, const char *ids,
                         const char *logits) {
    const json_t *want = json_object_get(g->json, logits);
    if (!want) return;
    struct hl_diag diag;
    const float *got;
    set_ids(g, ids);
    forward(g, false);
    struct hl_block_data head = block(g, g->model->layout.n_blocks - 1, false),
                         embedding = block(g, 0, false);
    assert_int_equal(hl_model_logits(g->run, g->batch.n_tokens - 1, &head, &embedding, &got, &diag),
                     HL_OK);
    assert_int_equal(json_array_size(want), g->model->config.vocab_size);
    double most = 0;
    for (size_t i = 0; i < json_array_size(want); i++)
        most = fmax(most, fabs(json_number_value(json_array_get(want, i))));
    for (size_t i = 0; i < json_array_size(want); i++)
        near_enough(folder, logits, (double)got[i], json_number_value(json_array_get(want, i)),
                    most);
}

/* Element [row][col] of the gradient as the file's tensor has it. */
static double gradient(struct golden *g, const struct hl_tensor *t, int64_t row, int64_t col) {
    const float *grad =
        hl_engine_data(g->engine, HL_BUFFER_GRAD, (struct hl_range){t->offset, t->n});
    return (double)(t->file_transposed ? grad[col * t->cols + row] : grad[row * t->cols + col]);
}

static double norm_of(struct golden *g, const struct hl_tensor *t) {
    return sqrt(g->kernels->sum_squares(
        t->n, hl_engine_data(g->engine, HL_BUFFER_GRAD, (struct hl_range){t->offset, t->n})));
}

static void check_gradients(struct golden *g, const char *folder, const char *ids) {
    set_ids(g, ids);
    forward(g, true);
    double n = (double)g->batch.n_supervised;
    near_enough(folder, "loss", hl_model_loss_sum(g->run) / n,
                json_number_value(json_object_get(g->json, "loss")), 1);
    const char *name;
    json_t *value;
    size_t seen = 0;
    json_object_foreach(json_object_get(g->json, "grad_l2"), name, value) {
        const struct hl_tensor *t = hl_model_tensor(g->model, name);
        if (!t) fail_msg("%s: no tensor %s", folder, name);
        near_enough(folder, name, norm_of(g, t) / n, json_number_value(value),
                    json_number_value(value));
        seen++;
    }
    assert_int_equal(seen, g->model->layout.n_tensors);
    size_t i;
    json_array_foreach(json_object_get(g->json, "grads"), i, value) {
        name = json_string_value(json_object_get(value, "tensor"));
        const json_t *row = json_object_get(value, "row"),
                     *values = json_object_get(value, "values");
        const struct hl_tensor *t = hl_model_tensor(g->model, name);
        assert_non_null(t);
        double scale = norm_of(g, t) / n / sqrt((double)t->n) + 1e-12;
        for (size_t k = 0; k < json_array_size(values); k++) {
            double want = json_number_value(json_array_get(values, k));
            int64_t r = json_is_null(row) ? 0 : json_integer_value(row);
            near_enough(folder, name, gradient(g, t, r, (int64_t)k) / n, want,
                        fabs(want) + 10 * scale);
        }
    }
}

static void check_folder(const char *folder) {
    struct golden g;
    open_golden(&g, folder);
    if (json_object_get(g.json, "prompt_ids"))
        check_logits(&g, folder, "prompt_ids", "prompt_last_logits");
    else check_logits(&g, folder, "ids", "last_logits");
    check_gradients(&g, folder, json_object_get(g.json, "loss_ids") ? "loss_ids" : "ids");
    close_golden(&g);
}

static void test_own(void **state) {
    (void)state;
    static const char *const names[] = {"gpt2", "llama", "qwen2", "qwen3"};
    const char *root = getenv("HALLEY_TEST_DATA");
    assert_non_null(root);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char folder[4096];
        (void)snprintf(folder, sizeof folder, "%s/../golden/models/%s", root, names[i]);
        check_folder(folder);
    }
}

static void test_shared(void **state) {
    (void)state;
    static const char *const names[] = {"tiny-gpt2-hf", "tiny-qwen2-hf", "tiny-qwen3-hf",
                                        "tiny-llama3-rope-hf", "stories260k-hf"};
    const char *root = getenv("HALLEY_SHARED_DATA");
    if (!root || !*root) {
        print_message("SKIP: HALLEY_SHARED_DATA is not set\n");
        skip();
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char folder[4096];
        (void)snprintf(folder, sizeof folder, "%s/%s", root, names[i]);
        check_folder(folder);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_own), cmocka_unit_test(test_shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
