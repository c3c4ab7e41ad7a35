/* tokenizer.json: what is read, what is refused and in which words, writing and reading back, odd
 * and hostile files. */
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

#include "text/tokenizer_internal.h"

/* ---- a small file, with one part replaced ---- */

enum part { TOP, ADDED, NORMALIZER, PRE, POST, DECODER, FLAGS, VOCAB, MERGES, N_PARTS };

static const char *const usual[N_PARTS] = {
    [TOP] = "\"version\": \"1.0\", \"truncation\": null, \"padding\": null, ",
    [ADDED] = "\"added_tokens\": [], ",
    [NORMALIZER] = "\"normalizer\": null, ",
    [PRE] = "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
            "\"trim_offsets\": true, \"use_regex\": true}, ",
    [POST] = "\"post_processor\": null, ",
    [DECODER] = "\"decoder\": {\"type\": \"ByteLevel\"}, ",
    [FLAGS] = "\"type\": \"BPE\", \"dropout\": null, ",
    [VOCAB] = "\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"bc\": 4, \"abc\": 5, "
              "\"\\u0120\": 6}, ",
    [MERGES] = "\"merges\": [[\"a\", \"b\"], [\"b\", \"c\"], [\"ab\", \"c\"]]",
};

static void write_json(char *out, size_t capacity, enum part part, const char *text) {
    const char *p[N_PARTS];
    memcpy(p, usual, sizeof p);
    if (part < N_PARTS) p[part] = text;
    int n = snprintf(out, capacity, "{%s%s%s%s%s%s\"model\": {%s%s%s}}", p[TOP], p[ADDED],
                     p[NORMALIZER], p[PRE], p[POST], p[DECODER], p[FLAGS], p[VOCAB], p[MERGES]);
    assert_true(n > 0 && (size_t)n < capacity);
}

static enum hl_status read_part(enum part part, const char *text, struct hl_tokenizer **out,
                                struct hl_diag *diag) {
    char json[4096];
    write_json(json, sizeof json, part, text);
    return hl_tokenizer_from_json(hl_mem_default(), json, strlen(json), "x.json", out, diag);
}

static void expect_refusal(enum part part, const char *text, enum hl_status want,
                           const char *words) {
    struct hl_tokenizer *t = NULL;
    struct hl_diag diag = {0};
    enum hl_status status = read_part(part, text, &t, &diag);
    if (status != want || !strstr(diag.text, words) || strncmp(diag.text, "x.json", 6) != 0)
        fail_msg("%s\n gave %s: \"%s\"\n not %s: ...%s...", text, hl_status_name(status), diag.text,
                 hl_status_name(want), words);
    assert_null(t);
}

static void expect_ids(const struct hl_tokenizer *t, const char *text, bool specials,
                       const int32_t *want, size_t n) {
    struct hl_tokens tokens = {.mem = hl_mem_default()};
    assert_int_equal(hl_tokenizer_encode(t, text, strlen(text), specials, &tokens, NULL), HL_OK);
    assert_int_equal(tokens.n, n);
    if (n) assert_memory_equal(tokens.ids, want, n * sizeof *want);
    hl_tokens_free(&tokens);
}

/* A file with this part is read, and the text gives these ids. */
static void expect_reading(enum part part, const char *part_text, const char *text,
                           const int32_t *want, size_t n) {
    struct hl_tokenizer *t = NULL;
    struct hl_diag diag = {0};
    if (read_part(part, part_text, &t, &diag) != HL_OK) fail_msg("%s: %s", part_text, diag.text);
    expect_ids(t, text, true, want, n);
    hl_tokenizer_free(t);
}

#define IDS(...)                                                                                   \
    (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

static void test_spellings(void **state) {
    (void)state;
    expect_reading(N_PARTS, "", "abc a", IDS(5, 6, 0));
    expect_reading(MERGES, "\"merges\": [\"a b\", \"b c\", \"ab c\"]", "abc", IDS(5));
    expect_reading(MERGES, "\"merges\": [\"#version: 0.2\", \"a b\", \"ab c\"]", "abc", IDS(5));
    expect_reading(MERGES, "\"merges\": []", "abc", IDS(0, 1, 2));
    /* Of equal merges the last counts: b c goes before a b. */
    expect_reading(MERGES, "\"merges\": [\"a b\", \"b c\", \"a b\", \"ab c\"]", "abc", IDS(0, 4));
    expect_reading(TOP, "", "abc", IDS(5));
    expect_reading(NORMALIZER, "", "abc", IDS(5));
    expect_reading(FLAGS, "", "abc", IDS(5));
    expect_reading(FLAGS,
                   "\"dropout\": 0.0, \"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": "
                   "\"\", \"fuse_unk\": "
                   "true, \"byte_fallback\": false, ",
                   "abc", IDS(5));
    expect_reading(FLAGS, "\"ignore_merges\": true, ", "bc", IDS(4));
    expect_reading(PRE,
                   "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                   "\"trim_offsets\": true}, ",
                   "a a", IDS(0, 6, 0));
    expect_reading(POST,
                   "\"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                   "\"trim_offsets\": false}, ",
                   "a", IDS(0));
}

static void test_ignore_merges(void **state) {
    (void)state;
    const char *no_merge = "\"merges\": [\"a b\"]";
    expect_reading(MERGES, no_merge, "bc",
                   IDS(1, 2)); /* bc is in the vocabulary, but no merge makes it */
    char json[4096], flags[64] = "\"ignore_merges\": true, ";
    write_json(json, sizeof json, FLAGS, flags);
    char *merges = strstr(json, "\"merges\"");
    strcpy(merges, "\"merges\": [\"a b\"]}}");
    struct hl_tokenizer *t = NULL;
    assert_int_equal(hl_tokenizer_from_json(hl_mem_default(), json, strlen(json), "x", &t, NULL),
                     HL_OK);
    expect_ids(t, "bc abc cab", true, IDS(4, 6, 3, 2, 6, 2, 3));
    hl_tokenizer_free(t);
}

static void test_refused_by_name(void **state) {
    (void)state;
    const enum hl_status no = HL_E_UNSUPPORTED;
    expect_refusal(NORMALIZER, "\"normalizer\": {\"type\": \"NFC\"}, ", no,
                   "normalizer of type \"NFC\"");
    expect_refusal(PRE, "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": []}, ", no,
                   "pre_tokenizer of type \"Sequence\"");
    expect_refusal(PRE, "", no, "pre_tokenizer: none");
    expect_refusal(PRE,
                   "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                   "\"trim_offsets\": true}, ",
                   no, "pre_tokenizer.add_prefix_space");
    expect_refusal(PRE,
                   "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                   "\"trim_offsets\": true, "
                   "\"pattern\": 1}, ",
                   no, "key \"pattern\" of pre_tokenizer");
    expect_refusal(POST, "\"post_processor\": {\"type\": \"TemplateProcessing\"}, ", no,
                   "post_processor of type \"Template");
    expect_refusal(DECODER, "", no, "decoder: none");
    expect_refusal(DECODER, "\"decoder\": {\"type\": \"Metaspace\"}, ", no,
                   "decoder of type \"Metaspace\"");
    expect_refusal(TOP, "\"version\": \"2.0\", ", no, "version");
    expect_refusal(TOP, "\"truncation\": {\"max_length\": 8}, ", no, "truncation");
    expect_refusal(TOP, "\"padding\": {}, ", no, "padding");
    expect_refusal(TOP, "\"extra\": 1, ", no, "key \"extra\" is not understood");
    expect_refusal(FLAGS, "\"type\": \"WordPiece\", ", no, "model of type \"WordPiece\"");
    expect_refusal(FLAGS, "\"type\": 7, ", no, "model of type \"?\"");
    expect_refusal(FLAGS, "\"dropout\": 0.1, ", no, "model.dropout");
    expect_refusal(FLAGS, "\"continuing_subword_prefix\": \"##\", ", no,
                   "model.continuing_subword_prefix");
    expect_refusal(FLAGS, "\"end_of_word_suffix\": \"</w>\", ", no, "model.end_of_word_suffix");
    expect_refusal(FLAGS, "\"byte_fallback\": true, ", no, "model.byte_fallback");
    expect_refusal(FLAGS, "\"unk_token\": \"a\", ", no, "model.unk_token");
    expect_refusal(FLAGS, "\"cache\": 1, ", no, "key \"cache\" of model");
}

#define ADDED_TOKEN(id, text, rest)                                                                \
    "{\"id\": " id ", \"content\": \"" text                                                        \
    "\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, " rest "}"
#define SPECIAL_TOKEN(id, text) ADDED_TOKEN(id, text, "\"normalized\": false, \"special\": true")

static void test_malformed(void **state) {
    (void)state;
    const enum hl_status bad = HL_E_FORMAT;
    expect_refusal(VOCAB, "", bad, "model.vocab must be");
    expect_refusal(VOCAB, "\"vocab\": [], ", bad, "model.vocab must be");
    expect_refusal(VOCAB, "\"vocab\": {\"a\": -1}, ", bad, "id of \"a\"");
    expect_refusal(VOCAB, "\"vocab\": {\"a\": 2147483647}, ", bad, "id of \"a\"");
    expect_refusal(VOCAB, "\"vocab\": {\"a\": 1.5}, ", bad, "id of \"a\"");
    expect_refusal(VOCAB, "\"vocab\": {\"a\": 0, \"a\": 1}, ", bad, "duplicate");
    expect_refusal(VOCAB,
                   "\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"bc\": 3, \"abc\": 5}, ",
                   bad, "id 3 is used twice");
    expect_refusal(
        VOCAB,
        "\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"bc\": 4, \"abc\": 2000000000}, ",
        bad, "far above");
    expect_refusal(MERGES, "\"merges\": 5", bad, "model.merges must be");
    expect_refusal(MERGES, "\"merges\": [5]", bad, "model.merges[0]");
    expect_refusal(MERGES, "\"merges\": [\"a b\", \"ab\"]", bad, "model.merges[1]");
    expect_refusal(MERGES, "\"merges\": [\"a b c\"]", bad, "model.merges[0]");
    expect_refusal(MERGES, "\"merges\": [\"a b\", [\"ab\", \"c\"]]", bad, "model.merges[1]");
    expect_refusal(MERGES, "\"merges\": [[\"a\"]]", bad, "model.merges[0]");
    expect_refusal(MERGES, "\"merges\": [[\"a\", \"z\"]]", bad, "\"z\" is not in model.vocab");
    expect_refusal(MERGES, "\"merges\": [[\"a\", \"c\"]]", bad, "\"ac\" is not in model.vocab");
    expect_refusal(PRE, "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"trim_offsets\": true}, ",
                   bad, "add_prefix_space");
    expect_refusal(FLAGS, "\"ignore_merges\": 3, ", bad, "model.ignore_merges");
    expect_refusal(VOCAB, "\"vocab\": {}, \"x\": 1, ", HL_E_UNSUPPORTED, "key \"x\"");
    expect_refusal(ADDED, "\"added_tokens\": {}, ", bad, "added_tokens must be");
    expect_refusal(ADDED, "\"added_tokens\": [3], ", bad, "added_tokens must be");
    expect_refusal(ADDED, "\"added_tokens\": [{}], ", bad, "added_tokens: id");
    expect_refusal(ADDED, "\"added_tokens\": [" SPECIAL_TOKEN("7", "") "], ", bad, "empty text");
    expect_refusal(ADDED,
                   "\"added_tokens\": [" ADDED_TOKEN("7", "<x>", "\"normalized\": false") "], ",
                   bad, "special");
    expect_refusal(ADDED, "\"added_tokens\": [" SPECIAL_TOKEN("7", "<\\u0000>") "], ", bad,
                   "x.json:1:");
}

static void test_added_tokens_refused(void **state) {
    (void)state;
    expect_refusal(ADDED, "\"added_tokens\": [" SPECIAL_TOKEN("9", "<x>") "], ", HL_E_UNSUPPORTED,
                   "\"<x>\" has id 9, but its place in the list makes it 7");
    expect_refusal(ADDED, "\"added_tokens\": [" SPECIAL_TOKEN("7", "abc") "], ", HL_E_UNSUPPORTED,
                   "makes it 5");
    expect_refusal(
        ADDED, "\"added_tokens\": [" SPECIAL_TOKEN("7", "<x>") ", " SPECIAL_TOKEN("7", "<y>") "], ",
        HL_E_UNSUPPORTED, "makes it 8");
    expect_refusal(
        ADDED, "\"added_tokens\": [" SPECIAL_TOKEN("7", "<x>") ", " SPECIAL_TOKEN("8", "<x>") "], ",
        HL_E_FORMAT, "listed twice");
    expect_refusal(ADDED,
                   "\"added_tokens\": [{\"id\": 7, \"content\": \"<x>\", \"single_word\": false, "
                   "\"lstrip\": true, "
                   "\"rstrip\": false, \"normalized\": false, \"special\": true}], ",
                   HL_E_UNSUPPORTED, "lstrip");
}

/* Expected ids are what `tokenizers` 0.23.3 gives for these files. */
static void test_added_tokens(void **state) {
    (void)state;
    struct hl_tokenizer *t = NULL;
    const char *added =
        "\"added_tokens\": [" SPECIAL_TOKEN("7", "<a>") ", " ADDED_TOKEN("8", "a>b", "\"normalized\": false, \"special\": false") ", " ADDED_TOKEN(
            "9", ">b",
            "\"normalized\": true, \"special\": false") ", " SPECIAL_TOKEN("10",
                                                                           "<|endoftext|"
                                                                           ">") ","
                                                                                " " SPECIAL_TOKEN(
                                                                                    "5",
                                                                                    "abc") "], ";
    assert_int_equal(read_part(ADDED, added, &t, NULL), HL_OK);
    assert_int_equal(hl_tokenizer_vocab_size(t), 11);
    assert_int_equal(hl_tokenizer_eos(t), 10);
    expect_ids(t, "<a>b", true, IDS(7, 1));
    expect_ids(t, "a>b", true, IDS(8));
    expect_ids(t, "c>b", true, IDS(2, 9));
    expect_ids(t, "cabca", true, IDS(2, 5, 0));
    expect_ids(t, "abca>b<|endoftext|>", true, IDS(5, 8, 10));
    struct hl_buf out = {.mem = hl_mem_default()};
    assert_int_equal(hl_tokenizer_decode(t, (const int32_t[]){5, 8, 10, 9}, 4, false, &out, NULL),
                     HL_OK);
    assert_string_equal(out.data, "a>b>b");
    hl_buf_free(&out);
    hl_tokenizer_free(t);
}

static void test_bytes_without_token(void **state) {
    (void)state;
    struct hl_tokenizer *t = NULL;
    struct hl_diag diag = {0};
    struct hl_tokens tokens = {.mem = hl_mem_default()};
    assert_int_equal(read_part(N_PARTS, "", &t, NULL), HL_OK);
    assert_int_equal(hl_tokenizer_encode(t, "abxc", 4, true, &tokens, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "byte 0x78"));
    assert_int_equal(tokens.n, 0);
    assert_int_equal(hl_tokenizer_encode(t, "a\xFF", 2, true, &tokens, &diag), HL_E_FORMAT);
    assert_non_null(strstr(diag.text, "invalid UTF-8 at byte 1"));
    hl_tokens_free(&tokens);
    hl_tokenizer_free(t);
}

/* ---- writing ---- */

static void check_write_and_read(const struct hl_tokenizer *t) {
    struct hl_buf first = {.mem = hl_mem_default()}, second = {.mem = hl_mem_default()};
    struct hl_tokenizer *again = NULL;
    struct hl_diag diag = {0};
    assert_int_equal(hl_tokenizer_to_json(t, &first, NULL), HL_OK);
    if (hl_tokenizer_from_json(hl_mem_default(), first.data, first.n, "again", &again, &diag) !=
        HL_OK)
        fail_msg("%s", diag.text);
    assert_int_equal(hl_tokenizer_to_json(again, &second, NULL), HL_OK);
    assert_string_equal(first.data, second.data);
    assert_true(hl_tokenizer_hash(t) == hl_tokenizer_hash(again));
    assert_int_equal(hl_tokenizer_eos(t), hl_tokenizer_eos(again));
    hl_buf_free(&first);
    hl_buf_free(&second);
    hl_tokenizer_free(again);
}

static void test_write_and_read(void **state) {
    (void)state;
    struct hl_tokenizer *t = NULL;
    assert_int_equal(hl_tokenizer_byte(hl_mem_default(), &t, NULL), HL_OK);
    check_write_and_read(t);
    hl_tokenizer_free(t);
    const char *odd[][2] = {
        {"\"added_tokens\": [" SPECIAL_TOKEN("7", "<\\\"\\\\\\n\\u0001\\u00e9 x>") "], ",
         usual[VOCAB]},
        {usual[ADDED], "\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"bc\": 4, \"abc\": "
                       "5, \"\\\"\\\\ \\u0007\": 90}, "},
    };
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(read_part(i ? VOCAB : ADDED, odd[i][i], &t, NULL), HL_OK);
        check_write_and_read(t);
        hl_tokenizer_free(t);
    }
}

/* Tokens with a blank inside can only be merged in the newer spelling. */
static void test_blank_in_merge(void **state) {
    (void)state;
    char json[4096];
    write_json(json, sizeof json, VOCAB, "\"vocab\": {\"a\": 0, \" \": 1, \"a \": 2}, ");
    strcpy(strstr(json, "\"merges\""), "\"merges\": [[\"a\", \" \"]]}}");
    struct hl_tokenizer *t = NULL;
    assert_int_equal(hl_tokenizer_from_json(hl_mem_default(), json, strlen(json), "x", &t, NULL),
                     HL_OK);
    check_write_and_read(t);
    expect_ids(t, "a", true, IDS(0));
    hl_tokenizer_free(t);
}

/* ---- files ---- */

static void test_files(void **state) {
    (void)state;
    char folder[] = "/tmp/halley-tokenizer-XXXXXX", path[64];
    struct hl_tokenizer *t = NULL;
    struct hl_diag diag = {0};
    assert_non_null(mkdtemp(folder));
    assert_int_equal(hl_tokenizer_open(hl_mem_default(), folder, &t, &diag), HL_E_IO);
    assert_non_null(strstr(diag.text, "tokenizer.json: cannot open"));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    assert_int_equal(hl_tokenizer_open(hl_mem_default(), path, &t, &diag), HL_E_USER);
    assert_non_null(strstr(diag.text, "give \"byte\""));

    const char *contents[] = {"", "version https://git-lfs.github.com/spec/v1\n", "{\"model\": }",
                              "[]"};
    const char *words[] = {"is empty", "git-lfs pointer", "tokenizer.json:1:", "JSON object"};
    for (size_t i = 0; i < 4; i++) {
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        fputs(contents[i], file);
        fclose(file);
        assert_int_equal(hl_tokenizer_open(hl_mem_default(), folder, &t, &diag), HL_E_FORMAT);
        if (!strstr(diag.text, words[i])) fail_msg("%s", diag.text);
    }
    char json[4096];
    write_json(json, sizeof json, N_PARTS, "");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(json, file);
    fclose(file);
    assert_int_equal(hl_tokenizer_open(hl_mem_default(), folder, &t, &diag), HL_OK);
    hl_tokenizer_free(t);
    unlink(path);
    rmdir(folder);
}

static void test_each_prefix(void **state) {
    (void)state;
    char json[4096];
    write_json(json, sizeof json, N_PARTS, "");
    for (size_t n = 1; n < strlen(json); n++) {
        struct hl_tokenizer *t = NULL;
        assert_int_equal(hl_tokenizer_from_json(hl_mem_default(), json, n, "x", &t, NULL),
                         HL_E_FORMAT);
        assert_null(t);
    }
}

static void test_each_allocation_fails(void **state) {
    (void)state;
    char json[4096];
    write_json(json, sizeof json, ADDED, "\"added_tokens\": [" SPECIAL_TOKEN("7", "<x>") "], ");
    for (long k = 0, n = 1; k <= n; k++) {
        struct hl_mem_probe probe;
        struct hl_tokenizer *t = NULL;
        hl_mem_probe_init(&probe, k);
        enum hl_status status =
            hl_tokenizer_from_json(&probe.mem, json, strlen(json), "x", &t, NULL);
        assert_int_equal(status, k ? HL_E_MEMORY : HL_OK);
        hl_tokenizer_free(t);
        assert_int_equal(probe.n_live, 0);
        if (!k) n = probe.n_taken;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_ignore_merges),
        cmocka_unit_test(test_refused_by_name),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_added_tokens_refused),
        cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_bytes_without_token),
        cmocka_unit_test(test_write_and_read),
        cmocka_unit_test(test_blank_in_merge),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_each_prefix),
        cmocka_unit_test(test_each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
