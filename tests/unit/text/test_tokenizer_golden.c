/* Ids computed by the `tokenizers` library, replayed: tests/data/tokenizer/golden.json, made by
 * tests/golden/check_tokenizers.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "text/bpe_train.h"

static json_t *golden;
static char folder[2048];

static int load(void **state) {
    (void)state;
    const char *data = getenv("HALLEY_TEST_DATA");
    char path[2100];
    if (!data) return -1;
    snprintf(folder, sizeof folder, "%s/tokenizer", data);
    snprintf(path, sizeof path, "%s/golden.json", folder);
    golden = json_load_file(path, JSON_ALLOW_NUL, NULL);
    return golden ? 0 : -1;
}

static int unload(void **state) {
    (void)state;
    json_decref(golden);
    return 0;
}

static void check_ids(const struct hl_tokenizer *t, const json_t *text, bool specials,
                      const json_t *want) {
    struct hl_tokens tokens = {.mem = hl_mem_default()};
    struct hl_buf back = {.mem = hl_mem_default()};
    size_t n = json_string_length(text);
    assert_int_equal(hl_tokenizer_encode(t, json_string_value(text), n, specials, &tokens, NULL),
                     HL_OK);
    assert_int_equal(tokens.n, json_array_size(want));
    for (size_t i = 0; i < tokens.n; i++)
        assert_int_equal(tokens.ids[i], json_integer_value(json_array_get(want, i)));
    /* One id at a time gives the same bytes: that is how generated text is streamed. */
    for (size_t i = 0; i < tokens.n; i++)
        assert_int_equal(hl_tokenizer_decode(t, &tokens.ids[i], 1, true, &back, NULL), HL_OK);
    assert_int_equal(back.n, n);
    if (n) assert_memory_equal(back.data, json_string_value(text), n);
    hl_tokens_free(&tokens);
    hl_buf_free(&back);
}

static void check_cases(const char *key, const char *name_or_path) {
    struct hl_tokenizer *t = NULL;
    struct hl_diag diag = {0};
    if (hl_tokenizer_open(hl_mem_default(), name_or_path, &t, &diag) != HL_OK)
        fail_msg("%s", diag.text);
    const json_t *cases = json_object_get(golden, key);
    size_t i;
    json_t *item;
    assert_true(json_array_size(cases) >= 90);
    json_array_foreach(cases, i, item) {
        const json_t *ids = json_object_get(item, "ids"), *plain = json_object_get(item, "plain");
        check_ids(t, json_object_get(item, "text"), true, ids);
        check_ids(t, json_object_get(item, "text"), false, plain ? plain : ids);
    }
    hl_tokenizer_free(t);
}

static void test_byte(void **state) {
    (void)state;
    check_cases("byte", "byte");
}

static void test_trained_here(void **state) {
    (void)state;
    char path[2100];
    snprintf(path, sizeof path, "%s/trained.json", folder);
    check_cases("trained.json", path);
}

/* ---- training gives the stored file ---- */

struct one_text {
    struct hl_text_source source;
    const struct hl_buf *text;
    bool given;
};

static enum hl_status give_text(struct hl_text_source *source, const char **text, size_t *n,
                                struct hl_diag *diag) {
    (void)diag;
    struct one_text *one = (struct one_text *)source;
    if (one->given) return HL_END;
    one->given = true;
    *text = one->text->data;
    *n = one->text->n;
    return HL_OK;
}

static void read_data(struct hl_buf *out, const char *name) {
    char path[2100], part[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) hl_buf_add(out, part, n);
    fclose(file);
}

static void test_training(void **state) {
    (void)state;
    struct hl_buf text = {.mem = hl_mem_default()}, want = {.mem = hl_mem_default()},
                  got = {.mem = hl_mem_default()};
    struct one_text one = {{give_text}, &text, false};
    struct hl_tokenizer *t = NULL;
    read_data(&text, "sample.txt");
    read_data(&want, "trained.json");
    assert_int_equal(hl_bpe_train(hl_mem_default(), &one.source, 600, &t, NULL, NULL), HL_OK);
    assert_int_equal(hl_tokenizer_to_json(t, &got, NULL), HL_OK);
    assert_string_equal(got.data, want.data);
    hl_tokenizer_free(t);
    hl_buf_free(&text);
    hl_buf_free(&want);
    hl_buf_free(&got);
}

static void test_trained_by_tokenizers(void **state) {
    (void)state;
    char path[2100];
    snprintf(path, sizeof path, "%s/foreign.json", folder);
    check_cases("foreign.json", path);
}

static void test_gpt2(void **state) {
    (void)state;
    char path[2100];
    const char *shared = getenv("HALLEY_SHARED_DATA");
    snprintf(path, sizeof path, "%s/tokenizer-gpt2.json", shared ? shared : "");
    FILE *file = shared ? fopen(path, "rb") : NULL;
    if (!file) {
        print_message("SKIP: tokenizer-gpt2.json is not in HALLEY_SHARED_DATA\n");
        skip();
    }
    fclose(file);
    check_cases("tokenizer-gpt2.json", path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte),     cmocka_unit_test(test_trained_here),
        cmocka_unit_test(test_training), cmocka_unit_test(test_trained_by_tokenizers),
        cmocka_unit_test(test_gpt2),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
