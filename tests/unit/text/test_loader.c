/* Rows: every token is a target exactly once, in any batch size, at any position, with and without document masks. */
#include "data_support.h"

struct fixture {
    struct scratch scratch;
    struct hl_mem_probe probe;
    struct hl_tokenizer *tokenizer;
    struct notes notes;
    struct hl_diag diag;
};

static void fixture_make(struct fixture *fixture) {
    scratch_make(&fixture->scratch);
    hl_mem_probe_init(&fixture->probe, 0);
    notes_init(&fixture->notes);
    assert_int_equal(hl_tokenizer_byte(&fixture->probe.mem, &fixture->tokenizer, &fixture->diag), HL_OK);
}

static void fixture_remove(struct fixture *fixture) {
    hl_tokenizer_free(fixture->tokenizer);
    assert_int_equal(fixture->probe.n_live, 0);
    scratch_remove(&fixture->scratch);
}

static struct hl_data_options options_for(char **paths, size_t n, int64_t block_size) {
    return (struct hl_data_options){.data = {paths, n}, .validation_split = 0.1, .text_key = (char *)(uintptr_t)"text",
                                    .block_size = block_size, .document_mask = true, .seed = 7, .cache_dir = (char *)(uintptr_t)""};
}

static struct hl_dataset *open_data(struct fixture *fixture, const struct hl_data_options *options) {
    struct hl_dataset *dataset = NULL;
    enum hl_status status = hl_dataset_open(&fixture->probe.mem, options, fixture->tokenizer, 1, &fixture->notes.log,
                                            &dataset, &fixture->diag);
    if (status) fail_msg("%s", fixture->diag.text);
    return dataset;
}

static struct hl_batch batch_at(struct fixture *fixture, struct hl_loader *loader, int64_t row, int64_t n) {
    struct hl_batch batch;
    enum hl_status status = hl_loader_rows(loader, row, n, &batch, &fixture->diag);
    if (status) fail_msg("rows %ld: %s", (long)row, fixture->diag.text);
    return batch;
}

static void check_shape(const struct hl_batch *batch) {
    int64_t supervised = 0;
    assert_true(batch->n_sequences >= 1);
    assert_int_equal(batch->offsets[0], 0);
    assert_int_equal(batch->offsets[batch->n_sequences], batch->n_tokens);
    for (int64_t s = 0; s < batch->n_sequences; s++) {
        assert_true(batch->offsets[s] < batch->offsets[s + 1]);
        for (int64_t i = batch->offsets[s]; i < batch->offsets[s + 1]; i++) {
            assert_int_equal(batch->position_N[i], i - batch->offsets[s]);
            supervised += batch->target_N[i] >= 0;
        }
    }
    assert_int_equal(supervised, batch->n_supervised);
}

static void test_one_document(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[256], text[1000];
    for (int i = 0; i < 1000; i++) text[i] = (char)(32 + i % 90);
    char *paths[] = {scratch_write(&fixture.scratch, "a.txt", text, sizeof text, path)};
    struct hl_data_options options = options_for(paths, 1, 64);
    struct hl_dataset *dataset = open_data(&fixture, &options);
    assert_int_equal(hl_dataset_n_tokens(dataset, HL_SPLIT_TRAIN), 900); /* no end-of-text token: one document alone */
    assert_int_equal(hl_dataset_n_tokens(dataset, HL_SPLIT_VALIDATION), 100);
    assert_int_equal(hl_dataset_n_rows(dataset, HL_SPLIT_TRAIN), 15);
    assert_int_equal(hl_dataset_n_rows(dataset, HL_SPLIT_VALIDATION), 2);
    struct hl_loader *loader;
    assert_int_equal(hl_loader_new(&fixture.probe.mem, dataset, HL_SPLIT_VALIDATION, 3, &loader, &fixture.diag), HL_OK);
    struct hl_batch batch = batch_at(&fixture, loader, 0, 3);
    check_shape(&batch);
    assert_int_equal(batch.n_tokens, 100);
    assert_int_equal(batch.n_sequences, 2);
    assert_int_equal(batch.offsets[1], 64);
    assert_int_equal(batch.token_N[0], text[899]); /* what stands before the held-out part */
    for (int i = 0; i < 100; i++) assert_int_equal(batch.target_N[i], text[900 + i]);
    for (int i = 1; i < 100; i++) assert_int_equal(batch.token_N[i], text[899 + i]);
    assert_int_equal(hl_loader_rows(loader, 2, 1, &batch, &fixture.diag), HL_END);
    hl_loader_free(loader);
    hl_dataset_free(dataset);
    fixture_remove(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_document)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
