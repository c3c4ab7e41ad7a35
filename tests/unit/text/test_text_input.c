/* Text of every kind and damage: windows, cuts, UTF-8, lines, JSONL; the same tokens whatever the
 * size of a piece. */
#include "data_support.h"

#include "text/bpe_train.h"
#include "text/ingest.h"
#include "text/text_file.h"

static void test_cuts(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t cut;
    } cases[] = {
        {"", 0},
        {"a", 0},
        {"a\n", 0},
        {"a\nb", 2},
        {"a\n\nb", 0},
        {"a \nb", 0},
        {"a\n b", 0},
        {"a b", 1},
        {"a  b", 0},
        {"a b c", 3},
        {"a\r\nb", 0},
        {" b", 0},
        {"\nb", 0},
        {"a\n\xE3\x80\x80x", 0},
        {"a\xE3\x80\x80\nx", 0},
        {"a\n\xE3\x80\x82x", 2},
        {"\xE3\x80\x82\nx", 4},
        {"a\n\xC2\xA0x", 0},
        {"a\n\xFFx", 0},
        {"a\xFF\nx", 0},
        {"a.\n/b", 0},
        {"a\n\xC3", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(hl_text_cut(cases[i].text, strlen(cases[i].text)), cases[i].cut);
}

static void test_invalid_lengths(void **state) {
    (void)state;
    assert_int_equal(hl_utf8_invalid("", 0), 0);
    assert_int_equal(hl_utf8_invalid("\x80", 1), 1);
    assert_int_equal(hl_utf8_invalid("\xC0\x80", 2), 1);
    assert_int_equal(hl_utf8_invalid("\xE2\x82", 2), 2);
    assert_int_equal(hl_utf8_invalid("\xE2\x82x", 3), 2);
    assert_int_equal(hl_utf8_invalid("\xED\xA0\x80", 3), 1);
    assert_int_equal(hl_utf8_invalid("\xF0\x9F\x98", 3), 3);
}

/* ---- through hl_ingest ---- */

struct input {
    struct fixture fixture;
    struct hl_ingest ingest;
    struct hl_store_builder builder;
    struct hl_store store;
};

static void input_make(struct input *input) {
    fixture_make(&input->fixture);
    hl_store_builder_init(&input->builder, &input->fixture.probe.mem,
                          hl_tokenizer_vocab_size(input->fixture.tokenizer), 0);
    hl_ingest_init(&input->ingest, &input->fixture.probe.mem, input->fixture.tokenizer,
                   &input->builder.sink, &input->fixture.notes.log);
    input->ingest.reader.any_bytes = false; /* as for any tokenizer but the one of bytes */
    input->store = (struct hl_store){0};
}

static void input_remove(struct input *input) {
    hl_ingest_free(&input->ingest);
    hl_store_builder_free(&input->builder);
    hl_store_free(&input->store);
    fixture_remove(&input->fixture);
}

/* Read bytes as file `name`; the documents come back as one string with '|' for the end of each. */
static enum hl_status read_as(struct input *input, const char *name, const char *bytes, size_t n,
                              char *out) {
    char path[256];
    scratch_write(&input->fixture.scratch, name, bytes, n, path);
    enum hl_status status = hl_ingest_file(&input->ingest, path, &input->fixture.diag);
    if (status) return status;
    hl_store_builder_finish(&input->builder, &input->store);
    size_t used = 0;
    for (uint64_t i = 0; i < input->store.n_tokens; i++) {
        int64_t token = hl_store_token(&input->store, i);
        out[used++] = token == hl_tokenizer_eos(input->fixture.tokenizer) ? '|' : (char)token;
    }
    out[used] = 0;
    return HL_OK;
}

struct text_case {
    const char *name, *bytes;
    size_t n;
    const char *want;
    uint64_t n_documents, n_skipped;
    const char *said;
};
#define TEXT(literal) literal, sizeof literal - 1

/* Pieces of `piece` bytes. */
static void check_pieces(const struct text_case *c, int format, size_t piece) {
    struct input input;
    char out[4096];
    input_make(&input);
    input.ingest.reader.text_format = format;
    input.ingest.reader.piece_bytes = piece;
    enum hl_status status = read_as(&input, c->name, c->bytes, c->n, out);
    if (status) fail_msg("%s", input.fixture.diag.text);
    assert_string_equal(out, c->want);
    assert_int_equal(input.store.n_documents, c->n_documents);
    assert_int_equal(input.ingest.reader.n_skipped, c->n_skipped);
    assert_int_equal(input.ingest.reader.n_bytes, c->n);
    if (c->said && !strstr(input.fixture.notes.text, c->said))
        fail_msg("'%s' not in: %s", c->said, input.fixture.notes.text);
    assert_int_equal(input.fixture.notes.n_warn > 0, c->n_skipped > 0);
    input_remove(&input);
}

static void check_case(const struct text_case *c, int format) {
    static const size_t pieces[] = {1 << 20, 1, 2, 5};
    for (int i = 0; i < 4; i++) check_pieces(c, format, pieces[i]);
}

static void test_documents(void **state) {
    (void)state;
    static const struct text_case cases[] = {
        {"a.txt", TEXT("one\ntwo\n"), "one\ntwo\n|", 1, 0, NULL},
        {"a.txt", TEXT(""), "", 0, 0, NULL},
        {"a.txt", TEXT("\xEF\xBB\xBF"), "", 0, 0, NULL},
        {"a.txt", TEXT("\xEF\xBB\xBFhi"), "hi|", 1, 0, NULL},
        {"a.txt", TEXT("a\r\nb\rc\n"), "a\r\nb\rc\n|", 1, 0, NULL}, /* kept as it is */
        {"a.txt",
         TEXT("a\n\xFF"
              "b\nc\xE2\x82"
              "d"),
         "a\nb\ncd|", 1, 3, "a.txt:2:1: not UTF-8"},
        {"a.txt", TEXT("\xFF\n\n\xFF\n\n\xFF"), "\n\n\n\n|", 1, 3, "a.txt:5:1: not UTF-8"},
        {"a.txt", TEXT("a\nxy\xE2\x82"), "a\nxy|", 1, 2, "a.txt:2:3: not UTF-8"},
        {"a.txt", TEXT("\x80"), "", 0, 1, "skipped bytes that are not UTF-8: 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(&cases[i], HL_TEXT_AUTO);
}

static void test_lines(void **state) {
    (void)state;
    static const struct text_case cases[] = {
        {"a.txt", TEXT("one\ntwo"), "one|two|", 2, 0, NULL},
        {"a.txt", TEXT("one\r\n\r\n  \ntwo\n\n"), "one|two|", 2, 0, "no documents: 3"},
        {"a.txt",
         TEXT("\xEF\xBB\xBF"
              "emma\nolivia\n"),
         "emma|olivia|", 2, 0, NULL},
        {"a.txt", TEXT("a\nb\xC0\nc\n"), "a|c|", 2, 1, "a.txt:2:2: not UTF-8: skipped"},
        {"a.txt", TEXT("\n\n"), "", 0, 0, NULL},
        {"a.txt", TEXT(""), "", 0, 0, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(&cases[i], HL_TEXT_LINES);
}

static void test_jsonl(void **state) {
    (void)state;
    static const struct text_case cases[] = {
        {"a.jsonl", TEXT("{\"text\": \"one\"}\n{\"text\":\"t\\u00e9\\n\"}"), "one|t\xC3\xA9\n|", 2,
         0, NULL},
        {"a.jsonl", TEXT("\xEF\xBB\xBF{\"text\":\"x\"}\r\n\r\n{\"text\":\"\"}\r\n"), "x|", 1, 0,
         "no documents: 2"},
        {"a.jsonl", TEXT("{\"text\":\"x\"}\n{\"text\":\"half"), "x|", 1, 1, "a.jsonl:2:"},
        {"a.jsonl", TEXT("{\"text\":\"x\"}\n{\"text\":\"half"), "x|", 1, 1, "was it cut off?"},
        {"a.jsonl",
         TEXT("{\"text\":\"x\"}\n{\"txt\":\"y\"}\n{\"text\":3}\n[1]\n7\nno\n{\"text\":\"z\"}\n"),
         "x|z|", 2, 5, "the first here is \"txt\""},
        {"a.jsonl", TEXT("{\"text\":\"a\xFFz\"}\n{\"text\":\"b\"}\n"), "b|", 1, 1, "a.jsonl:1:"},
        {"a.jsonl", TEXT("{\"text\":\"a\0z\"}\n{\"text\":\"b\"}\n"), "b|", 1, 1, "a.jsonl:1:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(&cases[i], HL_TEXT_AUTO);
    struct input input;
    char out[64];
    input_make(&input);
    input.ingest.reader.text_key = "question";
    assert_int_equal(read_as(&input, "q.jsonl", TEXT("{\"question\":\"a\\u0000b\"}\n"), out),
                     HL_OK);
    assert_memory_equal(out, "a\0b|", 4);
    input_remove(&input);
}

static void test_strict(void **state) {
    (void)state;
    static const struct {
        const char *name, *bytes;
        int format;
        const char *said;
    } cases[] = {
        {"a.txt", "ok\n\nx\xFFy", HL_TEXT_AUTO, "a.txt:3:2: not UTF-8"},
        {"a.txt", "ok\nx\xFFy", HL_TEXT_LINES, "a.txt:2:2: not UTF-8"},
        {"a.jsonl", "{\"text\":\"x\"}\n{\"text\":\"", HL_TEXT_AUTO, "a.jsonl:2:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct input input;
        char out[64];
        input_make(&input);
        input.ingest.reader.strict = true;
        input.ingest.reader.text_format = cases[i].format;
        assert_int_equal(
            read_as(&input, cases[i].name, cases[i].bytes, strlen(cases[i].bytes), out),
            HL_E_FORMAT);
        assert_non_null(strstr(input.fixture.diag.text, cases[i].said));
        input_remove(&input);
    }
}

/* The byte tokenizer takes everything, NUL and invalid UTF-8 too. */
static void test_any_bytes(void **state) {
    (void)state;
    struct input input;
    char bytes[1024], out[1100];
    for (int i = 0; i < 1024; i++) bytes[i] = (char)(i * 7);
    input_make(&input);
    input.ingest.reader.any_bytes = true;
    input.ingest.reader.piece_bytes = 64;
    input.ingest.reader.most_bytes = 100;
    assert_int_equal(read_as(&input, "a.txt", bytes, sizeof bytes, out), HL_OK);
    assert_memory_equal(out, bytes, sizeof bytes);
    assert_int_equal(input.store.n_tokens, 1025);
    input_remove(&input);
}

/* Lines of 20 MB pass; lines beyond the limit are skipped without being held. */
static void test_long_lines(void **state) {
    (void)state;
    struct input input;
    size_t n = (size_t)20 << 20;
    char *bytes = malloc(2 * n);
    assert_non_null(bytes);
    memset(bytes, 'x', 2 * n);
    memcpy(bytes, "first\n", 6);
    memcpy(bytes + n, "\nlast\n", 6);
    for (int limited = 0; limited < 2; limited++) {
        char path[256];
        input_make(&input);
        input.ingest.reader.text_format = HL_TEXT_LINES;
        if (limited) input.ingest.reader.most_bytes = 4 << 20;
        scratch_write(&input.fixture.scratch, "long.txt", bytes, n + 6, path);
        assert_int_equal(hl_ingest_file(&input.ingest, path, &input.fixture.diag), HL_OK);
        hl_store_builder_finish(&input.builder, &input.store);
        assert_int_equal(input.store.n_documents, limited ? 2 : 3);
        assert_int_equal(input.store.n_tokens,
                         limited ? 11 : n + 6); /* each document has its end */
        if (limited)
            assert_non_null(strstr(input.fixture.notes.text,
                                   "long.txt:2:1: a line of more than 4 MiB: skipped"));
        input_remove(&input);
    }
    free(bytes);
}

static void test_refused_files(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *said;
    } cases[] = {
        {TEXT("\xFF\xFE"
              "a\0b\0"),
         "UTF-16"},
        {TEXT("\xFE\xFF\0a"), "iconv"},
        {TEXT("\x1F\x8B\x08"), "gunzip"},
        {TEXT("\x28\xB5\x2F\xFD...."), "unzstd"},
        {TEXT("PAR1....."), "Parquet"},
        {TEXT("PK\x03\x04...."), "zip"},
        {TEXT("version https://git-lfs.github.com/spec/v1\noid"), "git lfs pull"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct input input;
        char out[64];
        input_make(&input);
        assert_int_equal(read_as(&input, "odd.txt", cases[i].bytes, cases[i].n, out), HL_E_USER);
        assert_non_null(strstr(input.fixture.diag.text, cases[i].said));
        assert_non_null(strstr(input.fixture.diag.text, "odd.txt: "));
        input_remove(&input);
    }
    struct input input;
    input_make(&input);
    assert_int_equal(
        hl_ingest_file(&input.ingest, input.fixture.scratch.folder, &input.fixture.diag),
        HL_E_USER);
    assert_non_null(strstr(input.fixture.diag.text, "is a folder; name its files"));
    assert_int_equal(hl_ingest_file(&input.ingest, "/nowhere/x.txt", &input.fixture.diag), HL_E_IO);
    assert_non_null(strstr(input.fixture.diag.text, "/nowhere/x.txt: cannot open: No such file"));
    input_remove(&input);
}

/* 5,900 bytes of words, numbers, white space of all kinds and Japanese, in an order without a
 * pattern. */
static size_t mixed_text(char text[6000]) {
    static const char *const words[] = {"it's",
                                        " the",
                                        "\n",
                                        "\n\n",
                                        " ",
                                        "  ",
                                        "42",
                                        "\xE3\x80\x82",
                                        "\xE3\x80\x80",
                                        "\xC3\xA9t\xC3\xA9",
                                        "...",
                                        "\r\n",
                                        "\t"};
    size_t n = 0;
    for (unsigned k = 1; n < 5900;) {
        k = k * 1103515245u + 12345u;
        const char *word = words[(k >> 16) % 13];
        memcpy(text + n, word, strlen(word));
        n += strlen(word);
    }
    return n;
}

/* Any size of piece and number of threads gives the tokens of the whole text. */
static void test_pieces_are_invisible(void **state) {
    (void)state;
    char text[6000];
    size_t n = mixed_text(text);
    for (size_t piece = 1; piece < 8000; piece = piece * 3 / 2 + 1)
        for (int threads = 1; threads <= 3; threads++) {
            struct input input;
            char out[6100];
            input_make(&input);
            input.ingest.reader.piece_bytes = piece;
            input.ingest.n_threads = threads;
            assert_int_equal(read_as(&input, "a.txt", text, n, out), HL_OK);
            assert_int_equal(input.store.n_tokens, n + 1);
            assert_int_equal(input.store.n_documents, 1);
            assert_memory_equal(out, text, n);
            input_remove(&input);
        }
}

struct one_text {
    struct hl_text_source source;
    const char *text;
    size_t n;
    bool done;
};

static enum hl_status next_text(struct hl_text_source *source, const char **text, size_t *n,
                                struct hl_diag *diag) {
    (void)diag;
    struct one_text *one = (struct one_text *)source;
    if (one->done) return HL_END;
    one->done = true;
    *text = one->text;
    *n = one->n;
    return HL_OK;
}

/* The same with a BPE: words must not be cut. */
static void test_pieces_are_invisible_to_bpe(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char text[6000], path[256];
    struct one_text one = {{next_text}, text, mixed_text(text), false};
    struct hl_tokenizer *bpe;
    assert_int_equal(hl_bpe_train(&fixture.probe.mem, &one.source, 320, &bpe, NULL, &fixture.diag),
                     HL_OK);
    struct hl_tokens whole = {.mem = &fixture.probe.mem};
    assert_int_equal(hl_tokenizer_encode(bpe, text, one.n, false, &whole, &fixture.diag), HL_OK);
    assert_true(whole.n < one.n * 3 / 4);
    scratch_write(&fixture.scratch, "a.txt", text, one.n, path);
    for (size_t piece = 1; piece < 8000; piece = piece * 5 / 4 + 1) {
        struct hl_store_builder builder;
        struct hl_ingest ingest;
        struct hl_store store;
        hl_store_builder_init(&builder, &fixture.probe.mem, 320, 0);
        hl_ingest_init(&ingest, &fixture.probe.mem, bpe, &builder.sink, NULL);
        ingest.reader.piece_bytes = piece;
        ingest.n_threads = 2;
        assert_int_equal(hl_ingest_file(&ingest, path, &fixture.diag), HL_OK);
        hl_store_builder_finish(&builder, &store);
        assert_int_equal(store.n_tokens, whole.n + 1);
        for (size_t i = 0; i < whole.n; i++)
            assert_int_equal(hl_store_token(&store, i), whole.ids[i]);
        hl_store_free(&store);
        hl_ingest_free(&ingest);
    }
    hl_tokens_free(&whole);
    hl_tokenizer_free(bpe);
    fixture_remove(&fixture);
}

static void test_each_allocation_fails(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_make(&fixture);
    char path[2][256];
    scratch_write(&fixture.scratch, "a.jsonl", TEXT("{\"text\":\"x\"}\n{\"text\":\"y\"}\n"),
                  path[0]);
    scratch_write(&fixture.scratch, "a.txt", TEXT("a document\nof two lines"), path[1]);
    long k = 1;
    for (bool done = false; !done; k++) {
        struct hl_mem_probe probe;
        struct hl_store_builder builder;
        struct hl_ingest ingest;
        hl_mem_probe_init(&probe, k);
        hl_store_builder_init(&builder, &probe.mem, 300, 0);
        hl_ingest_init(&ingest, &probe.mem, fixture.tokenizer, &builder.sink, NULL);
        ingest.n_threads = 2;
        ingest.reader.piece_bytes = 8;
        enum hl_status status = hl_ingest_file(&ingest, path[0], &fixture.diag);
        if (!status) status = hl_ingest_file(&ingest, path[1], &fixture.diag);
        done = !status;
        if (status) assert_int_equal(status, HL_E_MEMORY);
        hl_ingest_free(&ingest);
        hl_store_builder_free(&builder);
        assert_int_equal(probe.n_live, 0);
    }
    assert_true(k > 8);
    fixture_remove(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts),
                                       cmocka_unit_test(test_invalid_lengths),
                                       cmocka_unit_test(test_documents),
                                       cmocka_unit_test(test_lines),
                                       cmocka_unit_test(test_jsonl),
                                       cmocka_unit_test(test_strict),
                                       cmocka_unit_test(test_any_bytes),
                                       cmocka_unit_test(test_long_lines),
                                       cmocka_unit_test(test_refused_files),
                                       cmocka_unit_test(test_pieces_are_invisible),
                                       cmocka_unit_test(test_pieces_are_invisible_to_bpe),
                                       cmocka_unit_test(test_each_allocation_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
