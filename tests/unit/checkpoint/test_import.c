/* Folders of Hugging Face models: names with and without prefix, tied and untied heads in all four
 * combinations, several files with an index, tensors that nobody reads; the five small models of
 * HALLEY_SHARED_DATA when it is set; a checkpoint of version 1 that was kept
 * (tests/golden/checkpoint-v1). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/reader.h"
#include "support/checkpoint_fixture.h"
#include "support/fake_fs.h"

static struct fake_fs *disk;

static void must(enum hl_status status, const struct hl_diag *diag) {
    if (status) fail_msg("%s: %s", hl_status_name(status), diag->text);
}

static void put_config(const struct hl_model_config *config) {
    struct hl_buf text = {.mem = hl_mem_default()};
    hl_model_config_to_json(config, &text);
    fake_fs_put(disk, "/m/config.json", text.data, text.n);
    hl_buf_free(&text);
}

static void put_weights(const char *path, const struct hl_st_plan_row *rows, int n) {
    struct hl_out_file out;
    struct hl_diag diag = {0};
    uint64_t hash;
    must(hl_out_open(hl_mem_default(), fake_fs_table(disk), path, &out, &diag), &diag);
    must(hl_st_write(hl_mem_default(), &out, rows, n, &diag), &diag);
    must(hl_out_commit(&out, &hash, &diag), &diag);
}

/* All tensors of the fixture as a file has them; skip leaves out so many characters of each name
 * that has the prefix. */
static int rows_of(const struct fixture *f, struct hl_st_plan_row rows[64], const char *prefix) {
    const struct hl_layout *layout = &f->model->layout;
    for (int i = 0; i < layout->n_tensors; i++) {
        const struct hl_tensor *t = &layout->tensors[i];
        bool turned = t->file_transposed;
        rows[i] = (struct hl_st_plan_row){
            .name = t->name,
            .n_dims = t->n_dims,
            .shape = {t->n_dims == 1 || turned ? t->cols : t->rows, turned ? t->rows : t->cols},
            .data = f->params + t->offset,
            .transposed = turned};
        if (!strncmp(t->name, prefix, strlen(prefix))) rows[i].name += strlen(prefix);
    }
    return layout->n_tensors;
}

static enum hl_status import(const struct fixture *f, struct hl_diag *diag) {
    struct hl_checkpoint_reader *reader;
    *diag = (struct hl_diag){0};
    enum hl_status status =
        hl_checkpoint_open(hl_mem_default(), fake_fs_table(disk), "/m", &reader, NULL, diag);
    if (status) return status;
    assert_false(hl_checkpoint_has_state(reader));
    assert_null(hl_checkpoint_loop_json(reader));
    size_t bytes = (size_t)f->model->layout.n_parameters * sizeof(float);
    float *params = hl_alloc(hl_mem_default(), bytes, 1);
    status = hl_checkpoint_read_params(reader, f->model, params, diag);
    if (!status) assert_memory_equal(params, f->params, bytes);
    hl_free(hl_mem_default(), params);
    hl_checkpoint_close(reader);
    assert_int_equal(fake_fs_open_handles(disk), 0);
    return status;
}

static void begin(struct fixture *f, const char *kind) {
    disk = fake_fs_new();
    assert_int_equal(disk ? fake_fs_table(disk)->make_folder(fake_fs_table(disk), "/m") : 1, 0);
    fixture_set_up(f, kind, 3);
    put_config(&f->model->config);
}

static void end(struct fixture *f) {
    fixture_tear_down(f);
    fake_fs_free(disk);
}

static void refused(const struct fixture *f, const char *part) {
    struct hl_diag diag;
    assert_int_equal(import(f, &diag), HL_E_FORMAT);
    if (!strstr(diag.text, part)) fail_msg("'%s' lacks '%s'", diag.text, part);
}

static void test_names(void **state) {
    (void)state;
    static const char *const kinds[][2] = {{"gpt2", "transformer."}, {"qwen2", "model."}};
    for (int k = 0; k < 2; k++) {
        struct fixture f;
        struct hl_st_plan_row rows[64];
        struct hl_diag diag;
        begin(&f, kinds[k][0]);
        int n = rows_of(&f, rows, kinds[k][1]);
        const float mask[64] = {1};
        if (k == 0)
            rows[n++] = (struct hl_st_plan_row){
                .name = "h.0.attn.bias", .n_dims = 2, .shape = {8, 8}, .data = mask};
        rows[n++] = (struct hl_st_plan_row){.name = "layers.0.self_attn.rotary_emb.inv_freq",
                                            .n_dims = 1,
                                            .shape = {4},
                                            .data = mask};
        put_weights("/m/model.safetensors", rows, n);
        must(import(&f, &diag), &diag);
        rows[n] = (struct hl_st_plan_row){
            .name = "score.weight", .n_dims = 1, .shape = {4}, .data = mask};
        put_weights("/m/model.safetensors", rows, n + 1);
        refused(&f, "does not have: score.weight");
        rows[n].name = f.model->layout.tensors[1].name; /* with and without prefix */
        put_weights("/m/model.safetensors", rows, n + 1);
        refused(&f, "twice");
        put_weights("/m/model.safetensors", rows + 2, n - 2);
        refused(&f, "missing tensors: ");
        rows_of(&f, rows, "");
        rows[1].shape[0]--;
        put_weights("/m/model.safetensors", rows, f.model->layout.n_tensors);
        refused(&f, "by config.json it must be [");
        end(&f);
    }
}

static void test_tied(void **state) {
    (void)state;
    struct fixture f;
    struct hl_st_plan_row rows[64];
    struct hl_diag diag;
    begin(&f, "llama-tied");
    int n = rows_of(&f, rows, "");
    put_weights("/m/model.safetensors", rows, n); /* tied, no head */
    must(import(&f, &diag), &diag);
    rows[n] = rows[0];
    rows[n].name = "lm_head.weight";
    put_weights("/m/model.safetensors", rows, n + 1); /* tied, the head repeats the embedding */
    must(import(&f, &diag), &diag);
    rows[n].data += 1;
    put_weights("/m/model.safetensors", rows, n + 1); /* tied, another head */
    refused(&f, "differs from the embedding");
    end(&f);
    begin(&f, "llama");
    n = rows_of(&f, rows, "");
    put_weights("/m/model.safetensors", rows, n); /* untied with its head */
    must(import(&f, &diag), &diag);
    assert_string_equal(rows[n - 1].name, "lm_head.weight");
    put_weights("/m/model.safetensors", rows, n - 1); /* untied without a head */
    refused(&f, "lm_head.weight is missing while tie_word_embeddings is false");
    end(&f);
}

static void put_index(const struct hl_st_plan_row *rows, int n, int n_first, const char *second) {
    struct hl_buf text = {.mem = hl_mem_default()};
    hl_buf_puts(&text, "{\"metadata\": {}, \"weight_map\": {");
    for (int i = 0; i < n; i++)
        hl_buf_printf(&text, "%s\"%s\": \"%s\"", i ? ", " : "", rows[i].name,
                      i < n_first ? "a.safetensors" : second);
    hl_buf_puts(&text, "}}");
    fake_fs_put(disk, "/m/model.safetensors.index.json", text.data, text.n);
    hl_buf_free(&text);
}

static void test_index(void **state) {
    (void)state;
    struct fixture f;
    struct hl_st_plan_row rows[64];
    struct hl_diag diag;
    begin(&f, "llama");
    refused(&f, "holds no model.safetensors");
    int n = rows_of(&f, rows, "");
    put_weights("/m/a.safetensors", rows, 7);
    put_weights("/m/b.safetensors", rows + 7, n - 7);
    put_index(rows, n, 7, "b.safetensors");
    must(import(&f, &diag), &diag);
    put_index(rows, n, 6, "b.safetensors");
    refused(&f, "the index says");
    put_index(rows, n - 1, 7, "b.safetensors");
    refused(&f, "the index says 'nothing'");
    put_index(rows, n, 7, "../b.safetensors");
    refused(&f, "leads out of the folder");
    put_index(rows, n, 7, "c.safetensors");
    assert_int_equal(import(&f, &diag), HL_E_IO);
    fake_fs_put(disk, "/m/model.safetensors.index.json", "{}", 2);
    refused(&f, "weight_map");
    fake_fs_put(disk, "/m/model.safetensors.index.json", "{", 1);
    refused(&f, "index.json:1");
    end(&f);
}

/* ---- the five models: what is read and saved again is the same file, tensor by tensor ---- */

static void compare_files(const char *path_a, const char *path_b) {
    struct hl_st_file a, b;
    struct hl_diag diag = {0};
    must(hl_st_open(hl_mem_default(), hl_fs_os(), path_a, &a, &diag), &diag);
    must(hl_st_open(hl_mem_default(), fake_fs_table(disk), path_b, &b, &diag), &diag);
    assert_int_equal(a.table.n_tensors, b.table.n_tensors);
    for (int i = 0; i < a.table.n_tensors; i++) {
        const struct hl_st_tensor *x = &a.table.tensors[i], *y = NULL;
        for (int j = 0; j < b.table.n_tensors; j++)
            if (!strcmp(b.table.tensors[j].name, x->name)) y = &b.table.tensors[j];
        if (!y) fail_msg("%s is gone", x->name);
        assert_int_equal(x->n_dims, y->n_dims);
        assert_memory_equal(x->shape, y->shape, sizeof x->shape);
        float *u = hl_alloc(hl_mem_default(), (size_t)x->n, 4),
              *v = hl_alloc(hl_mem_default(), (size_t)x->n, 4);
        must(hl_st_read(&a, x, 0, x->n, u, u, &diag), &diag);
        must(hl_st_read(&b, y, 0, y->n, v, v, &diag), &diag);
        assert_memory_equal(u, v, (size_t)x->n * 4);
        hl_free(hl_mem_default(), u);
        hl_free(hl_mem_default(), v);
    }
    hl_st_close(&a);
    hl_st_close(&b);
}

static void import_and_save(const char *folder) {
    struct hl_checkpoint_reader *reader;
    struct hl_model *model;
    struct hl_diag diag = {0};
    disk = fake_fs_new();
    must(hl_checkpoint_open(hl_mem_default(), hl_fs_os(), folder, &reader, NULL, &diag), &diag);
    must(hl_model_new(hl_mem_default(), hl_checkpoint_config(reader), &model, &diag), &diag);
    float *params = hl_alloc(hl_mem_default(), (size_t)model->layout.n_parameters, sizeof *params);
    must(hl_checkpoint_read_params(reader, model, params, &diag), &diag);
    hl_checkpoint_close(reader);
    struct hl_checkpoint checkpoint = {
        .step = 1, .model = model, .params = params, .loop_json = "{}"};
    must(hl_checkpoint_save(hl_mem_default(), fake_fs_table(disk), "/out", &checkpoint, 0, NULL,
                            &diag),
         &diag);
    char path[500];
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    compare_files(path, "/out/checkpoint-1/model.safetensors");
    hl_free(hl_mem_default(), params);
    hl_model_free(model);
    fake_fs_free(disk);
}

static void test_five_models(void **state) {
    (void)state;
    const char *shared = getenv("HALLEY_SHARED_DATA");
    if (!shared) {
        print_message("SKIP: HALLEY_SHARED_DATA is not set\n");
        skip();
    }
    static const char *const names[] = {"stories260k-hf", "tiny-gpt2-hf", "tiny-qwen2-hf",
                                        "tiny-qwen3-hf", "tiny-llama3-rope-hf"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char folder[400];
        (void)snprintf(folder, sizeof folder, "%s/%s", shared, names[i]);
        if (access(folder, R_OK)) print_message("SKIP: %s is not there\n", folder);
        else import_and_save(folder);
    }
}

/* ---- version 1, kept ---- */

static void golden_fixture(struct fixture *f) {
    struct hl_model_config c = {.family = HL_FAMILY_LLAMA,
                                .vocab_size = 5,
                                .hidden_size = 6,
                                .num_hidden_layers = 1,
                                .num_attention_heads = 2,
                                .num_key_value_heads = 1,
                                .head_dim = 4,
                                .intermediate_size = 7,
                                .max_position_embeddings = 16,
                                .norm_epsilon = 1e-6,
                                .rope_theta = 10000,
                                .qkv_bias = true,
                                .initializer_range = 0.02,
                                .bos_token_id = 1,
                                .eos_token_id = -1,
                                .rope_scaling = {HL_ROPE_LINEAR, 2, 0, 0, 0}};
    struct hl_diag diag = {0};
    must(hl_model_new(hl_mem_default(), &c, &f->model, &diag), &diag);
    size_t n = (size_t)f->model->layout.n_parameters;
    f->params = hl_alloc(hl_mem_default(), n, sizeof *f->params);
    f->m = hl_alloc(hl_mem_default(), n, sizeof *f->m);
    for (int t = 0; t < f->model->layout.n_tensors; t++)
        for (int64_t i = 0; i < f->model->layout.tensors[t].rows * f->model->layout.tensors[t].cols;
             i++)
            f->params[f->model->layout.tensors[t].offset + i] = (float)(t * 1000 + i) / 64;
    for (size_t i = 0; i < n; i++) f->m[i] = (float)i / 128;
    f->arrays[0] = (struct hl_saved_array){"adamw.m", f->m, 40};
    f->checkpoint = (struct hl_checkpoint){.step = 7,
                                           .model = f->model,
                                           .params = f->params,
                                           .arrays = f->arrays,
                                           .n_arrays = 1,
                                           .loop_json = "{\"step\": 7}",
                                           .run_yaml = "max_steps: 7\n",
                                           .made_with_json = "{\"threads\": 2}",
                                           .tokenizer_json = "{}"};
}

static void test_version_1(void **state) {
    (void)state;
    struct fixture f;
    golden_fixture(&f);
    const char *write_to = getenv("HALLEY_WRITE_GOLDEN"), *data = getenv("HALLEY_TEST_DATA");
    if (write_to) {
        struct hl_diag diag = {0};
        must(hl_checkpoint_save(hl_mem_default(), hl_fs_os(), write_to, &f.checkpoint, 0, NULL,
                                &diag),
             &diag);
    }
    assert_non_null(data);
    char path[500];
    (void)snprintf(path, sizeof path, "%s/../golden/checkpoint-v1", data);
    fixture_check(&f, hl_fs_os(), path);
    fixture_tear_down(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),     cmocka_unit_test(test_tied),
        cmocka_unit_test(test_index),     cmocka_unit_test(test_five_models),
        cmocka_unit_test(test_version_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
