/* Save, find, open and read back, on the real disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/run_folder.h"
#include "halley/checkpoint.h"
#include "os/fs.h"

static char root[] = "/tmp/halley-checkpoint-XXXXXX";

static int make_root(void **state) {
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static const char *under_root(const char *name) {
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    (void)snprintf(path[turn], sizeof path[turn], "%s/%s", root, name);
    return path[turn];
}

static struct hl_model_config tiny(const char *kind) {
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

struct fixture {
    struct hl_model *model;
    float *params, *m;
    struct hl_saved_array arrays[2];
    struct hl_checkpoint checkpoint;
};

static void set_up(struct fixture *f, const char *kind, uint64_t seed) {
    struct hl_model_config config = tiny(kind);
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

static void tear_down(struct fixture *f) {
    hl_model_free(f->model);
    hl_free(hl_mem_default(), f->params);
    hl_free(hl_mem_default(), f->m);
}

static void save(const struct fixture *f, const char *folder, int64_t limit) {
    struct hl_diag diag = {0};
    if (hl_checkpoint_save(hl_mem_default(), hl_fs_os(), folder, &f->checkpoint, limit, NULL,
                           &diag))
        fail_msg("%s", diag.text);
}

static void assert_latest(const char *folder, const char *name) {
    char path[300] = "";
    struct hl_diag diag = {0};
    if (hl_checkpoint_latest(hl_mem_default(), hl_fs_os(), folder, path, sizeof path, NULL, &diag))
        fail_msg("%s", diag.text);
    assert_string_equal(strrchr(path, '/') + 1, name);
}

static void check_contents(const struct fixture *f, const char *path) {
    struct hl_checkpoint_reader *reader = NULL;
    struct hl_diag diag = {0};
    if (hl_checkpoint_open(hl_mem_default(), hl_fs_os(), path, &reader, NULL, &diag))
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

static void test_round_trip(void **state) {
    (void)state;
    static const char *const kinds[] = {"gpt2",       "llama", "llama-tied", "qwen2",
                                        "qwen2-tied", "qwen3", "qwen3-tied", "llama-scaled"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct fixture f;
        set_up(&f, kinds[i], i);
        char folder[300], path[400];
        (void)snprintf(folder, sizeof folder, "%s/deep/%s", root, kinds[i]);
        save(&f, folder, 0);
        assert_latest(folder, "checkpoint-100");
        (void)snprintf(path, sizeof path, "%s/checkpoint-100", folder);
        check_contents(&f, path);
        tear_down(&f);
    }
}

static int n_checkpoints(const char *folder) {
    struct hl_run_folder scan;
    struct hl_diag diag = {0};
    assert_int_equal(hl_run_folder_scan(hl_mem_default(), hl_fs_os(), folder, &scan, NULL, &diag),
                     HL_OK);
    int n = scan.n_entries;
    hl_run_folder_free(&scan);
    return n;
}

static void test_limit_and_order(void **state) {
    (void)state;
    struct fixture f;
    set_up(&f, "llama", 1);
    const char *folder = under_root("limited");
    const int64_t steps[] = {10, 20, 30,
                             40, 25, 25}; /* after 40 the run was resumed from an older one */
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        f.checkpoint.step = steps[i];
        f.params[0] = (float)i;
        save(&f, folder, 3);
        char name[64], path[400];
        (void)snprintf(name, sizeof name, "checkpoint-%d", (int)steps[i]);
        assert_latest(folder, name);
        (void)snprintf(path, sizeof path, "%s/%s", folder, name);
        check_contents(&f, path);
        assert_int_equal(n_checkpoints(folder), i < 2 ? (int)i + 1 : 3);
    }
    assert_int_equal(access(under_root("limited/checkpoint-30"), F_OK), 0);
    assert_int_equal(access(under_root("limited/checkpoint-20"), F_OK), -1);
    char text[64] = "";
    FILE *latest = fopen(under_root("limited/latest"), "r");
    assert_non_null(latest);
    assert_non_null(fgets(text, sizeof text, latest));
    (void)fclose(latest);
    assert_string_equal(text, "checkpoint-25\n");
    tear_down(&f);
}

static void test_nothing_there(void **state) {
    (void)state;
    char path[300];
    struct hl_diag diag = {0};
    assert_int_equal(hl_checkpoint_latest(hl_mem_default(), hl_fs_os(), under_root("none"), path,
                                          sizeof path, NULL, &diag),
                     HL_END);
    struct hl_checkpoint_reader *reader = NULL;
    assert_int_equal(
        hl_checkpoint_open(hl_mem_default(), hl_fs_os(), under_root("none"), &reader, NULL, &diag),
        HL_E_USER);
    assert_non_null(strstr(diag.text, "config.json"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_limit_and_order),
        cmocka_unit_test(test_nothing_there),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
