/* Rows: every token is a target exactly once, in any batch size, at any position, with and without
 * document masks. */
#include "data_support.h"

static struct hl_batch batch_at(struct fixture *fixture, struct hl_loader *loader, int64_t row,
                                int64_t n) {
    struct hl_batch batch;
    enum hl_status status = hl_loader_rows(loader, row, n, &batch, &fixture->diag);
    if (status) fail_msg("rows %ld: %s", (long)row, fixture->diag.text);
    return batch;
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
    assert_int_equal(hl_dataset_n_tokens(dataset, HL_SPLIT_TRAIN),
                     900); /* no end-of-text token: one document alone */
    assert_int_equal(hl_dataset_n_tokens(dataset, HL_SPLIT_VALIDATION), 100);
    assert_int_equal(hl_dataset_n_rows(dataset, HL_SPLIT_TRAIN), 15);
    assert_int_equal(hl_dataset_n_rows(dataset, HL_SPLIT_VALIDATION), 2);
    struct hl_loader *loader;
    assert_int_equal(
        hl_loader_new(&fixture.probe.mem, dataset, HL_SPLIT_VALIDATION, 3, &loader, &fixture.diag),
        HL_OK);
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

/* 500 short documents, one per line: document d is "dNNN" and d % 7 letters. */
static char *write_names(struct fixture *fixture, char path[256]) {
    char text[20000];
    size_t n = 0;
    for (int d = 0; d < 500; d++) {
        n += (size_t)sprintf(text + n, "d%03d", d);
        for (int i = 0; i < d % 7; i++) text[n++] = 'x';
        text[n++] = '\n';
    }
    return scratch_write(&fixture->scratch, "names.txt", text, n, path);
}

static struct hl_loader *new_loader(struct fixture *fixture, const struct hl_dataset *dataset,
                                    enum hl_split split, int64_t rows) {
    struct hl_loader *loader = NULL;
    if (hl_loader_new(&fixture->probe.mem, dataset, split, rows, &loader, &fixture->diag))
        fail_msg("%s", fixture->diag.text);
    return loader;
}

/* Count the documents by their targets: in mask mode every sequence is a piece of one document, and
 * a document that begins in a sequence begins with the start token. */
static void count_documents(const struct hl_batch *batch, int32_t start, int *seen) {
    for (int64_t s = 0; s < batch->n_sequences; s++) {
        int64_t from = batch->offsets[s], to = batch->offsets[s + 1];
        for (int64_t i = from + 1; i < to; i++) {
            assert_int_equal(batch->token_N[i], batch->target_N[i - 1]);
            assert_int_not_equal(batch->token_N[i],
                                 start); /* the end of a document is the end of its sequence */
        }
        if (batch->token_N[from] == start && to - from >= 4 && batch->target_N[from] == 'd')
            seen[(batch->target_N[from + 1] - '0') * 100 + (batch->target_N[from + 2] - '0') * 10 +
                 batch->target_N[from + 3] - '0']++;
    }
}

static void test_names_each_document_once(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[256];
    char *paths[] = {write_names(&fixture, path)};
    struct hl_data_options options = options_for(paths, 1, 3000);
    options.text_format = HL_TEXT_LINES;
    struct hl_dataset *dataset = open_data(&fixture, &options);
    int seen[500] = {0}, held = 0;
    int32_t start = hl_tokenizer_eos(fixture.tokenizer);
    for (int split = 0; split < 2; split++) {
        struct hl_loader *loader = new_loader(&fixture, dataset, (enum hl_split)split, 64);
        struct hl_batch batch =
            batch_at(&fixture, loader, 0, hl_dataset_n_rows(dataset, (enum hl_split)split));
        check_shape(&batch);
        assert_int_equal(batch.n_supervised, batch.n_tokens); /* nothing is masked away */
        assert_int_equal(batch.n_tokens, hl_dataset_n_tokens(dataset, (enum hl_split)split));
        int before = 0, after = 0;
        for (int d = 0; d < 500; d++) before += seen[d];
        count_documents(&batch, start, seen);
        for (int d = 0; d < 500; d++) after += seen[d];
        if (split == 1) held = after - before;
        hl_loader_free(loader);
    }
    int cut = 0; /* a document that two rows share is counted where it begins, unless less than four
                    of its tokens are there */
    for (int d = 0; d < 500; d++) {
        assert_true(seen[d] <= 1);
        cut += !seen[d];
    }
    assert_true(cut <= 2);
    assert_int_equal(held, 50);
    hl_dataset_free(dataset);
    fixture_remove(&fixture);
}

/* Sum over rows of hash(target) must be that of the stream, for every T and both mask settings; the
 * batch size and the position never matter. */
static uint64_t sum_targets(const struct hl_batch *batch) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < batch->n_tokens; i++)
        sum += (uint64_t)(batch->target_N[i] + 2) * 0x9E3779B97F4A7C15u >> 7;
    return sum;
}

static void test_union_of_rows(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[256];
    char *paths[] = {write_names(&fixture, path)};
    static const int64_t sizes[] = {1, 2, 3, 7, 64, 63, 1000};
    uint64_t want[2] = {0, 0};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int mask = 0; mask < 2; mask++) {
            struct hl_data_options options = options_for(paths, 1, sizes[k]);
            options.text_format = HL_TEXT_LINES;
            options.document_mask = mask;
            struct hl_dataset *dataset = open_data(&fixture, &options);
            for (int split = 0; split < 2; split++) {
                int64_t rows = hl_dataset_n_rows(dataset, (enum hl_split)split), tokens = 0;
                struct hl_loader *loader = new_loader(&fixture, dataset, (enum hl_split)split, 5);
                uint64_t sum = 0;
                for (int64_t row = 0; row < rows; row += 5) {
                    struct hl_batch batch =
                        batch_at(&fixture, loader, row, rows - row < 5 ? rows - row : 5);
                    check_shape(&batch);
                    tokens += batch.n_tokens;
                    sum += sum_targets(&batch);
                }
                assert_int_equal(tokens, hl_dataset_n_tokens(dataset, (enum hl_split)split));
                if (!want[split]) want[split] = sum;
                assert_true(want[split] == sum);
                hl_loader_free(loader);
            }
            hl_dataset_free(dataset);
        }
    fixture_remove(&fixture);
}

static void same_batch(const struct hl_batch *a, const struct hl_batch *b) {
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_int_equal(a->n_sequences, b->n_sequences);
    assert_memory_equal(a->token_N, b->token_N, (size_t)a->n_tokens * 4);
    assert_memory_equal(a->target_N, b->target_N, (size_t)a->n_tokens * 4);
    assert_memory_equal(a->position_N, b->position_N, (size_t)a->n_tokens * 4);
    assert_memory_equal(a->offsets, b->offsets, (size_t)(a->n_sequences + 1) * 8);
}

static void test_resume_anywhere(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[256];
    char *paths[] = {write_names(&fixture, path)};
    struct hl_data_options options = options_for(paths, 1, 30);
    options.text_format = HL_TEXT_LINES;
    struct hl_dataset *dataset = open_data(&fixture, &options);
    struct hl_loader *walking = new_loader(&fixture, dataset, HL_SPLIT_TRAIN, 3);
    int64_t rows = hl_dataset_n_rows(dataset, HL_SPLIT_TRAIN), changed = 0;
    for (int64_t row = 0; row < 3 * rows; row += 3) { /* over two ends of epochs */
        struct hl_loader *fresh = new_loader(&fixture, dataset, HL_SPLIT_TRAIN, 3);
        struct hl_batch a = batch_at(&fixture, walking, row, 3),
                        b = batch_at(&fixture, fresh, row, 3);
        same_batch(&a, &b);
        int32_t first = a.target_N[0];
        if (row + rows < 3 * rows) {
            b = batch_at(&fixture, fresh, row + rows, 3);
            changed += b.target_N[0] != first || b.n_tokens != a.n_tokens;
        }
        hl_loader_free(fresh);
    }
    assert_true(changed > rows / 3); /* each epoch is another permutation */
    hl_loader_free(walking);
    hl_dataset_free(dataset);
    fixture_remove(&fixture);
}

/* The split does not move with the seed; the order does. */
static void test_seed(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[256];
    char *paths[] = {write_names(&fixture, path)};
    int32_t held[2][64], first[2][256];
    for (int seed = 0; seed < 2; seed++) {
        struct hl_data_options options = options_for(paths, 1, 64);
        options.text_format = HL_TEXT_LINES;
        options.seed = (uint64_t)seed + 100;
        struct hl_dataset *dataset = open_data(&fixture, &options);
        struct hl_loader *loader = new_loader(&fixture, dataset, HL_SPLIT_VALIDATION, 1);
        struct hl_batch batch = batch_at(&fixture, loader, 0, 1);
        memcpy(held[seed], batch.target_N, sizeof held[0]);
        hl_loader_free(loader);
        loader = new_loader(&fixture, dataset, HL_SPLIT_TRAIN, 5);
        batch = batch_at(&fixture, loader, 0, 5);
        memcpy(first[seed], batch.target_N, sizeof first[0]);
        hl_loader_free(loader);
        hl_dataset_free(dataset);
    }
    assert_memory_equal(held[0], held[1], sizeof held[0]);
    assert_memory_not_equal(first[0], first[1], sizeof first[0]);
    fixture_remove(&fixture);
}

/* Three sources in proportion 5 : 3 : 2, exact in each block of 1,024 rows; every row of a source
 * before any comes again. */
static void test_mixture(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[3][256], entry[3][300], *entries[3];
    static const char *const weights[] = {"0.5", "3e-1", ".2"};
    for (int s = 0; s < 3; s++) {
        char text[3000], name[8];
        size_t size = 900 + 700 * (size_t)s;
        memset(text, 'a' + s, size);
        (void)snprintf(name, sizeof name, "%d.txt", s);
        (void)snprintf(entry[s], sizeof entry[s], "%s:%s", weights[s],
                       scratch_write(&fixture.scratch, name, text, size, path[s]));
        entries[s] = entry[s];
    }
    struct hl_data_options options = options_for(entries, 3, 10);
    options.validation_split = 0;
    struct hl_dataset *dataset = open_data(&fixture, &options);
    assert_int_equal(hl_dataset_n_rows(dataset, HL_SPLIT_VALIDATION), 0);
    assert_non_null(strstr(fixture.notes.text, "nothing held out"));
    assert_int_equal(hl_dataset_n_rows(dataset, HL_SPLIT_TRAIN), 90 + 160 + 230);
    struct hl_loader *loader = new_loader(&fixture, dataset, HL_SPLIT_TRAIN, 1024);
    for (int block = 0; block < 3; block++) {
        int count[3] = {0};
        struct hl_batch batch = batch_at(&fixture, loader, block * 1024, 1024);
        check_shape(&batch);
        for (int64_t s = 0; s < batch.n_sequences; s++)
            count[batch.target_N[batch.offsets[s + 1] - 1] - 'a']++;
        assert_int_equal(count[0], 512);
        assert_int_equal(count[1], 307);
        assert_int_equal(count[2], 205);
    }
    hl_loader_free(loader);
    hl_dataset_free(dataset);
    fixture_remove(&fixture);
}

/* A document's batch is the same whatever stands in front of it in the row. */
static void test_documents_do_not_see_each_other(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[256];
    int32_t tokens[2][8], targets[2][8], positions[2][8];
    for (int k = 0; k < 2; k++) {
        const char *text = k ? "QQQQ\nhello\n" : "aaaa\nhello\n";
        char *paths[] = {scratch_write(&fixture.scratch, "two.txt", text, strlen(text), path)};
        struct hl_data_options options = options_for(paths, 1, 11);
        options.text_format = HL_TEXT_LINES;
        options.validation_split = 0;
        struct hl_dataset *dataset = open_data(&fixture, &options);
        struct hl_loader *loader = new_loader(&fixture, dataset, HL_SPLIT_TRAIN, 1);
        struct hl_batch batch = batch_at(&fixture, loader, 0, 1);
        assert_int_equal(batch.n_sequences, 2);
        assert_int_equal(batch.offsets[1], 5);
        assert_int_equal(batch.offsets[2], 11);
        memcpy(tokens[k], batch.token_N + 5, 24);
        memcpy(targets[k], batch.target_N + 5, 24);
        memcpy(positions[k], batch.position_N + 5, 24);
        hl_loader_free(loader);
        hl_dataset_free(dataset);
    }
    assert_memory_equal(tokens[0], tokens[1], 24);
    assert_memory_equal(targets[0], targets[1], 24);
    assert_memory_equal(positions[0], positions[1], 24);
    int32_t eos = hl_tokenizer_eos(fixture.tokenizer);
    const int32_t want[] = {eos, 'h', 'e', 'l', 'l', 'o'};
    assert_memory_equal(tokens[0], want, sizeof want);
    assert_int_equal(targets[0][5], eos);
    fixture_remove(&fixture);
}

static void test_bigram(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[256], text[2000];
    for (int i = 0; i < 2000; i++) text[i] = "abac"[i % 4];
    char *paths[] = {scratch_write(&fixture.scratch, "a.txt", text, sizeof text, path)};
    struct hl_data_options options = options_for(paths, 1, 33);
    struct hl_dataset *dataset = open_data(&fixture, &options);
    /* by hand: 1,800 tokens to train on, 200 held out; the start token stands before the first */
    double vocab = (double)hl_tokenizer_vocab_size(fixture.tokenizer), count[128][128] = {{0}},
           context[128] = {0}, sum = 0;
    for (int i = 1; i < 1800; i++)
        count[(int)text[i - 1]][(int)text[i]]++, context[(int)text[i - 1]]++;
    for (int i = 1800; i < 2000; i++)
        sum -= __builtin_log((count[(int)text[i - 1]][(int)text[i]] + 1) /
                             (context[(int)text[i - 1]] + vocab));
    double loss = hl_dataset_bigram_loss(dataset);
    assert_true(loss > sum / 200 - 1e-12 && loss < sum / 200 + 1e-12);
    hl_dataset_free(dataset);
    options.validation_split = 0;
    dataset = open_data(&fixture, &options);
    loss = hl_dataset_bigram_loss(dataset);
    assert_true(loss != loss);
    hl_dataset_free(dataset);
    fixture_remove(&fixture);
}

static void test_each_allocation_fails(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[256], entry[2][300];
    write_names(&fixture, path);
    (void)snprintf(entry[0], sizeof entry[0], "1:%s", path);
    (void)snprintf(entry[1], sizeof entry[1], "2:%s/n*.txt", fixture.scratch.folder);
    char *entries[] = {entry[0], entry[1]};
    struct hl_data_options options = options_for(entries, 2, 16);
    options.text_format = HL_TEXT_LINES;
    long k = 1;
    for (bool done = false; !done; k++) {
        struct hl_mem_probe probe;
        hl_mem_probe_init(&probe, k);
        struct hl_dataset *dataset = NULL;
        struct hl_loader *loader = NULL;
        enum hl_status status = hl_dataset_open(&probe.mem, &options, fixture.tokenizer, 2, NULL,
                                                &dataset, &fixture.diag);
        if (!status)
            status = hl_loader_new(&probe.mem, dataset, HL_SPLIT_TRAIN, 4, &loader, &fixture.diag);
        if (!status && k > probe.n_taken) done = true;
        else if (status) assert_int_equal(status, HL_E_MEMORY);
        hl_loader_free(loader);
        hl_dataset_free(dataset);
        assert_int_equal(probe.n_live, 0);
    }
    assert_true(k > 20);
    fixture_remove(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_document),
                                       cmocka_unit_test(test_names_each_document_once),
                                       cmocka_unit_test(test_union_of_rows),
                                       cmocka_unit_test(test_resume_anywhere),
                                       cmocka_unit_test(test_seed),
                                       cmocka_unit_test(test_mixture),
                                       cmocka_unit_test(test_documents_do_not_see_each_other),
                                       cmocka_unit_test(test_bigram),
                                       cmocka_unit_test(test_each_allocation_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
