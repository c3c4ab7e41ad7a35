/* Data sets as a user names them: text, shards, globs, weights, caches; and the sentence for each
 * mistake. */
#include "data_support.h"

#include <math.h>
#include <sys/stat.h>

#include "text/build.h"
#include "text/text_store.h"
#include "text/tokenizer_internal.h"

static enum hl_status try_open(struct fixture *fixture, const struct hl_data_options *options) {
    struct hl_dataset *dataset = NULL;
    fixture->diag.text[0] = 0;
    enum hl_status status = hl_dataset_open(&fixture->probe.mem, options, fixture->tokenizer, 2,
                                            &fixture->notes.log, &dataset, &fixture->diag);
    hl_dataset_free(dataset);
    return status;
}

static void expect(struct fixture *fixture, const struct hl_data_options *options,
                   enum hl_status status, const char *said) {
    assert_int_equal(try_open(fixture, options), status);
    if (!strstr(fixture->diag.text, said)) fail_msg("no '%s' in: %s", said, fixture->diag.text);
}

/* 30 documents of `name`'s letter, a line each. */
static char *write_lines(struct fixture *fixture, const char *name, char path[256]) {
    char text[2000];
    size_t n = 0;
    for (int d = 0; d < 30; d++) n += (size_t)sprintf(text + n, "%.*s%d\n", 1 + d % 4, name, d);
    return scratch_write(&fixture->scratch, name, text, n, path);
}

static void test_mistakes(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[256], entry[2][300];
    char *paths[2] = {write_lines(&fixture, "good.txt", path), NULL};
    struct hl_data_options options = options_for(paths, 0, 16);
    expect(&fixture, &options, HL_E_USER, "no data: name text files");
    options = options_for(paths, 1, 0);
    expect(&fixture, &options, HL_E_USER, "block_size");
    options = options_for(paths, 1, 16);
    options.validation_split = NAN;
    expect(&fixture, &options, HL_E_USER, "validation_split");
    options = options_for(paths, 1, 10000);
    expect(&fixture, &options, HL_E_USER,
           "fewer than one row of block_size 10000: give more text or a smaller --block_size");

    options = options_for(paths, 1, 16);
    paths[0] = fixture.scratch.folder;
    expect(&fixture, &options, HL_E_USER, "is a folder; name its files");
    paths[0] = entry[0];
    (void)snprintf(entry[0], sizeof entry[0], "%s/*.nothing", fixture.scratch.folder);
    expect(&fixture, &options, HL_E_USER, "no file matches '");
    (void)snprintf(entry[0], sizeof entry[0], "%s/none.txt", fixture.scratch.folder);
    expect(&fixture, &options, HL_E_IO, "none.txt: cannot open: No such file");
    paths[0] = scratch_write(&fixture.scratch, "empty.txt", "", 0, path);
    expect(&fixture, &options, HL_E_USER, "empty.txt' is empty: there is nothing to train on");
    paths[0] = scratch_write(&fixture.scratch, "no.bin", "just text", 9, path);
    expect(&fixture, &options, HL_E_FORMAT,
           "no.bin: is neither a halley shard nor one of llm.c; if it is text, say --text_format "
           "document");
    paths[0] = scratch_write(&fixture.scratch, "lfs.bin",
                             "version https://git-lfs.github.com/spec/v1\n", 43, path);
    expect(&fixture, &options, HL_E_FORMAT, "git lfs pull");

    write_lines(&fixture, "good.txt", path);
    paths[0] = entry[0];
    paths[1] = entry[1];
    options = options_for(paths, 2, 16);
    (void)snprintf(entry[0], sizeof entry[0], "0:%s", path);
    (void)snprintf(entry[1], sizeof entry[1], "1:%s", path);
    expect(&fixture, &options, HL_E_USER, "a weight must be greater than 0");
    (void)snprintf(entry[0], sizeof entry[0], "%s", path);
    expect(&fixture, &options, HL_E_USER, "has no weight but others have");
    (void)snprintf(entry[0], sizeof entry[0], "5000:%s", path);
    expect(&fixture, &options, HL_E_USER, "would never be seen");
    char *held[] = {entry[1]};
    paths[0] = path;
    options = options_for(paths, 1, 16);
    options.validation_data = (struct hl_string_list){held, 1};
    expect(&fixture, &options, HL_E_USER, "weights have no meaning there");
    fixture_remove(&fixture);
}

/* A name that looks like a weight or a pattern but exists is that file. */
static void test_odd_names(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[256], cwd[256];
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(chdir(fixture.scratch.folder), 0);
    write_lines(&fixture, "0.5:a[1]*.txt", path);
    char *paths[] = {(char *)(uintptr_t) "0.5:a[1]*.txt"};
    struct hl_data_options options = options_for(paths, 1, 16);
    struct hl_dataset *dataset = open_data(&fixture, &options);
    hl_dataset_free(dataset);
    assert_int_equal(chdir(cwd), 0);
    fixture_remove(&fixture);
}

/* Two texts, a glob over them, and shards of them are the same data in the same order. */
static void test_text_and_shards_agree(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[2][256], pattern[2][300], folder[256];
    char *two[] = {write_lines(&fixture, "a.txt", path[0]),
                   write_lines(&fixture, "b.txt", path[1])};
    (void)snprintf(pattern[0], sizeof pattern[0], "%s/[ab].txt", fixture.scratch.folder);
    (void)snprintf(pattern[1], sizeof pattern[1], "%s/shards/*.hls", fixture.scratch.folder);
    struct hl_string_list inputs = {two, 2};
    struct hl_build build = {.mem = &fixture.probe.mem,
                             .data = &inputs,
                             .text_key = "text",
                             .text_format = HL_TEXT_LINES,
                             .n_threads = 2};
    struct hl_built built;
    assert_int_equal(hl_build_shards(&build, fixture.tokenizer,
                                     scratch_path(&fixture.scratch, "shards", folder), 50, &built,
                                     &fixture.diag),
                     HL_OK);
    assert_true(built.n_shards > 3);
    assert_int_equal(built.n_documents, 60);

    char *globbed[] = {pattern[0]}, *shards[] = {pattern[1]};
    struct hl_data_options options[3] = {options_for(two, 2, 16), options_for(globbed, 1, 16),
                                         options_for(shards, 1, 16)};
    int32_t want[16 * 8];
    int64_t n_want[3] = {0};
    for (int k = 0; k < 3; k++) {
        if (k < 2) options[k].text_format = HL_TEXT_LINES;
        struct hl_dataset *dataset = open_data(&fixture, &options[k]);
        struct hl_loader *loader;
        struct hl_batch batch;
        assert_int_equal(
            hl_loader_new(&fixture.probe.mem, dataset, HL_SPLIT_TRAIN, 8, &loader, &fixture.diag),
            HL_OK);
        assert_int_equal(hl_loader_rows(loader, 3, 8, &batch, &fixture.diag), HL_OK);
        if (!k) memcpy(want, batch.target_N, (size_t)batch.n_tokens * 4);
        assert_memory_equal(batch.target_N, want, (size_t)batch.n_tokens * 4);
        n_want[k] = batch.n_tokens + 1000 * hl_dataset_n_tokens(dataset, HL_SPLIT_VALIDATION);
        assert_int_equal(n_want[k], n_want[0]);
        assert_int_equal(hl_dataset_max_token(dataset), hl_tokenizer_eos(fixture.tokenizer));
        hl_loader_free(loader);
        hl_dataset_free(dataset);
    }
    /* a second build into the same folder would mix old and new */
    assert_int_equal(hl_build_shards(&build, fixture.tokenizer, folder, 50, &built, &fixture.diag),
                     HL_E_USER);
    assert_non_null(strstr(fixture.diag.text, "holds shards already"));
    fixture_remove(&fixture);
}

static void test_another_tokenizer(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[256], folder[256], shard[256];
    char *paths[] = {write_lines(&fixture, "a.txt", path)};
    struct hl_string_list inputs = {paths, 1};
    struct hl_build build = {.mem = &fixture.probe.mem, .data = &inputs, .text_key = "text"};
    struct hl_built built;
    struct hl_tokenizer *bpe;
    build.text_format = HL_TEXT_LINES;
    assert_int_equal(hl_build_tokenizer(&build, 262, &bpe, &built, &fixture.diag), HL_OK);
    assert_int_equal(hl_build_shards(&build, bpe, scratch_path(&fixture.scratch, "s", folder), 1000,
                                     &built, &fixture.diag),
                     HL_OK);
    paths[0] = scratch_path(&fixture.scratch, "s/data-000000.hls", shard);
    struct hl_data_options options = options_for(paths, 1, 16);
    expect(&fixture, &options, HL_E_USER, "was made with another tokenizer");
    hl_tokenizer_free(bpe);

    _Alignas(8) char bytes[1024 + 200] = {
        0}; /* llm.c's do not say: an id that does not exist gives it away */
    const int32_t head[] = {20240520, 1, 100};
    const uint16_t token = 50256;
    memcpy(bytes, head, sizeof head);
    memcpy(bytes + 1030, &token, 2);
    paths[0] = scratch_write(&fixture.scratch, "l.bin", bytes, sizeof bytes, path);
    expect(&fixture, &options, HL_E_USER, "holds token 50256 but the tokenizer has only");
    bytes[1031] = 0;
    paths[0] = scratch_write(&fixture.scratch, "l.bin", bytes, sizeof bytes, path);
    assert_int_equal(try_open(&fixture, &options), HL_OK);
    fixture_remove(&fixture);
}

static void test_validation_data(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[2][256];
    char *paths[] = {write_lines(&fixture, "a.txt", path[0])},
         *held[] = {write_lines(&fixture, "b.txt", path[1])};
    struct hl_data_options options = options_for(paths, 1, 16);
    options.text_format = HL_TEXT_LINES;
    options.validation_data = (struct hl_string_list){held, 1};
    struct hl_dataset *dataset = open_data(&fixture, &options);
    assert_int_equal(hl_dataset_n_tokens(dataset, HL_SPLIT_TRAIN),
                     hl_dataset_n_tokens(dataset, HL_SPLIT_VALIDATION));
    struct hl_loader *loader;
    struct hl_batch batch;
    assert_int_equal(
        hl_loader_new(&fixture.probe.mem, dataset, HL_SPLIT_VALIDATION, 4, &loader, &fixture.diag),
        HL_OK);
    assert_int_equal(hl_loader_rows(loader, 0, 1, &batch, &fixture.diag), HL_OK);
    assert_int_equal(batch.token_N[0], hl_tokenizer_eos(fixture.tokenizer));
    assert_int_equal(batch.target_N[0], 'b');
    hl_loader_free(loader);
    uint64_t hash = hl_dataset_hash(dataset);
    hl_dataset_free(dataset);
    options.block_size = 17;
    dataset = open_data(&fixture, &options);
    assert_true(hash != hl_dataset_hash(dataset));
    hl_dataset_free(dataset);
    fixture_remove(&fixture);
}

/* A tokenizer without bos and eos: the first token of a document cannot be predicted, everything
 * else is a target once. */
static void test_no_start_token(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    fixture.tokenizer->bos = fixture.tokenizer->eos = -1;
    char path[256];
    char *paths[] = {write_lines(&fixture, "a.txt", path)};
    for (int64_t size = 1; size < 9; size++) {
        struct hl_data_options options = options_for(paths, 1, size);
        options.text_format = HL_TEXT_LINES;
        options.validation_split = 0;
        struct hl_dataset *dataset = open_data(&fixture, &options);
        struct hl_loader *loader;
        int64_t rows = hl_dataset_n_rows(dataset, HL_SPLIT_TRAIN), n_tokens = 0, n_supervised = 0;
        assert_int_equal(
            hl_loader_new(&fixture.probe.mem, dataset, HL_SPLIT_TRAIN, 3, &loader, &fixture.diag),
            HL_OK);
        for (int64_t row = 0; row < rows; row += 3) {
            struct hl_batch batch;
            assert_int_equal(
                hl_loader_rows(loader, row, rows - row < 3 ? rows - row : 3, &batch, &fixture.diag),
                HL_OK);
            check_shape(&batch);
            n_tokens += batch.n_tokens;
            n_supervised += batch.n_supervised;
            for (int64_t s = 0; s < batch.n_sequences; s++)
                for (int64_t i = batch.offsets[s]; i + 1 < batch.offsets[s + 1]; i++) {
                    assert_true(batch.target_N[i] >=
                                0); /* only a sequence's last target is masked */
                    assert_int_equal(batch.token_N[i + 1], batch.target_N[i]);
                }
        }
        assert_int_equal(n_tokens, hl_dataset_n_tokens(dataset, HL_SPLIT_TRAIN) - 1);
        assert_int_equal(n_supervised, hl_dataset_n_tokens(dataset, HL_SPLIT_TRAIN) - 30);
        hl_loader_free(loader);
        hl_dataset_free(dataset);
    }
    fixture_remove(&fixture);
}

/* The cache gives the same data, is used again, and is not used for a changed file. */
static void test_cache(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[256], cache[256];
    size_t n = HL_CACHE_FROM_BYTES + 1000;
    char *text = malloc(n);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) text[i] = (char)(i % 61 ? 'a' + i % 23 : '\n');
    char *paths[] = {scratch_write(&fixture.scratch, "big.txt", text, n, path)};
    struct hl_data_options options = options_for(paths, 1, 64);
    uint64_t hash = 0;
    for (int k = 0; k < 4; k++) { /* in memory, written, found again, changed */
        if (k) options.cache_dir = scratch_path(&fixture.scratch, "cache", cache);
        if (k == 3) {
            text[n / 2]++;
            scratch_write(&fixture.scratch, "big.txt", text, n, path);
        }
        fixture.notes.text[0] = 0;
        struct hl_dataset *dataset = open_data(&fixture, &options);
        assert_int_equal(strstr(fixture.notes.text, "tokens kept in") != NULL, k == 1 || k == 3);
        assert_int_equal(strstr(fixture.notes.text, "tokens found in") != NULL, k == 2);
        assert_int_equal(hl_dataset_n_tokens(dataset, HL_SPLIT_TRAIN) +
                             hl_dataset_n_tokens(dataset, HL_SPLIT_VALIDATION),
                         n);
        if (!k) hash = hl_dataset_hash(dataset);
        assert_int_equal(hash == hl_dataset_hash(dataset), k < 3);
        hl_dataset_free(dataset);
    }
    assert_int_equal(fixture.notes.n_warn, 0);
    free(text);
    fixture_remove(&fixture);
}

static void test_each_allocation_of_build_fails(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[256], folder[256], command[300];
    char *paths[] = {write_lines(&fixture, "a.txt", path)};
    struct hl_string_list inputs = {paths, 1};
    scratch_path(&fixture.scratch, "s", folder);
    (void)snprintf(command, sizeof command, "%s/*.hls", folder);
    long k = 1;
    for (bool done = false; !done; k++) {
        struct hl_mem_probe probe;
        struct hl_built built;
        hl_mem_probe_init(&probe, k);
        struct hl_build build = {.mem = &probe.mem,
                                 .data = &inputs,
                                 .text_key = "text",
                                 .text_format = HL_TEXT_LINES,
                                 .n_threads = 2};
        enum hl_status status =
            hl_build_shards(&build, fixture.tokenizer, folder, 1000, &built, &fixture.diag);
        done = !status;
        if (status) assert_int_equal(status, HL_E_MEMORY);
        assert_int_equal(probe.n_live, 0);
        (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
        assert_int_equal(system(command), 0);
    }
    assert_true(k > 10);
    fixture_remove(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mistakes),
                                       cmocka_unit_test(test_odd_names),
                                       cmocka_unit_test(test_text_and_shards_agree),
                                       cmocka_unit_test(test_another_tokenizer),
                                       cmocka_unit_test(test_validation_data),
                                       cmocka_unit_test(test_no_start_token),
                                       cmocka_unit_test(test_cache),
                                       cmocka_unit_test(test_each_allocation_of_build_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
